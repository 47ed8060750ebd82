"""Apply rules to a model, and do it all over again without the changes that had to be undone, until none has to be.

What is undone leaves the model as if its rule had not matched there. Other changes may have been planned around it, or build
upon a change before it, so the graph is opened anew each time. Changes that were proved once are not proved again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.onnx_model.surgery import Surgery
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite import driver
from trtnorm_cli.rewrite.editor import Prove
from trtnorm_cli.rewrite.rule import Cache, Change, Rule, Undone

# So many times at most, as long as the graph is whole: what is undone in the last of them was not made in it either.
_MOST_ROUNDS = 8
# From here on, a change that is needed and fails is tried without any optional one.
_PATIENCE = 3
# Each graph that is left half edited costs a round and takes one place out of the next.
_MOST_BROKEN_ROUNDS = 100


def apply_steadily(
    opened: Callable[[], Surgery],
    rules: tuple[Rule, ...],
    types: Mapping[str, TensorType],
    prove: Prove,
    settings: RewriteSettings,
    cache: Cache | None = None,
) -> tuple[Surgery, driver.Outcome]:
    """The graph that ``opened`` gives, after the rules, and what they did. ``undone`` covers every round.

    ``cache`` has what is known already of the first graph that ``opened`` gives.
    """
    undone: dict[tuple[str, str], Undone] = {}
    for number in range(_MOST_BROKEN_ROUNDS):
        surgery = opened()
        outcome = driver.apply(surgery, rules, types, prove, settings, frozenset(undone), cache if number == 0 else None)
        found = [*outcome.undone, *_in_the_way(outcome, every=number >= _PATIENCE)]
        undone = {**{one.key: one for one in found}, **undone}
        if outcome.is_whole and (not found or number + 1 >= _MOST_ROUNDS):
            outcome.undone = list(undone.values())
            return surgery, outcome
    raise RuntimeError(f"{_MOST_BROKEN_ROUNDS} times a rule left the graph half edited: {next(iter(undone.values()))}")


def _in_the_way(outcome: driver.Outcome, every: bool) -> list[Undone]:
    """The optional changes that those build upon which are needed and failed: all of them where that cannot be told."""
    if not outcome.failed:
        return []
    optional = [(change, tensor) for change, tensor in zip(outcome.changes, outcome.sites, strict=True) if change.optional]
    direct = [(change, tensor) for change, tensor in optional if _is_beneath(change, outcome.failed)]
    because = f"without it {outcome.failed[0].rule} at {outcome.failed[0].node}, which is needed, may pass its check"
    suspects = direct if direct and not every else optional
    return [Undone(change.rule, change.node, because, tensor) for change, tensor in suspects]


def _is_beneath(change: Change, failed: Sequence[Change]) -> bool:
    """True when one of ``failed`` would have replaced what ``change`` added."""
    return any(set(change.added) & set(other.removed) for other in failed)
