"""Choose, by measuring, which optional changes to leave out.

Folding moves a convolution from a fusion that is compiled on the device to a prebuilt kernel. Mostly that is as many launches;
where a prebuilt kernel's output layout does not suit what follows (a mean over the plane, say), it is one more. Leaving out a
few sites can therefore beat both folding everywhere and folding nowhere. Sites are tried in halves, so that k useful sites
among n take about k·log₂(n) builds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Site = TypeVar("Site")


@dataclass(frozen=True, order=True)
class Cost:
    """What a build gives: kernel launches first, then the size of the engine in bytes."""

    launches: int
    engine_bytes: int


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


def choose(groups: Sequence[Sequence[Site]], measure: Callable[[frozenset[Site]], Cost], most_builds: int = 48) -> Search[Site]:
    """Find which sites to leave out for the fewest launches, then the smallest engine.

    ``groups`` are the sites of each rule in execution order. Tried are: every change, no change, every rule left out on its
    own, and then, where leaving out a group saves launches, the smallest parts of it that do. The result is never worse than
    making every change, nor than making none.
    """
    search: Search[Site] = Search(measure, most_builds)
    everything = frozenset(site for group in groups for site in group)
    search.cost(frozenset())
    makes_none = search.cost(everything)
    for group in groups:
        _narrow(search, list(group))
    _narrow(search, [site for group in groups for site in group])
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
