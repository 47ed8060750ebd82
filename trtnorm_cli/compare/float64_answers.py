"""Answers that float64 gives on the participants of a comparison, or why it gives none."""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Any

from trtnorm_cli.compare.float64_runs import Float64Runs
from trtnorm_cli.compare.participants import OnnxParticipant, RunnableReference
from trtnorm_cli.compare.result import Feeds
from trtnorm_cli.compare.trial_run import TrialRun
from trtnorm_cli.evaluate.float64 import Known, Reference, ReferenceUnavailable, Ties, Watch
from trtnorm_cli.onnx_model.walk import tensor_names


class Float64Answers:
    """``is_refused`` is true once the reference could not be evaluated. ``note`` is told why, once for each participant."""

    def __init__(self, reference: RunnableReference, exact: Float64Runs, note: Callable[[str], None]) -> None:
        self._reference, self._exact, self._note = reference, exact, note
        self.is_refused = False

    def of_reference(self, run: TrialRun) -> Reference | ReferenceUnavailable | None:
        """The reference in float64, of which the tensors inside and the ties are remembered."""
        assert isinstance(self._reference, OnnxParticipant)
        return self.evaluated(self._reference, run.trial.feeds, run.keep, run.known, run.ties, run.inner.names)

    def keep_all(self, run: TrialRun, candidate: OnnxParticipant) -> None:
        """Evaluate the reference once more where tensors of ``candidate`` have a partner in it that was not kept."""
        names, kept = run.inner.names, dict(run.inner.values)
        if names is None or not isinstance(self._reference, OnnxParticipant):
            return
        if tensor_names(candidate.model.graph) & tensor_names(self._reference.model.graph) <= names:
            return
        run.inner.names = None

        def keep(name: str, value: Any) -> Any:
            return kept[name] if name in kept else run.keep(name, value)

        try:
            self.evaluated(self._reference, run.trial.feeds, keep, run.known)
        except BaseException:  # it is not wanted any more: the next candidate has to ask again
            run.inner.names = names
            raise

    def evaluated(
        self,
        participant: OnnxParticipant,
        feeds: Feeds,
        watch: Watch | None = None,
        known: Known | None = None,
        ties: Ties | None = None,
        kept: Set[str] | None = None,
    ) -> Reference | ReferenceUnavailable | None:
        """The participant in float64, or why that is not possible or takes too long; None where it was refused before."""
        if self.is_refused:
            return None
        try:
            return self._exact.evaluate(participant, feeds, watch, known, ties=ties, kept=kept)
        except ReferenceUnavailable as error:
            return error

    def noted(
        self, participant: OnnxParticipant, label: str, found: Reference | ReferenceUnavailable | None
    ) -> Reference | None:
        """The evaluation that was found, or None with a note."""
        if isinstance(found, ReferenceUnavailable):
            where = f" ({found.where})" if found.where else ""
            self._without_float64(participant, label, f"{found.summary}{where}")
            return None
        return found

    def _without_float64(self, participant: OnnxParticipant, label: str, reason: str) -> None:
        """Note why there is no float64 run. Without one of the reference, larger trials need not ask again."""
        self.is_refused = self.is_refused or participant is self._reference
        self._note(f"{label}: no float64 run of {participant.label}: {reason}")
