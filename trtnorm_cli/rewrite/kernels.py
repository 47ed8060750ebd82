"""``optimize: kernels``: keep the optional changes that give the fewest launches, then the smallest engine, by building."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from trtnorm_cli.rewrite.rewriting import Rewriting, RewritingSession
from trtnorm_cli.rewrite.rule import Change
from trtnorm_cli.rewrite.rules import (
    fold_batchnorm_conv,
    fold_batchnorm_conv_transpose,
    fold_batchnorm_downstream,
    fold_batchnorm_gemm,
    fold_batchnorm_upstream,
)
from trtnorm_cli.rewrite.search import Cost, choose

# What folds a BatchNormalization into the weights of an operator before or behind it.
FOLDS = (
    fold_batchnorm_conv.RULE.name,
    fold_batchnorm_conv_transpose.RULE.name,
    fold_batchnorm_gemm.RULE.name,
    fold_batchnorm_upstream.RULE.name,
    fold_batchnorm_downstream.RULE.name,
)
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
    """True for an optional change that ``optimize: auto`` may take back: any but those that fold a BatchNormalization away.

    Folded, its convolution is a kernel that comes with TensorRT; beside it, one that is compiled when the engine is loaded.
    That is worth a launch, where there is one more at all. Where a scale and shift stays, nothing is folded.
    """
    return change.optional and change.rule not in FOLDS


def why_more(now: int, before: int, policy: str, changes: Iterable[Change]) -> str | None:
    """Why an engine launches ``now`` kernels where one without optional changes launches ``before``; None if it is no more."""
    if now <= before:
        return None
    more = f"{now - before} more kernel{'s' if now - before > 1 else ''} than without optional changes"
    if policy == "always":
        return f"{more}: optimize: always makes every change, whatever it costs"
    folds = sum(change.optional and not is_put_to_choice(change) for change in changes)
    if policy == "auto" and folds:
        return (
            f"{more}: {folds} BatchNormalizations are folded all the same, because their convolutions then come compiled with "
            "TensorRT; for the fewest kernels, say optimize: kernels in the build profile"
        )
    return f"{more}: the builds of the search did not tell which change takes them; optimize: never makes none"


def fewest_kernels(
    session: RewritingSession,
    measure: Measure,
    most_builds: int = 48,
    choosable: Callable[[Change], bool] = lambda c: c.optional,
) -> Chosen:
    """Rewrite with the best choice of optional changes that up to ``most_builds`` builds find.

    The choice, among the changes that are ``choosable``, is never worse than every one of them, nor than none. ``measure``
    builds a rewriting; a variant that does not build counts as infinitely large.
    """
    everything = session.rewrite("always")
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
        return session.rewrite("never") if none else session.rewrite("always", left_out)

    search = choose(list(groups.values()), lambda left_out: measure(variant(left_out)), most_builds)
    return Chosen(
        rewriting=variant(search.left_out),
        every_change=search.cost(frozenset()),
        no_change=search.cost(all_sites),
        best=search.best,
        left_out=tuple(sorted(search.left_out)),
        builds=search.builds,
    )
