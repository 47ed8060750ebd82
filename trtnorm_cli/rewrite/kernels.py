"""``optimize: kernels``: keep the optional changes that give the fewest launches, then the smallest engine, by building."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trtnorm_cli.rewrite.rewriting import Rewriting, Workshop
from trtnorm_cli.rewrite.rule import Change
from trtnorm_cli.rewrite.rules import rule_named
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


def is_put_to_choice(change: Change) -> bool:
    """True for an optional change that ``optimize: auto`` may take back: any but those of a BatchNormalization.

    Folded, its convolution is a kernel that comes with TensorRT; beside it, one that is compiled when the engine is loaded.
    That is worth a launch, where there is one more at all.
    """
    return change.optional and "BatchNormalization" not in rule_named(change.rule).pattern.types


def fewest_kernels(
    workshop: Workshop, measure: Measure, most_builds: int = 48, choosable: Callable[[Change], bool] = lambda c: c.optional
) -> Chosen:
    """Rewrite with the best choice of optional changes that up to ``most_builds`` builds find.

    The choice, among the changes that are ``choosable``, is never worse than every one of them, nor than none. ``measure``
    builds a rewriting; a variant that does not build counts as infinitely large.
    """
    everything = workshop.rewrite("always")
    groups: dict[str, list[str]] = {}
    for change in everything.changes:
        if choosable(change):
            groups.setdefault(change.rule, []).append(change.tensor)
    chooses_all = all(choosable(change) for change in everything.changes if change.optional)
    all_sites = frozenset(site for sites in groups.values() for site in sites)

    def variant(left_out: frozenset[str]) -> Rewriting:
        if not left_out:
            return everything
        # A site that is left out here may be taken by another optional rule there; without any, the policy says so itself.
        none = chooses_all and left_out == all_sites
        return workshop.rewrite("never") if none else workshop.rewrite("always", left_out)

    search = choose(list(groups.values()), lambda left_out: measure(variant(left_out)), most_builds)
    return Chosen(
        rewriting=variant(search.left_out),
        every_change=search.cost(frozenset()),
        no_change=search.cost(all_sites),
        best=search.best,
        left_out=tuple(sorted(search.left_out)),
        builds=search.builds,
    )
