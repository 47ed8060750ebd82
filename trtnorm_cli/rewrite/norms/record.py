"""Normalizations written in pieces as records: what users are shown, in text and JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.record import Record
from trtnorm_cli.rewrite.norms.composition import Composition, compositions
from trtnorm_cli.rewrite.norms.kinds import GROUP, INSTANCE, LAYER, RMS
from trtnorm_cli.rewrite.norms.matching import remember
from trtnorm_cli.rewrite.pattern import describe

if TYPE_CHECKING:
    from trtnorm_cli.onnx_model.surgery import Surgery
    from trtnorm_cli.rewrite.rule import Cache, Rejection

# The rules that are about normalizations in pieces.
RULES_ABOUT = ("layer-norm-channels-first", "recompose-instance-norm", "recompose-group-norm", "drop-expand")


@dataclass(frozen=True)
class CompositeNorm(Record):
    """One normalization in pieces: ``node`` makes its ``output`` from ``data`` of ``shape`` and ``dtype``.

    ``axes`` are those that it goes over, or ``groups`` the blocks that each sample is divided into. ``adaptive`` names tensors
    of run time that scale and shift the result. ``computed_in`` is the type of the statistics. ``spelled`` are the operators in
    the order of execution. ``misgiving`` says why it is no such normalization after all; it is empty where it is one.
    """

    kind: str
    node: str
    data: str
    output: str
    shape: tuple[int | str | None, ...] | None
    dtype: str
    axes: tuple[int, ...]
    groups: int | None
    epsilon: float
    adaptive: tuple[str, ...]
    computed_in: str
    spelled: str
    misgiving: str


@dataclass(frozen=True)
class CompositeOutcome(CompositeNorm):
    """A normalization in pieces with what became of it, or what would: the rule that took it, or why it stays."""

    outcome: tuple[str, ...]


def composite_norms(surgery: Surgery, types: Mapping[str, TensorType], cache: Cache | None = None) -> tuple[CompositeNorm, ...]:
    """Every normalization of the model that is more than one node, in the order of execution.

    With ``cache``, rules that are tried next, on the same graph with the same types, need not look for them again.
    """
    found = compositions(surgery, types)
    if cache is not None:
        remember(found, cache)
    return tuple(_record(composition) for composition in found)


def _record(composition: Composition) -> CompositeNorm:
    return CompositeNorm(
        kind=composition.kind,
        node=describe(composition.output.inputs[0]),
        data=composition.data.name,
        output=composition.output.name,
        shape=composition.shape,
        dtype=_type_name(composition.dtype),
        axes=composition.axes,
        groups=composition.groups,
        epsilon=composition.epsilon,
        adaptive=composition.runtime,
        computed_in=_type_name(composition.computed_in),
        spelled=composition.spelled,
        misgiving=composition.misgiving,
    )


def _type_name(data_type: int) -> str:
    return onnx.TensorProto.DataType.Name(data_type).lower() if data_type else "?"


def count_by_kind(norms: Iterable[CompositeNorm]) -> dict[str, int]:
    """How many there are of each kind, the most frequent first; what is none after all is left out."""
    return dict(Counter(norm.kind for norm in norms if not norm.misgiving).most_common())


class Made(Protocol):
    """A change that was made or is planned: by which rule, what it computes, and the nodes that go."""

    @property
    def rule(self) -> str: ...

    @property
    def tensor(self) -> str: ...

    @property
    def removed(self) -> tuple[str, ...]: ...


def outcome_of(norm: CompositeNorm, changes: Iterable[Made], rejections: Iterable[Rejection]) -> tuple[str, ...]:
    """The rule that took the normalization, else why it stays as it is."""
    taken = tuple(change.rule for change in changes if norm.output == change.tensor or norm.node in change.removed)
    if any(rule in RULES_ABOUT for rule in taken):
        return taken
    reasons = [f"{r.rule}: {r.reason}" for r in rejections if r.node == norm.node and r.rule in RULES_ABOUT]
    return (*taken, *(reasons or [f"left as it is: {why_left(norm)}"]))


def why_left(norm: CompositeNorm) -> str:
    """Why no rule is about a normalization."""
    if norm.misgiving:
        return norm.misgiving
    rank = len(norm.shape or ())
    over_last = norm.axes == (rank - 1,)
    if norm.kind in (LAYER, RMS) and over_last:
        return "over the last axis it takes TensorRT as few kernels in every spelling"
    if norm.kind in (INSTANCE, GROUP):
        return "what it is made of is not known well enough"
    return "no other form is known to take TensorRT fewer kernels"
