"""The options, trials and results of a comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import field

import numpy as np

from trtnorm_cli.compare.inner_tensors import Difference
from trtnorm_cli.evaluate.data.drawing import DrawnFeeds
from trtnorm_cli.evaluate.float64 import Place
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.model import Tolerance
from trtnorm_cli.records.comparison import BlameRecord, OutputVerdict
from trtnorm_cli.records.precision import PrecisionRecord

PASSED, FAILED, NOT_COMPARED = "passed", "failed", "not compared"

Feeds = Mapping[str, np.ndarray]
Outputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class Trial:
    """One set of inputs. ``label`` says what is fed; ``optional`` ones were drawn, and the reference may refuse them."""

    label: str
    feeds: Feeds
    optional: bool = False

    @property
    def elements(self) -> int:
        feeds = self.feeds
        return feeds.elements if isinstance(feeds, DrawnFeeds) else sum(array.size for array in feeds.values())

    @property
    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        feeds = self.feeds
        return feeds.shapes if isinstance(feeds, DrawnFeeds) else {name: array.shape for name, array in feeds.items()}


@dataclass(frozen=True)
class Options:
    """How to compare.

    ``budget_s`` bounds each float64 run, ``run_timeout_s`` each other run, and ``runs_budget_s`` all of these together: the
    smallest inputs are run in any case, larger ones while time is left. Only the first ``float64_trials`` trials, the
    smallest ones, are evaluated in float64 (all by default), and those where a candidate seems to fail without.
    ``total_budget_s`` gives the processor's seconds that bound the whole comparison likewise; it is asked anew for each trial.
    ``tolerances`` are by output name, '' for all others. ``max_error`` is the relative L2 that a precision allows: it decides
    where rounding allows so much that agreement says nothing. ``own_weights`` are in files that this program alone writes to,
    and read where they lie. ``likely`` are the names of tensors of the candidate that is likely: while
    candidates are still made, only these are kept of the reference. With ``is_unchanged`` the only candidate should be the
    reference, node by node: then it is held to it as ``alike`` does, and evaluated where that tells of a difference. With
    ``takes_folds`` a BatchNormalization that was folded is told by its weights, and not by what they give.
    """

    by_position: bool = False
    budget_s: float = 60.0
    run_timeout_s: float = 300.0
    memory_bytes: int | None = None
    runs_budget_s: float | None = None
    total_budget_s: Callable[[], float] | None = None
    float64_trials: int | None = None
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)
    max_error: float | None = None
    own_weights: Sequence[Place] = ()
    likely: Set[str] | None = None
    is_unchanged: bool = False
    takes_folds: bool = False


@dataclass
class CandidateReport:
    """All verdicts on one candidate.

    ``error`` says why it could not be run (further); with ``unavailable`` that is no fault of the candidate's. ``inner`` is the
    first inner tensor that is further off than rounding explains, or the worst of those that are off by some units. ``depth``
    has the distance of each inner tensor in float64 in the first trial where that was known, ``depth_at``.
    """

    label: str
    kind: str
    verdicts: list[OutputVerdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: str | None = None
    unavailable: bool = False
    blame: BlameRecord | None = None
    inner: Difference | None = None
    depth: Mapping[str, float] = field(default_factory=dict)
    depth_at: str = ""

    @property
    def is_out_of_tolerance(self) -> bool:
        """True where an output or an inner tensor is further off than rounding explains."""
        return any(v.passed is False for v in self.verdicts) or (self.inner is not None and self.inner.share > 1)

    @property
    def does_not_run(self) -> bool:
        """True where the candidate itself is why it could not be run (further)."""
        return self.error is not None and not self.unavailable

    @property
    def state(self) -> str:
        """Passed, failed, or not compared: then ``why_not`` has the reason."""
        if self.is_out_of_tolerance or self.does_not_run:
            return FAILED
        return PASSED if any(v.passed for v in self.verdicts) else NOT_COMPARED

    @property
    def passed(self) -> bool:
        return self.state == PASSED

    @property
    def why_not(self) -> str:
        """Why nothing was compared."""
        reasons = [self.error] if self.error else [f"{v.output} at {v.trial}: {v.reason}" for v in self.verdicts]
        return reasons[0] if reasons else "no inputs could be run"


@dataclass
class Comparison:
    """The whole result.

    ``skipped`` names the trials that were not run, ``float64``, by operator, what evaluated the truth; ``inputs`` say what
    each was drawn from. ``precision`` is the record of a conversion that was compared.
    """

    reference: str
    trials: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    candidates: list[CandidateReport] = field(default_factory=list)
    float64: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)
    precision: PrecisionRecord | None = None
    seconds: float = 0.0

    def note(self, text: str) -> None:
        """Add a note that is not there yet."""
        if text not in self.notes:
            self.notes.append(text)

    @property
    def judged(self) -> list[CandidateReport]:
        """The candidates that something can be said of."""
        return [candidate for candidate in self.candidates if candidate.state != NOT_COMPARED]

    @property
    def state(self) -> str:
        """Failed if one candidate did, passed if another one was compared, else not compared."""
        states = {candidate.state for candidate in self.candidates}
        return next((state for state in (FAILED, PASSED) if state in states), NOT_COMPARED)

    @property
    def passed(self) -> bool:
        return self.state == PASSED

    @property
    def is_out_of_tolerance(self) -> bool:
        """True where a candidate is; one that failed without being so could not be run."""
        return any(candidate.is_out_of_tolerance for candidate in self.candidates)

    @property
    def not_compared(self) -> list[str]:
        """A line for each candidate of which nothing can be said."""
        return [f"{c.label}: {c.why_not}" for c in self.candidates if c.state == NOT_COMPARED]
