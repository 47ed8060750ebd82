"""Run a reference and its candidates on the same inputs and judge each output of each candidate."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import zip_longest
from typing import Any

from trtnorm_cli.compare.candidates import TryOut
from trtnorm_cli.compare.comparer import Comparer
from trtnorm_cli.compare.participants import Candidate, RunnableReference
from trtnorm_cli.compare.result import Comparison, Options, Trial
from trtnorm_cli.compare.smaller_first import SmallerFirst, SmallerTrial
from trtnorm_cli.cores import usable_cores
from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.progress import stage

# The engine's build, and an evaluation in float64.
_CORES_OF_BUILDS = 2


def _catching_up(try_out: TryOut, runner: OrtRunner) -> TryOut:
    """As ``try_out``, behind which there is nothing to do but to wait for the build: runs that were put off go on meanwhile."""

    def tried(*arguments: Any) -> None:
        try:
            try_out(*arguments)
        finally:
            runner.catch_up()

    return tried


def compare(
    reference: RunnableReference,
    candidates: Sequence[Candidate] | Callable[[TryOut], Sequence[Candidate]],
    trials: Sequence[Trial],
    options: Options,
    further: Iterable[Trial] = (),
    smaller: SmallerTrial | None = None,
) -> Comparison:
    """Judge every candidate in every trial, smallest inputs first.

    A candidate that crashes is reported with the reason, and the others are still compared. A function for ``candidates`` is
    called after what can be done without them, with what it may ask to work on some that are likely. ``further`` trials are
    run, one after the other, while nothing can be said of a candidate on the data of those before. ``smaller`` stands in for
    the smallest trial in float64: where it says anything against a candidate, or one of both does not run, nothing of it
    counts. Raises ``UsageProblem`` when inputs or outputs do not correspond, or when the reference itself runs in no trial.
    """
    start = time.perf_counter()
    result = Comparison(reference.label)
    # The other cores are for float64, which is evaluated at the same time; at smaller inputs it has little to do.
    threads = max(1, usable_cores() // (2 if smaller is None else 1))
    with (
        stage("trials", len(trials), "sets of inputs") as told,
        OrtRunner(options.run_timeout_s, options.memory_bytes, threads) as runner,
    ):
        runner.start(wait=False)
        ordered = sorted(trials, key=lambda t: t.elements)
        comparer = Comparer(reference, runner, options, result, following=next(iter(ordered[1:]), None))
        first = None if smaller is None else SmallerFirst(smaller, comparer, ordered[0])
        # On two cores, runs beside float64 would take turns with the engine's build, which is what everything waits for.
        runner.puts_off = callable(candidates) and usable_cores() <= _CORES_OF_BUILDS
        if ordered and callable(candidates):
            comparer.prepare(ordered[0]) if first is None else first.prepare()
        with stage("gather"), comparer.budget.unpaid():
            try_out = _catching_up(comparer.try_out if first is None else first.try_out, runner)
            compared = candidates(try_out) if callable(candidates) else candidates
        runner.puts_off = False
        runner.catch_up()
        comparer.add(compared)
        if first is not None and first.goes_before(compared):
            ordered = ordered[1:]
        elif first is not None and first.has_been_taken_over:
            comparer = Comparer(reference, runner, options, Comparison(reference.label), comparer.known)
            comparer.add(compared)
        result = comparer.result
        elements, compared_elements = sum(trial.elements for trial in ordered), 0
        for trial, following in zip_longest(ordered, ordered[1:]):
            told.at(trial.label)
            comparer.run(trial, following)
            compared_elements += trial.elements
            told.advance(share=compared_elements / max(elements, 1))
        for trial in further if comparer.has_undecided() else ():
            comparer.run(trial)
            if not comparer.has_undecided():
                break
    if compared and not result.trials:
        reasons: dict[str, str] = {}
        for line in result.skipped:  # the same reason with other data says no more
            reasons.setdefault(line.partition(": ")[2], line)
        raise UsageProblem(f"the reference does not run: {'; '.join(reasons.values())}", reference.label)
    result.seconds = round(time.perf_counter() - start, 3)
    return result
