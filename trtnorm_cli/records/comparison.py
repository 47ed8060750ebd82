"""The result of a comparison as a record."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any

from trtnorm_cli.evaluate.metrics import Metrics
from trtnorm_cli.evaluate.tolerance import Bound
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.model import Tolerance
from trtnorm_cli.record import LEFT_OUT_BY_DEFAULT, Record
from trtnorm_cli.records.precision import PrecisionRecord

# What a note says of a model that float64 alone evaluated, because ONNX Runtime did not run it.
STANDS_IN = "its float64 evaluation stands for it"


@dataclass(frozen=True)
class OutputVerdict(Record):
    """One output of one candidate in one trial.

    ``native`` compares the candidate with the reference as both ran; ``exact`` is the candidate's distance from the
    reference when both are evaluated in float64, ``native_distance`` that of its own run from float64 (or from the
    reference's run where there is no float64). ``bound`` says what was allowed; with ``atol`` and ``rtol`` given, those.
    ``share`` is measured over allowed. ``passed`` is None, with a ``reason``, where nothing can be said: nothing finite to
    compare, or rounding alone moves the output by more than a few percent. There, the ``max_error`` of a precision may have
    decided, as relative L2.
    """

    trial: str
    output: str
    native: Metrics
    native_distance: float
    exact: float | None
    reference_error: float | None
    bound: Bound | None
    tolerance: Tolerance | None
    share: float | None
    passed: bool | None
    reason: str
    max_error: float | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)


@dataclass(frozen=True)
class InnerRecord(Record):
    """A slice of an inner tensor that is off. ``share`` is measured over allowed."""

    tensor: str
    axis: int
    index: int
    distance: float
    allowed: float
    share: float


@dataclass(frozen=True)
class DepthPoint(Record):
    """The distance of an inner tensor: ``place`` is its number in the order of execution, ``distance`` relative L2."""

    place: int
    tensor: str
    distance: float


@dataclass(frozen=True)
class DepthRecord(Record):
    """The distances of inner tensors from those of the reference, both in float64, in the trial ``at``.

    ``tensors`` have a partner of their name; of neighbours ``points`` has the worst. ``other`` of them carry another meaning
    under the same name, as when a scale moved across them, and are left out.
    """

    at: str
    tensors: int
    other: int
    points: tuple[DepthPoint, ...]


@dataclass(frozen=True)
class FirstDifference(Record):
    """The tensor after which a candidate is further off than before, the node that computes it, and who made that node.

    ``files`` are the sub-models and data that show it.
    """

    tensor: str
    node: str
    error_before: float
    error_after: float
    reference_computes: str
    candidate_computes: str
    culprit: str
    files: tuple[str, ...]
    text: tuple[str, ...]


@dataclass(frozen=True)
class NoDifference(Record):
    """Why the first difference of a candidate that failed was not found."""

    text: tuple[str, ...]


BlameRecord = FirstDifference | NoDifference


@dataclass(frozen=True, kw_only=True)
class CandidateRecord(Record):
    """All verdicts on one candidate.

    ``error`` says why it could not be run (further), ``unavailable`` the same where that is no fault of the candidate's.
    """

    passed: bool
    state: str
    label: str
    kind: str
    error: str | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
    unavailable: str | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
    inner: InnerRecord | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
    depth: DepthRecord | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
    outputs: tuple[OutputVerdict, ...]
    notes: tuple[str, ...]
    blame: BlameRecord | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)


@dataclass(frozen=True)
class ComparisonRecord(Record):
    """The whole result. ``at`` names the trials, and ``inputs`` say what each was drawn from.

    ``precision`` is the record of a conversion that was compared, which in a manifest stands by itself.
    """

    passed: bool
    state: str
    not_compared: tuple[str, ...]
    seed: int | None
    reference: str
    at: tuple[str, ...]
    inputs: dict[str, str]
    skipped: tuple[str, ...]
    candidates: tuple[CandidateRecord, ...]
    float64_evaluated_with: dict[str, str]
    notes: tuple[str, ...]
    precision: PrecisionRecord | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT, kw_only=True)
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """The result as JSON values; what is infinite or not a number becomes text, and is read from it."""
        return {key: _finite(value) for key, value in super().to_json().items()}


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    return [_finite(item) for item in value] if isinstance(value, list) else value
