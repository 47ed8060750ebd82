"""An engine that tells by itself that the model without optional changes would give no better one.

TensorRT for RTX makes a kernel of each convolution, with a BatchNormalization, an activation and an addition in it, whether the
BatchNormalization was folded or not. Two convolutions are never one kernel. So where a fold was made, nothing can be gained
unless a kernel beside it does no work of its own: one that only moves or activates what the convolution gives may be part of
another in the engine without folds. And an addition can be in the kernel of either operand, where it may take less time.

The same holds for a matrix product, but that what follows it may be a kernel of its own, which can move to several places at
once. A scale that was folded is made in passing where it is not: in the kernel of an addition that reads its result, or as the
factor of a matrix product.

And an InstanceNormalization behind a convolution takes a kernel of its own and one in front of it that only moves, or, where
instances are large, five. Written in other operators it leaves nothing to gain where it is in two kernels or one, or takes no
longer than to read and write all data twice.

No more can be gained than the time of the kernels that might go, and that of what would be written less. Where that is less
than another engine is worth, it does not matter that there may be fewer kernels.

Of 169 exports of timm, torchvision, transformers and MONAI with optional changes, this said so of 108. For one of them a choice
of changes takes 0.51 % less time by the estimate, for the others none takes 0.1 % less (docs/folding_and_kernels.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from trtnorm_cli.cost.device import Device
from trtnorm_cli.cost.roofline import Work, estimate
from trtnorm_cli.engine_cost.kernels import computed_in, copies, multiplies, reduces, transposes, writes_products_out
from trtnorm_cli.engine_cost.profiles import of_profile
from trtnorm_cli.records.cost import KernelCost
from trtnorm_cli.records.engine_parts import Kernel, launched
from trtnorm_cli.rewrite.rule import Change
from trtnorm_cli.tensorrt.gains_of_norms import gains_of_norms
from trtnorm_cli.tensorrt.kernel_list import (
    ARITHMETIC,
    CONVOLUTIONS,
    MOVING,
    PRODUCTS,
    KernelList,
    NodeGraph,
    idle_from,
    works,
)
from trtnorm_cli.tensorrt.part_search import WORTH, Built

# Rules after which TensorRT has the same kernels as before, or fewer: it takes a BatchNormalization for a scale and a shift
# itself, and what an Expand repeats without need is written once more at most.
SAME_KERNELS = frozenset({"batchnorm-to-scale-shift", "drop-expand"})
# So it has without a bias of zeros, where that is dropped as in passing.
ZERO_BIAS = "drop-zero-bias"
OF_CONVOLUTIONS = frozenset({
    "fold-batchnorm-conv", "fold-batchnorm-conv-transpose", "fold-batchnorm-upstream", "fold-batchnorm-downstream",
}) | SAME_KERNELS  # fmt: skip
# Rules that give convolutions and matrix products other weights, and may put several in one of them.
INTO_PRODUCTS = frozenset({"fold-scale-shift-upstream", ZERO_BIAS})
MERGED = "merge-parallel-convolutions"
_INTO_WEIGHTS = OF_CONVOLUTIONS - SAME_KERNELS | INTO_PRODUCTS | {"fold-batchnorm-gemm", MERGED}
# A rule that makes one scale and shift of several, which are one kernel either way.
ARITHMETIC_ALONE = "merge-scale-shift"
# A change of this rule is named after one of the convolutions that it may change.
_INTO_SEVERAL = "fold-batchnorm-downstream"
# Rules that write a normalization in other operators, which leave the kernels of what is around it as they are.
IN_OTHER_OPERATORS = frozenset({"normalization-in-rows", "normalization-to-scale-shift", "recompose-group-norm"})
# These move one tensor, or a part of it.
_MOVING_ONE = MOVING - {"Concat"}
# A product and what scales its result.
_PRODUCT_AND_SCALE = 2
# What these read they may scale themselves.
_SCALING = frozenset({"MatMul", "Softmax"})
# The inputs of a convolution that has no bias.
_WITHOUT_BIAS = 2
# What is one kernel all the same where parts are taken in between.
_ARITHMETIC_ON_PARTS = ARITHMETIC | {"BatchNormalization", "Slice", "Split"}


def leaves_nothing_to_gain(built: Built, device: Device) -> bool:
    """True where no choice of the optional changes of ``built`` can take less time on ``device`` by what a build is worth."""
    graph = NodeGraph.of(built.rewriting.model)
    optional = [change for change in built.rewriting.changes if change.optional and not _gives_the_same_kernels(change)]
    free = _costing_nothing(optional, graph)
    same = _made_by_tensorrt(optional, graph)
    asked = (change for change in optional if id(change) not in same)
    changes = [change for change in asked if not _went_on(change.tensor, change, optional, graph)]
    scales = [one for one in changes if id(one) in free and not _convolutions_of(one)]
    norms = [change for change in changes if change.rule in IN_OTHER_OPERATORS]
    others = (change for change in changes if change not in scales and change not in norms)
    sites = {name for change in others for name in _sites_of(change, optional, graph)}
    if any(graph.operators.get(site) not in PRODUCTS for site in sites):
        return False
    gain = 0.0
    for index, (share, costs) in enumerate(zip(built.cost.shares, built.cost.every_kernel, strict=True)):
        listed = KernelList.of(launched(of_profile(built.result.kernels, index)), costs)
        if listed is None:
            return False
        made = {_maker_of(one.tensor, listed, graph) for one in scales if not _is_in_passing(one, listed, graph)}
        loose = [_loose_beside(site, listed, graph) for site in sites | made]
        of_norms = list(gains_of_norms(norms, listed, graph, device))
        if None in loose or None in of_norms:
            return False
        gain += share * (listed.saved_without(frozenset[int]().union(*filter(None, loose))) + sum(filter(None, of_norms)))
        gain += share * sum(max(0.0, one) for one in _gains_of_additions(listed, graph, device)) if sites else 0.0
    return gain <= WORTH * built.cost.total.us


def _went_on(tensor: str, change: Change, changes: Iterable[Change], graph: NodeGraph) -> bool:
    """True where another one of ``changes`` took in the ``tensor`` that this one made, so that it is asked about that one."""
    if tensor in graph.makers or not tensor:
        return False
    others = (other.region for other in changes if other is not change and other.region is not None)
    return any(tensor in node.outputs for region in others for node in region.before)


def _gives_the_same_kernels(change: Change) -> bool:
    return change.rule in SAME_KERNELS or (change.rule == ZERO_BIAS and change.in_passing)


def _taken_by(change: Change) -> list[str]:
    """The tensors that the nodes gave that ``change`` took out."""
    return [tensor for node in change.region.before for tensor in node.outputs] if change.region is not None else []


def _is_first_bias(change: Change) -> bool:
    """True where an addition became the bias of a convolution that had none. TensorRT makes it one itself."""
    before = change.region.before if change.region is not None else ()
    is_behind_one = [node.operator for node in before] in (["Conv", "Add"], ["ConvTranspose", "Add"])
    return is_behind_one and sum(map(bool, before[0].inputs)) == _WITHOUT_BIAS


def _costing_nothing(changes: Iterable[Change], graph: NodeGraph) -> set[int]:
    """The ``id`` of each of ``changes``, in their order, that is made in passing or is arithmetic in its place, where all of
    those before that it took in are, too."""
    found = set[int]()
    costs: dict[str, bool] = {}  # of the tensors that changes made and later ones took in
    for change in changes:
        is_free = (change.in_passing or _is_arithmetic(change)) and not any(
            costs.get(tensor, False) for tensor in _taken_by(change)
        )
        if is_free:
            found.add(id(change))
        if change.tensor not in graph.makers:
            costs[change.tensor] = costs.get(change.tensor, False) or not is_free
    return found


def _made_by_tensorrt(changes: Iterable[Change], graph: NodeGraph) -> set[int]:
    """The ``id`` of each of ``changes``, in their order, that TensorRT makes itself, as all of those before that it took in."""
    found, same = set[int](), dict[str, bool]()
    for change in changes:
        is_same = _is_first_bias(change) or (change.in_passing and _is_of_attention(change, graph))
        is_same = is_same and all(same.get(tensor, True) for tensor in _taken_by(change))
        if is_same:
            found.add(id(change))
        if change.tensor not in graph.makers:
            same[change.tensor] = same.get(change.tensor, True) and is_same
    return found


def _sites_of(change: Change, changes: Sequence[Change], graph: NodeGraph) -> Iterator[str]:
    """The convolutions and matrix products that ``change`` may have given other weights; "" where it is not known which."""
    maker = graph.makers.get(change.tensor, "")
    if change.rule not in _INTO_WEIGHTS:
        yield maker if graph.operators.get(maker) in CONVOLUTIONS else ""
        return
    made = [node for node in change.region.after if node.operator in PRODUCTS] if change.region is not None else []
    for node in made:
        if node.name in graph.operators:
            yield node.name
        elif not any(_went_on(tensor, change, changes, graph) for tensor in node.outputs):
            yield maker
    if change.rule == _INTO_SEVERAL and not made:
        yield from (name for name, operator in graph.operators.items() if operator in CONVOLUTIONS)
    elif not made:
        yield maker


def _is_of_attention(change: Change, graph: NodeGraph) -> bool:
    """True where what a product or a softmax alone reads was scaled, and products took that through other nodes."""
    readers = graph.readers.get(change.tensor, ())
    if len(readers) == 1 and graph.operators[readers[0]] == "Transpose":
        readers = graph.readers.get(graph.outputs[readers[0]][0], ())
    is_scaled_there = len(readers) == 1 and graph.operators[readers[0]] in _SCALING
    return is_scaled_there and change.region is not None and len(change.region.before) > _PRODUCT_AND_SCALE


def _convolutions_of(change: Change) -> list[str]:
    """The convolutions that ``change`` has given other weights."""
    return [node.name for node in change.region.after if node.operator in CONVOLUTIONS] if change.region else []


def _is_in_passing(change: Change, known: KernelList, graph: NodeGraph) -> bool:
    """True where what ``change`` folds would be in a kernel that is there without it.

    What makes its result now is arithmetic in its place, or gives a part of the result of such. Or it is in the kernel of the
    addition that reads it, transposed or not; or that is in a kernel without products, which would have the scale, too. Or
    the multiplication would be a factor of the matrix product that reads it, or the last of what gives a result.
    """
    if _is_arithmetic(change):
        return True
    maker, readers = _maker_of(change.tensor, known, graph), graph.readers.get(change.tensor, ())
    if not maker or len(readers) + (change.tensor in graph.results) != 1:
        return False
    if readers and graph.operators[readers[0]] == "Transpose":
        readers = graph.readers.get(graph.outputs[readers[0]][0], ())
        return len(readers) == 1 and _are_in_one(known, maker, readers[0])
    if not readers or graph.operators[readers[0]] == "MatMul" or _are_in_one(known, maker, readers[0]):
        return True
    return graph.operators[readers[0]] in ARITHMETIC and _is_in_a_generated_kernel(readers[0], known)


def _maker_of(tensor: str, known: KernelList, graph: NodeGraph) -> str:
    """The node that makes ``tensor``, or what that moves where it takes no kernel, as most Reshapes do not; "" for none."""
    maker = graph.makers.get(tensor, "")
    while graph.operators.get(maker) in _MOVING_ONE and maker not in known.names:
        maker = graph.makers.get(graph.inputs[maker][0], "")
    return maker


def _is_arithmetic(change: Change) -> bool:
    """True where what was changed is arithmetic in its place, a BatchNormalization of what such gives among it."""
    operators = [] if change.region is None else [node.operator for node in change.region.before]
    return operators[:1] != ["BatchNormalization"] and bool(operators) and _ARITHMETIC_ON_PARTS.issuperset(operators)


def _are_in_one(known: KernelList, *names: str) -> bool:
    """True where one kernel has all of these nodes. One that multiplies matrices may have more in it without a fold."""
    return any(set(names) <= set(kernel.onnx_nodes) and not multiplies(kernel) for kernel in known.kernels)


def _is_in_a_generated_kernel(node: str, known: KernelList) -> bool:
    """True where ``node`` is in kernels that multiply no matrices, and transpose nothing that the model does not."""
    having = [kernel for kernel in known.kernels if node in kernel.onnx_nodes]
    return bool(having) and not any(multiplies(kernel) or transposes(kernel) for kernel in having)


def _loose_beside(site: str, known: KernelList, graph: NodeGraph) -> frozenset[int] | None:
    """The kernels beside ``site`` that could be part of others without the fold: their time is what there is to gain.

    None where it is in a kernel that is of no product, but for one that reads the product, to add its bias. TensorRT writes a
    matrix product of few terms or of one row out as multiplications and additions, in a kernel that is as good. Beside a
    convolution those are kernels that only activate, or move what the model does not ask for. Behind a matrix product an
    addition may be a kernel of its own, which moves to several places at once: two kernels that only move may be part of it.
    """
    every = [at for at, kernel in enumerate(known.kernels) if site in kernel.onnx_nodes and not known.fits_channels(at)]
    is_convolution = graph.operators.get(site) in CONVOLUTIONS
    is_written_out = not is_convolution and len(every) == 1 and writes_products_out(known.kernels[every[0]])
    own = [at for at in every if multiplies(known.kernels[at]) or is_written_out]
    if not own or not frozenset(every) - set(own) <= frozenset[int]().union(*(known.readers[at] for at in own)):
        return None
    found = [_loose_around(at, known, graph) for at in own]
    if None in found:
        return None
    loose = frozenset[int]().union(*filter(None, found))
    if is_convolution:
        return loose
    if is_written_out:  # a mean of its result is in the kernel of what was folded, and else in one of its own
        loose = loose.union(
            reader
            for at in own
            for reader in known.readers[at]
            if copies(known.kernels[reader]) and set(known.before(known.kernels[reader])) <= {at}
        )
    moving = (kernels for at in own if len(kernels := known.only_moving(at)) > 1)
    return loose.union(*(idle_from(one, known) for kernels in moving for one in kernels))


def _loose_around(at: int, known: KernelList, graph: NodeGraph) -> frozenset[int] | None:
    """Those beside the kernel ``at``; None where nobody reads it that is known."""
    kernel, readers = known.kernels[at], known.readers[at]
    waiting = (
        reader
        for reader in readers
        if not (works(reader, known, graph) or known.waits(reader, at) or _applies_a_gate(reader, at, known, graph))
    )
    idle = (reader for reader in waiting if not known.moves_a_part(reader))
    loose = frozenset[int]().union(*(idle_from(reader, known) for reader in idle))
    ready = (one for one in readers if not known.are_apart(one, at))
    reducing = [
        one for one in ready if reduces(known.kernels[one]) and not multiplies(known.kernels[one]) and not known.grows(one, at)
    ]
    # Without the fold they may be one kernel, which takes as long as the longest of them.
    loose = loose.union(sorted(reducing, key=lambda one: known.costs[one].us)[:-1])
    if not readers:
        is_result = any(tensor.name in graph.results for tensor in kernel.outputs)
        if not is_result and not graph.is_concatenated(kernel.onnx_nodes):
            return None
    moved = [before for before in known.before(kernel) if known.costs[before].unasked and not known.moves_a_part(before)]
    is_inside = any(any(True for _ in known.before(known.kernels[before])) for before in moved)
    return loose.union(moved) if is_inside and not graph.are_transposed(kernel.onnx_nodes, known.names) else loose


def _applies_a_gate(reader: int, at: int, known: KernelList, graph: NodeGraph) -> bool:
    """True for arithmetic on larger tensors than what the kernel ``at`` gives: it can be part of no convolution."""
    kernel = known.kernels[reader]
    operators = {graph.operators.get(name) for name in kernel.onnx_nodes}
    return bool(operators) and operators <= ARITHMETIC and not transposes(kernel) and known.grows(reader, at)


def _gains_of_additions(known: KernelList, graph: NodeGraph, device: Device) -> Iterable[float]:
    """The microseconds that each addition would save in the kernel of an operand, which may be activated before it is added.

    What is convolved is not told from what is added. So there may be too many, for which a second engine is built. What is both
    has to be there before it is convolved.
    """
    for at, kernel in enumerate(known.kernels):
        if not multiplies(kernel) or not any(graph.adds_two(name) for name in kernel.onnx_nodes):
            continue
        times = Counter(tensor.name for tensor in kernel.inputs)
        for tensor in kernel.inputs:
            other = known.makers.get(tensor.name) if times[tensor.name] == 1 else None
            if other is None or known.readers[other] != {at} or not multiplies(known.kernels[other]):
                continue
            if [one.shape for one in known.kernels[other].outputs] == [one.shape for one in kernel.outputs] == [tensor.shape]:
                added = known.costs[other].written
                with_it, without = _work(kernel, known.costs[at]), _work(known.kernels[other], known.costs[other])
                moved = replace(with_it, read=with_it.read - added), replace(without, read=without.read + added)
                yield 1e6 * (_seconds(device, with_it, without) - _seconds(device, *moved))


def _work(kernel: Kernel, cost: KernelCost) -> Work:
    return Work(cost.read, cost.written, cost.operations, computed_in((*kernel.outputs, *kernel.inputs)))


def _seconds(device: Device, *works: Work) -> float:
    return sum(estimate(work, device).seconds for work in works)
