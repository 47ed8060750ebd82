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

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import replace

import onnx

from trtnorm_cli.cost.device import Device
from trtnorm_cli.cost.roofline import Work, estimate
from trtnorm_cli.engine_cost.kernels import computed_in, multiplies, reduces, transposes
from trtnorm_cli.engine_cost.profiles import of_profile
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.parser_names import parser_name
from trtnorm_cli.records.cost import KernelCost
from trtnorm_cli.records.engine_parts import CompiledLayer, Kernel, launched
from trtnorm_cli.rewrite.before_means import has_other_means
from trtnorm_cli.rewrite.rule import Change
from trtnorm_cli.tensorrt.part_search import WORTH, Built

# Rules after which TensorRT has the same kernels as before, or fewer: it takes a BatchNormalization for a scale and a shift
# itself, and what an Expand repeats without need is written once more at most.
_SAME_KERNELS = frozenset({"batchnorm-to-scale-shift", "drop-expand"})
_OF_CONVOLUTIONS = frozenset({
    "fold-batchnorm-conv", "fold-batchnorm-conv-transpose", "fold-batchnorm-upstream", "fold-batchnorm-downstream",
}) | _SAME_KERNELS  # fmt: skip
# Rules that give convolutions and matrix products other weights, and may put several in one of them.
_INTO_PRODUCTS = "fold-scale-shift-upstream"
_INTO_WEIGHTS = _OF_CONVOLUTIONS - _SAME_KERNELS | {"fold-batchnorm-gemm", _INTO_PRODUCTS, "merge-parallel-convolutions"}
# A change of this rule is named after one of the convolutions that it may change.
_INTO_SEVERAL = "fold-batchnorm-downstream"
_CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
_PRODUCTS = _CONVOLUTIONS | {"Gemm", "MatMul"}
# Rules that write a normalization in other operators, which leave the kernels of what is around it as they are.
_IN_OTHER_OPERATORS = frozenset({"normalization-in-rows", "normalization-to-scale-shift"})
_KERNELS_OF_INSTANCE_NORM = 2
# Activations that TensorRT does not take into the kernel of a convolution.
_APART = frozenset({"Celu", "Elu", "Mish", "PRelu", "Selu", "Softplus", "ThresholdedRelu"})
_MOVING = frozenset({"Concat", "Reshape", "Slice", "Split", "Transpose"})
# What TensorRT's own InstanceNormalization leaves to the next kernel.
_DOING_MORE = _APART | {
    *("Add", "Clip", "Div", "Elu", "Erf", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu", "Max", "Min", "Mish", "Mul", "Relu"),
    *("Sigmoid", "Softplus", "Sub", "Swish", "Tanh"),
}
_ARITHMETIC = frozenset({"Add", "Div", "Mul", "Sub"})
# What may be between arithmetic that is one kernel all the same.
_TAKING_PARTS = frozenset({"Slice", "Split"})
_ON_THE_WAY = _ARITHMETIC | _MOVING | {"Cast", "Pow", "Sqrt", "Where"}
_SIZES = frozenset({"Shape", "Size"})
_POOLING = frozenset({"maxpool", "avgpool"})


def may_tell(rules: Iterable[str], model: onnx.ModelProto) -> bool:
    """True where the engine is likely to tell, after changes of these rules to ``model``.

    An activation that has a kernel of its own, and a mean that is not left to it from the start, are where it does not. Neither
    does it where additions went that stand behind the products of an attention, and move what they give to its heads; nor of an
    InstanceNormalization of one sample, for which TensorRT brings the channels to the front in any case.
    """
    rules = frozenset(rules)
    if rules <= _SAME_KERNELS:
        return True
    told = _OF_CONVOLUTIONS
    if _INTO_PRODUCTS in rules and not _has_attention(model):
        told |= {_INTO_PRODUCTS}
    if _IN_OTHER_OPERATORS & rules and _normalizes_several_samples(model):
        told |= _IN_OTHER_OPERATORS
    operators = {node.op_type for node in model.graph.node}
    return told.issuperset(rules) and operators.isdisjoint(_APART) and not has_other_means(model)


def _has_attention(model: onnx.ModelProto) -> bool:
    """True where a matrix product gives what a softmax reads, scaled, masked or moved on its way or not."""
    makers = {output: node for node in model.graph.node for output in node.output}
    to_see = [name for node in model.graph.node if node.op_type == "Softmax" for name in node.input]
    seen = set[str]()
    for name in to_see:
        maker = makers.get(name)
        if maker is None or name in seen:
            continue
        seen.add(name)
        if maker.op_type == "MatMul":
            return True
        if maker.op_type in _ON_THE_WAY:
            to_see += maker.input
    return False


def _normalizes_several_samples(model: onnx.ModelProto) -> bool:
    """True where all that is normalized are instances, of what convolutions give, and of more samples than one."""
    norms = [node for node in model.graph.node if node.op_type in ("InstanceNormalization", "GroupNormalization")]
    makers = {output: node.op_type for node in model.graph.node for output in node.output}
    shapes = {value.name: value.type.tensor_type.shape.dim for value in model.graph.value_info}
    return bool(norms) and all(
        node.op_type == "InstanceNormalization"
        and makers.get(node.input[0]) in _CONVOLUTIONS
        and any(size.dim_value > 1 for size in shapes.get(node.input[0], ())[:1])
        for node in norms
    )


def leaves_nothing_to_gain(built: Built, device: Device) -> bool:
    """True where no choice of the optional changes of ``built`` can take less time on ``device`` by what a build is worth."""
    graph = _Graph.of(built.rewriting.model)
    optional = [change for change in built.rewriting.changes if change.optional and change.rule not in _SAME_KERNELS]
    changes = [change for change in optional if not _went_on(change.tensor, change, optional, graph)]
    scales = [change for change in changes if change.in_passing and not _convolutions_of(change)]
    norms = [change for change in changes if change.rule in _IN_OTHER_OPERATORS]
    others = (change for change in changes if change not in scales and change not in norms)
    sites = {name for change in others for name in _sites_of(change, optional, graph)}
    if any(graph.operators.get(site) not in _PRODUCTS for site in sites):
        return False
    gain = 0.0
    for index, (share, costs) in enumerate(zip(built.cost.shares, built.cost.every_kernel, strict=True)):
        listed = _List.of(launched(of_profile(built.result.kernels, index)), costs)
        if listed is None:
            return False
        made = {graph.makers.get(one.tensor, "") for one in scales if not _is_in_passing(one, listed, graph)}
        loose = [_loose_beside(site, listed, graph) for site in sites | made]
        of_norms = list(_gains_of_norms(norms, listed, graph, device))
        if None in loose or None in of_norms:
            return False
        gain += share * (listed.saved_without(frozenset[int]().union(*filter(None, loose))) + sum(filter(None, of_norms)))
        gain += share * sum(max(0.0, one) for one in _gains_of_additions(listed, graph, device)) if sites else 0.0
    return gain <= WORTH * built.cost.total.us


@dataclass(frozen=True)
class _Graph:
    """The node that makes each tensor and those that read its elements, by name, the operator of each, and the results."""

    makers: Mapping[str, str]
    readers: Mapping[str, Sequence[str]]
    operators: Mapping[str, str]
    inputs: Mapping[str, Sequence[str]]
    outputs: Mapping[str, Sequence[str]]
    results: frozenset[str]

    @staticmethod
    def of(model: onnx.ModelProto) -> _Graph:
        nodes = {parser_name(node): node for node in model.graph.node}
        readers: dict[str, list[str]] = {}
        for name, node in nodes.items():
            for tensor in set(node.input) if node.op_type not in _SIZES else ():
                readers.setdefault(tensor, []).append(name)
        return _Graph(
            {tensor: name for name, node in nodes.items() for tensor in node.output},
            readers,
            {name: node.op_type for name, node in nodes.items()},
            {name: node.input for name, node in nodes.items()},
            {name: node.output for name, node in nodes.items()},
            frozenset(result.name for result in model.graph.output),
        )

    def is_concatenated(self, names: Sequence[str]) -> bool:
        """True where all that is made of these nodes goes into concatenations, or from their results into products.

        Then their kernel may write into the result of a concatenation.
        """
        own = set(names)
        left = {
            reader for name in names for tensor in self.outputs.get(name, ()) for reader in self.readers.get(tensor, ())
        } - own
        operators = {self.operators[reader] for reader in left}
        return "Concat" in operators and operators <= _PRODUCTS | {"Concat"}

    def are_transposed(self, names: Iterable[str], listed: Set[str]) -> bool:
        """True where one of these nodes reads what a Transpose gives that is not ``listed``, moved further or not."""
        to_see, seen = [tensor for name in names for tensor in self.inputs.get(name, ())], set[str]()
        for tensor in to_see:
            maker = self.makers.get(tensor, "")
            if self.operators.get(maker) not in _MOVING or maker in listed or maker in seen:
                continue
            if self.operators[maker] == "Transpose":
                return True
            seen.add(maker)
            to_see += self.inputs[maker]
        return False


@dataclass(frozen=True)
class _List:
    """The kernels of one optimization profile, with their costs; who makes each tensor, and who reads what a kernel makes.

    ``names`` are the nodes that kernels are said to come from. Several kernels may write parts of one tensor, of a
    concatenation say: ``writers`` has how many do.
    """

    kernels: Sequence[Kernel]
    costs: Sequence[KernelCost]
    makers: Mapping[str, int]
    readers: Sequence[frozenset[int]]
    names: frozenset[str]
    writers: Counter[str]

    @staticmethod
    def of(layers: Sequence[CompiledLayer], costs: Sequence[KernelCost]) -> _List | None:
        """None where not all of them were read."""
        kernels = [layer for layer in layers if isinstance(layer, Kernel)]
        if len(kernels) < len(layers):
            return None
        makers = {tensor.name: at for at, kernel in enumerate(kernels) for tensor in kernel.outputs}
        reading: dict[str, set[int]] = {}
        for at, kernel in enumerate(kernels):
            for tensor in kernel.inputs:
                reading.setdefault(tensor.name, set()).add(at)
        readers = [
            frozenset[int]().union(*(reading.get(tensor.name, ()) for tensor in kernel.outputs)) - {at}
            for at, kernel in enumerate(kernels)
        ]
        names = frozenset(name for kernel in kernels for name in kernel.onnx_nodes)
        writers = Counter(name for kernel in kernels for name in {tensor.name for tensor in kernel.outputs})
        return _List(kernels, costs, makers, readers, names, writers)

    def time_of(self, kernels: Iterable[int]) -> float:
        """The microseconds that these kernels take."""
        return sum(self.costs[at].us for at in kernels)

    def saved_without(self, kernels: Iterable[int]) -> float:
        """The most microseconds that are saved where other kernels do what these do: they write what these would have.

        Infinite where it is not known how much one of them moves.
        """
        costs = [self.costs[at] for at in kernels]
        if not all(one.read and one.written for one in costs):
            return math.inf
        return sum(one.us * (1 + max(0, one.read - one.written) / (one.read + one.written)) for one in costs)

    def before(self, kernel: Kernel) -> Iterable[int]:
        """The kernels that make what ``kernel`` reads."""
        return (self.makers[tensor.name] for tensor in kernel.inputs if tensor.name in self.makers)

    def only_moving(self, at: int) -> frozenset[int]:
        """The kernels that read what the kernel ``at`` makes and neither multiply nor reduce nor wait for others."""
        readers = (reader for reader in self.readers[at] if not self.waits(reader, at))
        return frozenset(one for one in readers if not multiplies(self.kernels[one]) and not reduces(self.kernels[one]))

    def waits(self, reader: int, at: int) -> bool:
        """True where ``reader`` reads what others make of the results of the kernel ``at``: it cannot be in that one.

        One that transposes may still leave that to it.
        """
        if transposes(self.kernels[reader]) and not reduces(self.kernels[reader]):
            return False
        others = set(self.before(self.kernels[reader])) - {at, reader}
        reached, to_see = {at, reader}, [at]
        for one in to_see:
            found = self.readers[one] - reached
            reached |= found
            to_see += found
        return not others.isdisjoint(reached)


def _went_on(tensor: str, change: Change, changes: Iterable[Change], graph: _Graph) -> bool:
    """True where another one of ``changes`` took in the ``tensor`` that this one made, so that it is asked about that one."""
    if tensor in graph.makers or not tensor:
        return False
    others = (other.region for other in changes if other is not change and other.region is not None)
    return any(tensor in node.outputs for region in others for node in region.before)


def _sites_of(change: Change, changes: Sequence[Change], graph: _Graph) -> Iterator[str]:
    """The convolutions and matrix products that ``change`` may have given other weights; "" where it is not known which."""
    maker = graph.makers.get(change.tensor, "")
    if change.rule not in _INTO_WEIGHTS:
        yield maker if graph.operators.get(maker) in _CONVOLUTIONS else ""
        return
    made = [node for node in change.region.after if node.operator in _PRODUCTS] if change.region is not None else []
    for node in made:
        if node.name in graph.operators:
            yield node.name
        elif not any(_went_on(tensor, change, changes, graph) for tensor in node.outputs):
            yield maker
    if change.rule == _INTO_SEVERAL and not made:
        yield from (name for name, operator in graph.operators.items() if operator in _CONVOLUTIONS)
    elif not made:
        yield maker


def _convolutions_of(change: Change) -> list[str]:
    """The convolutions that ``change`` has given other weights."""
    return [node.name for node in change.region.after if node.operator in _CONVOLUTIONS] if change.region else []


def _is_in_passing(change: Change, known: _List, graph: _Graph) -> bool:
    """True where what ``change`` folds would be in a kernel that is there without it.

    What makes its result now is arithmetic in its place, or gives a part of the result of such. Or it is in the kernel of the
    addition that reads it, transposed or not. Or the multiplication would be a factor of the matrix product that reads it, or
    the last of what gives a result.
    """
    if change.region is not None and all(node.operator in _ARITHMETIC | _TAKING_PARTS for node in change.region.before):
        return True
    maker, readers = graph.makers.get(change.tensor), graph.readers.get(change.tensor, ())
    if maker is None or len(readers) + (change.tensor in graph.results) != 1:
        return False
    if readers and graph.operators[readers[0]] == "Transpose":
        readers = graph.readers.get(graph.outputs[readers[0]][0], ())
        return len(readers) == 1 and _are_in_one(known, maker, readers[0])
    return not readers or graph.operators[readers[0]] == "MatMul" or _are_in_one(known, maker, readers[0])


def _gains_of_norms(norms: Sequence[Change], known: _List, graph: _Graph, device: Device) -> Iterator[float | None]:
    """The microseconds that each of ``norms`` takes beyond those of TensorRT's own InstanceNormalization behind a convolution.

    None where it stands behind no convolution, or is in no kernel.
    """
    names = [{node.name for node in norm.region.after} if norm.region is not None else set[str]() for norm in norms]
    own = [_kernels_with(of_one, known) for of_one in names]
    every = frozenset[str]().union(*names)
    yield from (_gain_of_norm(norm, kernels, every, known, graph, device) for norm, kernels in zip(norms, own, strict=True))


def _kernels_with(names: Set[str], known: _List) -> frozenset[int]:
    return frozenset(at for at, kernel in enumerate(known.kernels) if not names.isdisjoint(kernel.onnx_nodes))


def _gain_of_norm(norm: Change, own: Set[int], every: Set[str], known: _List, graph: _Graph, device: Device) -> float | None:
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
    if graph.operators.get(convolution) not in _CONVOLUTIONS or not products:
        return None
    readers = {(reader, at) for at in own for reader in known.readers[at] - _kernels_with(every, known)}
    idle = (reader for reader, at in readers if not (_works(reader, known, graph) or known.waits(reader, at)))
    loose = frozenset[int]().union(*(_idle_from(reader, known) for reader in idle))
    if len(own) <= _KERNELS_OF_INSTANCE_NORM and not moving:
        return known.saved_without(loose)
    inside = {name for at in own for name in known.kernels[at].onnx_nodes} - every
    does_more = any(graph.operators.get(name) in _DOING_MORE for name in inside)
    is_third = does_more and bool(readers) and all(multiplies(known.kernels[reader]) for reader, _ in readers)
    data = _bytes_between(products[0], own | moving, known)
    copying = 1e6 * _seconds(device, Work(data, data, 0, computed_in(known.kernels[products[0]].outputs)))
    usual = (_KERNELS_OF_INSTANCE_NORM + is_third) * copying
    return max(0.0, known.time_of(own | moving) - usual) + known.saved_without(loose)


def _bytes_between(product: int, readers: Set[int], known: _List) -> int:
    """No more than what ``product`` gives to one of ``readers``."""
    given = {tensor.name for tensor in known.kernels[product].outputs}
    reading = (at for at in readers if any(tensor.name in given for tensor in known.kernels[at].inputs))
    return min([known.costs[product].written // max(len(given), 1), *(known.costs[at].read for at in reading)])


def _are_in_one(known: _List, *names: str) -> bool:
    """True where one kernel has all of these nodes. One that multiplies matrices may have more in it without a fold."""
    return any(set(names) <= set(kernel.onnx_nodes) and not multiplies(kernel) for kernel in known.kernels)


def _loose_beside(site: str, known: _List, graph: _Graph) -> frozenset[int] | None:
    """The kernels beside ``site`` that could be part of others without the fold: their time is what there is to gain.

    None where it is in a kernel that is of no product. Beside a convolution those are kernels that only activate, or move what
    the model does not ask for. Behind a matrix product an addition may be a kernel of its own, which moves to several places at
    once: two kernels that only move may be part of it.
    """
    own = [at for at, kernel in enumerate(known.kernels) if site in kernel.onnx_nodes]
    found = [_loose_around(at, known, graph) for at in own]
    if not own or None in found:
        return None
    loose = frozenset[int]().union(*filter(None, found))
    if graph.operators.get(site) in _CONVOLUTIONS:
        return loose
    moving = (kernels for at in own if len(kernels := known.only_moving(at)) > 1)
    return loose.union(*(_idle_from(one, known) for kernels in moving for one in kernels))


def _loose_around(at: int, known: _List, graph: _Graph) -> frozenset[int] | None:
    kernel, readers = known.kernels[at], known.readers[at]
    if not multiplies(kernel):
        return None
    idle = (reader for reader in readers if not (_works(reader, known, graph) or known.waits(reader, at)))
    loose = frozenset[int]().union(*(_idle_from(reader, known) for reader in idle))
    reducing = [one for one in readers if reduces(known.kernels[one]) and not multiplies(known.kernels[one])]
    if len(reducing) > 1:  # without the fold they may be one kernel
        loose = loose.union(reducing)
    if not readers:
        is_result = any(tensor.name in graph.results for tensor in kernel.outputs)
        if not is_result and not graph.is_concatenated(kernel.onnx_nodes):
            return None
    moved = [before for before in known.before(kernel) if known.costs[before].unasked]
    is_inside = any(any(True for _ in known.before(known.kernels[before])) for before in moved)
    return loose.union(moved) if is_inside and not graph.are_transposed(kernel.onnx_nodes, known.names) else loose


def _idle_from(reader: int, known: _List) -> frozenset[int]:
    """A kernel that does no work of its own, and those behind it that do none either."""
    found, to_see = {reader}, [reader]
    for at in to_see:
        idle = {one for one in known.readers[at] - found if not _computes(known.kernels[one])}
        found |= idle
        to_see += idle
    return frozenset(found)


def _computes(kernel: Kernel) -> bool:
    return multiplies(kernel) or reduces(kernel) or kernel.type in _POOLING


def _works(at: int, known: _List, graph: _Graph) -> bool:
    """True for a kernel that multiplies, reduces, or moves as the model asks: it is one in the other engine, too.

    So is one that only brings a result of the model into the order that results have. Of several in a row that only move, one
    may do all of it where it also does what was folded.
    """
    kernel = known.kernels[at]
    if _computes(kernel):
        return True
    are_results = all(one.name in graph.results and known.writers[one.name] == 1 for one in kernel.outputs)
    if known.costs[at].unasked and not known.readers[at] and are_results:
        return True
    operators = {graph.operators.get(name) for name in kernel.onnx_nodes}
    moves = "Transpose" in operators or (bool(operators) and operators <= _MOVING and not transposes(kernel))
    return moves and not any(_only_moves(reader, known, graph) for reader in known.readers[at])


def _only_moves(at: int, known: _List, graph: _Graph) -> bool:
    kernel = known.kernels[at]
    return not _computes(kernel) and {graph.operators.get(name) for name in kernel.onnx_nodes} <= _MOVING


def _gains_of_additions(known: _List, graph: _Graph, device: Device) -> Iterable[float]:
    """The microseconds that each addition would save in the kernel of an operand, which may be activated before it is added.

    What is convolved is not told from what is added. So there may be too many, for which a second engine is built.
    """
    for at, kernel in enumerate(known.kernels):
        if not multiplies(kernel) or not any(graph.operators.get(name) == "Add" for name in kernel.onnx_nodes):
            continue
        for tensor in kernel.inputs:
            other = known.makers.get(tensor.name)
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
