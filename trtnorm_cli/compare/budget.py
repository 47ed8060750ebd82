"""The time that a comparison may take, and whether a trial is begun in what is left of it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from trtnorm_cli.compare.native_runs import NativeRuns
from trtnorm_cli.compare.result import Options, Trial
from trtnorm_cli.compare.trial_run import TrialRun
from trtnorm_cli.evaluate.ort_runner import AskedRuns

# A candidate may take longer than the reference, which a whole budget was left for.
_SLOWER, _AT_LEAST_S = 4.0, 5.0
# A trial of so many times the elements is begun before it is certain that there is time for it.
_NOT_LONG = 8
# A trial that takes such a part of the budget at most is run though the clock says that it is used up: what uses it up is
# often the start of processes, not the runs.
_SHORT = 1 / 8
# The same of a trial that begins while engines are built.
_SHORT_AHEAD = 1 / 2
# What passed at smaller inputs is run at the model's own where that takes so many budgets, or seconds, at most.
_OWN, _OWN_AT_LEAST_S = 2, 2.0


class Budget:
    """The processor's seconds of a comparison, from the moment when this is made. ``last`` is the trial before."""

    def __init__(self, options: Options, natives: NativeRuns) -> None:
        self._options, self._natives = options, natives
        self._start = time.process_time()
        self.last: TrialRun | None = None
        # What further trials take beyond what they have in elements, where the last was at smaller inputs.
        self.steepness = 1.0

    @contextmanager
    def unpaid(self) -> Iterator[None]:
        """A block of other work, which the time for the comparison is not for."""
        start = time.process_time()
        try:
            yield
        finally:
            self._start += time.process_time() - start

    @contextmanager
    def paid(self) -> Iterator[None]:
        """A block of the comparison's work inside of an ``unpaid`` one."""
        start = time.process_time()
        try:
            yield
        finally:
            self._start -= time.process_time() - start

    def seconds_for_runs(self) -> float | None:
        """The seconds that are left for runs in ONNX Runtime; None without a bound."""
        bound = self._options.runs_budget_s
        return None if bound is None else bound - self._natives.used_s

    def used_up(self, is_begun: bool, expected_s: float | None = None) -> str | None:
        """The budget that leaves no time for a further trial, in words.

        The clock does not matter for one that was begun, nor for one that is expected to take next to nothing.
        """
        runs, total = self._options.runs_budget_s, self.total_s()
        if runs is not None and self._natives.used_s >= runs:
            return f"the {runs:g} s for runs were used up"
        if total is None or is_begun or (expected_s is not None and expected_s <= _SHORT * total):
            return None
        if self.used_s() >= total:
            return f"the {total:.2g} s for the comparison were used up"
        return None

    def used_s(self) -> float:
        """The processor's seconds that the comparison took so far. How busy the machine is does not matter to them."""
        return time.process_time() - self._start + self._natives.used_s

    def total_s(self) -> float | None:
        """The seconds that it may take at shapes beyond the smallest; None without a bound."""
        return None if self._options.total_budget_s is None else self._options.total_budget_s()

    def expected_s(self, trial: Trial, wants_float64: bool) -> float | None:
        """The seconds that ``trial`` takes if all runs of the one before grow with the elements; None where there is none.

        What does not grow is left out: the start of processes and sessions, and the wait for TensorRT's network.
        """
        last = self.last
        if last is None:
            return None
        asked = [run for run in (last.asked, *(attempt.asked for attempt in last.attempts)) if run is not None]
        exact = last.float64_s * len(asked) if wants_float64 else 0.0
        times = self.steepness * trial.elements / max(last.trial.elements, 1)
        return (sum(run.computing_s for run in asked) + exact) * times

    def expected_float64_s(self, trial: Trial) -> float | None:
        """The seconds of evaluating ``trial`` with its candidates in float64; None where the trial before was not."""
        if self.last is None or not self.last.float64_s:
            return None
        return self.last.float64_s * (1 + len(self.last.attempts)) * trial.elements / max(self.last.trial.elements, 1)

    def is_short(self, following: Trial, run: TrialRun) -> bool:
        """True for a trial to begin while ``run`` is judged: from the reference's own run there is time for it."""
        if self.total_s() is None or run.asked is None:
            return following.elements <= _NOT_LONG * run.trial.elements
        expected = run.asked.computing_s * (1 + len(run.attempts)) * following.elements / max(run.trial.elements, 1)
        return self._has_time_for(expected, _SHORT)

    def may_go_ahead(self, expected_s: float) -> bool:
        """True for a trial to begin while engines are built, when nobody waits for the comparison."""
        left = self.seconds_for_runs()
        return self._has_time_for(expected_s, _SHORT_AHEAD) and (left is None or expected_s <= left)

    def limit(self, asked: Iterable[AskedRuns | None]) -> None:
        """Let none of the runs that were ``asked`` for take longer than what is left for runs, or a few seconds."""
        left = self.seconds_for_runs()
        for one in asked:
            if one is not None and left is not None:
                one.limit_s = min(one.limit_s, max(left, _AT_LEAST_S))

    def _has_time_for(self, expected_s: float, short: float) -> bool:
        """True in what is left of the budget, and in a part of it that is ``short`` in any case."""
        total = self.total_s()
        return total is None or expected_s <= max(total - self.used_s(), short * total)

    def too_long(self, expected: float | None) -> str | None:
        """Why a trial that is much larger than the one before is left out: it would use up the budget alone."""
        total = self.total_s()
        if total is None or expected is None:
            return None
        left = max(total - self.used_s(), _SHORT * total)
        if expected > left:
            return f"it would take about {expected:.1f} s, and {left:.1f} s of {total:.2g} s for the comparison were left"
        return None

    def why_not_at_own(self, expected_s: float) -> str | None:
        """Why a trial at the model's own inputs is left out, where everything passed at smaller ones; None where it is run."""
        total = self.total_s()
        most = None if total is None else max(_OWN * total, _OWN_AT_LEAST_S)
        if most is None or expected_s <= most:
            return None
        expected = f"about {expected_s:.0f} s of the processor, more than {most:.2g} s"
        return f"all passed at smaller inputs, and this would take {expected}"

    def seconds_for_candidate(self, run: TrialRun) -> float | None:
        """The seconds that a candidate's run may take, which may be slower than that of the reference; None without a bound."""
        left = self.seconds_for_runs()
        return None if left is None else max(left, _SLOWER * run.seconds, _AT_LEAST_S)
