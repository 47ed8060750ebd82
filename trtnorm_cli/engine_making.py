"""A rewriting saved, built by TensorRT, and compared with the model.

What compares is imported where it is needed: TensorRT builds by then.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trtnorm_cli.build_job import Duration, Job, comparison_budget_s
from trtnorm_cli.child_process import require_wanted
from trtnorm_cli.errors import NotCompared, TrtnormError
from trtnorm_cli.files import digest_of, sha256_of, sha256_while_written
from trtnorm_cli.interrupts import comes_of_interrupt
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.limits import out_of_memory
from trtnorm_cli.onnx_model.load import LoadedModel, load_model
from trtnorm_cli.onnx_model.plugin_nodes import for_builder
from trtnorm_cli.onnx_model.save import MAPPED_FROM, save_model
from trtnorm_cli.placing import have_kept
from trtnorm_cli.progress import stage
from trtnorm_cli.record import json_of
from trtnorm_cli.rewrite.prepare import rewrite_settings
from trtnorm_cli.rewrite.rewriting import Rewriting, require_valid
from trtnorm_cli.rewrite.rules import QUANTISED, rewritten_operators, rule_named
from trtnorm_cli.scratch import forget_evidence
from trtnorm_cli.side_work import Awaited, Later
from trtnorm_cli.target import NETWORK_PREFIX
from trtnorm_cli.tensorrt.attempt import Attempt, isolated_folder
from trtnorm_cli.tensorrt.build_request import FIXED_NAME, with_model
from trtnorm_cli.tensorrt.kernel_search import (
    Variant,
)
from trtnorm_cli.tensorrt.network.launch import network_of_build
from trtnorm_cli.tensorrt.network.parsed import ParsedNetwork
from trtnorm_cli.tensorrt.quantised_forms import require_taken_quantisation
from trtnorm_cli.tensorrt.quantised_operators import require_known_quantisation
from trtnorm_cli.tensorrt.request import NETWORK_FILE, BuildResult
from trtnorm_cli.tensorrt.variants import BuiltVariant

if TYPE_CHECKING:
    from trtnorm_cli.compare.participants import NetworkParticipant
    from trtnorm_cli.compare.result import Comparison
    from trtnorm_cli.compare.session import Likely, Rewritten
    from trtnorm_cli.lowering.lower import Lowered

_MOST_REASONS = 3
# Between two looks at an engine that is being written.
_PAUSE_S = 0.05


def require_rewritten(job: Job, rewriting: Rewriting) -> None:
    """Refuse a model in which operators that a rule could have taken are left, with the rule's reasons."""
    profile = job.prepared.profile
    if profile is not None and profile.plugins:
        return
    refused = [rejection for rejection in rewriting.rejections if rule_named(rejection.rule) in QUANTISED]
    reasons = [f"{refusal.rule} at {refusal.node}: {refusal.reason}" for refusal in refused[:_MOST_REASONS]]
    where, asked_for = str(job.prepared.loaded.path), rewritten_operators(rewrite_settings(profile))
    require_known_quantisation(rewriting.model, job.options.backend, where, reasons=reasons, asked_for=asked_for)


@dataclass(frozen=True)
class Making:
    """The files of a rewritten model, and what is being made of it. The engine will be in ``Job.built``.

    ``lowering`` is the rewriting in the precision that was asked for, if one was. ``building`` ends with what the build process
    said, ``engine`` with that or the error that explains it. ``fixed`` is the rewritten model, ``network`` what TensorRT's
    parser makes of it. ``digests`` are of the rewritten model's files and of the engine. ``tensorrt`` is how long that takes.
    """

    variant: Variant
    lowering: Lowered | None
    files: Sequence[Path]
    building: Awaited[BuildResult]
    engine: Awaited[BuildResult]
    fixed: Awaited[LoadedModel]
    network: Awaited[NetworkParticipant]
    digests: Awaited[tuple[str, str]]
    tensorrt: Duration

    @property
    def rewriting(self) -> Rewriting:
        """The rewriting that the engine is made of."""
        return self.variant.rewriting if self.lowering is None else self.lowering.rewriting

    @property
    def result(self) -> BuildResult:
        """The result of TensorRT's build. Raises the error that explains a failure."""
        return self.engine.result()

    @property
    def rewritten(self) -> Rewritten:
        """Its rewriting and network, to be compared."""
        from trtnorm_cli.compare.session import Rewritten

        return Rewritten(self.variant.rewriting, self.fixed, Later(self.compared_network))

    def compared_network(self) -> NetworkParticipant:
        """The network, for a comparison. Raises ``NotCompared`` where there is no engine either, which ends the build."""
        if self.network.error() is not None and self.engine.error() is not None:
            raise NotCompared("there is no engine")
        return self.network.result()


def make(job: Job, variant: Variant, earlier: Sequence[BuiltVariant] = ()) -> Making:
    """Save the rewritten model, and begin to build the engine and to translate TensorRT's network of it.

    The engine of an ``earlier`` build is taken where it is that of ``variant``.
    """
    fixed = job.work / FIXED_NAME
    variant.rewriting.require_all_checks_passed()
    require_rewritten(job, variant.rewriting)
    require_taken_quantisation(variant.rewriting.model, variant.rewriting.folder, str(job.prepared.loaded.path))
    lowering = lowered_variant(job, variant)
    rewriting = variant.rewriting if lowering is None else lowering.rewriting
    with stage("save"):
        files = save_model(rewriting.model, fixed, rewriting.folder, MAPPED_FROM)
    request = with_model(job.request(job.built), rewriting, job.work)
    # What else its process does decides where TensorRT's memory is, and so some bytes: to be repeated, it only builds.
    alone = job.options.check_reproducible or lowering is not None
    known = next((one for one in earlier if not alone and one.result_for(rewriting, request.settings)), None)
    ready, kept_engine, kept = (None, None, None) if known is None else (known.result, known.engine, known.folder)
    # TensorRT parses a file once, unless it builds another one than is compared: a plugin's definition stands for the plugin.
    parses = job.options.compare and ready is None and not alone and request.model == FIXED_NAME
    parsed = ParsedNetwork(job.work) if parses else None

    tensorrt = Duration()

    def built() -> BuildResult:
        if kept_engine is not None:
            kept_engine.replace(job.built)
        with tensorrt.measured():
            if parsed is None:
                result = ready or job.run(request, job.work)
            else:
                result = parsed.built(lambda listen: job.run(parsed.asked(request), job.work, listen))
        return result

    building = job.side.start(built) if ready is None else Later(built)
    require_valid(job.prepared.loaded, fixed)  # beside the build, which ends with this block if it is not
    attempt = Attempt(request, job.work, for_builder(rewriting.model), rewriting.folder, job.subject(rewriting), job.run)
    isolated = isolated_folder(job.engine) if job.options.isolate else None
    engine = Later(lambda: attempt.result(building, isolated))
    loaded = Later(lambda: load_model(fixed))
    if lowering is not None:
        network: Awaited[NetworkParticipant] = Later(lowering.known_network)
    elif parsed is not None:
        network = Later(lambda: parsed_network(parsed, building, fixed))
    elif kept is not None:
        network = Later(lambda: kept_network(kept, fixed))
    else:
        network = begun_network(job, loaded)

    def is_built() -> bool:
        require_wanted()
        if building.is_done():
            building.result()
            return True
        time.sleep(_PAUSE_S)
        return False

    def digests() -> tuple[str, str]:
        model = sha256_of(files, require_wanted)
        if not job.side.is_beside:
            building.result()
        engine = sha256_while_written(job.built, is_built)
        have_kept(job.built)
        return model, engine

    if ready is not None:
        building.result()  # the engine is there, and gets its place before another thread asks for it
    return Making(variant, lowering, files, building, engine, loaded, network, job.side.start(digests), tensorrt)


def lowered_variant(job: Job, variant: Variant) -> Lowered | None:
    """The rewriting in the precision that the build profile asks for, held to TensorRT's network of it; None where it asks
    for none."""
    settings = job.prepared.precision
    if settings is None:
        return None
    from trtnorm_cli.compare.participants import loaded_network
    from trtnorm_cli.lowering.lower import Means, lowered

    options, folder = job.options, Path(tempfile.mkdtemp(prefix="precision-", dir=job.work))

    def parsed(loaded: LoadedModel) -> NetworkParticipant:
        return loaded_network(loaded, folder, options.backend, memory_bytes=options.memory_bytes)

    with job.clock.time("precision"):
        return lowered(job.prepared, variant.rewriting, settings, Means(folder, options.seed, options.memory_bytes, parsed))


def parsed_network(parsed: ParsedNetwork, building: Awaited[BuildResult], model: Path) -> NetworkParticipant:
    """The network that the build process made of ``model``, which it writes before it builds."""
    from trtnorm_cli.compare.participants import translated_network

    if (translation := parsed.translation(model, building)) is None:
        raise building.error() or NotCompared("there is no engine")
    return translated_network(translation, f"{NETWORK_PREFIX}{model}")


def kept_network(folder: Path, model: Path) -> NetworkParticipant:
    """The network that the build of a variant left in its ``folder``."""
    from trtnorm_cli.compare.participants import translated_network

    return translated_network(network_of_build(folder, model, folder / NETWORK_FILE), f"{NETWORK_PREFIX}{model}")


def begun_network(job: Job, loaded: Awaited[LoadedModel]) -> Awaited[NetworkParticipant]:
    """TensorRT's network of the rewritten model, where a comparison will ask for it."""
    backend, memory_bytes = job.options.backend, job.options.memory_bytes
    scratch = Path(tempfile.mkdtemp(prefix="network-", dir=job.work))

    def translated() -> NetworkParticipant:
        from trtnorm_cli.compare.participants import loaded_network

        return loaded_network(loaded.result(), scratch, backend, memory_bytes=memory_bytes, is_own=True)

    if not job.options.compare or not job.side.is_beside or loaded.error() is not None:
        return Later(translated)
    return job.side.start(translated, forget_evidence)


def _compared_files(job: Job, lowering: Lowered | None, fixed: LoadedModel, network: NetworkParticipant) -> str:
    """The digest of all that a comparison depends on: the models, the sizes, and the data."""
    profile = job.prepared.profile
    values = {} if profile is None else profile.model_dump(mode="json", exclude={"builder", "device"})
    digests = [job.prepared.sha256, fixed.sha256, sha256_of([network.path])]
    digests += [] if lowering is None else [lowering.wide.sha256]
    return digest_of([values, json_of(job.prepared.fitted.records()), digests, job.options.seed])


def _no_work(likely: Rewritten, may_stay: Callable[[], bool], nobody_waits: Callable[[], bool] = lambda: False) -> None:
    """Do nothing meanwhile, as nothing is compared."""


class Settled:
    """The making of the rewriting that stays, once somebody asks for it.

    ``decide`` is told what to work on while it waits for engines.
    """

    def __init__(self, decide: Callable[[Likely], Making]) -> None:
        self._decide = decide
        self._found: Later[Making] | None = None

    def result(self, likely: Likely = _no_work) -> Making:
        if self._found is None:
            self._found = Later(lambda: self._decide(likely))
        return self._found.result()


def comparison_of(job: Job, first: Making, settled: Settled) -> Comparison:
    """The comparison of the rewriting that is ``settled`` on, the ``first`` or another.

    What the reference says can be found out before that is known. One that cannot be made is no reason to throw an engine away,
    so that its result says why.
    """
    from trtnorm_cli.compare.result import CandidateReport, Comparison

    try:
        with job.clock.time("compare"):
            if job.findings is None:
                return _compared(job, first, settled)
            made = settled.result()
            made_from = _compared_files(job, made.lowering, made.fixed.result(), made.compared_network())
            return job.findings.comparison(made_from, lambda: _compared(job, first, settled))
    except TrtnormError as error:
        why = f"{error.summary} ({error.where})" if error.where else error.summary
    except MemoryError as error:
        reached = out_of_memory("the comparison", error)
        why = f"{reached.summary}: {reached.hint}"
    except Exception as error:  # the engine is built, and whoever waited for it should have it
        if comes_of_interrupt(error):
            raise
        why = f"trtnorm's comparison failed, please report it: {type(error).__name__}: {error}"
    report = CandidateReport("network:rewriting", "network", error=why, unavailable=True)
    return Comparison(job.prepared.loaded.path.name, candidates=[report])


def _compared(job: Job, first: Making, settled: Settled) -> Comparison:
    from trtnorm_cli.compare.session import build_settings, compare_lowered, compare_rewriting

    prepared, options = job.prepared, job.options

    def budget_s() -> float:
        return comparison_budget_s(first.tensorrt)

    def rewritten(likely: Likely) -> Rewritten:
        return settled.result(likely).rewritten

    settings = build_settings(options.memory_bytes, options.seed, budget_s, options.timeout_s)
    if first.lowering is None:
        return compare_rewriting(prepared, first.variant.rewriting, rewritten, first.fixed, job.work, settings)
    typed, wide, network = first.fixed.result(), first.lowering.wide, Later(first.compared_network)
    most = first.lowering.record.max_error
    return compare_lowered(prepared, first.variant.rewriting, wide, typed, network, job.work, settings, most)
