"""The time of normalizations in other operators beyond that of TensorRT's own.

Its InstanceNormalization behind a convolution brings the channels to the front in one kernel and normalizes in another, or
takes five where instances are large. It never took less than to read and write all data twice, in 64 networks. Its
GroupNormalization reads them once and writes them, activated or not or both, in one kernel with another before it. What is
added to its result takes a kernel more (docs/folding_and_kernels.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence, Set

from trtnorm_cli.cost.device import Device
from trtnorm_cli.cost.roofline import Work, estimate
from trtnorm_cli.engine_cost.kernels import computed_in, multiplies
from trtnorm_cli.records.engine_parts import KernelTensor
from trtnorm_cli.rewrite.rule import Change
from trtnorm_cli.tensorrt.kernel_list import APART, ARITHMETIC, CONVOLUTIONS, KernelList, NodeGraph, idle_from, works

_KERNELS_OF_INSTANCE_NORM = 2
_NEARLY = 0.05  # Parameters are read beside the data.
# The nodes of a GroupNorm that is written with an InstanceNormalization, as PyTorch does.
_OF_GROUPS = frozenset({"InstanceNormalization", "Reshape", "Mul", "Add"})
# What an InstanceNormalization leaves to the next kernel.
_DOING_MORE = APART | ARITHMETIC | {
    *("Clip", "Erf", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Max", "Min", "Relu", "Sigmoid", "Swish", "Tanh"),
}  # fmt: skip


def gains_of_norms(norms: Sequence[Change], known: KernelList, graph: NodeGraph, device: Device) -> Iterator[float | None]:
    """The microseconds that each of ``norms`` takes beyond those of TensorRT's own normalization, or those in the same kernels.

    None where it is in no kernel, or normalizes instances of what no convolution gives, or is written otherwise.
    """
    names = [{node.name for node in norm.region.after} if norm.region is not None else set[str]() for norm in norms]
    own = [_kernels_with(of_one, known) for of_one in names]
    every = frozenset[str]().union(*names)
    of_groups = [(norm, kernels) for norm, kernels in zip(norms, own, strict=True) if kernels and _is_of_groups(norm)]
    for together, kernels in _in_the_same_kernels(of_groups):
        yield _gain_of_group_norms(together, kernels, every, known, graph, device)
    for norm, kernels in zip(norms, own, strict=True):
        if not (kernels and _is_of_groups(norm)):
            yield _gain_of_norm(norm, kernels, every, known, graph, device)


def _in_the_same_kernels(norms: Sequence[tuple[Change, frozenset[int]]]) -> list[tuple[list[Change], frozenset[int]]]:
    """The ``norms``, each with its kernels, put together where they have kernels in common."""
    found: list[tuple[list[Change], frozenset[int]]] = []
    for norm, kernels in norms:
        shared = [entry for entry in found if not entry[1].isdisjoint(kernels)]
        found = [entry for entry in found if entry not in shared]
        changes = [change for those, _ in shared for change in those]
        found.append(([*changes, norm], kernels.union(*(those for _, those in shared))))
    return found


def _kernels_with(names: Set[str], known: KernelList) -> frozenset[int]:
    return frozenset(at for at, kernel in enumerate(known.kernels) if not names.isdisjoint(kernel.onnx_nodes))


def _gain_of_norm(
    norm: Change, own: Set[int], every: Set[str], known: KernelList, graph: NodeGraph, device: Device
) -> float | None:
    """That for one normalization, which is in its ``own`` kernels. ``every`` are the nodes of all normalizations.

    TensorRT's own brings the channels to the front in one kernel and normalizes in another. What is activated or added in the
    kernels of ``norm``, and read by products, takes it a third one. Where ``norm`` takes no more kernels it never took longer.
    """
    before = norm.region.before if norm.region is not None else ()
    if not own or [node.operator for node in before] != ["InstanceNormalization"]:
        return None
    convolution = graph.makers.get(before[0].inputs[0], "")
    makers = {maker for at in own for maker in known.before(known.kernels[at])} - own
    moving = {maker for maker in makers if known.costs[maker].unasked}
    makers |= {maker for at in moving for maker in known.before(known.kernels[at])}
    products = [at for at in makers if multiplies(known.kernels[at]) and convolution in known.kernels[at].onnx_nodes]
    if graph.operators.get(convolution) not in CONVOLUTIONS or not products:
        return None
    readers = _readers_of(own, every, known)
    loose = _loose_behind(readers, known, graph)
    if len(own) <= _KERNELS_OF_INSTANCE_NORM and not moving:
        return known.saved_without(loose)
    inside = {name for at in own for name in known.kernels[at].onnx_nodes} - every
    does_more = any(graph.operators.get(name) in _DOING_MORE for name in inside)
    is_third = does_more and bool(readers) and all(multiplies(known.kernels[reader]) for reader, _ in readers)
    data = _bytes_between(products[0], own | moving, known)
    copying = _microseconds(Work(data, data, 0, computed_in(known.kernels[products[0]].outputs)), device)
    usual = (_KERNELS_OF_INSTANCE_NORM + is_third) * copying
    return max(0.0, known.time_of(own | moving) - usual) + known.saved_without(loose)


def _is_of_groups(norm: Change) -> bool:
    """True for a GroupNormalization, or an InstanceNormalization of groups with scale and shift of each channel behind it."""
    operators = [node.operator for node in norm.region.before] if norm.region is not None else []
    is_grouped = "Reshape" in operators and operators.count("InstanceNormalization") == 1
    return operators == ["GroupNormalization"] or (is_grouped and _OF_GROUPS.issuperset(operators))


def _gain_of_group_norms(
    norms: Sequence[Change], own: Set[int], every: Set[str], known: KernelList, graph: NodeGraph, device: Device
) -> float:
    """The microseconds of ``norms`` in their ``own`` kernels beyond those of TensorRT's own GroupNormalizations.

    Each of these is a kernel that reads and writes all data, and one that prepares it.
    """
    inside = own | {maker for at in own for maker in known.before(known.kernels[at]) if known.costs[maker].unasked}
    reading = (at for at in inside if not set(known.before(known.kernels[at])) <= own)
    data = min((_largest(known.kernels[at].inputs, known.costs[at].read) for at in reading), default=0)
    kind = computed_in([tensor for at in own for tensor in known.kernels[at].outputs])
    usual = len(norms) * (_microseconds(Work(data, data, 0, kind), device) + _microseconds(Work(0, 0, 0, kind), device))
    more = _work_behind(norms, inside, data, kind, known, graph)
    if more is not None:
        usual += _microseconds(more, device)
    loose = _loose_behind(_readers_of(own, every, known), known, graph)
    return max(0.0, known.time_of(inside) - usual) + known.saved_without(loose)


def _largest(tensors: Iterable[KernelTensor], together: int) -> int:
    """The bytes of the largest of ``tensors``, which have so many ``together``; of open sizes the others count."""
    sizes = [math.prod(abs(size) for size in tensor.shape) for tensor in tensors]
    return together * max(sizes, default=0) // max(sum(sizes), 1)


def _work_behind(
    norms: Sequence[Change], inside: Set[int], data: int, kind: str, known: KernelList, graph: NodeGraph
) -> Work | None:
    """The work in the kernels ``inside`` that joins the results of ``norms`` with each other or with what is from elsewhere.

    TensorRT's own leave it to one kernel more, which reads all of that. None where there is no such work, or where other
    kernels could do it: something is done with the data before they are normalized, or what comes from elsewhere is given by a
    product, whose kernel could as well add the results to it.
    """
    given_data = {graph.makers.get(norm.region.before[0].inputs[0], "") for norm in norms if norm.region is not None}
    products = {maker for at in inside for maker in known.before(known.kernels[at]) if multiplies(known.kernels[maker])}
    is_before = any(not given_data.isdisjoint(known.kernels[at].onnx_nodes) for at in inside)
    if is_before or len(products) > len(norms):
        return None
    within = sum(known.costs[at].written * len(known.readers[at] & inside) for at in inside)
    read = sum(known.costs[at].read for at in inside) - within
    if len(norms) == 1 and read <= (1 + _NEARLY) * data:
        return None
    given = max((_largest(known.kernels[at].outputs, known.costs[at].written) for at in inside), default=0)
    return Work(max(read, len(norms) * data), given, 0, kind)


def _microseconds(work: Work, device: Device) -> float:
    return 1e6 * estimate(work, device).seconds


def _readers_of(own: Set[int], every: Set[str], known: KernelList) -> set[tuple[int, int]]:
    """The kernels that read what those of a normalization make, each with the one that it reads, but for other normalizations.

    ``every`` are the nodes of all normalizations.
    """
    normalizing = _kernels_with(every, known)
    return {(reader, at) for at in own for reader in known.readers[at] - normalizing}


def _loose_behind(readers: Set[tuple[int, int]], known: KernelList, graph: NodeGraph) -> frozenset[int]:
    """Those of ``readers`` that could be part of other kernels, and what is behind them and could be."""
    idle = (reader for reader, at in readers if not (works(reader, known, graph) or known.waits(reader, at)))
    return frozenset[int]().union(*(idle_from(reader, known) for reader in idle))


def _bytes_between(product: int, readers: Set[int], known: KernelList) -> int:
    """No more than what ``product`` gives to one of ``readers``."""
    given = {tensor.name for tensor in known.kernels[product].outputs}
    reading = (at for at in readers if any(tensor.name in given for tensor in known.kernels[at].inputs))
    return min([known.costs[product].written // max(len(given), 1), *(known.costs[at].read for at in reading)])
