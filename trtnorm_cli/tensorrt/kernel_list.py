"""The kernels of an engine beside the model that it was made of: which read what others make, and which do work of their own.

A kernel that multiplies, reduces, pools or interpolates is one in every engine of a model. One that only moves or activates
what another one gives may be part of a third, if what was changed leaves that to it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set

import onnx

from trtnorm_cli.engine_cost.kernels import fills_or_cuts, interpolates, multiplies, reduces, transposes
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.parser_names import parser_name
from trtnorm_cli.records.cost import KernelCost
from trtnorm_cli.records.engine_parts import CompiledLayer, Kernel

CONVOLUTIONS = frozenset({"Conv", "ConvTranspose"})
PRODUCTS = CONVOLUTIONS | {"Gemm", "MatMul"}
# Activations that TensorRT does not take into the kernel of a convolution.
APART = frozenset({"Celu", "Elu", "Mish", "PRelu", "Selu", "Softplus", "ThresholdedRelu"})
ARITHMETIC = frozenset({"Add", "Div", "Mul", "Sub"})
# TensorRT has these in the kernel of no convolution, whatever stands between.
_APART = frozenset({"PRelu", "Selu"})
MOVING = frozenset({"Concat", "Pad", "Reshape", "Slice", "Split", "Transpose"})
_PARTS = frozenset({"Slice", "Split"})
_SIZES = frozenset({"Shape", "Size"})
_POOLING = frozenset({"maxpool", "avgpool"})


@dataclass(frozen=True)
class NodeGraph:
    """The node that makes each tensor and those that read its elements, by name, the operator of each, and the results."""

    makers: Mapping[str, str]
    readers: Mapping[str, Sequence[str]]
    operators: Mapping[str, str]
    inputs: Mapping[str, Sequence[str]]
    outputs: Mapping[str, Sequence[str]]
    results: frozenset[str]

    @staticmethod
    def of(model: onnx.ModelProto) -> NodeGraph:
        nodes = {parser_name(node): node for node in model.graph.node}
        readers: dict[str, list[str]] = {}
        for name, node in nodes.items():
            for tensor in set(node.input) if node.op_type not in _SIZES else ():
                readers.setdefault(tensor, []).append(name)
        return NodeGraph(
            {tensor: name for name, node in nodes.items() for tensor in node.output},
            readers,
            {name: node.op_type for name, node in nodes.items()},
            {name: node.input for name, node in nodes.items()},
            {name: node.output for name, node in nodes.items()},
            frozenset(result.name for result in model.graph.output),
        )

    def adds_two(self, name: str) -> bool:
        """True for the addition of what two nodes give."""
        return self.operators.get(name) == "Add" and all(tensor in self.makers for tensor in self.inputs[name])

    def add_a_part(self, names: Sequence[str]) -> bool:
        """True where one of these nodes adds what others activated to a part of a tensor, which another one of them takes.

        In the other engine the product may add, and the part is copied out before, which mostly takes as long (Res2Net). Where
        nothing is activated in between, that engine may take 1 % less.
        """
        own = set(names)
        added = ({self.makers[tensor] for tensor in self.inputs[name]} for name in names if self.adds_two(name))
        return any(
            {self.operators[one] for one in makers & own} & _PARTS
            and bool(makers - own)
            and {self.operators[one] for one in makers - own}.isdisjoint(PRODUCTS | {"BatchNormalization"})
            for makers in added
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
        return "Concat" in operators and operators <= PRODUCTS | {"Concat"}

    def are_transposed(self, names: Iterable[str], listed: Set[str]) -> bool:
        """True where one of these nodes reads what a Transpose gives that is not ``listed``, moved further or not."""
        to_see, seen = [tensor for name in names for tensor in self.inputs.get(name, ())], set[str]()
        for tensor in to_see:
            maker = self.makers.get(tensor, "")
            if self.operators.get(maker) not in MOVING or maker in listed or maker in seen:
                continue
            if self.operators[maker] == "Transpose":
                return True
            seen.add(maker)
            to_see += self.inputs[maker]
        return False


@dataclass(frozen=True)
class KernelList:
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
    def of(layers: Sequence[CompiledLayer], costs: Sequence[KernelCost]) -> KernelList | None:
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
        return KernelList(kernels, costs, makers, readers, names, writers)

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
        """The kernels that read what the kernel ``at`` makes, do no work of their own and do not wait for others."""
        readers = (reader for reader in self.readers[at] if not self.waits(reader, at))
        return frozenset(one for one in readers if not _computes(self.kernels[one]))

    def fits_channels(self, at: int) -> bool:
        """True for a kernel that only fills up what a product reads, or cuts what it gives, of the same nodes as that.

        TensorRT has as many channels as are a multiple of eight in a ConvTranspose.
        """
        nodes = set(self.kernels[at].onnx_nodes)
        around = [*self.readers[at], *self.before(self.kernels[at])]
        products = (self.kernels[one].onnx_nodes for one in around if multiplies(self.kernels[one]))
        return bool(nodes) and fills_or_cuts(self.kernels[at]) and any(nodes <= set(one) for one in products)

    def moves_a_part(self, at: int) -> bool:
        """True for a kernel that only copies to or from a part of what several kernels write, as a concatenation.

        It does so in any engine: a part is copied out for a kernel that reads no other layout, and into it what others read,
        too, or what no kernel gives that multiplies.
        """
        kernel = self.kernels[at]
        if self.costs[at].unasked != "copy" or not kernel.inputs:
            return False
        if all(self.writers[tensor.name] > 1 for tensor in kernel.inputs):
            return True
        makers = set(self.before(kernel))
        is_read_elsewhere = all(self.readers[one] > {at} or not multiplies(self.kernels[one]) for one in makers)
        return bool(makers) and is_read_elsewhere and all(self.writers[tensor.name] > 1 for tensor in kernel.outputs)

    def waits(self, reader: int, at: int) -> bool:
        """True where ``reader`` reads what others make of the results of the kernel ``at``: it cannot be in that one.

        One that transposes may still leave that to it.
        """
        if transposes(self.kernels[reader]) and not reduces(self.kernels[reader]):
            return False
        return self.are_apart(reader, at)

    def grows(self, reader: int, at: int) -> bool:
        """True where ``reader`` makes something larger than all that it reads of the kernel ``at``, as in a gate."""
        read = {tensor.name for tensor in self.kernels[reader].inputs}
        taken = [math.prod(tensor.shape) for tensor in self.kernels[at].outputs if tensor.name in read]
        return bool(taken) and any(math.prod(tensor.shape) > max(taken) for tensor in self.kernels[reader].outputs)

    def are_apart(self, reader: int, at: int) -> bool:
        """True where a third kernel stands between ``at`` and its ``reader``, so that they cannot be one."""
        others = set(self.before(self.kernels[reader])) - {at, reader}
        reached, to_see = {at, reader}, [at]
        for one in to_see:
            found = self.readers[one] - reached
            reached |= found
            to_see += found
        return not others.isdisjoint(reached)


def works(at: int, known: KernelList, graph: NodeGraph) -> bool:
    """True for a kernel that multiplies, reduces, interpolates, or moves as the model asks: it is one in the other engine, too.

    So is one that only activates as no convolution does, one that fits channels to a product, one that only brings a result of
    the model into the order that results have, one that adds to a part of another tensor, and one that concatenates what
    several kernels give, whatever it does with that: it can be in none of them. Of several in a row that only move, one may do
    all of it where it also does what was folded. What is concatenated and transposed for a mean may be so in the kernel of
    that, and what is concatenated alone may be written there by the product that gives it.
    """
    kernel = known.kernels[at]
    if _computes(kernel) or known.fits_channels(at) or graph.add_a_part(kernel.onnx_nodes):
        return True
    are_results = all(one.name in graph.results and known.writers[one.name] == 1 for one in kernel.outputs)
    if known.costs[at].unasked and not known.readers[at] and are_results:
        return True
    operators, makers = {graph.operators.get(name) for name in kernel.onnx_nodes}, set(known.before(kernel))
    if operators and operators <= _APART and not transposes(kernel):
        return True
    behind = [reader for reader in known.readers[at] if not known.are_apart(reader, at)]
    joins = "Concat" in operators and len(makers) > 1
    if joins and transposes(kernel) and "Transpose" not in operators and any(_only_reduces(one, known) for one in behind):
        return False
    written_here = (one for one in makers if multiplies(known.kernels[one]) and known.readers[one] == {at})
    if operators == {"Concat"} and not transposes(kernel) and any(True for _ in written_here):
        return False
    moves = "Transpose" in operators or (bool(operators) and operators <= MOVING and not transposes(kernel))
    return (moves or joins) and not any(_only_moves(reader, known, graph) for reader in behind)


def _only_moves(at: int, known: KernelList, graph: NodeGraph) -> bool:
    kernel = known.kernels[at]
    return not _computes(kernel) and {graph.operators.get(name) for name in kernel.onnx_nodes} <= MOVING - {"Pad"}


def _only_reduces(at: int, known: KernelList) -> bool:
    return reduces(known.kernels[at]) and not multiplies(known.kernels[at])


def idle_from(reader: int, known: KernelList) -> frozenset[int]:
    """A kernel that does no work of its own, and those behind it that do none either."""
    found, to_see = {reader}, [reader]
    for at in to_see:
        idle = {one for one in known.readers[at] - found if not _computes(known.kernels[one])}
        found |= idle
        to_see += idle
    return frozenset(found)


def _computes(kernel: Kernel) -> bool:
    return multiplies(kernel) or reduces(kernel) or interpolates(kernel) or kernel.type in _POOLING
