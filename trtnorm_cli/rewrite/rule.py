"""The parts of a rewrite: rule, match, replacement, and the records of what was done or refused."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.rewrite.pattern import Bound, Op, describe

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

    from trtnorm_cli.onnx_model.surgery import Surgery


@dataclass(frozen=True)
class NewConstant:
    """A constant that a replacement brings along; ``role`` becomes part of its name."""

    role: str
    value: np.ndarray


@dataclass(frozen=True)
class NewNode:
    """A node of a replacement. Its inputs are tensors of the graph, new constants, other new nodes, or None (left out).

    ``name`` is the node's name; when it is empty, the name of the replaced node and ``role`` make one.
    """

    op: str
    inputs: tuple[gs.Tensor | NewConstant | NewNode | None, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    role: str = ""
    name: str = ""


@dataclass(frozen=True)
class Match:
    """A place where a rule's pattern fits. Reads only; everything that a rule asks about the graph goes through here."""

    rule: Rule
    root: gs.Node
    bound: Bound
    surgery: Surgery
    types: Mapping[str, TensorType]

    @property
    def output(self) -> gs.Tensor:
        """The tensor that the replacement has to produce."""
        return self.root.outputs[0]

    @property
    def opset(self) -> int:
        return self.surgery.opset

    def node(self, name: str) -> gs.Node:
        return self.bound.nodes[name]

    def tensor(self, name: str) -> gs.Tensor | None:
        """The tensor bound to ``name``; None for an optional input that is left out."""
        return self.bound.tensors[name]

    def value(self, name: str) -> np.ndarray:
        """The value of a constant of the pattern, in the type in which the file stores it."""
        tensor = self.bound.tensors[name]
        value = None if tensor is None else self.surgery.constant(tensor)
        if value is None:
            raise LookupError(f"{name} has no value in {describe(self.root)}")
        return value

    def has(self, name: str) -> bool:
        """True when the optional input ``name`` is given."""
        return self.bound.tensors.get(name) is not None

    def type_of(self, tensor: gs.Tensor) -> TensorType | None:
        return self.types.get(tensor.name)

    def rank(self, name: str) -> int | None:
        """The rank of a bound tensor, or None when it is not known."""
        tensor = self.bound.tensors[name]
        kind = None if tensor is None else self.type_of(tensor)
        return None if kind is None or kind.shape is None else len(kind.shape)


Precondition = Callable[[Match], str | None]


@dataclass(frozen=True)
class Rule:
    """A rewrite: where (``pattern``), when (``preconditions``), and what instead (``replacement``).

    A precondition returns None when it holds, or the reason for refusing. ``tolerance`` bounds the largest difference that
    float32 rounding may make between before and after, relative to the largest output. ``needs_rank_of`` names tensors
    whose rank must be known.
    """

    name: str
    pattern: Op
    preconditions: tuple[Precondition, ...]
    replacement: Callable[[Match], NewNode]
    because: str
    tolerance: float = 1e-5
    needs_rank_of: tuple[str, ...] = ()
    since_opset: int = 7

    @property
    def doc(self) -> str:
        """The docstring of the rule's file: the algebra and its source."""
        return sys.modules[self.replacement.__module__].__doc__ or ""


class Unprovable(Exception):
    """A change can neither be proved nor disproved, for instance because the original cannot be evaluated either."""


@dataclass(frozen=True)
class Check:
    """What the numeric check of one change found. Errors are relative to the largest output; shapes are those used."""

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
    """A replacement that was made (or, with a failed check, was not)."""

    rule: str
    node: str
    removed: tuple[str, ...]
    added: tuple[str, ...]
    because: str
    check: Check


@dataclass(frozen=True)
class Rejection:
    """A place where a rule was tried and refused, with the reason."""

    rule: str
    node: str
    reason: str
