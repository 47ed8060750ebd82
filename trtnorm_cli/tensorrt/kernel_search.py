"""Choose the optional changes whose engine is the fastest by its estimate, or that give the fewest kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import onnx

from trtnorm_cli.engine_cost.segments import Sums, are_told_apart
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.progress import stage
from trtnorm_cli.records.engine_parts import launched
from trtnorm_cli.rewrite.kernels import Cost, Search, fewest_kernels
from trtnorm_cli.rewrite.rewriting import Rewriter, Rewriting
from trtnorm_cli.rewrite.rule import Change
from trtnorm_cli.tensorrt.manifest import Choice
from trtnorm_cli.tensorrt.part_search import Built, PartSearch, is_as_good
from trtnorm_cli.tensorrt.request import BuildResult
from trtnorm_cli.tensorrt.variants import NOT_BUILT, BuiltVariant, VariantBuilder, cost_of

# TensorRT for RTX times no kernel. It takes about 20 ms of one core for a launch, and 6 for a megabyte.
QUICK_BACKEND = "tensorrt-rtx"


@dataclass(frozen=True)
class Bounds:
    """The largest engine that is built a second time without the changes."""

    launches: int
    engine_bytes: int


# An engine should not keep what costs time for want of some seconds; what is only told may cost half of one.
TO_DECIDE, TO_TELL = Bounds(600, 1 << 30), Bounds(24, 4 << 20)
# Folds seldom cost anything, and what one costs is little beside large weights.
TO_DECIDE_ON_FOLDS = Bounds(600, 128 << 20)
# Rules that may take the place of one that is left out, one after the other.
_MOST_IN_TURN = 3
# The nodes of a model that go into one launch, seldom more.
_NODES_IN_A_LAUNCH = 8
# The fewest launches that were counted for a direction of a recurrent operator: for one step, for eight, and for more.
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})
_LAUNCHES_OF_STEPS = ((1, 2), (8, 9))
_LAUNCHES_OF_MANY_STEPS = 25


@dataclass(frozen=True)
class Variant:
    """A rewriting, and the search that came to it where there was one.

    ``measured`` is set where changes were tried that are not always for the better, so that a build has to show whether they
    stay. ``not_tried`` are the tensors of changes that were left out from the start, ``known_to_cost`` among them those that no
    engine has to be asked about. ``is_settled`` says that no other comes in its place.
    """

    rewriting: Rewriting
    choice: Choice | None = None
    measured: bool = False
    is_settled: bool = False
    not_tried: frozenset[str] = frozenset()
    known_to_cost: frozenset[str] = frozenset()


def with_fewest_kernels(session: Rewriter, variants: VariantBuilder) -> Variant:
    """The rewriting whose engine launches the fewest kernels, found by building."""
    engines: dict[int, Built] = {}

    def by_parts(search: Search[str], variant: Callable[[frozenset[str]], Rewriting]) -> bool:
        """Considers what is best in each part of the engine. True where no other choice can be better, as far as parts tell."""
        first_two = [engines.get(id(variant(left_out))) for left_out in search.known]
        if len(first_two) < 2 or first_two[0] is None or first_two[1] is None:
            return False

        def build(left_out: frozenset[str]) -> Built | None:
            search.consider(left_out)
            return engines.get(id(variant(left_out)))

        parts = PartSearch(first_two[0], first_two[1], launches_more)
        parts.run(build)
        return parts.is_settled

    with stage("search", unit="builds") as told:

        def measured(rewriting: Rewriting) -> Cost:
            made = variants.tried(rewriting)
            told.advance()
            if made.result is not None and made.cost is not None:
                engines[id(rewriting)] = Built(rewriting, made.result, made.cost)
            return cost_of(made.kernels)

        found = fewest_kernels(session, measured, suggest=by_parts)
    choice = Choice(found.every_change, found.no_change, found.best, found.left_out, found.builds)
    return Variant(found.rewriting, choice, is_settled=True)


def fastest(
    session: Rewriter,
    tried: Callable[[Rewriting], BuiltVariant],
    changed: Built,
    unchanged: BuiltVariant,
    measured: bool,
    not_tried: frozenset[str] = frozenset(),
) -> Variant:
    """The rewriting of least estimated time: every change but those ``not_tried``, none, or those that gain time where the two
    engines differ.

    Both engines are held against each other part by part, so that few further builds are enough for any number of sites, and
    none where little is to be gained: then every change stays. The result is slower than neither by more than that, as far as
    the estimate tells.
    """
    none = Built(unchanged.rewriting, unchanged.result, unchanged.cost) if unchanged.result and unchanged.cost else None
    every, never = changed.total, NOT_BUILT if none is None else none.total
    skipped = tuple(sorted(not_tried))
    search = None if none is None else PartSearch(changed, none, takes_longer, tries_single_sites=False)
    if search is None or search.leaves_little:
        choice = Choice(every, never, every, skipped, 2, skipped)
        return Variant(changed.rewriting, choice, measured, is_settled=True, not_tried=not_tried)

    whole: dict[frozenset[str], frozenset[str]] = {}

    def build(left_out: frozenset[str]) -> Built | None:
        rewriting, whole[left_out] = mixture(session, changed.rewriting, left_out | not_tried, measured)
        made = tried(rewriting)
        return None if made.result is None or made.cost is None else Built(made.rewriting, made.result, made.cost)

    found = search.run(build)
    costs = {left_out: one.total for left_out, one in found.items()}
    least = preferred(list(costs.values()))
    chosen = every if all(is_as_good(every, one) for one in costs.values()) else least
    left_out, best = next((left_out, found[left_out]) for left_out, cost in costs.items() if cost == chosen)
    choice = Choice(every, never, chosen, tuple(sorted(whole.get(left_out, left_out | not_tried))), len(found), skipped)
    return Variant(best.rewriting, choice, measured, is_settled=True, not_tried=not_tried)


def mixture(session: Rewriter, every: Rewriting, left_out: frozenset[str], measured: bool) -> tuple[Rewriting, frozenset[str]]:
    """The rewriting with the optional changes of ``every`` but for those ``left_out``, and all that are left out of it.

    Another rule may take the place of a change that is left out: an InstanceNormalization is written in rows where the
    GroupNormalization around it is not recomposed. No engine has shown what that does, so that it is left out, too.
    """
    known = {change.tensor for change in every.changes}
    rewriting = session.rewrite("auto", left_out, measured)
    for _ in range(_MOST_IN_TURN):
        others = {change.tensor for change in rewriting.changes if change.optional} - known
        if not others:
            break
        left_out |= others
        rewriting = session.rewrite("auto", left_out, measured)
    return rewriting, left_out


def takes_longer(one: Sums, other: Sums) -> bool:
    """True for the longer time; where times are equal for more launches, then for more that are compiled on the device."""
    if are_told_apart(one.us, other.us):
        return one.us > other.us
    return (one.launches, one.compiled) > (other.launches, other.compiled)


def launches_more(one: Sums, other: Sums) -> bool:
    """True for more launches, and where these are equal for the longer time."""
    return one.launches > other.launches if one.launches != other.launches else takes_longer(one, other)


def preferred(costs: Sequence[Cost]) -> Cost:
    """The least time. Among those that the model does not tell from it the fewest kernels, then the fewest that are compiled
    on the device, then the first."""
    least = min(cost.us for cost in costs)
    nearest = [cost for cost in costs if not are_told_apart(cost.us, least)]
    return min(nearest, key=lambda cost: (cost.launches, cost.compiled))


def folds(rule: str) -> bool:
    """True where ``rule`` folds BatchNormalizations into weights, which is for the better nearly everywhere."""
    return rule.startswith("fold-batchnorm")


def folds_alone(changes: Iterable[Change]) -> bool:
    """True where all that is optional folds BatchNormalizations into weights."""
    return all(folds(change.rule) for change in changes if change.optional)


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
    return len(model.graph.node) / _NODES_IN_A_LAUNCH + _launches_of_recurrences(model.graph) <= bounds.launches


def _launches_of_recurrences(graph: onnx.GraphProto) -> int:
    recurrent = [node for node in graph.node if node.op_type in _RECURRENT]
    read = {node.input[0] for node in recurrent}
    values = (value for value in [*graph.value_info, *graph.input] if value.name in read)
    sizes = {value.name: [size.dim_value for size in value.type.tensor_type.shape.dim] for value in values}
    return sum(_launches_of(node, sizes.get(node.input[0], ())) for node in recurrent)


def _launches_of(node: onnx.NodeProto, sizes: Sequence[int]) -> int:
    """The launches to expect of a recurrent ``node`` whose data have these ``sizes``, 0 for those that are not known."""
    stated = {one.name: one for one in node.attribute}
    directions = 2 if "direction" in stated and stated["direction"].s == b"bidirectional" else 1
    axis = int("layout" in stated and stated["layout"].i == 1)
    steps = sizes[axis] if len(sizes) > axis else 0
    launches = (launches for most, launches in _LAUNCHES_OF_STEPS if 0 < steps <= most)
    return directions * next(launches, _LAUNCHES_OF_MANY_STEPS)


def why_more(now: Cost, before: Cost, policy: str) -> str | None:
    """Why an engine launches more kernels, or takes longer by the estimate, than one without optional changes; None if not."""
    more, longer = now.launches - before.launches, now.us > before.us and are_told_apart(now.us, before.us)
    if before == NOT_BUILT or (more <= 0 and not longer):
        return None
    kernels = f"{more} more kernel{'s' if more > 1 else ''}" if more > 0 else "more time"
    if policy == "always":
        return f"{kernels} than without optional changes: optimize: always makes every change, whatever it costs"
    if not longer:
        return f"{kernels} than without optional changes, {_saved(now, before)}"
    if policy == "auto":
        beside = f" and {kernels}" if more > 0 else ""
        little = ": too little to leave any out" if is_as_good(now, before) else ""
        longer_by = (now.us - before.us) / before.us
        return f"{longer_by:.1%} more time{beside} than without optional changes, by the estimate{little}"
    return f"{kernels} than without optional changes: optimize: {policy} does not look at the estimate of time"


def _saved(now: Cost, before: Cost) -> str:
    saved = (before.us - now.us) / before.us if before.us else 0.0
    return (
        f"in {saved:.1%} less time by the estimate" if are_told_apart(before.us, now.us) else "in the same time by the estimate"
    )
