"""The choice of the rewriting that an engine is made of, by what the policy asks for and what engines would cost."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import onnx

from trtnorm_cli.build_job import Job
from trtnorm_cli.cores import usable_cores
from trtnorm_cli.cost.group_norm import group_norm_seconds
from trtnorm_cli.engine_making import Making, parsed_network
from trtnorm_cli.onnx_model.load import load_model
from trtnorm_cli.onnx_model.stored import tensor_bytes
from trtnorm_cli.precision.session import typed_session
from trtnorm_cli.rewrite.before_means import batchnorms_before_means
from trtnorm_cli.rewrite.kernels import Cost
from trtnorm_cli.rewrite.norms.blocks import LONGEST_ROW
from trtnorm_cli.rewrite.prepare import Prepared
from trtnorm_cli.rewrite.rewriting import Rewriter, Rewriting
from trtnorm_cli.rewrite.spread_softmaxes import scales_before_spread_softmaxes
from trtnorm_cli.rewrite.usual_group_norms import GroupNorm, group_norms
from trtnorm_cli.side_work import Awaited, Later
from trtnorm_cli.tensorrt.backend import first_installed
from trtnorm_cli.tensorrt.estimates import device_of, opt_sizes
from trtnorm_cli.tensorrt.kernel_search import (
    QUICK_BACKEND,
    TO_DECIDE,
    TO_DECIDE_ON_FOLDS,
    TO_TELL,
    Bounds,
    Variant,
    bounds_for,
    fastest,
    folds,
    is_quick,
    may_be_quick,
    preferred,
    why_more,
    with_fewest_kernels,
)
from trtnorm_cli.tensorrt.manifest import (
    Choice,
    Kernels,
    Optimization,
)
from trtnorm_cli.tensorrt.may_tell import is_doubtful, may_tell
from trtnorm_cli.tensorrt.network.parsed import ParsedNetwork
from trtnorm_cli.tensorrt.nothing_to_gain import leaves_nothing_to_gain
from trtnorm_cli.tensorrt.part_search import Built, is_as_good
from trtnorm_cli.tensorrt.request import BuildRequest, BuildResult
from trtnorm_cli.tensorrt.variants import BuiltVariant, VariantBuilder, cost_of, kernels_of

if TYPE_CHECKING:
    from trtnorm_cli.compare.session import Likely


def first_rewriting(prepared: Prepared, backend: str | None) -> Rewriting:
    """The rewriting that a build with this backend begins with, for what it proves."""
    session = typed_session(prepared)
    if session.settings.optimize == "auto" and first_installed(backend) == QUICK_BACKEND:
        return session.rewrite(measured=may_be_quick(prepared.loaded.proto, TO_DECIDE))
    return session.rewrite()


class Unchanged:
    """The model without the changes that only improve it, and its engine, which shows what they do.

    Its build is ``begun`` as soon as such a change is foreseen, where it is likely to decide and there is a core for it.
    Where the engine with the changes may tell, it is put off until that one is there. Where that is in doubt, it is begun
    before, once a core has nothing to do.
    """

    def __init__(self, job: Job) -> None:
        self.rewriting = Later(lambda: job.session.rewrite("never"))
        self.begun: Awaited[BuiltVariant] | None = None
        self._job = job
        self._needless: Later[bool] | None = None
        self.may_begin_beside = False
        self._lock = threading.Lock()

    def foresee(self, rule: str) -> None:
        """Begin the build: ``rule`` found a change that is optional.

        It is put off where the engine with the changes is likely to show that there is no need for it.
        """
        job, bounds = self._job, TO_DECIDE_ON_FOLDS if folds(rule) else TO_DECIDE
        if self.begun is not None or may_tell([rule], job.session.model):
            return
        if not (may_be_chosen(job) and job.side.is_beside and usable_cores() > 1) or self.rewriting.error() is not None:
            return
        model = self.rewriting.result().model
        if may_be_quick(model, bounds) and is_small(model, bounds):
            self.begun = job.side.start(self.built)

    def begin_beside(self, building: Awaited[BuildResult]) -> None:
        """Begin the build, where it ``may_begin_beside`` the first engine, which is still ``building``.

        The thread that asks has nothing to do until that one is there.
        """
        with self._lock:
            if not self.may_begin_beside or self.begun is not None or building.is_done():
                return
            # Made here, as no two threads rewrite at once.
            if self.rewriting.error() is None and not building.is_done():
                self.begun = self._job.side.start(self.built)

    def begun_or(self, behind: Later[BuiltVariant]) -> Awaited[BuiltVariant]:
        """The build that was begun, or the one ``behind`` the first engine, which is there."""
        with self._lock:
            self.may_begin_beside = False
            return self.begun or behind

    def built(self, with_network: bool = False) -> BuiltVariant:
        """The result of the build, in the thread that asks for it; ``with_network`` for a comparison, where one is wanted."""
        with self._job.clock.time("variants"):
            variants = self._job.variants()
            return variants.built(self.rewriting.result(), self._job.unchanged, variants.network if with_network else None)

    def is_needless(self, made: Making) -> bool:
        """True once the engine that was made shows that this one would not be better. To ask it costs no build."""
        if self._needless is None:
            self._needless = Later(lambda: self._shows_all(made))
        return self._needless.result()

    def _shows_all(self, made: Making) -> bool:
        result = made.building.result()
        is_known = result.ok and result.backend == QUICK_BACKEND
        cost = self._job.estimated(result, made.rewriting.model) if is_known else None
        device = device_of(self._job.prepared)
        return cost is not None and leaves_nothing_to_gain(Built(made.variant.rewriting, result, cost), device)

    def cancel(self) -> None:
        """It is not wanted any more."""
        if self.begun is not None:
            self.begun.cancel()


def is_small(model: onnx.ModelProto, bounds: Bounds) -> bool:
    """True where the weights are small enough for an engine that is built without waiting for the first one."""
    return sum(map(tensor_bytes, model.graph.initializer)) <= bounds.engine_bytes


def first_variant(job: Job, unchanged: Unchanged) -> Variant:
    """The rewriting that the policy asks for.

    Where builds will show which changes stay, those are tried too that are not always for the better, and the model
    ``unchanged`` may be built beside the proofs.
    """
    with job.clock.time("rewrite"):
        if job.policy == "kernels":
            return with_fewest_kernels(job.session, job.variants())
        if not _estimates_decide(job) or not may_be_quick(job.prepared.loaded.proto, TO_DECIDE):
            return Variant(job.session.rewrite())
        if may_be_chosen(job):
            norms = known_to_cost(job)
            skipped = norms | likely_to_cost(job)
            rewriting = job.session.rewrite(left_out=skipped, measured=True, foreseen=unchanged.foresee)
            if skipped and not any(change.optional for change in rewriting.changes):  # no second engine would be built to tell
                skipped = norms = frozenset()
                rewriting = job.session.rewrite(measured=True, foreseen=unchanged.foresee)
            return Variant(rewriting, measured=True, not_tried=skipped, known_to_cost=norms)
    return _chosen_in_the_types_of_the_file(job)


def known_to_cost(job: Job) -> frozenset[str]:
    """The changes of GroupNorms that are left out from the start, as these take less time as they are."""
    model = job.session.model
    if not (may_be_quick(model, TO_DECIDE) and is_small(model, TO_DECIDE)):
        return frozenset()
    usual = (norm for norm in group_norms(model) if norm.has_usual_channels and norm.is_between_convolutions)
    costly = (norm for norm in usual if _takes_longer_along_rows(norm, job.prepared))
    return frozenset(name for norm in costly for name in norm.names)


def likely_to_cost(job: Job) -> frozenset[str]:
    """The folds that are left out from the start, where the model is small enough for a second engine to tell the rest.

    What the engine without changes has there is kept, so that the result is not slower than that one, and without them seldom
    than with. A third engine, and its comparison, would mostly have come to the same.
    """
    model = job.session.model
    is_told = may_be_quick(model, TO_DECIDE_ON_FOLDS) and is_small(model, TO_DECIDE_ON_FOLDS)
    if not is_told:
        return frozenset()
    return batchnorms_before_means(model) | scales_before_spread_softmaxes(model)


def _takes_longer_along_rows(norm: GroupNorm, prepared: Prepared) -> bool:
    """True where ``norm`` would be written along rows, and take longer so, at the opt sizes of every optimization profile."""
    device = device_of(prepared)

    def takes_longer(sizes: Mapping[str, int]) -> bool:
        samples = norm.samples if isinstance(norm.samples, int) else sizes.get(norm.samples or "", 0)
        seconds = group_norm_seconds(samples, norm.groups, norm.row, device)
        return seconds.along_rows > seconds.own

    return norm.row <= LONGEST_ROW and all(map(takes_longer, opt_sizes(prepared).values()))


def _chosen_in_the_types_of_the_file(job: Job) -> Variant:
    """The rewriting that is then put into another precision, which settles for one.

    The optional changes are measured before, on engines in the types of the file: what they gain or cost in launches and
    traffic they do in half precision too.
    """
    with job.clock.time("rewrite"):
        skipped = known_to_cost(job) | likely_to_cost(job)
        usual, every = job.session.rewrite(), job.session.rewrite(left_out=skipped, measured=True)
    bounds = bounds_for(every.changes)
    if every.failed or not is_small(every.model, bounds) or not any(change.optional for change in every.changes):
        return Variant(usual)
    with job.clock.time("variants"):
        built = job.variants().built(every)
        if built.result is None or built.cost is None or not is_quick(built.result, bounds):
            return Variant(usual)
        first = Built(every, built.result, built.cost)
        if leaves_nothing_to_gain(first, device_of(job.prepared)):
            return settled_alone(Variant(every, measured=True, not_tried=skipped), first.total)
        unchanged = job.variants().built(job.session.rewrite("never"))
        return fastest(job.session, job.variants().tried, first, unchanged, measured=True, not_tried=skipped)


def _estimates_decide(job: Job) -> bool:
    """True where the policy leaves it to estimates which optional changes stay."""
    return first_installed(job.options.backend) == QUICK_BACKEND and job.policy == "auto"


def may_be_chosen(job: Job) -> bool:
    """True where estimates of the engine that was built decide about optional changes."""
    return _estimates_decide(job) and job.prepared.precision is None


def may_be_replaced(job: Job, variant: Variant) -> bool:
    """True where a faster rewriting may come instead."""
    return may_be_chosen(job) and not variant.is_settled and any(change.optional for change in variant.rewriting.changes)


def without_changes(job: Job, made: Making, unchanged: Unchanged) -> Awaited[BuiltVariant | None]:
    """The build without the changes that only improve the model, to see what they did.

    None where there are no such changes, where the first engine tells by itself, and where a second build would take long for
    what its answer is worth. It takes no longer than another one with those changes only that are for the better everywhere.
    TensorRT for RTX compiles without timing anything, while TensorRT 10 and 11 measure every kernel.
    """
    if made.lowering is not None or not any(change.optional for change in made.variant.rewriting.changes):
        unchanged.cancel()
        return Later(lambda: None)
    model = made.variant.rewriting.model
    decides = may_be_replaced(job, made.variant)
    bounds = bounds_for(made.variant.rewriting.changes) if decides else TO_TELL
    is_built_twice = decides and made.variant.measured and not is_for_the_better(made.variant)
    # Behind the first build there is a core for the network, in case that this one is chosen.
    behind = Later(partial(unchanged.built, with_network=decides and job.side.is_beside))

    def where_quick() -> BuiltVariant | None:
        result = made.building.result()
        begun = unchanged.begun_or(behind)
        is_worth_it = is_quick(result, bounds) or (is_built_twice and result.backend == QUICK_BACKEND)
        if result.ok and is_worth_it and not (decides and unchanged.is_needless(made)):
            return begun.result()
        begun.cancel()
        return None

    if unchanged.begun is None:
        is_likely = first_installed(job.options.backend) == QUICK_BACKEND and may_be_quick(model, bounds)
        rules = [one.rule for one in made.variant.rewriting.changes if one.optional and not one.in_passing]
        is_likely_needless = decides and may_tell(rules, job.session.model)
        if not (job.side.is_beside and is_likely) or not (is_likely_needless or unchanged.rewriting.error() is None):
            return Later(where_quick)
        # TensorRT for RTX builds on one core: on two, both engines take as long as one.
        has_core = decides and is_small(model, bounds) and usable_cores() > 1
        if not has_core or is_likely_needless:
            unchanged.may_begin_beside = has_core and is_doubtful(rules, job.session.model)
            return job.side.start(where_quick)
        unchanged.begun = job.side.start(unchanged.built)
    return Later(where_quick, (unchanged.begun, made.building))


def may_stay(job: Job, made: Making, unbuilt: Awaited[BuiltVariant | None], without: Unchanged) -> bool:
    """False once both engines are there and the one without changes is the better one, or one of them was refused."""
    if not (made.building.is_done() and unbuilt.is_done()):
        return True
    if made.building.error() is not None or not made.building.result().ok or unbuilt.error() is not None:
        return False
    unchanged, cost = unbuilt.result(), job.estimated(made.building.result(), made.rewriting.model)
    if unchanged is None or cost is None:
        return not made.variant.measured or is_for_the_better(made.variant) or without.is_needless(made)
    own, other = cost_of(kernels_of(made.building.result(), cost)), cost_of(unchanged.kernels)
    return is_as_good(own, other) or preferred([own, other]) == own


def faster(
    job: Job,
    made: Making,
    unchanged: BuiltVariant | None,
    without: Unchanged,
    variants: VariantBuilder,
    likely: Likely,
) -> Variant:
    """The rewriting that ``optimize: auto`` prefers: the one that was made, or another that ``variants`` builds.

    While such another one is built, it is taken for the one that is ``likely`` to stay. ``unchanged`` is what the build
    ``without`` changes gave, where there was one.
    """
    variant = made.variant
    if not may_be_replaced(job, variant):
        return variant
    if unchanged is None and without.is_needless(made):
        cost = job.estimated(made.result, made.rewriting.model)
        return settled_alone(variant, cost_of(kernels_of(made.result, cost)))
    cost = None if unchanged is None else job.estimated(made.result, made.rewriting.model)
    if unchanged is None or cost is None:
        return without_measured_changes(job, variant)
    with job.clock.time("variants"):
        every = Built(made.rewriting, made.result, cost)
        return fastest(
            job.session, partial(_tried, job, variants, likely), every, unchanged, variant.measured, variant.not_tried
        )


def _tried(job: Job, variants: VariantBuilder, likely: Likely, rewriting: Rewriting) -> BuiltVariant:
    """The variant of a search, which is compared while it is built."""

    from trtnorm_cli.compare.session import Rewritten

    def run(request: BuildRequest, folder: Path) -> BuildResult:
        if request.network is None or not job.side.is_beside:
            return job.run(request, folder)
        parsed, path = ParsedNetwork(folder), folder / request.model
        building = job.side.start(lambda: parsed.built(lambda listen: job.run(request, folder, listen)))
        network = Later(lambda: parsed_network(parsed, building, path))
        likely(Rewritten(rewriting, Later(lambda: load_model(path)), network), lambda: True, lambda: not building.is_done())
        return building.result()

    return variants.tried(rewriting, run)


def settled_alone(variant: Variant, cost: Cost) -> Variant:
    """``variant``, whose engine of this ``cost`` leaves nothing to gain, so that no other was built."""
    skipped = tuple(sorted(variant.not_tried))
    return replace(variant, choice=Choice(cost, None, cost, skipped, 1, skipped), is_settled=True)


def without_measured_changes(job: Job, variant: Variant) -> Variant:
    """The rewriting with those changes only that are for the better everywhere, for an engine that is not built twice."""
    if not variant.measured:
        return variant
    if is_for_the_better(variant):
        return replace(variant, is_settled=True)
    with job.clock.time("rewrite"):
        rewriting = job.session.rewrite(left_out=variant.known_to_cost)
    if rewriting.changes == variant.rewriting.changes:
        rewriting = variant.rewriting
    known = variant.known_to_cost
    return Variant(rewriting, is_settled=True, not_tried=known, known_to_cost=known)


def is_for_the_better(variant: Variant) -> bool:
    """True where it makes those changes that are for the better everywhere, and no others."""
    return not variant.rewriting.follows_measured and variant.not_tried <= variant.known_to_cost


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
        return Variant(session.rewrite(left_out=variant.not_tried, measured=variant.measured))
    if job.policy == "kernels":
        return with_fewest_kernels(session, job.variants())
    if not variant.rewriting.changes or variant.choice.chosen == variant.choice.no_change:
        return Variant(session.rewrite("never"))
    return Variant(session.rewrite("auto", frozenset(variant.choice.left_out), variant.measured))
