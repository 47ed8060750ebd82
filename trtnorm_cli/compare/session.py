"""A whole comparison from what the user named: participants, inputs, verdicts, and who is to blame."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from trtnorm_cli.compare.blame import Blame, Side, blamed_rule, find_blame, save_regions
from trtnorm_cli.compare.comparison import compare
from trtnorm_cli.compare.data_files import read_data
from trtnorm_cli.compare.participants import Participant, engine_participant, network_participant, onnx_participant, pair_names
from trtnorm_cli.compare.result import CandidateReport, Comparison, Options, Trial
from trtnorm_cli.errors import BuilderFailure, TrtnormError, UsageProblem
from trtnorm_cli.evaluate.data.drawing import fitting_feeds
from trtnorm_cli.evaluate.data.input_ranges import InputRanges
from trtnorm_cli.evaluate.data.shape_points import shape_points
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.onnx_model.shapes import model_inputs
from trtnorm_cli.profile.facts import as_profiled
from trtnorm_cli.profile.fit import fit
from trtnorm_cli.profile.load import load_profile
from trtnorm_cli.profile.model import BuildProfile, Tolerance
from trtnorm_cli.profile.model_input import inputs_of
from trtnorm_cli.profile.prove import prove
from trtnorm_cli.rewrite.prepare import Prepared, rewrite_alone
from trtnorm_cli.rewrite.rewriting import Rewriting
from trtnorm_cli.target import NETWORK_PREFIX, Spec
from trtnorm_cli.tensorrt.network import UntranslatableNetwork

# At the end of a build the comparison should cost seconds, not minutes.
_BUILD_FLOAT64_S = 20.0
_BUILD_RUNS_S = 8.0
# Runs at the largest shapes may need more memory than there is; the rest belongs to the user's other work.
_MEMORY_SHARE = 0.7
# Seeds of further data, tried where nothing can be said on the first.
_FURTHER_SEEDS = (1001, 1002)


@dataclass(frozen=True)
class Settings:
    """What the command line says about a comparison. ``save_to`` is the stem of the files that show a difference."""

    seed: int = 0
    in_between: int = 2
    data: Path | None = None
    by_position: bool = False
    atol: float | None = None
    rtol: float | None = None
    budget_s: float = 60.0
    timeout_s: float = 300.0
    memory_bytes: int | None = None
    backend: str | None = None
    find_blame: bool = True
    save_to: Path | None = None
    runs_budget_s: float | None = None
    snap: bool = False
    weights: Path | None = None
    float64_trials: int | None = None


@dataclass
class Session:
    """The participants of a comparison while it is prepared. ``changes`` are those of the rewriting, if there is one."""

    reference: Participant
    candidates: list[Participant] = field(default_factory=list)
    refused: list[CandidateReport] = field(default_factory=list)
    changes: Sequence[Mapping[str, object]] = ()
    memory_bytes: int | None = None


def run_session(reference: Spec, candidates: Sequence[Spec], profile_path: Path | None, settings: Settings) -> Comparison:
    """Compare what the user named. With a model alone, its rewriting and the TensorRT network of that are compared.

    Raises the errors of reading, fitting and pairing; a candidate that TensorRT refuses is reported, not raised.
    """
    if reference.kind == "engine":
        raise UsageProblem("an engine cannot be the reference", str(reference.path), "name the model first")
    if candidates and settings.weights is not None:
        hint = "leave out either the candidates or --weights, which are for the rewriting that stands in their place"
        raise UsageProblem("--weights are given, and nothing is rewritten", hint=hint)
    profile = None if profile_path is None else load_profile(profile_path)
    with tempfile.TemporaryDirectory(prefix="trtnorm-compare-") as name:
        scratch = Path(name)
        first = _participant(reference, scratch, settings.backend, settings.memory_bytes)
        session = Session(first, memory_bytes=settings.memory_bytes)
        if candidates:
            for spec in candidates:
                admit(session, spec, scratch, settings.backend)
        else:
            _admit_rewriting(session, reference, profile_path, scratch, settings)
        return judge_session(session, profile, settings)


def compare_rewriting(
    prepared: Prepared, rewriting: Rewriting, fixed: Path, scratch: Path, seed: int, backend: str, memory_bytes: int | None
) -> Comparison:
    """The comparison at the end of a build: the source with its rewriting ``fixed`` and the TensorRT network of that.

    Where nothing was rewritten, only the network is compared. Where the source cannot serve, because it is invalid or was to
    be read otherwise, the model as it was read stands for it. Runs are bounded in time and memory; the result names what was
    left out.
    """
    source = onnx_participant(prepared.loaded.path, prepared.loaded.path.name)
    session = Session(_as_meant(source, rewriting, scratch), memory_bytes=memory_bytes)
    session.changes = [asdict(change) for change in rewriting.changes]
    admit_file(session, fixed, "rewriting", backend, scratch, with_model=bool(rewriting.changes))
    settings = Settings(
        seed=seed,
        in_between=0,
        budget_s=_BUILD_FLOAT64_S,
        runs_budget_s=_BUILD_RUNS_S,
        float64_trials=1,
        memory_bytes=memory_bytes or _free_memory(),
    )
    return judge_session(session, prepared.profile, settings)


def _free_memory() -> int:
    """Bytes that a run may take: most of what the machine has free, as Linux counts it."""
    pages = os.sysconf("SC_AVPHYS_PAGES")
    return int(_MEMORY_SHARE * pages * os.sysconf("SC_PAGE_SIZE"))


def judge_session(session: Session, profile: BuildProfile | None, settings: Settings) -> Comparison:
    """Draw or read the inputs, compare, and look for the blame where a candidate fails."""
    trials, notes, chosen = trials_of(session.reference, profile, settings)
    further = [] if settings.data is not None else _further_trials(session.reference, profile, settings, trials)
    options = comparison_options(profile, settings)
    comparison = compare(session.reference, session.candidates, tuple(trials), options, further)
    comparison.candidates += session.refused
    comparison.notes += notes
    comparison.inputs = chosen
    if settings.find_blame:
        _blame_all(session, comparison, trials, options, settings)
    return comparison


def _participant(spec: Spec, scratch: Path, backend: str | None, memory_bytes: int | None = None) -> Participant:
    if spec.kind == "module":
        raise UsageProblem("a PyTorch model can only be the reference", spec.text, "name it first, or export it")
    if spec.kind == "network":
        return network_participant(spec.path, scratch, backend, memory_bytes=memory_bytes)
    return engine_participant(spec.path) if spec.kind == "engine" else onnx_participant(spec.path)


def admit(session: Session, spec: Spec, scratch: Path, backend: str | None) -> None:
    """Add a candidate; what TensorRT refuses, or what kills its parser, is reported with the others."""
    try:
        session.candidates.append(_participant(spec, scratch, backend, session.memory_bytes))
    except BuilderFailure as error:
        session.refused.append(_refused(spec.label, spec.kind, error))


def _refused(label: str, kind: str, error: TrtnormError) -> CandidateReport:
    where = "; ".join((error.where or "").splitlines())
    text = f"{error.summary}: {where}" if where else error.summary
    return CandidateReport(label, kind, error=text, unavailable=isinstance(error, UntranslatableNetwork))


def _admit_rewriting(session: Session, reference: Spec, profile_path: Path | None, scratch: Path, settings: Settings) -> None:
    _, rewriting = rewrite_alone(reference.path, profile_path, settings.weights, settings.snap)
    rewriting.require_all_checks_passed()
    session.reference = _as_meant(session.reference, rewriting, scratch)
    fixed = scratch / "rewritten.onnx"
    save_model(rewriting.model, fixed, rewriting.folder)
    session.changes = [asdict(change) for change in rewriting.changes]
    admit_file(session, fixed, f"rewriting of {reference.path}", settings.backend, scratch)


def _as_meant(source: Participant, rewriting: Rewriting, scratch: Path) -> Participant:
    """``source``, or the model as it was read where the file itself is invalid or the user asked to read it otherwise."""
    if rewriting.meant is None:
        return source
    path = scratch / "as-meant.onnx"
    save_model(rewriting.meant, path, rewriting.folder)
    return onnx_participant(path, f"{source.label} as it was read")


def admit_file(
    session: Session,
    fixed: Path,
    label: str,
    backend: str | None,
    scratch: Path,
    with_model: bool = True,
) -> None:
    """Add a rewritten model, unless it is what it was made from, and the TensorRT network of it."""
    if with_model:
        session.candidates.append(replace(onnx_participant(fixed, label), shares_tensors=True))
    network_label = f"{NETWORK_PREFIX}{label}"
    try:
        network = network_participant(fixed, scratch, backend, network_label, session.memory_bytes)
        session.candidates.append(replace(network, shares_tensors=True))
    except BuilderFailure as error:
        session.refused.append(_refused(network_label, "network", error))


def trials_of(
    reference: Participant, profile: BuildProfile | None, settings: Settings
) -> tuple[list[Trial], Sequence[str], dict[str, str]]:
    """What to run, what there is to say about the profile's sizes and the data, and what was chosen for each input."""
    inputs = reference.inputs()
    if settings.data is not None:
        sets = read_data(settings.data, inputs)
        brought = dict.fromkeys(inputs, f"from {settings.data.name}")
        return [Trial(f"{settings.data.name}[{index}]", feeds) for index, feeds in enumerate(sets)], (), brought
    assert reference.model is not None
    model = as_profiled(reference.model, profile)
    described, inputs = inputs_of(model), model_inputs(model)
    proof = prove(model, described, profile, fit(profile, described), settings.snap)
    points = shape_points(proof, inputs, settings.in_between, np.random.default_rng(settings.seed))
    ranges = InputRanges(model, proof.tensors)
    feeds, chosen, notes = fitting_feeds(ranges, points, {} if profile is None else profile.data, settings.seed)
    trials = [Trial(point.label, fed, point.optional) for point, fed in zip(points, feeds, strict=True)]
    return trials, (*proof.notes, *notes), chosen


def _further_trials(
    reference: Participant, profile: BuildProfile | None, settings: Settings, made: list[Trial]
) -> Iterator[Trial]:
    """The corners of the optimization profiles with other data, drawn when they are asked for and added to ``made``."""
    for seed in _FURTHER_SEEDS:
        trials, _, _ = trials_of(reference, profile, replace(settings, seed=settings.seed + seed, in_between=0))
        for trial in sorted(trials, key=lambda trial: trial.elements):
            made.append(replace(trial, label=f"{trial.label}, seed {settings.seed + seed}"))
            yield made[-1]


def comparison_options(profile: BuildProfile | None, settings: Settings) -> Options:
    tolerances = {} if profile is None else {("" if n == "default" else n): t for n, t in profile.tolerances.items()}
    if settings.atol is not None or settings.rtol is not None:
        tolerances = {"": Tolerance(atol=settings.atol, rtol=settings.rtol)}
    return Options(
        settings.by_position,
        settings.budget_s,
        settings.timeout_s,
        settings.memory_bytes,
        settings.runs_budget_s,
        settings.float64_trials,
        tolerances,
    )


def _blame_all(session: Session, comparison: Comparison, trials: Sequence[Trial], options: Options, settings: Settings) -> None:
    by_label = {trial.label: trial for trial in trials}
    with ExitStack() as stack:
        runner = stack.enter_context(OrtRunner(options.run_timeout_s, options.memory_bytes))
        for candidate, report in zip(session.candidates, comparison.candidates, strict=False):
            bad = [verdict for verdict in report.verdicts if verdict.passed is False]
            if bad and candidate.model is not None:
                report.blame = _blame(session, candidate, by_label[bad[0].trial], runner, options, settings)


def _blame(
    session: Session, candidate: Participant, trial: Trial, runner: OrtRunner, options: Options, settings: Settings
) -> dict[str, Any] | None:
    reference = session.reference
    assert reference.model is not None
    assert candidate.model is not None
    assert reference.model_path is not None
    assert candidate.model_path is not None
    inputs = pair_names(reference.inputs(), candidate.inputs(), "inputs", candidate.label, options.by_position)
    outputs = pair_names(reference.outputs(), candidate.outputs(), "outputs", candidate.label, options.by_position)
    ours = Side(reference.model, reference.model_path, trial.feeds)
    theirs = Side(candidate.model, candidate.model_path, {inputs[n]: a for n, a in trial.feeds.items()})
    found = find_blame(ours, theirs, outputs, _BLAME_BOUND, runner, options.budget_s)
    if found is None:
        return {"text": ["the first difference could not be found: no tensor has a partner that differs"]}
    files: list[str] = []
    if settings.save_to is not None:
        files = [str(path) for path in save_regions(found, ours, theirs, settings.save_to)]
    culprit = _culprit(found, candidate, session.changes)
    return {
        "tensor": found.tensor,
        "node": found.node,
        "error_before": found.before,
        "error_after": found.after,
        "reference_computes": found.reference.text(),
        "candidate_computes": found.candidate.text(),
        "culprit": culprit,
        "files": files,
        "text": _blame_text(found, culprit, files),
    }


# Any tensor further off than this is a difference even where no float64 run tells how much rounding there is.
_BLAME_BOUND = 1e-4


def _culprit(found: Blame, candidate: Participant, changes: Sequence[Mapping[str, object]]) -> str:
    rule = blamed_rule(found, changes)
    if candidate.kind == "network":
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
