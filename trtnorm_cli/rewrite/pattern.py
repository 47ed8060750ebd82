"""Patterns to look for in a graph. They read and never edit.

A pattern is written from the node whose output is replaced (the root) backwards to what feeds it:

    op("BatchNormalization", op("Conv", Var("x"), Const("weight"), optional(Const("bias")), name="conv"), ..., name="bn")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import field
from typing import TYPE_CHECKING

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

    from trtnorm_cli.onnx_model.surgery import Surgery


@dataclass(frozen=True)
class Var:
    """Any tensor."""

    name: str


@dataclass(frozen=True)
class Const:
    """A tensor whose value stands in the file."""

    name: str


@dataclass(frozen=True)
class Maybe:
    """An input that may be left out."""

    pattern: Var | Const | Either | Op


@dataclass(frozen=True)
class Either:
    """An input that fits one of ``patterns``; the first that fits counts."""

    patterns: tuple[Var | Const | Op, ...]


@dataclass(frozen=True)
class Op:
    """A node with one of ``types``, whose inputs match ``inputs`` in order; of the default domain unless another is named."""

    types: tuple[str, ...]
    inputs: tuple[Pattern, ...]
    name: str
    domain: str = ""


Pattern = Var | Const | Maybe | Either | Op


def op(types: str | tuple[str, ...], *inputs: Pattern, name: str, domain: str = "") -> Op:
    """A node pattern; ``types`` is one operator or several that serve equally."""
    return Op((types,) if isinstance(types, str) else types, inputs, name, domain)


def optional(pattern: Var | Const | Either | Op) -> Maybe:
    """An input that may be left out."""
    return Maybe(pattern)


def either(*patterns: Var | Const | Op) -> Either:
    """An input that may be written in several ways."""
    return Either(patterns)


@dataclass(frozen=True)
class Mismatch:
    """Why a pattern does not fit, in words."""

    reason: str


@dataclass
class Bindings:
    """The nodes and tensors that the names of a pattern stand for. ``nodes`` is ordered from the root backwards."""

    tensors: dict[str, gs.Tensor | None] = field(default_factory=dict)
    nodes: dict[str, gs.Node] = field(default_factory=dict)


def match(pattern: Op, node: gs.Node, surgery: Surgery) -> Bindings | Mismatch:
    """Fit ``pattern`` to ``node`` and what feeds it."""
    bindings = Bindings()
    reason = _fit_node(pattern, node, bindings, surgery)
    return bindings if reason is None else Mismatch(reason)


def root_fits(pattern: Op, node: gs.Node) -> bool:
    """True when ``node`` is of the root's operator: the pattern is worth trying and its refusal worth explaining."""
    domains = (pattern.domain,) if pattern.domain else DEFAULT_DOMAINS
    return node.op in pattern.types and node.domain in domains


def fed_by(*types: str) -> Callable[[gs.Node, Surgery], bool]:
    """True at nodes whose first input is made by one of the operators ``types``: a refusal is worth explaining only there."""

    def concerns(node: gs.Node, surgery: Surgery) -> bool:
        return bool(node.inputs) and any(producer.op in types for producer in node.inputs[0].inputs)

    return concerns


def describe(node: gs.Node) -> str:
    """A node as a user knows it: its name, or its first output when it has none."""
    output = node.outputs[0].name if node.outputs else ""
    return node.name or f"{node.op} -> {output}"


def titled(node: gs.Node) -> str:
    """A node with its operator, for a sentence: ``Conv conv1``, or ``Conv -> c`` when it has no name."""
    return f"{node.op} {node.name}" if node.name else describe(node)


def _fit_node(pattern: Op, node: gs.Node, bindings: Bindings, surgery: Surgery) -> str | None:
    if not root_fits(pattern, node):
        return f"{describe(node)} is {node.op}, not {' or '.join(pattern.types)}"
    if len(node.inputs) > len(pattern.inputs):
        return f"{describe(node)} has {len(node.inputs)} inputs, at most {len(pattern.inputs)} are understood"
    bindings.nodes[pattern.name] = node
    for index, inner in enumerate(pattern.inputs):
        reason = _fit_input(inner, _Place(node, index), bindings, surgery)
        if reason is not None:
            return reason
    return None


@dataclass(frozen=True)
class _Place:
    """The input ``index`` of a node. ``tensor`` is None where it is left out."""

    consumer: gs.Node
    index: int

    @property
    def tensor(self) -> gs.Tensor | None:
        tensor = self.consumer.inputs[self.index] if self.index < len(self.consumer.inputs) else None
        return None if tensor is None or tensor.name == "" else tensor

    def __str__(self) -> str:
        return f"input {self.index} of {describe(self.consumer)}"


def _fit_input(pattern: Pattern, place: _Place, bindings: Bindings, surgery: Surgery) -> str | None:
    tensor = place.tensor
    if isinstance(pattern, Maybe):
        if tensor is not None:
            return _fit_input(pattern.pattern, place, bindings, surgery)
        for name in _tensor_names(pattern.pattern):
            bindings.tensors[name] = None
        return None
    if tensor is None:
        return f"{place} is left out"
    if isinstance(pattern, Either):
        return _fit_either(pattern, place, bindings, surgery)
    if isinstance(pattern, Op):
        return _fit_producer(pattern, tensor, bindings, surgery, place.consumer)
    if isinstance(pattern, Const) and not surgery.is_constant(tensor):
        return f"{tensor.name}, {place}, is computed at run time"
    bindings.tensors[pattern.name] = tensor
    return None


def _fit_either(pattern: Either, place: _Place, bindings: Bindings, surgery: Surgery) -> str | None:
    reasons = []
    for inner in pattern.patterns:
        trial = Bindings(dict(bindings.tensors), dict(bindings.nodes))
        reason = _fit_input(inner, place, trial, surgery)
        if reason is None:
            bindings.tensors, bindings.nodes = trial.tensors, trial.nodes
            return None
        reasons.append(reason)
    return "; ".join(dict.fromkeys(reasons))


def _fit_producer(pattern: Op, tensor: gs.Tensor, bindings: Bindings, surgery: Surgery, consumer: gs.Node) -> str | None:
    if not tensor.inputs:
        kind = "a constant" if surgery.is_constant(tensor) else "an input of its graph"
        return f"{describe(consumer)} is fed by {tensor.name}, {kind}, not by {' or '.join(pattern.types)}"
    producer = tensor.inputs[0]
    if not root_fits(pattern, producer):
        wanted = " or ".join(pattern.types)
        return f"{describe(consumer)} is fed by {describe(producer)}, which is {producer.op}, not {wanted}"
    return _fit_node(pattern, producer, bindings, surgery)


def _tensor_names(pattern: Pattern) -> Iterator[str]:
    if isinstance(pattern, Var | Const):
        yield pattern.name
    elif isinstance(pattern, Maybe):
        yield from _tensor_names(pattern.pattern)
    elif isinstance(pattern, Either):
        yield from dict.fromkeys(name for inner in pattern.patterns for name in _tensor_names(inner))
    else:
        for inner in pattern.inputs:
            yield from _tensor_names(inner)
