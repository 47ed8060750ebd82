"""Run a reference and its candidates on the same inputs and judge each output of each candidate."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from trtnorm_cli.compare.comparer import Comparer, Pairing
from trtnorm_cli.compare.participants import Candidate, RunnableReference
from trtnorm_cli.compare.result import CandidateReport, Comparison, Options, Trial
from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.evaluate.ort_runner import OrtRunner


def compare(
    reference: RunnableReference,
    candidates: Sequence[Candidate],
    trials: Sequence[Trial],
    options: Options,
    further: Iterable[Trial] = (),
) -> Comparison:
    """Judge every candidate in every trial, smallest inputs first.

    A candidate that crashes is reported with the reason, and the others are still compared. ``further`` trials are run, one
    after the other, while nothing can be said of a candidate on the data of those before. Raises ``UsageProblem`` when
    inputs or outputs do not correspond, or when the reference itself runs in no trial.
    """
    start = time.perf_counter()
    result = Comparison(reference.label)
    pairings = [Pairing(reference, candidate, options.by_position) for candidate in candidates]
    result.candidates = [CandidateReport(c.label, c.kind, notes=list(c.notes)) for c in candidates]
    with OrtRunner(options.run_timeout_s, options.memory_bytes) as runner:
        runner.start()
        comparer = Comparer(reference, runner, options, result, pairings)
        for trial in sorted(trials, key=lambda t: t.elements):
            comparer.run(trial)
        for trial in further if comparer.has_undecided() else ():
            comparer.run(trial)
            if not comparer.has_undecided():
                break
    if candidates and not result.trials:
        raise UsageProblem(f"the reference does not run: {'; '.join(result.skipped)}", reference.label)
    result.seconds = round(time.perf_counter() - start, 3)
    return result
