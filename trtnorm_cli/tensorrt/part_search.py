"""Choose optional changes part by part: two engines show what each part gains, and few further ones try what is left.

The parts of two engines do not touch (``engine_cost/segments.py``). So what a choice costs is known before it is built, and one
build tries something in every part at once. Where all changes of a part cost time together, one of two or three may be the
reason: then each is left out alone, where kernels are counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

import onnx

from trtnorm_cli.engine_cost.profiles import of_profile
from trtnorm_cli.engine_cost.segments import Segment, Side, Sums, segments, sums_of
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.parser_names import parser_name
from trtnorm_cli.records.cost import EngineCostRecord, KernelCost
from trtnorm_cli.records.engine_parts import CompiledLayer, Kernel, launched
from trtnorm_cli.rewrite.kernels import Cost
from trtnorm_cli.rewrite.rewriting import Rewriting
from trtnorm_cli.rewrite.rule import Change
from trtnorm_cli.rewrite.shortcuts_first import added_convolutions
from trtnorm_cli.tensorrt.kernel_list import PRODUCTS
from trtnorm_cli.tensorrt.request import BuildResult
from trtnorm_cli.tensorrt.variants import cost_of, kernels_of

# The sites of a part that are left out one by one, and the builds that all parts together may take beyond the first two.
_FEW_SITES = 3
MOST_FURTHER_BUILDS = 3
# The share of the time that a further engine has to save, where it saves no kernel: estimates of kernels are off by more.
WORTH = 0.005
# The same of the kernels that are compiled on the device, which takes time only when the engine is loaded.
_WORTH_COMPILED = 0.2

Sites = frozenset[str]


@dataclass(frozen=True)
class Built:
    """A variant with what TensorRT made of it, and what that costs."""

    rewriting: Rewriting
    result: BuildResult
    cost: EngineCostRecord

    @property
    def total(self) -> Cost:
        return cost_of(kernels_of(self.result, self.cost))

    @cached_property
    def side(self) -> Side:
        """The kernels of all optimization profiles, each with its share of the mean."""
        kernels: list[CompiledLayer] = []
        costs: list[KernelCost] = []
        for index, (share, own) in enumerate(zip(self.cost.shares, self.cost.every_kernel, strict=True)):
            kernels += (_of_its_own(one, index) for one in launched(of_profile(self.result.kernels, index)))
            costs += (replace(one, us=one.us * share) for one in own)
        return Side(kernels, costs)

    @property
    def sums(self) -> Sums:
        return sums_of(self.side)


def _of_its_own(kernel: CompiledLayer, profile: int) -> CompiledLayer:
    """``kernel`` with tensors of names that no kernel of another optimization profile has."""
    if profile == 0 or not isinstance(kernel, Kernel):
        return kernel
    inputs, outputs = (
        tuple(replace(tensor, name=f"{tensor.name} [profile {profile}]") for tensor in tensors)
        for tensors in (kernel.inputs, kernel.outputs)
    )
    return replace(kernel, inputs=inputs, outputs=outputs)


# The variant that leaves sites out; None where TensorRT refuses it.
Build = Callable[[Sites], Built | None]
# True where the first costs more than the second.
Worse = Callable[[Sums, Sums], bool]


def is_as_good(every: Cost | Sums, other: Cost | Sums) -> bool:
    """True where ``other``, with fewer changes than ``every``, saves less time than a build is worth and compiles hardly fewer
    kernels where the engine runs."""
    compiles_less = every.compiled > 0 and other.compiled <= (1 - _WORTH_COMPILED) * every.compiled
    return other.us >= (1 - WORTH) * every.us and not compiles_less


@dataclass
class Part:
    """The sites of a part of the engine, and what it costs for each choice of those left out that was built."""

    sites: tuple[str, ...]
    tried: dict[Sites, Sums] = field(default_factory=dict)

    @property
    def without_any(self) -> Sites:
        return frozenset(self.sites)

    def best(self, worse: Worse) -> Sites:
        """The choice that nothing tried is better than, the one of fewest sites left out first."""
        best = frozenset[str]()
        for left_out, sums in self.tried.items():
            if worse(self.tried[best], sums):
                best = left_out
        return best

    def next_trial(self, worse: Worse) -> Sites | None:
        """The sites to leave out next, where all changes together cost a launch and nothing tried is better than none."""
        launches = [self.tried[left_out].launches for left_out in (frozenset[str](), self.without_any)]
        if not (1 < len(self.sites) <= _FEW_SITES) or launches[0] <= launches[1] or self.best(worse) != self.without_any:
            return None
        alone = (frozenset({site}) for site in reversed(self.sites))
        return next((left_out for left_out in alone if left_out not in self.tried), None)


@dataclass
class PartSearch:
    """The parts of two engines of a model, with every optional change and with none, and the choices built so far.

    To leave out one of several sites saves kernels that are compiled where the engine runs, and mostly no time.
    """

    every: Built
    none: Built
    worse: Worse
    tries_single_sites: bool = True
    parts: list[Part] = field(default_factory=list)
    built: dict[Sites, Built] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for segment in aligned(self.every, self.none):
            tried = {frozenset[str](): segment.changed, frozenset(segment.sites): segment.unchanged}
            self.parts.append(Part(segment.sites, tried))
        self.built = {frozenset(): self.every, self.sites: self.none}

    @property
    def sites(self) -> Sites:
        return frozenset(site for part in self.parts for site in part.sites)

    @property
    def best(self) -> Sites:
        """The best choice in each part."""
        return frozenset[str]().union(*(part.best(self.worse) for part in self.parts))

    @property
    def is_settled(self) -> bool:
        """True where no part of several sites does better without all of them, so that nothing is left to try."""
        return all(len(part.sites) == 1 or part.best(self.worse) != part.without_any for part in self.parts)

    @property
    def leaves_little(self) -> bool:
        """True where neither no change nor the best choice saves as much time as a build is worth beside every change, nor
        kernels that are compiled where the engine runs."""
        best = self._expected(self.best)
        return is_as_good(self.every.total, self.none.total) and (best is None or is_as_good(self.every.sums, best))

    def run(self, build: Build, most_builds: int = MOST_FURTHER_BUILDS) -> dict[Sites, Built]:
        """All choices that were built.

        A choice is only built where it may be better than those before, and none after one that costs something else than its
        parts: then these do touch, and what they promise means nothing.
        """
        for _ in range(most_builds):
            left_out = self._next()
            made = None if left_out is None else build(left_out)
            if left_out is None or made is None:
                break
            self.built[left_out] = made
            self._learn(left_out, made)
            if (expected := self._expected(left_out)) is None or expected.differs(made.sums):
                break
        return self.built

    def _next(self) -> Sites | None:
        trials = [part.next_trial(self.worse) if self.tries_single_sites else None for part in self.parts]
        if not any(trials) and not self._is_promising():
            return None
        chosen = (part.best(self.worse) if trial is None else trial for part, trial in zip(self.parts, trials, strict=True))
        left_out = frozenset[str]().union(*chosen)
        return None if left_out in self.built else left_out

    def _is_promising(self) -> bool:
        """True where the best choice in each part costs less than everything that was built, by as much as a build is worth."""
        expected = self._expected(self.best)
        return (
            expected is not None and all(self.worse(one.sums, expected) for one in self.built.values()) and self._pays(expected)
        )

    def _pays(self, expected: Sums) -> bool:
        """True for fewer kernels than the best one built has, clearly fewer that are compiled on the device, or clearly less
        time."""
        best, *others = [one.sums for one in self.built.values()]
        for other in others:
            best = other if self.worse(best, other) else best
        if expected.launches < best.launches or expected.us < (1 - WORTH) * best.us:
            return True
        compiled = (1 - _WORTH_COMPILED) * best.compiled
        return expected.launches == best.launches and expected.compiled <= compiled and best.compiled > 0

    def _expected(self, left_out: Sites) -> Sums | None:
        """The sums of a choice from what its parts cost; None where one of them was not tried."""
        expected = self.none.sums
        for part in self.parts:
            if (own := left_out & part.without_any) not in part.tried:
                return None
            expected += part.tried[own] - part.tried[part.without_any]
        return expected

    def _learn(self, left_out: Sites, made: Built) -> None:
        found = aligned(made, self.none)
        for part in self.parts:
            own = left_out & part.without_any
            inside = [segment for segment in found if part.without_any.intersection(segment.sites)]
            if own not in part.tried and all(part.without_any.issuperset(segment.sites) for segment in inside):
                gains = (segment.changed - segment.unchanged for segment in inside)
                part.tried[own] = sum(gains, part.tried[part.without_any])


def aligned(changed: Built, unchanged: Built) -> list[Segment]:
    """The segments of optional changes, on both sides."""
    after, before = _nodes(changed.rewriting.model), _nodes(unchanged.rewriting.model)
    made = {change.tensor: change for change in changed.rewriting.changes if change.optional}
    producers = [_producers(nodes) for nodes in (after, before)]
    sites = {tensor: _names_of(change, tensor, producers) for tensor, change in made.items()}
    joined = [*_chains(after, before.keys()), *_chains(before, after.keys()), *_added(changed.rewriting.model.graph)]
    return segments(changed.side, unchanged.side, sites, joined)


def _added(graph: onnx.GraphProto) -> Iterator[tuple[str, str]]:
    """Pairs of convolutions of which either may have the addition of both in its kernel, as the other one is folded or not."""
    yield from ((parser_name(graph.node[one]), parser_name(graph.node[other])) for one, other in added_convolutions(graph))


def _nodes(model: onnx.ModelProto) -> dict[str, onnx.NodeProto]:
    return {parser_name(node): node for node in model.graph.node}


def _names_of(change: Change, tensor: str, producers: Sequence[Mapping[str, str]]) -> Iterator[str]:
    """The node that the change is named after, those that produce the changed tensor in either model, and the products that
    it gave other weights: two changes of one product are decided together."""
    yield change.node
    yield from (node.name for node in change.region.after if node.operator in PRODUCTS) if change.region is not None else ()
    yield from (names[tensor] for names in producers if tensor in names)


def _producers(nodes: Mapping[str, onnx.NodeProto]) -> dict[str, str]:
    """The node that produces each tensor."""
    return {tensor: name for name, node in nodes.items() for tensor in node.output}


def _chains(nodes: Mapping[str, onnx.NodeProto], others: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Pairs of neighbours that only one of the models has: those of one change, mostly."""
    known = set(others)
    own = {name: node for name, node in nodes.items() if name not in known}
    producers = _producers(own)
    for name, node in own.items():
        yield from ((producers[tensor], name) for tensor in node.input if tensor in producers)
