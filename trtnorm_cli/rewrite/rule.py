"""The parts of a rewrite: rule, match, replacement, and the records of what was done or refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Hashable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.record import LEFT_OUT_BY_DEFAULT, NOT_IN_JSON
from trtnorm_cli.rewrite.borders import Borders
from trtnorm_cli.rewrite.pattern import Bindings, Op, describe
from trtnorm_cli.rewrite.region import Region

if TYPE_CHECKING:
    import onnx
    import onnx_graphsurgeon as gs
    from onnx_graphsurgeon import Node as Node  # for the annotations of rules, which import no graphsurgeon
    from onnx_graphsurgeon import Tensor as Tensor

    from trtnorm_cli.onnx_model.surgery import ConstantKind, Surgery


@dataclass(frozen=True)
class NewConstant:
    """A constant that a replacement brings along; ``role`` becomes part of its name."""

    role: str
    value: np.ndarray


@dataclass(frozen=True)
class NewNode:
    """A node of a replacement. Its inputs are tensors of the graph, new constants, other new nodes, or None (left out).

    ``name`` is the node's name; when it is empty, the name of the replaced node and ``role`` make one. ``instead_of`` is an
    old node whose place it takes in the order of execution, and whose outputs have the types and shapes of its own; ``like``
    is an old tensor of the type and shape of its first output. ``function`` is the model-local function that the node calls:
    its operator is the function's name, in the function's domain.
    """

    op: str
    inputs: tuple[gs.Tensor | NewConstant | NewNode | NewOutput | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    role: str = ""
    name: str = ""
    instead_of: gs.Node | None = None
    like: gs.Tensor | None = None
    outputs: int = 1
    function: onnx.FunctionProto | None = None


@dataclass(frozen=True)
class NewOutput:
    """A further output of a new node, as the input of another."""

    node: NewNode
    index: int


@dataclass(frozen=True)
class NewOutputs:
    """A replacement for several outputs of the root: ``nodes`` maps the number of an output to what produces it.

    Output 0 is always there; the others are those that somebody uses.
    """

    nodes: Mapping[int, NewNode]


@dataclass(frozen=True)
class NewTensors:
    """A replacement for tensors of several nodes: each tensor with what produces it from now on, the root's first output
    among them.

    ``same_shape`` maps further tensors that go away to tensors of the same type and shape, for those that ask for no more.
    """

    tensors: tuple[tuple[gs.Tensor, NewNode | NewOutput], ...]
    same_shape: Mapping[str, gs.Tensor] = field(default_factory=dict)


Replacement = NewNode | NewOutputs | NewTensors


@dataclass(frozen=True)
class Extent:
    """The nodes that a match replaces beyond its pattern.

    ``nodes`` are all that is replaced, the last to run first. The replacement produces ``output``, the first output of
    ``root`` unless another one is given, and the tensors ``kept``, with the values that they had. ``plan`` is what the rule's
    replacement is made from.
    """

    root: gs.Node
    nodes: tuple[gs.Node, ...]
    kept: tuple[gs.Tensor, ...]
    plan: Any
    output: gs.Tensor | None = None


@dataclass
class Cache:
    """Facts that all matches of one run of the driver find out only once.

    ``of_weights`` holds as long as the run. ``of_graph`` holds until the graph changes.
    """

    of_weights: dict[Hashable, Any] = field(default_factory=dict)
    of_graph: dict[Hashable, Any] = field(default_factory=dict)

    def forget_graph(self) -> None:
        self.of_graph.clear()


@dataclass(frozen=True)
class Match:
    """A place where a rule's pattern fits. Reads only; everything that a rule asks about the graph goes through here.

    ``used_outputs`` are the numbers of the root's outputs that somebody reads, the first one always among them. ``origins``
    names for a tensor of an earlier replacement the tensor of the file that has its type and shape, and ``cache`` keeps
    what is worth finding out only once. ``site`` is the node at which the rule was tried, the root unless ``extent`` moved it.
    """

    rule: Rule
    root: gs.Node
    bindings: Bindings
    surgery: Surgery
    types: Mapping[str, TensorType]
    settings: RewriteSettings = field(default_factory=RewriteSettings)
    used_outputs: tuple[int, ...] = (0,)
    borders: Borders = field(default_factory=Borders.nowhere)
    origins: Mapping[str, str] = field(default_factory=dict)
    cache: Cache = field(default_factory=Cache)
    extent: Extent | None = None

    @property
    def site(self) -> gs.Node:
        return next(iter(self.bindings.nodes.values()))

    @property
    def kept(self) -> tuple[gs.Tensor, ...]:
        """Further tensors that the replacement produces with the values that they had."""
        return () if self.extent is None else self.extent.kept

    def extended_to(self, extent: Extent) -> Match:
        """The match extended to ``extent``."""
        return replace(self, root=extent.root, extent=extent)

    @property
    def output(self) -> gs.Tensor:
        """The tensor that the replacement has to produce."""
        other = None if self.extent is None else self.extent.output
        return self.root.outputs[0] if other is None else other

    @property
    def opset(self) -> int:
        return self.surgery.opset

    @property
    def nodes(self) -> list[gs.Node]:
        """The matched nodes from the root backwards; one that stands for two names of the pattern is there once."""
        if self.extent is not None:
            return list(self.extent.nodes)
        return list({id(node): node for node in self.bindings.nodes.values()}.values())

    def node(self, name: str) -> gs.Node:
        return self.bindings.nodes[name]

    def tensor(self, name: str) -> gs.Tensor | None:
        """The tensor bound to ``name``; None for an optional input that is left out."""
        return self.bindings.tensors[name]

    def given(self, name: str) -> gs.Tensor:
        """The tensor bound to ``name``, where the pattern does not let it be left out."""
        tensor = self.bindings.tensors[name]
        assert tensor is not None, f"the pattern binds {name}"
        return tensor

    def value(self, name: str) -> np.ndarray:
        """The value of a constant of the pattern, in the type in which the file stores it."""
        tensor = self.bindings.tensors[name]
        value = None if tensor is None else self.surgery.constant(tensor)
        if value is None:
            raise LookupError(f"{name} has no value in {describe(self.root)}")
        return value

    def kind(self, name: str) -> ConstantKind:
        """Shape and type of ``value(name)``. Reads no weights."""
        tensor = self.bindings.tensors[name]
        kind = None if tensor is None else self.surgery.constant_kind(tensor)
        if kind is None:
            raise LookupError(f"{name} has no value in {describe(self.root)}")
        return kind

    def has(self, name: str) -> bool:
        """True when the optional input ``name`` is given."""
        return self.bindings.tensors.get(name) is not None

    def type_of(self, tensor: gs.Tensor) -> TensorType | None:
        return self.types.get(tensor.name)

    def shape(self, name: str) -> tuple[int | str | None, ...] | None:
        """The shape of a bound tensor as far as it is known: a number, a symbol or None for each axis."""
        tensor = self.bindings.tensors[name]
        constant = None if tensor is None else self.surgery.constant_kind(tensor)
        if constant is not None:
            return constant.shape
        kind = None if tensor is None else self.type_of(tensor)
        return None if kind is None else kind.shape

    def rank(self, name: str) -> int | None:
        """The rank of a bound tensor, or None when it is not known."""
        tensor = self.bindings.tensors[name]
        kind = None if tensor is None else self.type_of(tensor)
        return None if kind is None or kind.shape is None else len(kind.shape)


Precondition = Callable[[Match], str | None]


def _always(node: gs.Node, surgery: Surgery) -> bool:
    return True


@dataclass(frozen=True)
class Rule:
    """A rewrite: where (``pattern``), when (``preconditions``), and what instead (``replacement``).

    A precondition returns None when it holds, or the reason for refusing. ``value_preconditions`` are those that read large
    weights. Where changes are made, each is asked just before its change, which reads these weights anyway. ``tolerance``
    bounds the largest difference that float32 rounding may make between before and after, relative to the largest output.
    ``needs_rank_of`` names tensors whose rank must be known. A replacement that gives ``NewOutputs`` sets
    ``replaces_further_outputs``.

    ``warning`` is the text for the user where the rule is applied, without the node's name. ``reference`` writes the meaning of
    the match in other operators, where the file's own nodes are invalid or the user asked to read them otherwise
    (``changes_meaning``). The replacement is then compared with it. With ``restates`` it is the file's own nodes once more,
    some of which others read, too. ``positive`` names tensors that no valid run makes
    negative, such as a variance.

    ``float64_decides`` is set where ONNX Runtime's result of the original is no measure: on processors without VNNI, products
    of unsigned with signed bytes saturate there, and some operators round data for speed.

    ``optional`` is true of a match that TensorRT takes and computes rightly: the change only makes it better, and the user may
    do without. ``in_passing`` is true of one that TensorRT for RTX is likely to make in a kernel which is there without it, so
    that the change costs and gains nothing.

    A rule of ``last_resort`` waits until no other fits anywhere. ``concerns`` says at which of the pattern's operators the rule
    is worth trying and its refusal worth explaining. ``extent`` finds, once the preconditions hold, the further nodes that are
    replaced, or gives the reason for refusing. It gives None when there is nothing to gain and nothing to explain.
    ``subject`` finds what all of these are about. Without it there is nothing to explain either, and none of them is asked.
    """

    name: str
    pattern: Op
    preconditions: tuple[Precondition, ...]
    replacement: Callable[[Match], Replacement]
    because: str
    tolerance: float = 1e-5
    needs_rank_of: tuple[str, ...] = ()
    since_opset: int = 7
    value_preconditions: tuple[Precondition, ...] = ()
    replaces_further_outputs: bool = False
    warning: Callable[[Match], str | None] | None = None
    reference: Callable[[Match], Replacement] | None = None
    changes_meaning: Callable[[Match], bool] | None = None
    restates: bool = False
    float64_decides: bool = False
    positive: tuple[str, ...] = ()
    optional: Callable[[Match], bool] | None = None
    in_passing: Callable[[Match], bool] | None = None
    last_resort: bool = False
    concerns: Callable[[gs.Node, Surgery], bool] = _always
    extent: Callable[[Match], Extent | str | None] | None = None
    subject: Callable[[Match], object | None] | None = None

    @property
    def doc(self) -> str:
        """The docstring of the rule's file: the algebra and its source."""
        return sys.modules[self.replacement.__module__].__doc__ or ""


class Unprovable(Exception):
    """A change can neither be proved nor disproved, for instance because the original cannot be evaluated either."""


@dataclass(frozen=True)
class Check:
    """The result of the numeric check of one change. Errors are relative to the largest output; shapes are those used."""

    max_abs: float
    max_rel: float
    tolerance: float
    float64_rel: float | None
    float64_tolerance: float | None
    seed: int
    shapes: dict[str, list[int]]
    evaluated_with: str
    passed: bool
    reason: str = ""


@dataclass(frozen=True)
class Change:
    """A replacement that was made (or, with a failed check, was not).

    ``changes_meaning`` is set where the user asked to read the model otherwise than it is written. ``compared_with_reference``
    is set where the replacement was compared with the rule's reference, not with the file's own nodes. ``optional`` is set
    where TensorRT would have taken the original and computed it rightly. ``tensor`` is the result of the changed nodes.
    ``refused`` gives, for a last resort, the reasons of the rules that searched further than their pattern. ``region`` has the
    nodes before and after.
    """

    rule: str
    node: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    because: str
    check: Check
    warning: str = ""
    changes_meaning: bool = False
    compared_with_reference: bool = False
    tensor: str = ""
    optional: bool = False
    refused: tuple[str, ...] = ()
    region: Region | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
    in_passing: bool = field(default=False, metadata=NOT_IN_JSON)  # as the rule says it


@dataclass(frozen=True)
class Rejection:
    """A place where a rule was tried and refused, with the reason."""

    rule: str
    node: str
    reason: str


@dataclass(frozen=True)
class Undone:
    """A change that only improves the model and was left out, with the reason: its check failed, say.

    ``tensor`` is the first output of the node at which the rule was tried. ``provable`` is False where neither the original
    nor the change could be evaluated, which is no fault of the rule's.
    """

    rule: str
    node: str
    reason: str
    tensor: str
    provable: bool = True

    @property
    def key(self) -> tuple[str, str]:
        """The key that keeps the rule from being tried there again."""
        return self.rule, self.tensor
