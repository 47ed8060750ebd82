"""The choice of the rewriting that an engine is made of, by what the policy asks for and what engines would cost."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from trtnorm_cli.build_job import Job
from trtnorm_cli.compare.session import Likely, Rewritten
from trtnorm_cli.engine_making import Making, parsed_network
from trtnorm_cli.lowering.lower import settings_of
from trtnorm_cli.onnx_model.load import load_model
from trtnorm_cli.onnx_model.stored import tensor_bytes
from trtnorm_cli.precision.session import typed_session
from trtnorm_cli.rewrite.prepare import Prepared
from trtnorm_cli.rewrite.rewriting import Rewriter, Rewriting
from trtnorm_cli.side_work import Awaited, Later, usable_cores
from trtnorm_cli.tensorrt.backend import first_installed
from trtnorm_cli.tensorrt.kernel_search import (
    QUICK_BACKEND,
    TO_DECIDE,
    TO_TELL,
    Variant,
    bounds_for,
    fastest,
    is_quick,
    may_be_quick,
    preferred,
    why_more,
    with_fewest_kernels,
)
from trtnorm_cli.tensorrt.manifest import (
    Kernels,
    Optimization,
)
from trtnorm_cli.tensorrt.network.parsed import ParsedNetwork
from trtnorm_cli.tensorrt.part_search import Built
from trtnorm_cli.tensorrt.request import BuildRequest, BuildResult
from trtnorm_cli.tensorrt.variants import BuiltVariant, VariantBuilder, cost_of, kernels_of


def first_rewriting(prepared: Prepared, backend: str | None) -> Rewriting:
    """The rewriting that a build with this backend begins with, for what it proves."""
    session = typed_session(prepared)
    if session.settings.optimize == "auto" and first_installed(backend) == QUICK_BACKEND:
        return session.rewrite(measured=may_be_quick(prepared.loaded.proto, TO_DECIDE))
    return session.rewrite()


def first_variant(job: Job) -> Variant:
    """The rewriting that the policy asks for.

    Where builds will show which changes stay, those are tried too that are not always for the better.
    """
    with job.clock.time("rewrite"):
        if job.policy == "kernels":
            return with_fewest_kernels(job.session, job.variants())
        if not _estimates_decide(job) or not may_be_quick(job.prepared.loaded.proto, TO_DECIDE):
            return Variant(job.session.rewrite())
        if may_be_chosen(job):
            return Variant(job.session.rewrite(measured=True), measured=True)
    return _chosen_in_the_types_of_the_file(job)


def _chosen_in_the_types_of_the_file(job: Job) -> Variant:
    """The rewriting that is then put into another precision, which settles for one.

    The optional changes are measured before, on engines in the types of the file: what they gain or cost in launches and
    traffic they do in half precision too.
    """
    with job.clock.time("rewrite"):
        usual, every = job.session.rewrite(), job.session.rewrite(measured=True)
    bounds = bounds_for(every.changes)
    is_small = sum(map(tensor_bytes, every.model.graph.initializer)) <= bounds.engine_bytes
    if every.failed or not is_small or not any(change.optional for change in every.changes):
        return Variant(usual)
    with job.clock.time("variants"):
        built = job.variants().built(every)
        if built.result is None or built.cost is None or not is_quick(built.result, bounds):
            return Variant(usual)
        unchanged = job.variants().built(job.session.rewrite("never"))
        return fastest(job.session, job.variants().tried, Built(every, built.result, built.cost), unchanged, measured=True)


def _estimates_decide(job: Job) -> bool:
    """True where the policy leaves it to estimates which optional changes stay."""
    return first_installed(job.options.backend) == QUICK_BACKEND and job.policy == "auto"


def may_be_chosen(job: Job) -> bool:
    """True where estimates of the engine that was built decide about optional changes."""
    return _estimates_decide(job) and settings_of(job.prepared) is None


def may_be_replaced(job: Job, variant: Variant) -> bool:
    """True where a faster rewriting may come instead."""
    return may_be_chosen(job) and not variant.is_settled and any(change.optional for change in variant.rewriting.changes)


def without_changes(job: Job, made: Making) -> Awaited[BuiltVariant | None]:
    """The build without the changes that only improve the model, to see what they did.

    None where there are no such changes, and where a second build would take long for what its answer is worth. TensorRT for
    RTX compiles without timing anything, while TensorRT 10 and 11 measure every kernel.
    """
    model = made.variant.rewriting.model
    bounds = bounds_for(made.variant.rewriting.changes) if may_be_replaced(job, made.variant) else TO_TELL

    def build_unchanged() -> BuiltVariant:
        with job.clock.time("variants"):
            return job.variants().built(unchanged.result(), job.unchanged)

    def where_quick(begun: Awaited[BuiltVariant]) -> BuiltVariant | None:
        result = made.building.result()
        if result.ok and is_quick(result, bounds):
            return begun.result()
        begun.cancel()
        return None

    if made.lowering is not None or not any(change.optional for change in made.variant.rewriting.changes):
        return Later(lambda: None)
    unchanged = Later(lambda: job.session.rewrite("never"))
    is_likely = first_installed(job.options.backend) == QUICK_BACKEND and may_be_quick(model, bounds)
    if not (job.side.is_beside and is_likely and unchanged.error() is None):
        return Later(lambda: where_quick(Later(build_unchanged)))
    # TensorRT for RTX builds on one core: on two, both engines take as long as one.
    decides, is_small = bounds is not TO_TELL, sum(map(tensor_bytes, model.graph.initializer)) <= bounds.engine_bytes
    if decides and is_small and usable_cores() > 1:
        begun = job.side.start(build_unchanged)
        return Later(lambda: where_quick(begun), (begun, made.building))
    return job.side.start(lambda: where_quick(Later(build_unchanged)))


def may_stay(job: Job, made: Making, unbuilt: Awaited[BuiltVariant | None]) -> bool:
    """False once both engines are there and the one without changes is the better one, or one of them was refused."""
    if not (made.building.is_done() and unbuilt.is_done()):
        return True
    if made.building.error() is not None or not made.building.result().ok or unbuilt.error() is not None:
        return False
    unchanged, cost = unbuilt.result(), job.estimated(made.building.result(), made.rewriting.model)
    if unchanged is None or cost is None:
        return not made.variant.measured
    own = cost_of(kernels_of(made.building.result(), cost))
    return preferred([own, cost_of(unchanged.kernels)]) == own


def faster(job: Job, made: Making, unchanged: BuiltVariant | None, variants: VariantBuilder, likely: Likely) -> Variant:
    """The rewriting that ``optimize: auto`` prefers: the one that was made, or another that ``variants`` builds.

    While such another one is built, it is taken for the one that is ``likely`` to stay.
    """
    variant = made.variant
    if not may_be_replaced(job, variant):
        return variant
    cost = None if unchanged is None else job.estimated(made.result, made.rewriting.model)
    if unchanged is None or cost is None:
        return without_measured_changes(job, variant)
    with job.clock.time("variants"):
        every = Built(made.rewriting, made.result, cost)
        return fastest(job.session, partial(_tried, job, variants, likely), every, unchanged, variant.measured)


def _tried(job: Job, variants: VariantBuilder, likely: Likely, rewriting: Rewriting) -> BuiltVariant:
    """The variant of a search, which is compared while it is built."""

    def run(request: BuildRequest, folder: Path) -> BuildResult:
        if request.network is None or not job.side.is_beside:
            return job.run(request, folder)
        parsed, path = ParsedNetwork(folder), folder / request.model
        building = job.side.start(lambda: parsed.built(lambda listen: job.run(request, folder, listen)))
        network = Later(lambda: parsed_network(parsed, building, path))
        likely(Rewritten(rewriting, Later(lambda: load_model(path)), network), lambda: True)
        return building.result()

    return variants.tried(rewriting, run)


def without_measured_changes(job: Job, variant: Variant) -> Variant:
    """The rewriting with those changes only that are for the better everywhere, for an engine that is not built twice."""
    if not variant.measured:
        return variant
    if not variant.rewriting.follows_measured:
        return replace(variant, is_settled=True)
    with job.clock.time("rewrite"):
        rewriting = job.session.rewrite()
    return Variant(variant.rewriting if rewriting.changes == variant.rewriting.changes else rewriting, is_settled=True)


def optimized(job: Job, made: Making, before: Kernels | None) -> Optimization:
    """The outcome of the policy, and why the engine still launches more kernels, or takes longer, where it does."""
    more = None
    if before is not None:
        now = cost_of(kernels_of(made.result, job.estimated(made.result, made.rewriting.model)))
        more = why_more(now, cost_of(before), job.policy)
    return Optimization(job.policy, made.variant.choice, before, more)


def made_again(job: Job, session: Rewriter, variant: Variant) -> Variant:
    """``variant`` from the start. What a search found is taken over: it follows from engines that are thrown away."""
    if variant.choice is None:
        return Variant(session.rewrite(measured=variant.measured))
    if job.policy == "kernels":
        return with_fewest_kernels(session, job.variants())
    if not variant.rewriting.changes or variant.choice.chosen == variant.choice.no_change:
        return Variant(session.rewrite("never"))
    return Variant(session.rewrite("auto", frozenset(variant.choice.left_out), variant.measured))
