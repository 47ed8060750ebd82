"""Choose the optional changes whose engine is the fastest by its estimate, or that give the fewest kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx

from trtnorm_cli.engine_cost.profiles import of_profile
from trtnorm_cli.engine_cost.segments import Segment, Side, segments
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.progress import stage
from trtnorm_cli.records.cost import EngineCostRecord
from trtnorm_cli.records.engine_parts import launched
from trtnorm_cli.rewrite.kernels import Cost, fewest_kernels
from trtnorm_cli.rewrite.rewriting import Rewriter, Rewriting
from trtnorm_cli.rewrite.rule import Change
from trtnorm_cli.tensorrt.manifest import Choice
from trtnorm_cli.tensorrt.request import BuildResult
from trtnorm_cli.tensorrt.variants import NOT_BUILT, BuiltVariant, VariantBuilder, cost_of, kernels_of

# TensorRT for RTX times no kernel. It takes about 20 ms of one core for a launch, and 6 for a megabyte.
QUICK_BACKEND = "tensorrt-rtx"
# Times that are nearer than this are equal. Equal builds are the same to the byte, and so are their estimates; but the same
# work in other kernels may differ by as much, because a roofline lets memory and arithmetic overlap in each kernel alone.
_TOLD_APART = 0.001


@dataclass(frozen=True)
class Bounds:
    """The largest engine that is built a second time without the changes."""

    launches: int
    engine_bytes: int


# An engine should not keep what costs time for want of some seconds; what is only told may cost half of one.
TO_DECIDE, TO_TELL = Bounds(600, 1 << 30), Bounds(24, 4 << 20)
# Folds into large weights gain or cost little beside these, and seldom cost anything.
TO_DECIDE_ON_FOLDS = Bounds(600, 128 << 20)
# The nodes of a model that go into one launch, seldom more.
_NODES_IN_A_LAUNCH = 8


@dataclass(frozen=True)
class Variant:
    """A rewriting, and the search that came to it where there was one.

    ``measured`` is set where changes were tried that are not always for the better, so that a build has to show whether they
    stay. ``is_settled`` says that no other comes in its place.
    """

    rewriting: Rewriting
    choice: Choice | None = None
    measured: bool = False
    is_settled: bool = False


@dataclass(frozen=True)
class Built:
    """A variant with what TensorRT made of it, and what that costs."""

    rewriting: Rewriting
    result: BuildResult
    cost: EngineCostRecord

    @property
    def total(self) -> Cost:
        return cost_of(kernels_of(self.result, self.cost))

    @property
    def side(self) -> Side:
        return Side(launched(of_profile(self.result.kernels, 0)), self.cost.kernels)


def with_fewest_kernels(session: Rewriter, variants: VariantBuilder) -> Variant:
    """The rewriting whose engine launches the fewest kernels, found by building."""
    with stage("search", unit="builds") as told:

        def measured(rewriting: Rewriting) -> Cost:
            found = cost_of(variants.build(rewriting))
            told.advance()
            return found

        found = fewest_kernels(session, measured)
    choice = Choice(found.every_change, found.no_change, found.best, found.left_out, found.builds)
    return Variant(found.rewriting, choice, is_settled=True)


def fastest(session: Rewriter, variants: VariantBuilder, changed: Built, unchanged: BuiltVariant, measured: bool) -> Variant:
    """The rewriting of least estimated time: every change, none, or those that gain time where the two engines differ.

    Both engines are held against each other segment by segment, so that one further build is enough for any number of sites.
    The result is not slower than either, as far as the estimate tells.
    """
    none = Built(unchanged.rewriting, unchanged.result, unchanged.cost) if unchanged.result and unchanged.cost else None
    every, never = changed.total, NOT_BUILT if none is None else none.total
    sites = frozenset(change.tensor for change in changed.rewriting.changes if change.optional)
    found: list[tuple[Cost, Rewriting, frozenset[str]]] = [(every, changed.rewriting, frozenset())]
    if none is not None:
        left_out = frozenset(slower_sites(changed, none))
        if left_out and left_out != sites:
            part = session.rewrite("auto", left_out, measured)
            found.append((cost_of(variants.build(part)), part, left_out))
        found.append((never, none.rewriting, sites))
    builds = max(len(found), 2)
    chosen = preferred([cost for cost, *_ in found])
    best, rewriting, left_out = next(one for one in found if one[0] == chosen)
    return Variant(rewriting, Choice(every, never, best, tuple(sorted(left_out)), builds), measured, is_settled=True)


def slower_sites(changed: Built, unchanged: Built) -> list[str]:
    """The sites of optional changes in segments that take longer with them."""
    return [site for segment in aligned(changed, unchanged) if _is_slower(segment) for site in segment.sites]


def _is_slower(segment: Segment) -> bool:
    """The verdict on a segment with its changes: its time, and where that is equal its launches."""
    now, before = segment.changed, segment.unchanged
    return now.us > before.us if _are_told_apart(now.us, before.us) else now.launches > before.launches


def _are_told_apart(one: float, other: float) -> bool:
    return abs(one - other) > _TOLD_APART * max(one, other)


def preferred(costs: Sequence[Cost]) -> Cost:
    """The least time. Among those that the model does not tell from it the fewest kernels, then the fewest that are compiled
    on the device, then the first."""
    least = min(cost.us for cost in costs)
    nearest = [cost for cost in costs if not _are_told_apart(cost.us, least)]
    return min(nearest, key=lambda cost: (cost.launches, cost.compiled))


def aligned(changed: Built, unchanged: Built) -> list[Segment]:
    """The segments of optional changes, on both sides."""
    after, before = _nodes(changed.rewriting.model), _nodes(unchanged.rewriting.model)
    made = {change.tensor: change for change in changed.rewriting.changes if change.optional}
    sites = {tensor: _names_of(change, tensor, (after, before)) for tensor, change in made.items()}
    joined = [*_chains(after, before.keys()), *_chains(before, after.keys())]
    return segments(changed.side, unchanged.side, sites, joined)


def _nodes(model: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    return {node.name: node for node in model.graph.node if node.name}


def _names_of(change: Change, tensor: str, models: Iterable[Mapping[str, onnx.NodeProto]]) -> list[str]:
    """The nodes that produce the changed tensor in either model, and the one that the change is named after."""
    producers = [name for nodes in models for name, node in nodes.items() if tensor in node.output]
    return [change.node, *producers]


def _chains(nodes: Mapping[str, onnx.NodeProto], others: Iterable[str]) -> list[tuple[str, str]]:
    """Pairs of neighbours that only one of the models has: those of one change, mostly."""
    own = {name: node for name, node in nodes.items() if name not in set(others)}
    producers = {tensor: name for name, node in own.items() for tensor in node.output}
    return [(producers[tensor], name) for name, node in own.items() for tensor in node.input if tensor in producers]


def folds_alone(changes: Iterable[Change]) -> bool:
    """True where all that is optional folds BatchNormalizations into weights, which is for the better nearly everywhere."""
    return all(change.rule.startswith("fold-batchnorm") for change in changes if change.optional)


def bounds_for(changes: Iterable[Change]) -> Bounds:
    """The largest engine that is built twice to decide about ``changes``."""
    return TO_DECIDE_ON_FOLDS if folds_alone(changes) else TO_DECIDE


def is_quick(result: BuildResult, bounds: Bounds) -> bool:
    """True for a build that is worth repeating to see what changes did.

    No clock tells, because what it tells would depend on what else the machine does, and the engine on that.
    """
    small = len(launched(result.kernels)) <= bounds.launches and result.engine_bytes <= bounds.engine_bytes
    return result.backend == QUICK_BACKEND and small


def may_be_quick(model: onnx.ModelProto, bounds: Bounds) -> bool:
    """False for a model of which ``is_quick`` will hardly say yes: a second build is not prepared before that is known."""
    return len(model.graph.node) <= _NODES_IN_A_LAUNCH * bounds.launches


def why_more(now: Cost, before: Cost, policy: str) -> str | None:
    """Why an engine launches more kernels, or takes longer by the estimate, than one without optional changes; None if not."""
    more, longer = now.launches - before.launches, now.us > before.us and _are_told_apart(now.us, before.us)
    if before == NOT_BUILT or (more <= 0 and not longer):
        return None
    kernels = f"{more} more kernel{'s' if more > 1 else ''}" if more > 0 else "more time"
    if policy == "always":
        return f"{kernels} than without optional changes: optimize: always makes every change, whatever it costs"
    if not longer:
        return f"{kernels} than without optional changes, {_saved(now, before)}"
    return f"{kernels} than without optional changes: optimize: {policy} does not look at the estimate of time"


def _saved(now: Cost, before: Cost) -> str:
    saved = (before.us - now.us) / before.us if before.us else 0.0
    return f"in {saved:.1%} less time by the estimate" if saved > _TOLD_APART else "in the same time by the estimate"
