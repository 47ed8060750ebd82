"""Run a reference and its candidates on the same inputs and judge each output of each candidate."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from trtnorm_cli.compare.engine_runner import EngineUnavailable, run_engine
from trtnorm_cli.compare.float64 import Reference, ReferenceUnavailable, evaluate_float64
from trtnorm_cli.compare.metrics import Distance, Metrics, distance, measure
from trtnorm_cli.compare.participants import Participant, pair_names, require_same_types
from trtnorm_cli.compare.runner import OrtRunner, RunFailed
from trtnorm_cli.compare.tolerance import Bound, calibrated
from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.profile.model import Tolerance

# A number that PyTorch keeps as float64, such as an epsilon, is a float32 attribute in ONNX.
_ATTRIBUTE_ROUNDING = 2.0**-23
# ONNX Runtime's words for an operator and type that it has no kernel for; the model itself may be fine.
_NO_KERNEL = "Could not find an implementation"

Feeds = dict[str, np.ndarray]
Outputs = dict[str, np.ndarray]


@dataclass(frozen=True)
class Trial:
    """One set of inputs. ``shapes`` and ``label`` say what is fed; ``optional`` trials may be refused by the reference."""

    label: str
    feeds: Feeds
    optional: bool = False

    @property
    def elements(self) -> int:
        return sum(array.size for array in self.feeds.values())


@dataclass(frozen=True)
class Options:
    """How to compare.

    ``budget_s`` bounds each float64 run. A trial in which the reference would run longer than ``trial_budget_s``, judged by
    the run before, is skipped. Only the first ``float64_trials`` trials, the smallest ones, are evaluated in float64 (all by
    default); the others rely on the bound that those gave. ``tolerances`` are by output name, '' for all others.
    """

    by_position: bool = False
    budget_s: float = 60.0
    run_timeout_s: float = 300.0
    memory_bytes: int | None = None
    trial_budget_s: float | None = None
    float64_trials: int | None = None
    tolerances: Mapping[str, Tolerance] = field(default_factory=dict)


@dataclass(frozen=True)
class OutputVerdict:
    """One output of one candidate in one trial.

    ``native`` compares the candidate with the reference as both ran; ``exact`` is the candidate's distance from the
    reference when both are evaluated in float64, ``native_distance`` that of its own run from float64 (or from the
    reference's run where there is no float64). ``bound`` says what was allowed; with ``atol`` and ``rtol`` given, those.
    """

    trial: str
    output: str
    native: Metrics
    native_distance: float
    exact: float | None
    reference_error: float | None
    bound: Bound | None
    tolerance: Tolerance | None
    passed: bool
    reason: str


@dataclass
class CandidateReport:
    """All verdicts on one candidate; ``error`` says why it could not be run (further)."""

    label: str
    kind: str
    verdicts: list[OutputVerdict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    error: str | None = None
    unavailable: bool = False
    blame: dict[str, Any] | None = None

    @property
    def passed(self) -> bool:
        return self.error is None and bool(self.verdicts) and all(v.passed for v in self.verdicts)


@dataclass
class Comparison:
    """The whole result. ``float64`` names, by operator, what evaluated the truth; ``inputs`` say what each was drawn from."""

    reference: str
    trials: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    candidates: list[CandidateReport] = field(default_factory=list)
    float64: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    inputs: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def judged(self) -> list[CandidateReport]:
        """The candidates that this machine can run."""
        return [candidate for candidate in self.candidates if not candidate.unavailable]

    @property
    def passed(self) -> bool:
        return bool(self.judged) and all(candidate.passed for candidate in self.judged)


def compare(reference: Participant, candidates: Sequence[Participant], trials: Sequence[Trial], options: Options) -> Comparison:
    """Judge every candidate in every trial, smallest inputs first.

    A candidate that crashes is reported with the reason, and the others are still compared. Raises ``UsageProblem`` when
    inputs or outputs do not correspond, or when the reference itself does not run.
    """
    start = time.perf_counter()
    result = Comparison(reference.label)
    pairings = [_Pairing(reference, candidate, options.by_position) for candidate in candidates]
    result.candidates = [CandidateReport(c.label, c.kind, notes=list(c.notes)) for c in candidates]
    with OrtRunner(options.run_timeout_s, options.memory_bytes) as runner:
        runner.start()
        court = _Court(reference, runner, options, result)
        for trial in sorted(trials, key=lambda t: t.elements):
            court.hold(trial, pairings)
    result.seconds = round(time.perf_counter() - start, 3)
    return result


class _Pairing:
    """Which input and output of a candidate stands for which of the reference."""

    def __init__(self, reference: Participant, candidate: Participant, by_position: bool) -> None:
        self.candidate = candidate
        if candidate.kind == "engine":
            self.inputs = {name: name for name in reference.inputs()}
            self.outputs = {name: name for name in reference.outputs()}
            return
        label = candidate.label
        self.inputs = pair_names(reference.inputs(), candidate.inputs(), "inputs", label, by_position)
        self.outputs = pair_names(reference.outputs(), candidate.outputs(), "outputs", label, by_position)
        require_same_types(reference.inputs(), candidate.inputs(), self.inputs, label)

    def feeds(self, trial: Trial) -> Feeds:
        """The trial's arrays under the candidate's names and in its types."""
        kinds = self.candidate.inputs()
        renamed = {theirs: trial.feeds[ours] for ours, theirs in self.inputs.items()}
        if not kinds:
            return renamed
        return {n: a.astype(onnx.helper.tensor_dtype_to_np_dtype(kinds[n].dtype), copy=False) for n, a in renamed.items()}

    def back(self, outputs: Outputs) -> Outputs:
        return {ours: outputs[theirs] for ours, theirs in self.outputs.items() if theirs in outputs}


class _Court:
    """Runs one trial after the other and remembers what float64 said of the reference so far."""

    def __init__(self, reference: Participant, runner: OrtRunner, options: Options, result: Comparison) -> None:
        self.reference, self.runner, self.options, self.result = reference, runner, options, result
        self.reference_errors: dict[str, Distance] = {}
        self.float64_refused = False
        # True once ONNX Runtime, which lacks many kernels for bfloat16 and float64, has not run the reference.
        self.stood_in_for = False
        self.float64_rates: dict[str, float] = {}
        self.seconds_per_element = 0.0

    def hold(self, trial: Trial, pairings: Sequence[_Pairing]) -> None:
        if self.result.candidates and all(report.error is not None for report in self.result.candidates):
            return
        predicted = self.seconds_per_element * trial.elements
        if self.options.trial_budget_s is not None and predicted > self.options.trial_budget_s:
            self.result.skipped.append(f"{trial.label}: not run, one run would take about {predicted:.0f} s")
            return
        start = time.perf_counter()
        native = self._run_reference(trial)
        self.seconds_per_element = (time.perf_counter() - start) / max(trial.elements, 1)
        if native is None:
            return
        self.result.trials.append(trial.label)
        truth = self._truth(trial)
        for name, exact in (truth or {}).items():
            self._remember(name, distance(exact, native[name]))
        for pairing, report in zip(pairings, self.result.candidates, strict=True):
            if report.error is None:
                self._judge(trial, pairing, report, native, truth)

    def _run_reference(self, trial: Trial) -> Outputs | None:
        if self.reference.recorded is not None:
            return self.reference.recorded[trial.label].native
        assert self.reference.model_path is not None
        try:
            return self.runner.run(self.reference.model_path, trial.feeds)
        except RunFailed as error:
            if not trial.optional or self.stood_in_for:
                stand_in = self._stand_in(self.reference, trial.feeds, trial.label, error)
                if stand_in is not None:
                    self.stood_in_for = True
                    return stand_in
            if trial.optional or self.stood_in_for:
                self.result.skipped.append(f"{trial.label}: the reference does not run there: {error.reason}")
                return None
            raise UsageProblem(
                f"the reference does not run: {error.reason}", f"{self.reference.label}, {trial.label}"
            ) from error

    def _stand_in(self, participant: Participant, feeds: Feeds, label: str, error: RunFailed) -> Outputs | None:
        """The float64 evaluation, rounded to the types of the outputs, of what ONNX Runtime does not run."""
        found = self._float64(participant, feeds, label)
        if found is None or not all(isinstance(value, np.ndarray) for value in found.outputs.values()):
            return None
        note = f"ONNX Runtime does not run {participant.label}, its float64 evaluation stands for it: {error.reason}"
        if note not in self.result.notes:
            self.result.notes.append(note)
        return {name: _stored(value, participant.outputs().get(name)) for name, value in found.outputs.items()}

    def _truth(self, trial: Trial) -> Outputs | None:
        if self.reference.recorded is not None:
            return self.reference.recorded[trial.label].exact
        found = self._float64(self.reference, trial.feeds, trial.label)
        if found is None:
            return None
        self.result.float64.update(found.evaluated_with)
        return found.outputs

    def _float64(self, participant: Participant, feeds: Feeds, label: str) -> Reference | None:
        """The participant in float64; None, with a note, when that is not possible or takes too long."""
        limit = self.options.float64_trials
        standing_in = self.stood_in_for or self.reference.recorded is not None
        beyond = limit is not None and len(self.result.trials) > limit and not standing_in
        if self.float64_refused or beyond or participant.model_path is None:
            return None
        elements = sum(array.size for array in feeds.values())
        predicted = self.float64_rates.get(participant.label, 0.0) * elements
        if predicted > self.options.budget_s:
            reason = f"it would take about {predicted:.0f} s, the budget is {self.options.budget_s:g} s"
            self._without_float64(participant, label, reason)
            return None
        try:
            found = evaluate_float64(participant.model_path, feeds, budget_s=self.options.budget_s)
        except ReferenceUnavailable as error:
            where = f" ({error.where})" if error.where else ""
            self._without_float64(participant, label, f"{error.summary}{where}")
            return None
        self.float64_rates[participant.label] = found.seconds / max(elements, 1)
        return found

    def _without_float64(self, participant: Participant, label: str, reason: str) -> None:
        """Note why there is no float64 run. Without one of the reference, larger trials need not ask again."""
        self.float64_refused = self.float64_refused or participant is self.reference
        self.result.notes.append(f"{label}: no float64 run of {participant.label}: {reason}")

    def _remember(self, name: str, error: Distance) -> None:
        """Keep the larger of the distances seen: one lucky run must not make the bound tight for the others."""
        known = self.reference_errors.get(name)
        if known is None or error.largest > known.largest:
            self.reference_errors[name] = error

    def _judge(self, trial: Trial, pairing: _Pairing, report: CandidateReport, native: Outputs, truth: Outputs | None) -> None:
        try:
            feeds = pairing.feeds(trial)
            if pairing.candidate.kind == "engine":
                got = pairing.back(run_engine(pairing.candidate.path, feeds, self.options.run_timeout_s))
            else:
                assert pairing.candidate.model_path is not None
                got = pairing.back(self.runner.run(pairing.candidate.model_path, feeds))
        except RunFailed as error:
            candidate = pairing.candidate
            lacks_kernel = self.reference.recorded is not None and _NO_KERNEL in error.reason
            may = self.stood_in_for or lacks_kernel
            stand_in = self._stand_in(candidate, feeds, trial.label, error) if may else None
            if stand_in is None:
                report.error = f"{trial.label}: {error.reason}"
                return
            got = pairing.back(stand_in)
        except EngineUnavailable as error:
            report.error, report.unavailable = str(error), True
            return
        # A module and its export round their constants at different places, so only their runs are held to each other.
        alike = truth and self.reference.recorded is None
        exact = self._float64(pairing.candidate, feeds, trial.label) if alike else None
        exact_outputs = pairing.back(exact.outputs) if exact else {}
        for name, wanted in native.items():
            report.verdicts.append(self._verdict(trial, name, wanted, got.get(name), truth, exact_outputs.get(name)))

    def _verdict(
        self,
        trial: Trial,
        name: str,
        wanted: np.ndarray,
        got: np.ndarray | None,
        truth: Outputs | None,
        exact: np.ndarray | None,
    ) -> OutputVerdict:
        if got is None or got.shape != wanted.shape:
            return _no_shape(trial, name, wanted, got)
        error = self.reference_errors.get(name)
        given = self.options.tolerances.get(name, self.options.tolerances.get(""))
        base = truth[name] if truth else wanted
        native_distance = distance(base, got).largest
        exact_distance = distance(truth[name], exact).largest if truth and exact is not None else None
        bound = None if given else calibrated(error, wanted.dtype, got.dtype)
        if bound is not None and self.reference.recorded is not None and got.dtype == np.float64:
            bound = replace(bound, native=max(bound.native, _ATTRIBUTE_ROUNDING))
        if given is not None:
            reason = _outside(wanted, got, given)
        else:
            assert bound is not None
            reason = _too_far(native_distance, exact_distance, bound)
        return OutputVerdict(
            trial=trial.label,
            output=name,
            native=measure(wanted, got),
            native_distance=native_distance,
            exact=exact_distance,
            reference_error=error.largest if error else None,
            bound=bound,
            tolerance=given,
            passed=not reason,
            reason=reason,
        )


def _stored(values: np.ndarray, kind: TensorType | None) -> np.ndarray:
    """``values`` in the type that the file declares, as far as it declares one."""
    return values if kind is None or not kind.dtype else values.astype(onnx.helper.tensor_dtype_to_np_dtype(kind.dtype))


def _too_far(native: float, exact: float | None, bound: Bound) -> str:
    if exact is not None and not exact <= bound.exact:
        return f"as a function it is {exact:.2e} away from the reference, allowed is {bound.exact:.2e}"
    if not native <= bound.native:
        return f"its run is {native:.2e} away from float64, allowed is {bound.native:.2e}"
    return ""


def _outside(wanted: np.ndarray, got: np.ndarray, given: Tolerance) -> str:
    atol, rtol = given.atol or 0.0, given.rtol or 0.0
    w, g = wanted.astype(np.float64), got.astype(np.float64)
    close = np.isclose(g, w, rtol=rtol, atol=atol, equal_nan=True)
    if close.all():
        return ""
    return f"{int(np.sum(~close))} of {close.size} elements differ by more than {atol:g} + {rtol:g}·|reference|"


def _no_shape(trial: Trial, name: str, wanted: np.ndarray, got: np.ndarray | None) -> OutputVerdict:
    shape = "is missing" if got is None else f"has shape {list(got.shape)}"
    infinite = measure(np.zeros(1), np.full(1, np.nan))
    return OutputVerdict(
        trial.label, name, infinite, float("inf"), None, None, None, None, False,
        f"the output {shape}, the reference has {list(wanted.shape)}",
    )  # fmt: skip
