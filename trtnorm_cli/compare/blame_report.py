"""Who is to blame for the failure of a candidate, as the report of the candidate tells it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trtnorm_cli.compare.blame import Blame, Side, Sides, blamed_rule, find_blame, save_regions
from trtnorm_cli.compare.candidates import Session
from trtnorm_cli.compare.participants import Candidate, NetworkParticipant, OnnxParticipant, pair_names
from trtnorm_cli.compare.result import Comparison, Trial
from trtnorm_cli.compare.settings import Settings
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.progress import stage
from trtnorm_cli.records.comparison import BlameRecord, FirstDifference, NoDifference

# Any tensor further off than this is a difference even where no float64 run tells how much rounding there is.
_BLAME_BOUND = 1e-4


def report_blame(session: Session, comparison: Comparison, trial_named: Callable[[str], Trial], settings: Settings) -> None:
    """Add the blame to the report of every candidate that failed; an engine has no inner tensors to look at."""
    with OrtRunner(settings.options.run_timeout_s, settings.options.memory_bytes) as runner:
        for candidate, report in zip(session.candidates, comparison.candidates, strict=False):
            bad = [verdict for verdict in report.verdicts if verdict.passed is False]
            if bad and isinstance(candidate, OnnxParticipant):
                with stage("blame") as told:
                    told.at(candidate.label)
                    sides = _sides(session.reference, candidate, trial_named(bad[0].trial), settings.options.by_position)
                    report.blame = _blame(sides, runner, settings, candidate, session.changes)


def _sides(reference: OnnxParticipant, candidate: OnnxParticipant, trial: Trial, by_position: bool) -> Sides:
    inputs = pair_names(reference.inputs(), candidate.inputs(), "inputs", candidate.label, by_position)
    outputs = pair_names(reference.outputs(), candidate.outputs(), "outputs", candidate.label, by_position)
    ours = Side(reference.model, reference.path, trial.feeds)
    theirs = Side(candidate.model, candidate.path, {inputs[n]: a for n, a in trial.feeds.items()})
    return Sides(ours, theirs, outputs)


def _blame(
    sides: Sides, runner: OrtRunner, settings: Settings, candidate: Candidate, changes: Sequence[Mapping[str, object]]
) -> BlameRecord:
    found = find_blame(sides, _BLAME_BOUND, runner, settings.options.budget_s)
    if found is None:
        return NoDifference(("the first difference could not be found: no tensor has a partner that differs",))
    files: list[str] = []
    if settings.save_to is not None:
        files = [str(path) for path in save_regions(found, sides, settings.save_to)]
    culprit = _culprit(found, candidate, changes)
    return FirstDifference(
        tensor=found.tensor,
        node=found.node,
        error_before=found.before,
        error_after=found.after,
        reference_computes=found.reference.text(),
        candidate_computes=found.candidate.text(),
        culprit=culprit,
        files=tuple(files),
        text=tuple(_blame_text(found, culprit, files)),
    )


def _culprit(found: Blame, candidate: Candidate, changes: Sequence[Mapping[str, object]]) -> str:
    rule = blamed_rule(found, changes)
    if isinstance(candidate, NetworkParticipant):
        made_by = f" (the node comes from the rule {rule})" if rule else ""
        return f"TensorRT's parser, with what it made of {found.node}{made_by}"
    return f"the rule {rule}" if rule else f"the model itself, at {found.node}"


def _blame_text(found: Blame, culprit: str, files: Sequence[str]) -> list[str]:
    lines = [
        f"first difference: tensor {found.tensor}, computed by {found.node}; "
        f"error {found.before:.1e} before, {found.after:.1e} after",
        f"  reference: {found.reference.text()}",
        f"  candidate: {found.candidate.text()}",
        f"to blame: {culprit}",
    ]
    if files:
        lines.append(f"to see it alone: trtnorm compare {files[0]} {files[1]} --data {files[2]}")
    return lines
