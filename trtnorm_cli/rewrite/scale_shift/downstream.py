"""Find the operators after a tensor that can take a scale and shift of it, and how the graph between is made again.

All that read the tensor have to take it: the scale and shift goes forth through operators that pass it on (``carry.py``) until
weights take it (``absorb_input.py``). Nodes are visited in order of execution, so all inputs of a node are known.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.rewrite.borders import reads_shape_only
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rule import Extent, Match, NewNode, NewOutput, NewTensors
from trtnorm_cli.rewrite.scale_shift.absorb_input import absorber
from trtnorm_cli.rewrite.scale_shift.affine import Affine, CannotMove
from trtnorm_cli.rewrite.scale_shift.carry import CARRIERS
from trtnorm_cli.rewrite.scale_shift.node_queue import NodeQueue
from trtnorm_cli.rewrite.scale_shift.operation import Operation, Step, again, built, followed

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs


@dataclass
class Downstream:
    """The steps for each operator on the way, by the id of its node. ``kept`` tensors come out as they were."""

    match: Match
    source: gs.Tensor
    given: dict[int, Affine] = field(default_factory=dict)
    steps: dict[int, Step] = field(default_factory=dict)
    kept: list[gs.Tensor] = field(default_factory=list)

    @property
    def more(self) -> int:
        """How many nodes are added, the site that goes away not counted."""
        return sum(step.more for step in self.steps.values())

    def extent(self) -> Extent:
        """The nodes that are replaced, the site among them. Its root is the last of them that runs."""
        positions = self.match.borders.positions
        nodes = [self.match.root, *(node for step in self.steps.values() for node in step.nodes)]
        ordered = sorted(nodes, key=lambda node: positions[id(node)], reverse=True)
        last = max(self.kept, key=lambda tensor: positions[id(tensor.inputs[0])])
        others = tuple(tensor for tensor in self.kept if tensor is not last)
        return Extent(last.inputs[0], tuple(ordered), others, self, output=last)

    def replacement(self) -> NewTensors:
        """The operators again, with what they took in their weights."""
        made = _Remaker(self)
        return NewTensors(tuple((t, made.tensor(t)) for t in self.kept), {self.match.output.name: self.source})


def search_downstream(match: Match, source: gs.Tensor, given: Affine) -> Downstream:
    """Where the scale and shift ``given``, which the site of ``match`` applies to ``source``, can be taken. Reads only.

    Raises ``CannotMove`` when one that reads the result cannot take it.
    """
    found = _Search(match, source)
    found.give(match.output, given)
    found.run()
    return found.result


class _Search:
    def __init__(self, match: Match, source: gs.Tensor) -> None:
        self.match, self.borders = match, match.borders
        self.result = Downstream(match, source)
        self.waiting = NodeQueue()

    def give(self, tensor: gs.Tensor, given: Affine) -> None:
        if self.borders.leaves(tensor):
            raise CannotMove(f"{tensor.name} is an output of the graph")
        readers = [reader for reader in tensor.outputs if not reads_shape_only(reader)]
        if not readers:
            raise CannotMove(f"nobody reads the values of {tensor.name}")
        self.result.given[id(tensor)] = given
        for reader in readers:
            if not self.borders.are_together(reader, self.match.root):
                raise CannotMove(f"{tensor.name} is also used by {describe(reader)} in another graph")
            self.waiting.put(reader, self.borders.positions[id(reader)])

    def run(self) -> None:
        while self.waiting:
            self.visit(self.waiting.next())

    def visit(self, node: gs.Node) -> None:
        given = {i: self.result.given[id(t)] for i, t in enumerate(node.inputs) if id(t) in self.result.given}
        step = followed(self.push, node, given)
        self.result.steps[id(node)] = step
        used = [(i, t) for i, t in enumerate(step.last.outputs) if t.outputs or self.borders.leaves(t)]
        for index, tensor in used:
            passed = step.passes.get(index)
            if passed is None or passed.is_identity:
                self.result.kept.append(tensor)
            else:
                self.give(tensor, passed)

    def push(self, node: gs.Node, given: dict[int, Affine]) -> Step:
        operation = Operation(node, self.match)
        if node.domain not in DEFAULT_DOMAINS:
            raise CannotMove(f"{operation.name} is {node.domain}.{node.op}, which takes no scale and shift")
        absorb = absorber(operation)
        if absorb is not None:
            return absorb(operation, given)
        carrier = CARRIERS.get(node.op)
        if carrier is None or (carrier.data is not None and not set(given) <= set(carrier.data)):
            raise CannotMove(f"{operation.name} is {node.op}, which takes no scale and shift")
        if node.op != "Split" and any(t.outputs or self.borders.leaves(t) for t in node.outputs[1:]):
            raise CannotMove(f"a further output of {operation.name} is used")
        return Step(node, carrier.forth(operation, given), again(operation))


class _Remaker:
    """Makes the operators again, each once."""

    def __init__(self, result: Downstream) -> None:
        self.result = result
        self.steps = {id(step.last): step for step in result.steps.values()}
        self.made: dict[int, NewNode] = {}

    def tensor(self, tensor: gs.Tensor) -> Any:
        """The new producer of ``tensor``: unchanged, or without the scale and shift that moved downstream."""
        step = self.step_of(tensor)
        if step is None:
            return self.result.source if tensor is self.result.match.output else tensor
        index = next(i for i, output in enumerate(step.last.outputs) if output is tensor)
        return NewOutput(self.node(step), index)

    def step_of(self, tensor: gs.Tensor) -> Step | None:
        """The step that makes ``tensor``."""
        return self.steps.get(id(tensor.inputs[0])) if tensor.inputs else None

    def node(self, step: Step) -> NewNode:
        """The new node of ``step``, after those that feed it."""
        return built(step, self.made, self.step_of, lambda reader, index: self.tensor(reader.node.inputs[index]))
