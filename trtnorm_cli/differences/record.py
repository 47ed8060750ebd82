"""The differences between two models, networks, modules or engines, as ``trtnorm diff --json`` prints them."""

from __future__ import annotations

from dataclasses import field

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import LEFT_OUT_BY_DEFAULT, Record

# The kinds of differences, as ``--fail-on`` names them.
KINDS = (
    "versions", "model", "metadata", "sizes", "types", "names", "operators", "weights", "norms", "rewriting", "layers",
    "kernels", "time", "traffic", "size", "errors",
)  # fmt: skip


@dataclass(frozen=True)
class Side(Record):
    """One of the two that are compared: as it was named, and its kind in words."""

    name: str
    kind: str


@dataclass(frozen=True)
class Difference(Record):
    """One thing in which two differ, as each has it. ``kind`` is what ``--fail-on`` calls it."""

    kind: str
    what: str
    first: str
    second: str


@dataclass(frozen=True)
class KernelSummary(Record):
    """A kernel of a part: its type, its nodes or what it does that no node asks for, microseconds, and bytes."""

    type: str
    does: str
    us: float
    bytes: int


@dataclass(frozen=True)
class Part(Record):
    """Kernels of both engines that come from common ONNX ``nodes``, and the changes of these nodes that only one engine has."""

    nodes: tuple[str, ...]
    first: tuple[KernelSummary, ...]
    second: tuple[KernelSummary, ...]
    first_us: float
    second_us: float
    changes: tuple[str, ...]


@dataclass(frozen=True)
class Matched(Record):
    """How many nodes have a partner: of the same name and in the same place, of another name, or by their name alone.

    A node is in the same place where it computes from partners of what its partner computes from.
    """

    by_name_and_structure: int
    by_structure: int
    by_name: int
    by_surroundings: int
    only_first: int
    only_second: int


@dataclass(frozen=True)
class NodeName(Record):
    """A node as users know it, and its operator."""

    node: str
    operator: str


@dataclass(frozen=True)
class Region(Record):
    """Neighbouring nodes that only one graph has, or that stand in the place of others. ``kind`` is operators or norms.

    ``behind`` and ``before`` are nodes next to them that both graphs have. ``graph`` is the body of a node or the function that
    they are in, and empty for the model's own graph.
    """

    kind: str
    first: tuple[NodeName, ...]
    second: tuple[NodeName, ...]
    behind: tuple[NodeName, ...]
    before: tuple[NodeName, ...]
    graph: str = field(default="", metadata=LEFT_OUT_BY_DEFAULT)


@dataclass(frozen=True)
class NodeChange(Record):
    """A node that both graphs have, with ``what`` differs, such as an attribute, as each has it."""

    kind: str
    first: NodeName
    second: NodeName
    what: str
    was: str
    now: str
    graph: str = field(default="", metadata=LEFT_OUT_BY_DEFAULT)


@dataclass(frozen=True)
class WeightDifference(Record):
    """A constant that both graphs have, with other values, another type or other sizes.

    ``worst`` is the largest difference of two values, ``relative`` that over the largest value of the first; both are None
    where the sizes differ or where values are not numbers, as text says in ``reason``.
    """

    first: str
    second: str
    node: str
    first_type: str
    second_type: str
    worst: float | None
    relative: float | None
    reason: str = field(default="", metadata=LEFT_OUT_BY_DEFAULT)


@dataclass(frozen=True)
class Renamed(Record):
    """A node, tensor, input or output with two names."""

    what: str
    first: str
    second: str


@dataclass(frozen=True)
class GraphDiff(Record):
    """Everything in which two graphs differ, node by node."""

    matched: Matched
    regions: tuple[Region, ...]
    changed: tuple[NodeChange, ...]
    weights: tuple[WeightDifference, ...]
    same_weights: int
    renamed: tuple[Renamed, ...]

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of the differences between the graphs."""
        found = {one.kind for one in self.regions} | {one.kind for one in self.changed}
        found |= {"operators"} if self.regions else set()
        found |= {"types"} if any(one.first_type != one.second_type for one in self.weights) else set()
        found |= {"weights"} if self.weights else set()
        return frozenset(found | ({"names"} if self.renamed else set()))


@dataclass(frozen=True)
class ModuleChange(Record):
    """A normalization module that both models have, with ``what`` differs as each has it."""

    kind: str
    first: str
    second: str
    what: str
    was: str
    now: str


@dataclass(frozen=True)
class ModulesDiff(Record):
    """Everything in which the normalization modules of two PyTorch models differ."""

    matched: int
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    changed: tuple[ModuleChange, ...]
    renamed: tuple[Renamed, ...]

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of the differences between the modules."""
        found = {one.kind for one in self.changed}
        found |= {"norms"} if self.only_first or self.only_second else set()
        return frozenset(found | ({"names"} if self.renamed else set()))


@dataclass(frozen=True, kw_only=True)
class Diff(Record):
    """Everything in which two differ.

    ``differences`` are facts about each as a whole. ``graph`` has the nodes of ONNX models and networks, ``modules`` the
    normalization modules of PyTorch models, and ``parts`` the kernels of engines where these differ, the largest difference of
    time first. ``notes`` say what the two have in common, and why figures cannot be held against each other.
    """

    first: Side
    second: Side
    differences: tuple[Difference, ...]
    graph: GraphDiff | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
    modules: ModulesDiff | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
    parts: tuple[Part, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of the differences, and ``kernels`` where parts differ."""
        found = frozenset(one.kind for one in self.differences) | (frozenset({"kernels"}) if self.parts else frozenset())
        inner = [one.kinds for one in (self.graph, self.modules) if one is not None]
        return found.union(*inner)
