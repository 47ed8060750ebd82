"""``optimize: kernels``: keep the optional changes that give the fewest launches, then the smallest engine, by building."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trtnorm_cli.rewrite.rewriting import Rewriting, Workshop
from trtnorm_cli.rewrite.search import Cost, choose

Measure = Callable[[Rewriting], Cost]


@dataclass(frozen=True)
class Chosen:
    """A rewriting with the costs that led to it. ``left_out`` are the tensors whose computation stays as it is."""

    rewriting: Rewriting
    every_change: Cost
    no_change: Cost
    best: Cost
    left_out: tuple[str, ...]
    builds: int


def fewest_kernels(workshop: Workshop, measure: Measure, most_builds: int = 48) -> Chosen:
    """Rewrite with the best choice of optional changes that up to ``most_builds`` builds find.

    The choice is never worse than every change, nor than none. ``measure`` builds a rewriting; a variant that does not build
    counts as infinitely large.
    """
    everything = workshop.rewrite("always")
    groups: dict[str, list[str]] = {}
    for change in everything.changes:
        if change.optional:
            groups.setdefault(change.rule, []).append(change.tensor)
    all_sites = frozenset(site for sites in groups.values() for site in sites)

    def variant(left_out: frozenset[str]) -> Rewriting:
        if not left_out:
            return everything
        # A site that is left out here may be taken by another optional rule there; without any, the policy says so itself.
        return workshop.rewrite("never") if left_out == all_sites else workshop.rewrite("always", left_out)

    search = choose(list(groups.values()), lambda left_out: measure(variant(left_out)), most_builds)
    return Chosen(
        rewriting=variant(search.left_out),
        every_change=search.cost(frozenset()),
        no_change=search.cost(all_sites),
        best=search.best,
        left_out=tuple(sorted(search.left_out)),
        builds=search.builds,
    )
