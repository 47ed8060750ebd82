"""Answers that float64 gives on the participants of a comparison, or why it gives none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from trtnorm_cli.compare.float64_runs import Float64Runs, NotWanted
from trtnorm_cli.compare.inner_tensors import InnerTensors
from trtnorm_cli.compare.lockstep import Side, go_together, go_while_roomy
from trtnorm_cli.compare.participants import OnnxParticipant, RunnableReference
from trtnorm_cli.compare.result import Feeds
from trtnorm_cli.compare.trial_run import Attempt, TrialRun
from trtnorm_cli.evaluate.float64 import Known, Reference, ReferenceUnavailable, Watch
from trtnorm_cli.onnx_model.walk import tensor_names


class Float64Answers:
    """``is_refused`` is true once the reference could not be evaluated. ``note`` is told why, once for each participant.

    With ``looks_inside`` tensors inside candidates are held to those of the reference.
    """

    def __init__(
        self, reference: RunnableReference, exact: Float64Runs, note: Callable[[str], None], looks_inside: bool
    ) -> None:
        self._reference, self._exact, self._note, self._looks_inside = reference, exact, note, looks_inside
        self.is_refused = False

    def begin_reference(self, run: TrialRun) -> None:
        """Evaluate the reference, of which the tensors inside and the ties are remembered, while there is room for these.

        Where there is not, the rest is left to ``finish``.
        """
        if self.is_refused or not isinstance(self._reference, OnnxParticipant):
            return
        try:
            evaluation = self._exact.begin(
                self._reference, run.trial.feeds, run.keep, run.known, ties=run.ties, kept=run.inner.names
            )
        except ReferenceUnavailable as error:
            run.exact = error
            return
        run.begun = Side(evaluation, run.inner)
        go_while_roomy(run.begun, run.known)
        if run.begun.is_over:
            run.exact, run.begun = self._result(self._reference, run.trial.feeds, run.begun), None

    def finish(self, run: TrialRun, attempts: Sequence[Attempt], watch: Callable[[Attempt], None]) -> None:
        """Evaluate the rest of the reference that was begun, and candidates beside it; ``watch`` is told of each before.

        Raises ``NotWanted`` where these are not wanted any more. Then the reference has to begin anew if it needs them.
        """
        assert run.begun is not None
        assert isinstance(self._reference, OnnxParticipant)
        if not self._are_kept(run, attempts):
            run.inner = InnerTensors()
            evaluation = self._exact.begin(self._reference, run.trial.feeds, run.keep, run.known, ties=run.ties)
            run.begun = Side(evaluation, run.inner)
        try:
            self._go_together(run, run.begun, attempts, watch)
        except NotWanted:
            if not run.inner.has_all:
                run.begun, run.inner = None, InnerTensors(names=run.inner.names)
            raise
        run.exact, run.begun = self._result(self._reference, run.trial.feeds, run.begun), None

    def evaluate(self, run: TrialRun, attempts: Sequence[Attempt], watch: Callable[[Attempt], None]) -> None:
        """Evaluate candidates, and the reference again beside them where tensors that both have are not kept."""
        before, again = run.inner, self._again(run, attempts)
        if again is not None:
            run.inner = again.kept
            try:
                self._go_together(run, again, attempts, watch)
            except BaseException:  # it is not wanted any more: the next candidate has to ask again
                run.inner = before
                raise
        for attempt in attempts:
            candidate = attempt.candidate
            if attempt.found is None and isinstance(candidate, OnnxParticipant):
                if attempt.follower is None:
                    watch(attempt)
                attempt.found = self.evaluated(candidate, attempt.feeds, attempt.watch, run.known)

    def _again(self, run: TrialRun, attempts: Sequence[Attempt]) -> Side | None:
        """The reference once more, where tensors of a candidate have a partner in it that was not kept."""
        kept = run.inner.values
        if self.is_refused or not isinstance(self._reference, OnnxParticipant) or not self._watched(attempts):
            return None
        if run.inner.has_all and self._are_kept(run, attempts):
            return None

        def keep(name: str, value: Any) -> Any:
            return run.keep(name, kept.get(name, value))

        try:
            return Side(self._exact.begin(self._reference, run.trial.feeds, keep, run.known), InnerTensors())
        except ReferenceUnavailable:
            return None

    def _watched(self, attempts: Sequence[Attempt]) -> list[OnnxParticipant]:
        """Candidates whose tensors inside are held to those of the reference."""
        candidates = [attempt.candidate for attempt in attempts] if self._looks_inside else []
        return [one for one in candidates if isinstance(one, OnnxParticipant) and one.shares_tensors]

    def _are_kept(self, run: TrialRun, attempts: Sequence[Attempt]) -> bool:
        """False where a tensor inside a candidate has a partner in the reference that is none of those to be kept."""
        names = run.inner.names
        if names is None or not isinstance(self._reference, OnnxParticipant):
            return True
        others = tensor_names(self._reference.model.graph) - names
        return all(others.isdisjoint(tensor_names(one.model.graph)) for one in self._watched(attempts))

    def _go_together(self, run: TrialRun, first: Side, attempts: Sequence[Attempt], watch: Callable[[Attempt], None]) -> None:
        sides = list[tuple[OnnxParticipant, Attempt, Side]]()
        for attempt in attempts:
            watch(attempt)
            candidate, seen = attempt.candidate, attempt.seen
            if isinstance(candidate, OnnxParticipant):
                try:
                    evaluation = self._exact.begin(candidate, attempt.feeds, attempt.watch, run.known)
                except ReferenceUnavailable as error:
                    attempt.found = error
                    continue
                side = Side(evaluation, InnerTensors()) if seen is None else Side(evaluation, seen.own, seen.slices)
                sides.append((candidate, attempt, side))
        if not go_together(first, [side for *_, side in sides], run.known, self._exact.is_wanted):
            raise NotWanted
        for candidate, attempt, side in sides:
            if side.is_over:
                attempt.found = self._result(candidate, attempt.feeds, side)

    def _result(self, participant: OnnxParticipant, feeds: Feeds, side: Side) -> Reference | ReferenceUnavailable:
        return side.error or self._exact.end(participant, feeds, side.evaluation)

    def evaluated(
        self, participant: OnnxParticipant, feeds: Feeds, watch: Watch | None = None, known: Known | None = None
    ) -> Reference | ReferenceUnavailable | None:
        """The participant in float64, or why that is not possible or takes too long; None where it was refused before."""
        if self.is_refused:
            return None
        try:
            return self._exact.evaluate(participant, feeds, watch, known)
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
