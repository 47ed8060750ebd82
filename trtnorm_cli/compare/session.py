"""A whole comparison from what the user named: participants, inputs, verdicts, and who is to blame."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Protocol

from trtnorm_cli.compare.alike import has_large_product, has_many_numbers
from trtnorm_cli.compare.blame_report import report_blame
from trtnorm_cli.compare.candidates import Candidates, Session, TryOut, never, require_runnable
from trtnorm_cli.compare.comparison import compare
from trtnorm_cli.compare.participants import (
    Candidate,
    NetworkParticipant,
    OnnxParticipant,
    loaded_network,
    loaded_participant,
    onnx_participant,
)
from trtnorm_cli.compare.result import Comparison, Options, Trial
from trtnorm_cli.compare.settings import Settings
from trtnorm_cli.compare.trials import further_trials, trials_of
from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.evaluate.blas_threads import one_thread
from trtnorm_cli.evaluate.float64 import Place
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.limits import available_memory
from trtnorm_cli.onnx_model.load import LoadedModel, load_model
from trtnorm_cli.onnx_model.save import MAPPED_FROM, save_model
from trtnorm_cli.onnx_model.source_files import SourceFiles
from trtnorm_cli.onnx_model.stored import external_tensors
from trtnorm_cli.onnx_model.walk import tensor_names
from trtnorm_cli.profile.model import BuildProfile, Tolerance
from trtnorm_cli.progress import stage
from trtnorm_cli.rewrite.prepare import OpenedModel, Prepared, prepare
from trtnorm_cli.rewrite.rewriting import Rewriting
from trtnorm_cli.scratch import Scratch
from trtnorm_cli.side_work import Awaited, Later, SideWork
from trtnorm_cli.target import Target

_ALIGNMENT = 64
# In a build the comparison should cost seconds, not minutes: the smallest shapes are compared in any case.
_BUILD_FLOAT64_S = 20.0
_BUILD_RUNS_S = 8.0
# A model that stays is held to its network without its products, which takes less time than this share of all of it.
_MUCH_SMALLER = 0.1
# Runs at the largest shapes may need more memory than there is; the rest belongs to the user's other work.
_MEMORY_SHARE = 0.7


def run_session(
    reference: Target,
    candidates: Sequence[Target],
    profile_path: Path | None,
    settings: Settings,
    opened: OpenedModel | None = None,
) -> Comparison:
    """Compare what the user named. With a model alone, its rewriting and the TensorRT network of that are compared.

    ``opened`` is the reference with its profile where they were opened before.

    Raises the errors of reading, fitting and pairing; a candidate that TensorRT refuses is reported, not raised.
    """
    require_runnable(reference)
    if reference.kind == "engine":
        raise UsageProblem("an engine cannot be the reference", reference.text, "name the model first")
    if candidates and settings.weights is not None:
        hint = "leave out either the candidates or --weights, which are for the rewriting that stands in their place"
        raise UsageProblem("--weights are given, and nothing is rewritten", hint=hint)
    opened = opened or OpenedModel.of_file(reference.path, profile_path, settings.weights)
    files = SourceFiles([target.path for target in (reference, *candidates) if target.path.is_file()])
    with files.explaining_errors(), Scratch("trtnorm-compare-") as scratch:
        found = Candidates(scratch, settings.backend, settings.options.memory_bytes, files)
        comparison = _compared(reference, candidates, opened, found, settings)
    files.require_unchanged()
    return comparison


def _compared(
    reference: Target, candidates: Sequence[Target], opened: OpenedModel, found: Candidates, settings: Settings
) -> Comparison:
    if not candidates:
        with SideWork() as side:
            session = _rewriting_session(reference, opened, found, settings, side)
            return judge_session(session, opened.profile, settings)
    first = found.file_participant(reference)
    for target in candidates:
        found.add_candidate(target)
    return judge_session(Session(first, found.accepted, found.refused), opened.profile, settings)


def _rewriting_session(target: Target, opened: OpenedModel, found: Candidates, settings: Settings, side: SideWork) -> Session:
    """The model with its rewriting, and the TensorRT network of that, which is made beside."""
    network = found.file_participant(target) if target.kind == NetworkParticipant.kind else None
    prepared = prepare(opened, settings.snap, needs_sizes=False)
    with stage("rewrite"):
        rewriting = prepared.rewrite()
    rewriting.require_all_checks_passed()
    fixed = found.scratch / "rewritten.onnx"
    if network is None and prepared.original.files is not None:
        found.files.include(prepared.original.files)
    reference = network or loaded_participant(prepared.original)
    meant = _as_meant(reference, rewriting, found.scratch)
    save_model(rewriting.model, fixed, rewriting.folder, MAPPED_FROM)
    loaded, scratch = load_model(fixed), Path(tempfile.mkdtemp(prefix="network-", dir=found.scratch))
    made = side.start(lambda: loaded_network(loaded, scratch, found.backend, None, found.memory_bytes, is_own=True))
    proof = prepared.proof if network is None and meant is reference else None

    def gather(_: TryOut) -> None:
        found.add_rewriting(loaded, f"rewriting of {target.path}", network=made)

    return Session(meant, found.accepted, found.refused, _changes(rewriting), proof, gather, Later(lambda: loaded))


@dataclass(frozen=True)
class Rewritten:
    """A rewriting, saved as ``fixed``, and the TensorRT ``network`` of that."""

    rewriting: Rewriting
    fixed: Awaited[LoadedModel]
    network: Awaited[NetworkParticipant]


class Likely(Protocol):
    """Works on the comparison of a rewriting that is likely to stay."""

    def __call__(self, rewritten: Rewritten, may_stay: Callable[[], bool], nobody_waits: Callable[[], bool] = never, /) -> None:
        """Go on as long as it ``may_stay``, and with what is not pressing while ``nobody_waits`` for the comparison."""


def compare_rewriting(
    prepared: Prepared,
    first: Rewriting,
    rewritten: Callable[[Likely], Rewritten],
    saved: Awaited[LoadedModel],
    scratch: Path,
    settings: Settings,
) -> Comparison:
    """The comparison of a build: the source with its rewriting, and the TensorRT network of that.

    ``saved`` is the ``first`` rewriting, in files of the program's own.

    ``rewritten`` is asked for these when nothing is left that can be done without them. While it waits for TensorRT, it says
    what is likely. It is ``first``, or another that makes fewer changes. Where nothing was rewritten, only the network is
    compared. Where the source cannot serve, because it is invalid or was to be read otherwise, the model as it was read stands
    for it. The result names what was left out.
    """
    source = loaded_participant(prepared.original, prepared.original.path.name)
    meant = _as_meant(source, first, scratch)
    found, changes = Candidates(scratch), list[Mapping[str, object]]()
    proof = prepared.proof if meant is source else None
    tried: list[tuple[Rewriting, Candidates]] = []

    def each_of(made: Rewritten, candidates: Candidates) -> Iterator[Candidate]:
        has_changes = bool(made.rewriting.changes)
        yield from candidates.each_of_rewriting(made.fixed.result(), "rewriting", has_changes, made.network)
        tried.append((made.rewriting, candidates))

    def gather(try_out: TryOut) -> None:
        def compare_likely(likely: Rewritten, may_stay: Callable[[], bool], nobody_waits: Callable[[], bool] = never) -> None:
            try_out(each_of(likely, Candidates(scratch)), may_stay, nobody_waits)

        made = rewritten(compare_likely)
        changes.extend(_changes(made.rewriting))
        if all(rewriting is not made.rewriting for rewriting, _ in tried):
            deque(each_of(made, Candidates(scratch)), maxlen=0)
        gathered = next(candidates for rewriting, candidates in tried if rewriting is made.rewriting)
        found.accepted += gathered.accepted
        found.refused += gathered.refused

    is_unchanged = meant is source and not first.changes
    session = Session(meant, found.accepted, found.refused, changes, proof, gather, saved, is_unchanged)
    # TensorRT has the other cores, and threads that multiply matrices wait for the next ones by spinning.
    with one_thread():
        return judge_session(session, prepared.profile, replace(settings, may_be_smaller=True))


def compare_lowered(
    prepared: Prepared,
    rewriting: Rewriting,
    wide: LoadedModel,
    typed: LoadedModel,
    network: Awaited[NetworkParticipant],
    scratch: Path,
    settings: Settings,
    max_error: float | None,
) -> Comparison:
    """The comparison of a model in another precision, in two steps that are each held to rounding.

    ``rewriting``, saved as ``wide``, is held against the source; and TensorRT's ``network`` against ``typed``, the rewriting in
    that precision. The distance of the two precisions is no question of rounding in one of them: an error budget holds it.
    Where rounding in that precision allows so much that it says nothing, the second step is held to ``max_error``.
    """
    found = Comparison(prepared.original.path.name)
    if rewriting.changes:
        source = loaded_participant(prepared.original, prepared.original.path.name)
        meant = _as_meant(source, rewriting, scratch)
        candidate = replace(loaded_participant(wide, "rewriting"), shares_tensors=True)
        session = Session(meant, [candidate], (), _changes(rewriting), prepared.proof if meant is source else None)
        found = judge_session(session, prepared.profile, replace(settings, may_be_smaller=True))
    candidates = Candidates(scratch)

    def gather(_: TryOut) -> None:
        candidates.add_rewriting(typed, "rewriting", False, network)

    lowest = loaded_participant(typed, "the rewriting in its precision")
    session = Session(lowest, candidates.accepted, candidates.refused, (), None, gather)
    budget = replace(settings, options=replace(settings.options, max_error=max_error))
    return _joined(found, judge_session(session, prepared.profile, budget))


def build_settings(
    memory_bytes: int | None, seed: int, budget_s: Callable[[], float], run_timeout_s: float | None = None
) -> Settings:
    """The settings of a comparison that a build makes.

    The smallest shapes are compared in any case, larger ones are begun while the seconds that ``budget_s`` gives are
    not used up. Runs are bounded in memory, and each in time.
    """
    options = Options(
        budget_s=_BUILD_FLOAT64_S,
        run_timeout_s=run_timeout_s or Options.run_timeout_s,
        runs_budget_s=_BUILD_RUNS_S,
        total_budget_s=budget_s,
        float64_trials=1,
        memory_bytes=memory_bytes or int(_MEMORY_SHARE * available_memory()),
        takes_folds=True,
    )
    return Settings(options, seed=seed, in_between=0)


def _own_weights(saved: LoadedModel) -> list[Place]:
    """Weights of a model that this program has saved for itself, where all numbers can be read where they lie.

    Those of a small model stand in its own file, where chance decides.
    """
    places = [Place.of(tensor, saved.folder) for tensor in external_tensors(saved.proto)]
    return places if all(place.part.offset % _ALIGNMENT == 0 for place in places) else []


def _joined(first: Comparison, second: Comparison) -> Comparison:
    """Two comparisons of one build as one."""
    for name in ("trials", "skipped", "notes"):
        getattr(first, name).extend(one for one in getattr(second, name) if one not in getattr(first, name))
    first.skipped = [line for line in first.skipped if line.partition(": ")[0] not in first.trials]
    first.candidates += second.candidates
    first.float64 = {**second.float64, **first.float64}
    first.inputs = {**second.inputs, **first.inputs}
    first.seconds = round(first.seconds + second.seconds, 3)
    return first


def _changes(rewriting: Rewriting) -> list[Mapping[str, object]]:
    return [asdict(change) for change in rewriting.changes]


def judge_session(session: Session, profile: BuildProfile | None, settings: Settings) -> Comparison:
    """Draw or read the inputs, compare, and look for the blame where a candidate fails."""
    if session.is_unchanged and session.proof is not None and has_large_product(session.reference.model, session.proof):
        session = replace(session, is_unchanged=False)
    drawn_with = settings
    if session.is_unchanged:
        many = session.proof is not None and has_many_numbers(session.reference.model, session.proof)
        drawn_with = replace(settings, may_be_smaller=settings.may_be_smaller and many, share_of_smaller=_MUCH_SMALLER)
    drawn = trials_of(session.reference, profile, drawn_with, session.proof)
    if drawn.smaller is not None:
        session = replace(session, is_unchanged=False)

    def further() -> Iterator[Trial]:
        return further_trials(session.reference, profile, settings, drawn.proof)

    options = with_tolerances(settings, profile)
    if session.saved is not None and session.saved.error() is None:
        saved = session.saved.result()
        options = replace(options, own_weights=_own_weights(saved), likely=tensor_names(saved.proto.graph))
    options = replace(options, is_unchanged=session.is_unchanged)
    comparison = compare(session.reference, session.gathered, drawn.trials, options, further(), drawn.smaller)
    comparison.candidates += session.refused
    comparison.notes += drawn.notes
    comparison.inputs = drawn.inputs
    if settings.find_blame:

        def trial_named(label: str) -> Trial:
            return next(trial for trial in chain(drawn.trials, further()) if trial.label == label)

        report_blame(session, comparison, trial_named, replace(settings, options=options))
    return comparison


def with_tolerances(settings: Settings, profile: BuildProfile | None) -> Options:
    """The options with the tolerances of the command line, or else those of the build profile."""
    given = profile_tolerances(profile) if settings.tolerance is None else {"": settings.tolerance}
    return replace(settings.options, tolerances=given)


def profile_tolerances(profile: BuildProfile | None) -> dict[str, Tolerance]:
    """The tolerances of the build profile by output name, '' for all others."""
    return {} if profile is None else {("" if n == "default" else n): t for n, t in profile.tolerances.items()}


def _as_meant(source: OnnxParticipant, rewriting: Rewriting, scratch: Path) -> OnnxParticipant:
    """``source``, or the model as it was read where the file itself is invalid or the user asked to read it otherwise."""
    if rewriting.meant is None:
        return source
    path = scratch / "as-meant.onnx"
    save_model(rewriting.meant, path, rewriting.folder, MAPPED_FROM)
    return onnx_participant(path, f"{source.label} as it was read")
