"""``optimize: kernels``: keep the optional changes that give the fewest launches, then the smallest engine, by building.

Folding moves a convolution from a fusion that is compiled on the device to a prebuilt kernel. Mostly that is as many launches.
Where a prebuilt kernel's output layout does not suit what follows (a mean over the plane, say), it is one more. Leaving out a
few sites can therefore beat both folding everywhere and folding nowhere. Where the first two builds show what each part of the
engine gains, that is tried first. Sites are then tried in halves, so that k useful sites among n take about k·log₂(n) builds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Generic, TypeVar

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.rewrite.rewriting import Rewriter, Rewriting

Site = TypeVar("Site")


@dataclass(frozen=True, order=True)
class Cost:
    """The cost of a build: kernel launches first, then the size of the engine in bytes.

    ``us`` is its estimated time in microseconds, and ``compiled`` how many of the kernels are compiled where it runs.
    """

    launches: int
    engine_bytes: int
    us: float = 0.0
    compiled: int = 0


Measure = Callable[[Rewriting], Cost]
# Considers likely choices in a search that has measured every change and none, given how to rewrite with a choice of sites left
# out. It returns True where nothing is left to try.
Suggest = Callable[["Search[str]", Callable[[frozenset[str]], Rewriting]], bool]


@dataclass(frozen=True)
class Chosen:
    """A rewriting with the costs that led to it. ``left_out`` are the tensors whose computation stays as it is."""

    rewriting: Rewriting
    every_change: Cost
    no_change: Cost
    best: Cost
    left_out: tuple[str, ...]
    builds: int


def fewest_kernels(
    session: Rewriter, measure: Measure, most_builds: int = 48, suggest: Suggest = lambda search, variant: False
) -> Chosen:
    """Rewrite with the best choice of optional changes that up to ``most_builds`` builds find.

    The choice is never worse than every optional change, nor than none. ``measure`` builds a rewriting; a variant that does not
    build counts as infinitely large.
    """
    everything = session.rewrite("always")
    groups: dict[str, list[str]] = {}
    for change in everything.changes:
        if change.optional:
            groups.setdefault(change.rule, []).append(change.tensor)
    all_sites = frozenset(site for sites in groups.values() for site in sites)

    made = {frozenset[str](): everything}

    def variant(left_out: frozenset[str]) -> Rewriting:
        if left_out not in made:
            # A site that is left out here may be taken by another optional rule there; without any, the policy says so itself.
            none = left_out == all_sites
            made[left_out] = session.rewrite("never") if none else session.rewrite("always", left_out)
        return made[left_out]

    def suggested(search: Search[str]) -> bool:
        return suggest(search, variant)

    search = choose(list(groups.values()), lambda left_out: measure(variant(left_out)), most_builds, suggested)
    return Chosen(
        rewriting=variant(search.left_out),
        every_change=search.cost(frozenset()),
        no_change=search.cost(all_sites),
        best=search.best,
        left_out=tuple(sorted(search.left_out)),
        builds=search.builds,
    )


@dataclass
class Search(Generic[Site]):
    """The best choice found so far. ``left_out`` are the sites that stay as they are; ``builds`` were measured."""

    measure: Callable[[frozenset[Site]], Cost]
    most_builds: int
    left_out: frozenset[Site] = frozenset()
    known: dict[frozenset[Site], Cost] = field(default_factory=dict)

    @property
    def builds(self) -> int:
        return len(self.known)

    @property
    def best(self) -> Cost:
        return self.cost(self.left_out)

    @property
    def exhausted(self) -> bool:
        return self.builds >= self.most_builds

    def cost(self, left_out: frozenset[Site]) -> Cost:
        """The cost of a choice, measured once."""
        if left_out not in self.known:
            self.known[left_out] = self.measure(left_out)
        return self.known[left_out]

    def consider(self, left_out: frozenset[Site]) -> bool:
        """Measure a choice and take it when it is better than the best so far."""
        if self.exhausted and left_out not in self.known:
            return False
        if not self.cost(left_out) < self.best:
            return False
        self.left_out = left_out
        return True


def choose(
    groups: Sequence[Sequence[Site]],
    measure: Callable[[frozenset[Site]], Cost],
    most_builds: int = 48,
    suggest: Callable[[Search[Site]], bool] = lambda search: False,
) -> Search[Site]:
    """Find which sites to leave out for the fewest launches, then the smallest engine.

    ``groups`` are the sites of each rule in execution order. Tried are: every change, no change, and what ``suggest``
    considers. Unless it returns True, which ends the search there, every rule is left out on its own, and then, where leaving
    out a group saves launches, the smallest parts of it that do. The result is never worse than making every change, nor than
    making none.
    """
    search: Search[Site] = Search(measure, most_builds)
    everything = frozenset(site for group in groups for site in group)
    search.cost(frozenset())
    makes_none = search.cost(everything)
    if not suggest(search):
        likely, search.left_out = search.left_out, frozenset()
        for group in groups:
            _narrow(search, list(group))
        _narrow(search, [site for group in groups for site in group])
        search.consider(likely)
    if makes_none < search.best:
        search.left_out = everything
    return search


def _narrow(search: Search[Site], sites: list[Site]) -> None:
    """Leave out the smallest parts of ``sites`` that save launches on top of what is left out already."""
    fresh = [site for site in sites if site not in search.left_out]
    if not fresh or search.exhausted:
        return
    whole = search.left_out | frozenset(fresh)
    if len(fresh) == 1:
        search.consider(whole)
        return
    if search.cost(whole).launches >= search.best.launches:
        return
    before = search.best.launches
    middle = len(fresh) // 2
    _narrow(search, fresh[middle:])
    _narrow(search, fresh[:middle])
    if search.best.launches == before:
        search.consider(whole)
