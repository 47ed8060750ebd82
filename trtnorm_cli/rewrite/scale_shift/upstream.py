"""Find the operators before a tensor that can take a scale and shift of it, and how the graph between is made again.

The demand starts at the tensor and goes back through operators that pass it on (``carry.py``) until weights and constants
take all of it (``absorb_output.py``). Nodes are visited in reverse order of execution, so all that read a tensor have said
what they need before its producer is asked.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.rewrite.borders import reads_shape_only
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rule import Extent, Match, NewConstant, NewNode, NewOutput, NewTensors
from trtnorm_cli.rewrite.scale_shift.absorb_output import WEIGHTED, absorber
from trtnorm_cli.rewrite.scale_shift.affine import Affine, CannotMove, identity
from trtnorm_cli.rewrite.scale_shift.carry import CARRIERS
from trtnorm_cli.rewrite.scale_shift.node_queue import NodeQueue
from trtnorm_cli.rewrite.scale_shift.operation import Operation, Step, again, built, followed

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs


@dataclass(frozen=True)
class Demand:
    """A scale and shift that ``tensor`` has to provide. ``partial`` is set behind a Concat: it may be left to a new node."""

    tensor: gs.Tensor
    wanted: Affine
    partial: bool


@dataclass
class Upstream:
    """The steps for each operator on the way, by the id of its node, and the demands that nobody took."""

    match: Match
    demands: dict[int, Demand] = field(default_factory=dict)
    steps: dict[int, Step] = field(default_factory=dict)
    rests: list[Demand] = field(default_factory=list)
    kept: list[gs.Tensor] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)

    @property
    def more(self) -> int:
        """How many nodes are added, the site that goes away not counted."""
        return sum(step.more for step in self.steps.values()) + len(self.rests)

    @property
    def absorbs(self) -> bool:
        return any(step.absorbs for step in self.steps.values())

    def operations(self) -> list[Operation]:
        """The operators that take a part of the scale and shift."""
        return [Operation(step.node, self.match) for step in self.steps.values() if step.absorbs]

    def extent(self) -> Extent:
        """The nodes that are replaced, the site among them."""
        site, borders = self.match.root, self.match.borders
        nodes = {id(node): node for node in (site, *(node for step in self.steps.values() for node in step.nodes))}
        ordered = sorted(nodes.values(), key=lambda node: borders.positions[id(node)], reverse=True)
        return Extent(site, tuple(ordered), tuple(self.kept), self)

    def replacement(self) -> NewTensors:
        """The operators again, with what they took in their weights."""
        made = _Remaker(self)
        data = next(iter(self.demands.values())).tensor
        return NewTensors(((self.match.output, made.tensor(data)), *((tensor, made.tensor(tensor)) for tensor in self.kept)))


class UpstreamSearch:
    """Where a demand can be taken. Reads only. ``met_weights`` tells afterwards whether it came to an operator with weights."""

    def __init__(self, match: Match) -> None:
        self.match, self.borders = match, match.borders
        self.result = Upstream(match)
        self.met_weights = False
        self.waiting = NodeQueue()

    def find(self, data: gs.Tensor, wanted: Affine) -> Upstream:
        """Where the demand ``wanted`` on ``data``, which the site of the match reads, can be taken.

        Raises ``CannotMove`` when a part of it can be taken by nobody. At most one branch of a Concat may be left over.
        """
        self.ask(data, wanted, False, force=True)
        while self.waiting:
            self.visit(self.waiting.next())
        if len(self.result.rests) > 1 or not self.result.absorbs:
            raise CannotMove("; ".join(dict.fromkeys(self.result.reasons)) or "nothing before it has weights")
        self.require_one_demand()
        return self.result

    def require_one_demand(self) -> None:
        """Raise ``CannotMove`` where several demands are made on a constant or on what is left to a new node."""
        for step in self.result.steps.values():
            for index, asked in step.passes.items():
                tensor = step.node.inputs[index]
                demand = self.result.demands.get(id(tensor))
                if demand is not None and not asked.is_identity and not _equal(asked, demand.wanted):
                    raise CannotMove(f"{tensor.name} would have to be scaled and shifted in several ways")

    def ask(self, tensor: gs.Tensor, wanted: Affine, partial: bool, force: bool = False) -> None:
        if wanted.is_identity and not force:
            return
        demand = Demand(tensor, wanted, partial)
        if id(tensor) in self.result.demands:
            return  # that all demands on a tensor agree is looked at afterwards
        self.result.demands[id(tensor)] = demand
        if self.match.surgery.is_constant(tensor):
            self.scale_constant(demand)
            return
        if not tensor.inputs:
            self.leave(demand, f"{tensor.name} is an input of its graph")
            return
        producer = tensor.inputs[0]
        self.waiting.put(producer, -self.borders.positions[id(producer)])

    def scale_constant(self, demand: Demand) -> None:
        """A constant branch is scaled right away."""
        value = self.match.surgery.constant(demand.tensor)
        if value is None or not np.all(np.isfinite(_folded(value, demand).astype(np.float64))):
            self.leave(demand, f"{demand.tensor.name} is a constant that cannot be scaled")

    def visit(self, node: gs.Node) -> None:
        demands = {i: self.result.demands[id(t)] for i, t in enumerate(node.outputs) if id(t) in self.result.demands}
        self.met_weights |= node.op in WEIGHTED
        others = [t for i, t in enumerate(node.outputs) if i not in demands and self.is_used(t)]
        try:
            siblings = [step for demand in demands.values() for step in self.readers(node, demand)]
            step = followed(self.pull, node, {index: demand.wanted for index, demand in demands.items()}, others)
        except CannotMove as reason:
            for demand in demands.values():
                self.leave(demand, str(reason))
            return
        self.take(step)
        for sibling in siblings:
            self.take(sibling)
            self.result.kept.extend(sibling.node.outputs)
        self.result.kept.extend(others)
        partial = node.op == "Concat" or any(demand.partial for demand in demands.values())
        for index, wanted in step.passes.items():
            self.ask(node.inputs[index], wanted, partial)

    def take(self, step: Step) -> None:
        self.result.steps[id(step.node)] = step

    def leave(self, demand: Demand, reason: str) -> None:
        """Nobody takes ``demand``. Behind a Concat a new node for it is smaller than the site was; else it saves nothing."""
        if not demand.partial or not is_one_node(self.match, demand):
            raise CannotMove(reason)
        self.result.rests.append(demand)
        self.result.reasons.append(reason)

    def is_used(self, tensor: gs.Tensor) -> bool:
        return bool(tensor.outputs) or self.borders.leaves(tensor)

    def readers(self, producer: gs.Node, demand: Demand) -> list[Step]:
        """Further operators that have to be made again because they read the tensor; raises ``CannotMove`` if one minds."""
        tensor = demand.tensor
        if self.borders.leaves(tensor):
            raise CannotMove(f"{tensor.name} is an output of the graph")
        if not self.borders.are_together(producer, self.match.root):
            raise CannotMove(f"{describe(producer)} belongs to an outer graph")
        return [step for reader in tensor.outputs for step in self.reader(reader, demand)]

    def reader(self, reader: gs.Node, demand: Demand) -> list[Step]:
        if reader is self.match.root or reads_shape_only(reader):
            return []
        places = [index for index, tensor in enumerate(reader.inputs) if tensor is demand.tensor]
        step = self.result.steps.get(id(reader))
        if step is not None and all(_equal(step.passes.get(index), demand.wanted) for index in places):
            return []
        sibling = self.selects_other_elements(reader, demand) if step is None else None
        if sibling is None:
            raise CannotMove(f"{demand.tensor.name} is also used by {describe(reader)}")
        return [sibling]

    def selects_other_elements(self, reader: gs.Node, demand: Demand) -> Step | None:
        """``reader`` again, when it passes on only elements that the demand leaves as they are."""
        selects = reader.op in ("Slice", "Gather", "Split") and reader.domain in DEFAULT_DOMAINS
        if not selects or not self.borders.are_together(reader, self.match.root):
            return None
        try:
            results = CARRIERS[reader.op].forth(Operation(reader, self.match), {0: demand.wanted})
        except CannotMove:
            return None
        untouched = all(result.is_identity for result in results.values())
        return Step(reader, {}, again(Operation(reader, self.match))) if untouched else None

    def pull(self, node: gs.Node, wanted: dict[int, Affine], others: list[gs.Tensor]) -> Step:
        operation = Operation(node, self.match)
        if node.domain not in DEFAULT_DOMAINS:
            raise CannotMove(f"{operation.name} is {node.domain}.{node.op}, which takes no scale and shift")
        if node.op != "Split" and (set(wanted) != {0} or others):
            raise CannotMove(f"a further output of {operation.name} is used")
        absorb = absorber(operation)
        if absorb is not None:
            return absorb(operation, wanted[0])
        carrier = CARRIERS.get(node.op)
        if carrier is None:
            raise CannotMove(f"{operation.name} is {node.op}, which takes no scale and shift")
        return Step(node, carrier.back(operation, wanted), again(operation))


def _equal(one: Affine | None, other: Affine) -> bool:
    given = identity(other.rank) if one is None else one
    return bool(np.array_equal(given.scale, other.scale) and np.array_equal(given.shift, other.shift))


class _Remaker:
    """Makes the operators again, each once."""

    def __init__(self, result: Upstream) -> None:
        self.result = result
        self.rests = {id(demand.tensor): self.rest(demand) for demand in result.rests}
        self.made: dict[int, NewNode] = {}

    def input(self, step: Step, index: int) -> Any:
        """The input of the new node; without a demand on it, what is constant or left to a new node stays."""
        tensor, asked = step.node.inputs[index], step.passes.get(index)
        if self.step_of(tensor) is None and (asked is None or asked.is_identity):
            return tensor
        return self.tensor(tensor)

    def tensor(self, tensor: gs.Tensor) -> Any:
        """The new producer of ``tensor``, with its demand fulfilled."""
        if id(tensor) in self.rests:
            return self.rests[id(tensor)]
        step = self.step_of(tensor)
        if step is not None:
            index = next(i for i, output in enumerate(step.node.outputs) if output is tensor)
            return NewOutput(self.node(step), index)
        demand = self.result.demands.get(id(tensor))
        return tensor if demand is None else self.constant(demand)

    def step_of(self, tensor: gs.Tensor) -> Step | None:
        """The step that makes ``tensor``, unless its demand is left to a new node."""
        if id(tensor) in self.rests or not tensor.inputs:
            return None
        return self.result.steps.get(id(tensor.inputs[0]))

    def node(self, step: Step) -> NewNode:
        """The new node of ``step``, after those that feed it."""
        return built(step, self.made, self.step_of, self.input)

    def constant(self, demand: Demand) -> NewConstant:
        value = self.result.match.surgery.constant(demand.tensor)
        assert value is not None, "only constants have a demand and no producer"
        return NewConstant("constant", _folded(value, demand))

    def rest(self, demand: Demand) -> NewNode:
        kind = self.result.match.type_of(demand.tensor)
        assert kind is not None, "is_one_node holds"
        dtype, wanted = onnx.helper.tensor_dtype_to_np_dtype(kind.dtype), demand.wanted
        scale, shift = wanted.vector(1, _channels(kind), demand.tensor.name)
        values = (scale, shift, np.zeros_like(shift), np.ones_like(scale))
        names = ("scale", "bias", "mean", "variance")
        parameters = (NewConstant(name, value.astype(dtype)) for name, value in zip(names, values, strict=True))
        return NewNode("BatchNormalization", (demand.tensor, *parameters), {"epsilon": 0.0}, "rest", like=demand.tensor)


def is_one_node(match: Match, demand: Demand) -> bool:
    """True when a single new node can do what is demanded: a BatchNormalization in place of the one that goes away."""
    kind = match.type_of(demand.tensor)
    if match.root.op != "BatchNormalization" or kind is None or not kind.dtype or kind.shape is None:
        return False
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.dtype)
    with np.errstate(over="ignore"):
        values = np.stack([demand.wanted.scale, demand.wanted.shift]).astype(dtype).astype(np.float64)
    has_channels = len(kind.shape) >= 2 and set(demand.wanted.axes) <= {1} and isinstance(kind.shape[1], int)
    return has_channels and bool(np.all(np.isfinite(values)))


def _channels(kind: TensorType) -> int:
    assert kind.shape is not None, "is_one_node holds"
    size = kind.shape[1]
    assert isinstance(size, int), "is_one_node holds"
    return size


def _folded(value: np.ndarray, demand: Demand) -> np.ndarray:
    """A constant with its scale and shift, computed in float64, in its own type."""
    with np.errstate(over="ignore"):
        return np.asarray(value.astype(np.float64) * demand.wanted.scale + demand.wanted.shift).astype(value.dtype)
