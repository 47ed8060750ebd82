"""The outputs of participants as they run, and what stands in for them where ONNX Runtime is why they do not."""

from __future__ import annotations

import numpy as np
import onnx

from trtnorm_cli.compare.budget import Budget
from trtnorm_cli.compare.float64_answers import Float64Answers
from trtnorm_cli.compare.native_runs import NativeRuns
from trtnorm_cli.compare.participants import (
    EngineParticipant,
    ModuleParticipant,
    NetworkParticipant,
    OnnxParticipant,
    RunnableReference,
)
from trtnorm_cli.compare.result import Comparison, Feeds, Options, Outputs
from trtnorm_cli.compare.trial_run import Attempt, TrialRun
from trtnorm_cli.evaluate.float64 import Reference, ReferenceUnavailable
from trtnorm_cli.evaluate.ort_runner import RunFailed
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.records.comparison import STANDS_IN
from trtnorm_cli.tensorrt.engine_runner import EngineUnavailable, run_engine

# ONNX Runtime's words for an operator and type that it has no kernel for; the model itself may be fine.
_NO_KERNEL = "Could not find an implementation"


class ParticipantRuns:
    """Waits for the runs of participants, and tells the ``result`` of those that failed.

    ``uses_float64_reference`` is true once ONNX Runtime, which lacks many kernels for bfloat16 and float64, has not run the
    reference.
    """

    def __init__(
        self,
        reference: RunnableReference,
        natives: NativeRuns,
        float64: Float64Answers,
        budget: Budget,
        options: Options,
        result: Comparison,
    ) -> None:
        self._reference, self._natives, self._float64 = reference, natives, float64
        self._budget, self._options, self._result = budget, options, result
        self.uses_float64_reference = False

    def of_reference(self, run: TrialRun, left: float | None) -> Outputs | None:
        """The reference's outputs; None, with the reason in the result, where it does not run in the seconds ``left``."""
        trial = run.trial
        if isinstance(self._reference, ModuleParticipant):
            return self._reference.recorded[trial.label].native
        assert run.asked is not None, "every trial is begun with the reference"
        try:
            native = self._natives.outputs(run.asked, self._reference, trial.feeds, left, again=False)
            run.seconds = run.asked.seconds
            return native
        except RunFailed as error:
            if error.timed_out and left is not None and self._result.trials:
                self._result.skipped.append(f"{trial.label}: not run, it takes longer than the {left:.1f} s that were left")
                return None
            self._float64.finish(run)
            substitute = self._in_float64_instead(self._reference, trial.feeds, trial.label, error, run.exact)
            if substitute is not None:
                self.uses_float64_reference = True
                return substitute
            notes = self._result.notes if trial.optional else self._result.skipped
            notes.append(f"{trial.label}: the reference does not run there: {error.reason}")
            return None

    def _in_float64_instead(
        self,
        participant: OnnxParticipant,
        feeds: Feeds,
        label: str,
        error: RunFailed,
        exact: Reference | ReferenceUnavailable | None = None,
    ) -> Outputs | None:
        """The float64 evaluation, rounded to the types of the outputs, of what ONNX Runtime does not run."""
        found = self._float64.noted(participant, label, exact or self._float64.evaluated(participant, feeds))
        if found is None or not all(isinstance(value, np.ndarray) for value in found.outputs.values()):
            return None
        self._result.note(f"ONNX Runtime does not run {participant.label}, {STANDS_IN}: {error.reason}")
        return {name: _stored(value, participant.outputs().get(name)) for name, value in found.outputs.items()}

    def of_candidate(self, attempt: Attempt) -> Outputs | None:
        """The candidate's outputs under the reference's names; None, with the reason in the report, where it does not run."""
        candidate, back = attempt.candidate, attempt.pairing.back
        try:
            if isinstance(candidate, EngineParticipant):
                return back(run_engine(candidate.path, dict(attempt.feeds), self._options.run_timeout_s))
            assert attempt.asked is not None, "every candidate of a trial is asked"
            limit = self._budget.seconds_for_candidate(attempt.run) if self._result.trials else None
            return back(self._natives.outputs(attempt.asked, candidate, attempt.feeds, limit, again=True))
        except EngineUnavailable as error:
            attempt.report.error, attempt.report.unavailable = str(error), True
        except RunFailed as error:
            substitute = self._substitute(attempt, error)
            if substitute is not None:
                return back(substitute)
            self._report_failure(attempt, error)
        return None

    def _substitute(self, attempt: Attempt, error: RunFailed) -> Outputs | None:
        """The candidate in float64, where ONNX Runtime rather than the candidate may be why it does not run."""
        candidate = attempt.candidate
        if isinstance(candidate, EngineParticipant):
            return None
        is_network = isinstance(candidate, NetworkParticipant)
        if self.uses_float64_reference or is_network or _NO_KERNEL in error.reason:
            return self._in_float64_instead(candidate, attempt.feeds, attempt.run.trial.label, error)
        return None

    def _report_failure(self, attempt: Attempt, error: RunFailed) -> None:
        label, report = attempt.run.trial.label, attempt.report
        could_not = _NO_KERNEL in error.reason or error.timed_out or error.signal is not None or error.out_of_memory
        if could_not and report.verdicts:
            self._result.skipped.append(f"{label}: {report.label} was not run there: {error.reason}")
        else:
            report.error, report.unavailable = f"{label}: {error.reason}", could_not


def _stored(values: np.ndarray, kind: TensorType | None) -> np.ndarray:
    """``values`` in the type that the file declares, as far as it declares one."""
    return values if kind is None or not kind.dtype else values.astype(onnx.helper.tensor_dtype_to_np_dtype(kind.dtype))
