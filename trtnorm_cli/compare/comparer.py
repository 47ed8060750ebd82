"""Run trials one after the other, and measure noise where a candidate is further off than a few units in the last place."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain

import numpy as np

from trtnorm_cli.compare.alike import found_alike
from trtnorm_cli.compare.budget import Budget
from trtnorm_cli.compare.calibration import RUNS, STEPS
from trtnorm_cli.compare.candidates import never
from trtnorm_cli.compare.float64_answers import Float64Answers
from trtnorm_cli.compare.float64_runs import Float64Runs
from trtnorm_cli.compare.inner_tensors import first_difference
from trtnorm_cli.compare.native_runs import NativeRuns
from trtnorm_cli.compare.noise import NoiseMeter
from trtnorm_cli.compare.participant_runs import ParticipantRuns
from trtnorm_cli.compare.participants import (
    Candidate,
    ModuleParticipant,
    OnnxParticipant,
    RunnableReference,
    coarsest_ulp,
)
from trtnorm_cli.compare.result import NOT_COMPARED, CandidateReport, Comparison, Options, Outputs, Trial
from trtnorm_cli.compare.trial_run import Attempt, Pairing, TrialRun
from trtnorm_cli.compare.verdict import CONSTANTS, Measured, judged
from trtnorm_cli.evaluate.float64 import Known, Ties, nearness
from trtnorm_cli.evaluate.metrics import Distance, distance
from trtnorm_cli.evaluate.ort_runner import AskedRuns, OrtRunner
from trtnorm_cli.heap import give_back_freed_memory
from trtnorm_cli.records.comparison import OutputVerdict

# An evaluation may take so many seconds where a candidate failed at smaller inputs: what nobody looks at closely would pass.
_SUSPECTED_S = 120.0


class Comparer:
    """Remembers between trials what float64 said of the reference, and how much time was used.

    ``known`` are the constants that another comparison of the same models knows. ``following`` is the trial behind the
    first, which may begin while it waits for engines.
    """

    def __init__(
        self,
        reference: RunnableReference,
        runner: OrtRunner,
        options: Options,
        result: Comparison,
        known: Known | None = None,
        following: Trial | None = None,
    ) -> None:
        self.reference, self.runner, self.options, self.result = reference, runner, options, result
        self._following = following
        self.pairings: Sequence[Pairing] = ()
        self._natives = NativeRuns(runner)
        self._begun: dict[str, TrialRun] = {}
        self.budget = Budget(options, self._natives)
        self._reference_errors: dict[str, Distance] = {}
        self._native_bounds: dict[str, Distance] = {}
        # True where the candidate was found to be the reference without the values of that.
        self._is_alike = False
        self._exact = Float64Runs(options.budget_s)
        self._float64 = Float64Answers(reference, self._exact, result.note, looks_inside=not options.tolerances)
        self._runs = ParticipantRuns(reference, self._natives, self._float64, self.budget, options, result)
        self._noise = NoiseMeter(reference, self._exact, runner)
        self.known = Known(takes_folds=options.takes_folds) if known is None else known
        if options.own_weights and known is None:
            self.known.lend(options.own_weights)
        # Candidates that were tried, with their noise and the notes on them.
        self._tried: list[tuple[list[Attempt], NoiseMeter, list[str]]] = []
        # What was known of the first trial before any was tried.
        self._before_tries: frozenset[int] | None = None
        # Runs of candidates that were likely, by the trial.
        self._ahead: dict[str, list[tuple[Candidate, AskedRuns]]] = {}
        # True once a trial ran here: the first is run in any case.
        self._has_run = False
        # True where the last candidate follows from the others, and these passed at smaller inputs.
        self._last_speaks_for_all = False

    def prepare(self, trial: Trial) -> None:
        """Work on the reference alone, while candidates are still being made."""
        run = self._begin(trial)
        if isinstance(self.reference, OnnxParticipant) and self._wants_float64():
            run.inner.names = self.options.likely
            if not self.options.is_unchanged:
                self._float64.begin(run)

    def begin(self, trial: Trial, last_only: bool = False) -> None:
        """Begin the runs of the reference and of the candidates that there are, or of the last one."""
        self._ask_candidates(self._begin(trial), last_only)

    def ask_ahead(self, trial: Trial, candidates: Sequence[Candidate]) -> None:
        """Begin the runs of candidates that are likely to be asked for in ``trial``, where none were begun so."""
        if trial.label not in self._ahead:
            running = [candidate for candidate in candidates if isinstance(candidate, OnnxParticipant)]
            feeds = (Pairing(self.reference, candidate, self.options.by_position).feeds(trial) for candidate in running)
            asked = map(self._natives.ask, running, feeds)
            self._ahead[trial.label] = list(zip(running, asked, strict=True))

    def go_ahead(self, first: Trial, candidates: Sequence[Candidate], nobody_waits: Callable[[], bool]) -> None:
        """Begin the trial that follows the ``first``, which has begun, with candidates that are likely.

        Only while ``nobody_waits``, and where there is time for it. It takes no longer than runs may.
        """
        run = self._begin(first)
        begun = [run.asked, *(attempt.asked for attempt in run.attempts), *self._asked_ahead(first)]
        if self._following is None or self._following.label in self._ahead or not nobody_waits():
            return
        self.runner.collect()
        if not nobody_waits() or any(one is None or one.failure is not None for one in begun):
            return
        took_s = sum(one.computing_s for one in begun if one is not None)
        if self.budget.may_go_ahead(took_s * self._following.elements / max(first.elements, 1)):
            following = self._begin(self._following)
            self.ask_ahead(self._following, candidates)
            self.budget.limit([following.asked, *self._asked_ahead(self._following)])

    def _asked_ahead(self, trial: Trial) -> list[AskedRuns]:
        return [asked for _, asked in self._ahead.get(trial.label, ())]

    def _has_begun(self, trial: Trial) -> bool:
        """True where most of what ``trial`` costs was paid: the candidates run, and there is nothing to evaluate."""
        if trial.label not in self._begun or trial.label not in self._ahead:
            return trial.label in self._begun
        ahead = [candidate for candidate, _ in self._ahead[trial.label]]
        needed = self.pairings[-1:] if self._last_speaks_for_all else self.pairings
        are_there = all(any(pairing.candidate is candidate for candidate in ahead) for pairing in needed)
        return are_there and not (self._has_run and self._wants_float64())

    def try_out(
        self, candidates: Iterable[Candidate], may_stay: Callable[[], bool], nobody_waits: Callable[[], bool] = never
    ) -> None:
        """Work on candidates that may be those of the comparison, in the trial that was prepared.

        It is given up once ``may_stay`` is false, and where something goes wrong: that goes wrong again, and is told, where
        the candidate counts. What was found out is taken over if ``add`` is given the same ones.
        """
        run, said = next(iter(self._begun.values()), None), (list(self.result.notes), list(self.result.skipped))
        if run is None or not self._wants_float64() or not self._float64.begin(run):
            return
        candidates = iter(candidates)
        self._forget_tries(run)
        with self.budget.paid(), suppress(Exception), self._exact.while_wanted(may_stay):
            is_left = run.begun is not None
            if is_left:  # the rest of the reference is evaluated beside them
                deque(self._ask_tried(run, candidates), maxlen=0)
            if run.truth is None:  # while it runs
                self._learn_truth(run)
            if self._know_reference(run):
                self._before_tries = run.known.mark(run.inner.values.values()) if is_left else self._before_tries
                said = list(self.result.notes), list(self.result.skipped)
                self._try(run, candidates)
                self.go_ahead(run.trial, [attempt.candidate for attempt in run.attempts], nobody_waits)
        # What is tried next, or added, knows nothing of these.
        run.attempts, run.near, self._noise = [], [], NoiseMeter(self.reference, self._exact, self.runner)
        self.result.notes[:], self.result.skipped[:] = said

    def _forget_tries(self, run: TrialRun) -> None:
        """Make room for what is found of the next candidates: those that were tried are likely to stay no more."""
        if self._before_tries is None:
            self._before_tries = run.known.mark()
        run.known.forget_since(self._before_tries)

    def _ask_tried(self, run: TrialRun, candidates: Iterable[Candidate]) -> Iterator[Attempt]:
        for candidate in candidates:
            report = CandidateReport(candidate.label, candidate.kind, notes=list(candidate.notes))
            self._ask(run, Pairing(self.reference, candidate, self.options.by_position), report)
            yield run.attempts[-1]

    def _try(self, run: TrialRun, candidates: Iterable[Candidate]) -> None:
        self._float64.learn(run, chain(run.attempts, self._ask_tried(run, candidates)))
        for attempt in run.attempts:
            self._look_inside(attempt)
        self._tried.append((run.attempts, self._noise, list(self.result.notes)))
        bounds = dict(self._native_bounds)
        try:
            for attempt in run.attempts:
                self._foresee(attempt)
        finally:
            self._native_bounds = bounds

    def _foresee(self, attempt: Attempt) -> None:
        """Measure the noise that the verdicts on a candidate that was tried out will ask for."""
        if attempt.run.truth is not None and attempt.asked is not None:
            self._verdicts(attempt, attempt.pairing.back(attempt.asked.results()[0]))

    def add(self, candidates: Sequence[Candidate]) -> None:
        """The candidates; raises ``UsageProblem`` where inputs or outputs do not correspond."""
        for attempts, noise, notes in self._tried:
            if [id(attempt.candidate) for attempt in attempts] == [id(candidate) for candidate in candidates] and attempts:
                attempts[0].run.attempts, self._noise, self.result.notes[:] = attempts, noise, notes
                self.pairings = [attempt.pairing for attempt in attempts]
                self.result.candidates = [attempt.report for attempt in attempts]
                return
        for run in self._begun.values():
            self._forget_tries(run)
        self.pairings = [Pairing(self.reference, candidate, self.options.by_position) for candidate in candidates]
        self.result.candidates = [CandidateReport(c.label, c.kind, notes=list(c.notes)) for c in candidates]

    def take_over(self, smaller: Comparer) -> None:
        """Take over what was found of the same candidates at smaller inputs, which stand for the first trial in float64."""
        found = smaller.result
        self.result.trials += found.trials
        self.result.notes += [note for note in found.notes if note not in self.result.notes]
        self.result.float64.update(found.float64)
        for report, other in zip(self.result.candidates, found.candidates, strict=True):
            report.verdicts += other.verdicts
            report.inner, report.depth, report.depth_at = other.inner, other.depth, other.depth_at
        self._reference_errors.update(smaller._reference_errors)
        self._native_bounds.update(smaller._native_bounds)
        self._last_speaks_for_all = True

    def leave_out(self, trial: Trial, why_not: str, smaller: Comparer, times: float) -> None:
        """Go on without ``trial``, which takes so many ``times`` as long as that of the ``smaller``, which stood for it.

        What larger ones take is foreseen from that.
        """
        self.result.skipped.append(f"{trial.label}: not run, {why_not}")
        self._has_run, self.budget.last = True, smaller.budget.last
        if (last := self.budget.last) is not None:
            self.budget.steepness = times * max(last.trial.elements, 1) / max(trial.elements, 1)

    def has_begun(self, trial: Trial) -> bool:
        """True where runs of ``trial`` were asked for."""
        return trial.label in self._begun

    def take_longer(self) -> None:
        """Give evaluations in float64 more time: there is a reason to believe that a candidate is another model."""
        self._exact.budget_s = max(self._exact.budget_s, _SUSPECTED_S)

    @property
    def uses_float64_reference(self) -> bool:
        """True once ONNX Runtime has not run the reference."""
        return self._runs.uses_float64_reference

    @property
    def is_free_of_doubt(self) -> bool:
        """True where everything that was asked of every candidate passed."""
        return bool(self.result.trials) and all(map(_is_free_of_doubt, self.result.candidates))

    @property
    def has_exact_verdicts(self) -> bool:
        """True where float64 says something of each output of every candidate that runs."""
        verdicts = [verdict for report in self.result.candidates if report.error is None for verdict in report.verdicts]
        return bool(verdicts) and all(verdict.exact is not None for verdict in verdicts)

    def has_judged_last(self, trial: Trial) -> bool:
        """True where the last candidate has verdicts on ``trial``."""
        return any(verdict.trial == trial.label for report in self.result.candidates[-1:] for verdict in report.verdicts)

    def has_undecided(self) -> bool:
        """True while nothing can be said of a candidate that runs, on the data so far."""
        return any(report.error is None and report.state == NOT_COMPARED for report in self.result.candidates)

    def run(self, trial: Trial, following: Trial | None = None) -> None:
        """Run ``trial`` if there is time, and add the verdicts on it to the result. ``following`` is begun if it is short.

        What was begun is judged in any case: most of its cost was paid while others were evaluated.
        """
        if self.result.candidates and all(report.error is not None for report in self.result.candidates):
            return
        is_begun, expected = self._has_begun(trial), self.budget.expected_s(trial, self._wants_float64())
        why_not = self.budget.used_up(is_begun, expected) if self._has_run else None
        why_not = why_not or (None if is_begun or not self._has_run else self.budget.too_long(expected))
        if why_not is not None:
            self.result.skipped.append(f"{trial.label}: not run, {why_not}")
            return
        left = self.budget.seconds_for_runs() if self._has_run else None
        run = self._begin(trial)
        del self._begun[trial.label]
        self._ask_candidates(run, self._last_speaks_for_all)
        if self._wants_float64() and not self._find_alike(run):
            self._float64.begin(run)
        if not self._know_reference(run, left):
            return
        if following is not None and self.budget.is_short(following, run):
            self._ask_candidates(self._begin(following), self._last_speaks_for_all)
        self.result.trials.append(trial.label)
        self._has_run = True
        self._judge_all(run)
        if trial.label not in self.result.trials:  # nothing was said of it
            self._ahead.pop(trial.label, None)
            return
        if self._last_speaks_for_all and not (self.is_free_of_doubt and self.has_judged_last(trial)):
            self._last_speaks_for_all = False
            judged = list(run.attempts)
            self._ask_candidates(run)
            self._judge_all(run, judged)
        self.budget.last = run
        self._ahead.pop(trial.label, None)

    def _begin(self, trial: Trial) -> TrialRun:
        if trial.label not in self._begun:
            run = TrialRun(trial, self.known.for_other_inputs(), Ties(self._nearness()))
            if isinstance(self.reference, OnnxParticipant):
                run.asked = self._natives.ask(self.reference, trial.feeds)
            self._begun[trial.label] = run
        return self._begun[trial.label]

    def _ask_candidates(self, run: TrialRun, last_only: bool = False) -> None:
        """Begin the runs of the candidates that ran so far, or of the last one, where that was not done."""
        begun = {id(attempt.pairing) for attempt in run.attempts}
        asked = list(zip(self.pairings, self.result.candidates, strict=True))
        for pairing, report in asked[-1:] if last_only else asked:
            if report.error is None and id(pairing) not in begun:
                self._ask(run, pairing, report)
        places = {id(pairing): place for place, pairing in enumerate(self.pairings)}
        run.attempts.sort(key=lambda attempt: places.get(id(attempt.pairing), -1))

    def _ask(self, run: TrialRun, pairing: Pairing, report: CandidateReport) -> None:
        attempt = Attempt(run, pairing, report, pairing.feeds(run.trial))
        for candidate, asked in self._ahead.get(run.trial.label, ()):
            if candidate is attempt.candidate:
                attempt.asked = asked
        if attempt.asked is None and isinstance(attempt.candidate, OnnxParticipant):
            attempt.asked = self._natives.ask(attempt.candidate, attempt.feeds)
        run.attempts.append(attempt)

    def _know_reference(self, run: TrialRun, left: float | None = None) -> bool:
        """Learn what the reference gives, run and in float64; False where it does not run."""
        wants_float64 = self._wants_float64()
        if not run.native:
            native = self._runs.of_reference(run, left)
            if native is None:
                return False
            run.native = native
            self._remember_errors(run)
        if wants_float64 and run.truth is None and not run.is_alike:
            self._learn_truth(run)
        return True

    def _find_alike(self, run: TrialRun) -> bool:
        """True where the only candidate is found to be the reference without its values."""
        if self.options.is_unchanged and len(run.attempts) == 1 and not self.options.tolerances:
            (attempt,) = run.attempts
            found = found_alike(self.reference, attempt, self._exact)
            self._is_alike = run.is_alike = found is not None
            if found is None:
                give_back_freed_memory()
            else:
                self.result.float64.update(found.evaluated_with)
        return run.is_alike

    def _forget_alike(self, run: TrialRun) -> None:
        """Go on as if nothing had been tried without the values of the reference."""
        self._is_alike = run.is_alike = False
        self.result.float64.clear()
        for attempt in run.attempts:
            attempt.report.depth, attempt.report.depth_at = {}, ""

    def _wants_float64(self) -> bool:
        """True for the smallest trials, while nothing else can run, and while nothing could be said yet."""
        limit = self.options.float64_trials
        first = limit is None or len(self.result.trials) < limit
        is_module = isinstance(self.reference, ModuleParticipant)
        return first or self._runs.uses_float64_reference or is_module or self.has_undecided()

    def _learn_truth(self, run: TrialRun) -> None:
        """Evaluate the reference in float64, where that is possible within the budget."""
        if isinstance(self.reference, ModuleParticipant):
            run.truth = self.reference.recorded[run.trial.label].exact
        else:
            found = self._float64.noted(self.reference, run.trial.label, self._float64.of_reference(run))
            if found is not None:
                self.result.float64.update(found.evaluated_with)
                run.truth, run.float64_s = found.outputs, found.seconds
        self._remember_errors(run)

    def _remember_errors(self, run: TrialRun) -> None:
        """Keep the larger of the distances seen: one lucky run must not make the bound tight for the others."""
        for name, exact in (run.truth or {}).items() if run.native else ():
            error, known = distance(exact, run.native[name]), self._reference_errors.get(name)
            if known is None or error.largest > known.largest:
                self._reference_errors[name] = error

    def _judge_all(self, run: TrialRun, judged: Sequence[Attempt] = ()) -> None:
        """Judge every candidate after all were evaluated: what noise is asked of depends on all of them.

        Those that were ``judged`` before are not judged again.
        """
        left = (attempt for attempt in run.attempts if all(attempt is not other for other in judged))
        running = [attempt for attempt in left if attempt.report.error is None]
        self._float64.learn(run, running)
        ran = [(attempt, got) for attempt in running if (got := self._runs.of_candidate(attempt)) is not None]
        said = [(attempt, got, self._verdicts(attempt, got)) for attempt, got in ran]
        if (why_not := self._why_not_judged(run, [(attempt.report, verdicts) for attempt, _, verdicts in said])) is not None:
            self.result.skipped.append(f"{run.trial.label}: not judged, {why_not}")
            self.result.trials.remove(run.trial.label)
            return
        knew = run.truth
        for attempt, got, verdicts in said:
            current = verdicts if run.truth is knew else self._verdicts(attempt, got)
            attempt.report.verdicts += self._judged(attempt, got, current)

    def _why_not_judged(self, run: TrialRun, said: Sequence[tuple[CandidateReport, list[OutputVerdict]]]) -> str | None:
        """Why nothing is said of a larger trial: its runs say nothing, and there is no time to evaluate it in float64.

        None where something speaks against a candidate, or nothing was said of an output in the trials before.
        """
        if run.truth is not None or run.is_alike or self._float64.is_refused:
            return None
        too_long = self.budget.too_long(self.budget.expected_float64_s(run.trial))
        unsaid = [(report, verdict) for report, verdicts in said for verdict in verdicts if verdict.passed is not True]
        if too_long is None or not unsaid or any(map(_speaks_against, (verdict for _, verdict in unsaid))):
            return None
        is_known = all(any(o.output == v.output and o.passed is True for o in report.verdicts) for report, v in unsaid)
        return f"{unsaid[0][1].reason}; in float64 {too_long}" if is_known else None

    def _judged(self, attempt: Attempt, got: Outputs, verdicts: list[OutputVerdict]) -> list[OutputVerdict]:
        """The verdicts; where the runs alone speak against the candidate, or say nothing, float64 is asked too."""
        run = attempt.run
        if run.is_alike and any(v.passed is not True for v in verdicts):
            self._forget_alike(run)
            self._learn_truth(run)
            self._float64.learn(run, run.attempts)
            return self._verdicts(attempt, got)
        if run.truth is None and not self._float64.is_refused and any(v.passed is not True for v in verdicts):
            self._learn_truth(run)
            self._float64.learn(run, run.attempts)
            verdicts = verdicts if run.truth is None else self._verdicts(attempt, got)
        return verdicts

    def _verdicts(self, attempt: Attempt, got: Outputs) -> list[OutputVerdict]:
        self._look_inside(attempt)
        exact = attempt.exact or {}
        return [self._verdict(attempt, name, got.get(name), exact.get(name)) for name in attempt.run.native]

    def _look_inside(self, attempt: Attempt) -> None:
        """Remember the first inner tensor that is further off than rounding explains."""
        run, report, worst = attempt.run, attempt.report, None
        if not attempt.suspicious or attempt.slices is None:
            return
        names = frozenset(name for each in run.attempts for name in each.suspicious)
        for runs in STEPS:
            if run.float64_s * runs > self._exact.budget_s:
                seconds = f"{run.float64_s * runs:.0f} s"
                self.result.note(f"{run.trial.label}: tensors inside were not looked at, which would take {seconds}")
                return
            if (held_to := (self._noise, runs, names)) not in attempt.looked:
                ulp = coarsest_ulp(self.reference, attempt.candidate)
                noise = self._noise.measured(attempt, CONSTANTS, ulp, runs, names).inner
                attempt.looked[held_to] = first_difference(attempt.slices, attempt.suspicious, noise) if noise else None
            worst = attempt.looked[held_to]
            if worst is None or worst.share <= math.sqrt(runs / RUNS):  # all runs allow no less than this share of it
                break
        if worst is not None and (report.inner is None or worst.share > report.inner.share):
            report.inner = worst

    def _verdict(self, attempt: Attempt, name: str, got: np.ndarray | None, exact: np.ndarray | None) -> OutputVerdict:
        run, wanted = attempt.run, attempt.run.native[name]
        measured = Measured(
            trial=run.trial.label,
            output=name,
            wanted=wanted,
            got=got,
            truth=None if run.truth is None else run.truth[name],
            exact=exact,
            reference_error=self._reference_errors.get(name),
            known=None if run.truth is not None else self._native_bounds.get(name),
            ulp=coarsest_ulp(self.reference, attempt.candidate, arrays=(wanted, got)),
            is_module=isinstance(self.reference, ModuleParticipant),
            is_alike=self._is_alike,
            is_same=run.is_alike,
        )
        given = self.options.tolerances.get(name, self.options.tolerances.get(""))
        verdict = judged(measured, given, self._noise.of_output(attempt, name, measured.ulp), self.options.max_error)
        if verdict.bound is not None and run.truth is not None:
            self._native_bounds[name] = verdict.bound.native
        return verdict

    def _nearness(self) -> float:
        return 0.0 if isinstance(self.reference, ModuleParticipant) else nearness(coarsest_ulp(self.reference))


def _is_free_of_doubt(report: CandidateReport) -> bool:
    """True where everything that was asked of a candidate passed."""
    is_inner_alike = report.inner is None or report.inner.share <= 1
    return report.error is None and is_inner_alike and all(verdict.passed is True for verdict in report.verdicts)


def _speaks_against(verdict: OutputVerdict) -> bool:
    """True for a verdict that is no "passed", and not only as rounding allows too much to say anything."""
    return verdict.passed is False or (verdict.share is not None and verdict.share > 1)
