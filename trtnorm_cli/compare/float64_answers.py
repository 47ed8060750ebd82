"""Answers that float64 gives on the participants of a comparison, or why it gives none."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from trtnorm_cli.compare.float64_runs import Float64Runs, NotWanted
from trtnorm_cli.compare.inner_tensors import FLOOR_ULPS, InnerTensors, Recognition, SliceDistances, suspicious
from trtnorm_cli.compare.lockstep import Side, go_together, go_while_roomy
from trtnorm_cli.compare.participants import OnnxParticipant, RunnableReference, coarsest_ulp
from trtnorm_cli.compare.result import Feeds
from trtnorm_cli.compare.sampled_places import sampled_places, within_images
from trtnorm_cli.compare.trial_run import Attempt, TrialRun
from trtnorm_cli.evaluate.float64 import Follower, Known, Reference, ReferenceUnavailable, Watch
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

    def begin(self, run: TrialRun) -> bool:
        """Begin with the reference, where that was not done; True where it is evaluated now, or as far as there is room.

        The tensors inside it and the ties are remembered. Where there is no room for them, the rest is left to ``finish``.
        """
        if run.exact is None and run.begun is None:
            self._start(run)
            if run.begun is not None:
                go_while_roomy(run.begun, run.known)
                if run.begun.is_over:
                    self._end(run, run.begun)
        return run.exact is not None or run.begun is not None

    def _start(self, run: TrialRun) -> None:
        if self.is_refused or not isinstance(self._reference, OnnxParticipant):
            return
        feeds, names = run.trial.feeds, run.inner.names
        try:
            free = run.free_values
            watch: Watch = run.keep
            if self._reference.is_resized and free is None:
                watch = within_images(sampled_places(self._reference.model), watch)
            evaluation = self._exact.begin(
                self._reference, feeds, watch, run.known, None, run.ties, names, free, gives_up_early=free is None
            )
        except ReferenceUnavailable as error:
            run.exact = error
        else:
            run.begun = Side(evaluation, run.inner)

    def _end(self, run: TrialRun, side: Side) -> None:
        assert isinstance(self._reference, OnnxParticipant)
        run.exact, run.begun = self._result(self._reference, run.trial.feeds, side), None

    def of_reference(self, run: TrialRun) -> Reference | ReferenceUnavailable | None:
        """The reference in float64, or why there is none."""
        self.begin(run)
        self.finish(run)
        return run.exact

    def evaluate_together(self, run: TrialRun) -> None:
        """Evaluate the reference and the candidates beside each other from the start. Raises ``NotWanted``."""
        self._start(run)
        self.finish(run)

    def finish(self, run: TrialRun) -> None:
        """Evaluate the rest of the reference, where it was begun, and beside it what can be of the candidates.

        Raises ``NotWanted`` where these are not wanted any more. Then the reference has to begin anew if it needs them.
        """
        attempts = list(filter(self._is_evaluated, run.attempts))
        if run.begun is not None and not self._are_kept(run, attempts):
            run.begun, run.inner = None, InnerTensors()
            self._start(run)
        if run.begun is None:
            return
        first = run.begun
        try:
            self._go_together(run, first, attempts)
        except NotWanted:
            if not run.inner.has_all:
                run.begun, run.inner = None, InnerTensors(names=run.inner.names)
            raise
        self._end(run, first)

    def learn(self, run: TrialRun, attempts: Iterable[Attempt]) -> None:
        """Evaluate candidates where the reference was, and look how far the tensors inside them are off.

        All are evaluated at once where the reference is evaluated again beside them.
        """
        if run.truth is None:
            deque(attempts, maxlen=0)  # whoever gives them asks for their runs
            return
        if not run.inner.has_all:
            attempts = list(attempts)
            self._evaluate(run, [attempt for attempt in attempts if attempt.found is None and self._is_evaluated(attempt)])
        for attempt in attempts:
            if attempt.exact is None and self._is_evaluated(attempt):
                self._learn(run, attempt)

    def _learn(self, run: TrialRun, attempt: Attempt) -> None:
        if attempt.found is None:
            self._evaluate(run, [attempt])
        assert isinstance(attempt.candidate, OnnxParticipant)
        found, seen = self.noted(attempt.candidate, run.trial.label, attempt.found), attempt.seen
        if seen is not None:
            attempt.suspicious, attempt.slices = suspicious(seen.slices), seen.slices
            attempt.looked.clear()
            if not attempt.report.depth:
                attempt.report.depth, attempt.report.depth_at = seen.depth, run.trial.label
            attempt.seen = None  # it holds tensors, which are for other candidates in this trial only
        attempt.exact = attempt.pairing.back(found.outputs) if found else {}
        attempt.follows = attempt.follower is None or attempt.follower.has_all
        attempt.constants = found.constants if found else None

    def _evaluate(self, run: TrialRun, attempts: Sequence[Attempt]) -> None:
        """Evaluate candidates, and the reference again beside them where tensors that both have are not kept."""
        before, again = run.inner, self._again(run, attempts)
        if again is not None:
            run.inner = again.kept
            try:
                self._go_together(run, again, attempts)
            except BaseException:  # it is not wanted any more: the next candidate has to ask again
                run.inner = before
                raise
        for attempt in attempts:
            candidate = attempt.candidate
            if attempt.found is None and isinstance(candidate, OnnxParticipant):
                if attempt.follower is None:
                    self._watch(attempt)
                attempt.found = self.evaluated(candidate, attempt.feeds, attempt.watch, run.known)

    def _again(self, run: TrialRun, attempts: Sequence[Attempt]) -> Side | None:
        """The reference once more, where tensors of a candidate have a partner in it that was not kept."""
        kept = run.inner.values
        if self.is_refused or not isinstance(self._reference, OnnxParticipant) or not any(map(self._is_watched, attempts)):
            return None
        if run.inner.has_all and self._are_kept(run, attempts):
            return None

        def keep(name: str, value: Any) -> Any:
            return run.keep(name, kept.get(name, value))

        try:
            return Side(self._exact.begin(self._reference, run.trial.feeds, keep, run.known), InnerTensors())
        except ReferenceUnavailable:
            return None

    def _are_kept(self, run: TrialRun, attempts: Sequence[Attempt]) -> bool:
        """False where a tensor inside a candidate has a partner in the reference that is none of those to be kept."""
        names = run.inner.names
        if names is None or not isinstance(self._reference, OnnxParticipant):
            return True
        others = tensor_names(self._reference.model.graph) - names
        watched = (attempt.candidate for attempt in attempts if self._is_watched(attempt))
        return not any(isinstance(one, OnnxParticipant) and tensor_names(one.model.graph) & others for one in watched)

    def _is_evaluated(self, attempt: Attempt) -> bool:
        """True for candidates whose outputs in float64 say something.

        A module and its export round their constants at different places, so only their runs are held to each other.
        """
        return isinstance(self._reference, OnnxParticipant) and isinstance(attempt.candidate, OnnxParticipant)

    def _is_watched(self, attempt: Attempt) -> bool:
        """True for candidates whose tensors inside are held to those of the reference."""
        candidate = attempt.candidate
        return self._looks_inside and isinstance(candidate, OnnxParticipant) and candidate.shares_tensors

    def _watch(self, attempt: Attempt) -> None:
        """Have somebody look at the tensors inside a candidate while it is evaluated."""
        run = attempt.run
        attempt.follower = Follower(run.ties)
        if self._is_watched(attempt):
            ulp = coarsest_ulp(self._reference, attempt.candidate)
            distances = SliceDistances(run.inner, FLOOR_ULPS * ulp)
            attempt.seen = Recognition(distances, tuple(run.near), ulp, attempt.follower)
            run.near.append(attempt.seen)

    def _go_together(self, run: TrialRun, first: Side, attempts: Sequence[Attempt]) -> None:
        sides = list[tuple[OnnxParticipant, Attempt, Side]]()
        for attempt in attempts:
            self._watch(attempt)
            candidate, seen = attempt.candidate, attempt.seen
            if isinstance(candidate, OnnxParticipant):
                try:
                    evaluation = self._exact.begin(
                        candidate, attempt.feeds, attempt.watch, run.known, free_values=attempt.same_products
                    )
                except ReferenceUnavailable as error:
                    attempt.found = error
                    continue
                side = Side(evaluation, InnerTensors()) if seen is None else Side(evaluation, seen.own, seen.slices)
                sides.append((candidate, attempt, side))
        others, in_step = [side for *_, side in sides], run.free_values is not None
        if not go_together(first, others, run.known, self._exact.is_wanted, in_step):
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
