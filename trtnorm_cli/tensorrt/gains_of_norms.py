"""The time of normalizations in other operators beyond that of TensorRT's own.

Its InstanceNormalization behind a convolution brings the channels to the front in one kernel and normalizes in another, or
takes five where instances are large. It never took less than to read and write all data twice, in 64 networks. Its
GroupNormalization reads and writes them once, in one kernel with another before it (docs/folding_and_kernels.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set

from trtnorm_cli.cost.device import Device
from trtnorm_cli.cost.roofline import Work, estimate
from trtnorm_cli.engine_cost.kernels import computed_in, multiplies
from trtnorm_cli.rewrite.region import RegionNode
from trtnorm_cli.rewrite.rule import Change
from trtnorm_cli.tensorrt.kernel_list import APART, ARITHMETIC, CONVOLUTIONS, KernelList, NodeGraph, idle_from, works

_KERNELS_OF_INSTANCE_NORM = 2
# The nodes of a GroupNormalization that is written with one, as PyTorch does.
_OF_GROUPS = frozenset({"InstanceNormalization", "Reshape", "Mul", "Add"})
# What it leaves to the next kernel.
_DOING_MORE = APART | ARITHMETIC | {
    *("Clip", "Erf", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Max", "Min", "Relu", "Sigmoid", "Swish", "Tanh"),
}  # fmt: skip


def gains_of_norms(norms: Sequence[Change], known: KernelList, graph: NodeGraph, device: Device) -> Iterator[float | None]:
    """The microseconds that each of ``norms`` takes beyond those of TensorRT's own normalization.

    None where it is in no kernel, or normalizes instances of what no convolution gives, or is written otherwise.
    """
    names = [{node.name for node in norm.region.after} if norm.region is not None else set[str]() for norm in norms]
    own = [_kernels_with(of_one, known) for of_one in names]
    every = frozenset[str]().union(*names)
    yield from (_gain_of_norm(norm, kernels, every, known, graph, device) for norm, kernels in zip(norms, own, strict=True))


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
    if own and _is_of_groups(before):
        return _gain_of_group_norm(own, every, known, graph, device)
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
    copying = 1e6 * estimate(Work(data, data, 0, computed_in(known.kernels[products[0]].outputs)), device).seconds
    usual = (_KERNELS_OF_INSTANCE_NORM + is_third) * copying
    return max(0.0, known.time_of(own | moving) - usual) + known.saved_without(loose)


def _is_of_groups(before: Sequence[RegionNode]) -> bool:
    """True for groups that an InstanceNormalization normalizes, with the scale and shift of each channel behind it."""
    operators = [node.operator for node in before]
    is_grouped = "Reshape" in operators and operators.count("InstanceNormalization") == 1
    return is_grouped and _OF_GROUPS.issuperset(operators)


def _gain_of_group_norm(own: Set[int], every: Set[str], known: KernelList, graph: NodeGraph, device: Device) -> float:
    """The microseconds beyond those of TensorRT's own: one kernel that reads and writes all data, and one that prepares it."""
    moving = {maker for at in own for maker in known.before(known.kernels[at]) if known.costs[maker].unasked}
    reading = (at for at in own | moving if not set(known.before(known.kernels[at])) <= own)
    data = min((known.costs[at].read for at in reading), default=0)
    kinds = computed_in([tensor for at in own for tensor in known.kernels[at].outputs])
    usual = 1e6 * (estimate(Work(data, data, 0, kinds), device).seconds + estimate(Work(0, 0, 0, kinds), device).seconds)
    loose = _loose_behind(_readers_of(own, every, known), known, graph)
    return max(0.0, known.time_of(own | moving) - usual) + known.saved_without(loose)


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
