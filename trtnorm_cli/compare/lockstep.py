"""Evaluate a model and its candidates beside each other in float64, so that few of their tensors are kept at a time.

A tensor is kept until all have come past it: then nobody looks at it any more, and what follows from it is known already. Where
there is room for all tensors they are kept for candidates to come, and the model is evaluated first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from itertools import chain

from trtnorm_cli.compare import inner_tensors
from trtnorm_cli.compare.inner_tensors import InnerTensors, SliceDistances, is_suspicious
from trtnorm_cli.evaluate.float64 import Evaluation, Known, ReferenceUnavailable
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.progress import Stage, stage

# Of the room that there is after something was dropped, what is left when it is time for the next.
_SHARE_LEFT = 0.75
# What is still to come of a model is taken for as much as nodes have given so far, and a quarter more.
_CAUTION = 1.25
# Nodes at a time where nothing could be dropped.
_WHERE_NOTHING_IS_DROPPED = 16


@dataclass
class Side:
    """One of the evaluations, the tensors that are ``kept`` of it, and what was ``seen`` of its distances from the first one.

    ``error`` is why it did not come to its end. Bytes that should be ``left``, and the ``least`` number of nodes to evaluate
    before others go on, follow from what was dropped last.
    """

    evaluation: Evaluation
    kept: InnerTensors
    seen: SliceDistances | None = None
    error: ReferenceUnavailable | None = None
    left: int = 0
    least: int = 1
    _again: dict[str, bool] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """True once it is done, or has failed."""
        return self.error is not None or self.evaluation.is_done

    def go_on(self, told: Stage | None, until: Callable[[], bool]) -> None:
        """Evaluate more nodes, and end before one if ``until`` says so."""
        try:
            self.evaluation.go_on(told, until)
        except ReferenceUnavailable as error:
            self.error = error.with_traceback(None)  # its frames hold all that was evaluated

    def looks_again_at(self, name: str) -> bool:
        """True where the first one's tensor of this name, which it has come past, is asked for once more."""
        if name not in self._again:
            self._again[name] = self.seen is not None and is_suspicious(self.seen, name)
        return self._again[name]

    def room(self, known: Known) -> int:
        """Bytes that may still be kept of it."""
        return min(known.room, self.kept.room)

    def is_scarce(self, known: Known) -> bool:
        """True where another two tensors like the largest would not have room, or less is left than should be."""
        return self.room(known) < max(2 * self.kept.largest, self.left)

    def waits_for(self, others: Sequence[Side]) -> bool:
        """True where the next node gives a tensor that one of the ``others`` has still to give."""
        names = self.evaluation.next_names
        return any(name in other.evaluation.ahead for other in others if other.error is None for name in names)


def go_while_roomy(side: Side, known: Known) -> None:
    """Evaluate ``side`` to its end, or up to where there is hardly room for what is kept of it."""
    with stage("float64", side.evaluation.remaining, "nodes") as told:
        side.go_on(told, lambda: side.is_scarce(known))


def go_together(
    first: Side, others: Sequence[Side], known: Known, is_wanted: Callable[[], bool] | None = None, in_step: bool = False
) -> bool:
    """Evaluate ``first`` and the ``others``, which look at its tensors, to the end of all; nothing more once ``first`` failed.

    ``known`` is that of all of them. With ``in_step`` none goes further than somebody waits for, so that what is not wanted any
    more has taken little. False where it was given up for that.
    """
    sides = (first, *others)
    for side in sides:
        side.evaluation.pause()
    with stage("float64", sum(side.evaluation.remaining for side in sides), "nodes") as told:
        while first.error is None and not all(side.is_over for side in sides):
            # Whoever looks at the others' tensors goes first, so that these can be dropped.
            side, earlier = next(
                (side, sides[:place])
                for place, side in reversed(list(enumerate(sides)))
                if not side.is_over and not side.waits_for(sides[:place])
            )
            later = sides[len(earlier) + 1 :] if in_step else ()
            until = _Until(side, earlier, later, known, is_wanted)
            side.go_on(told, until)
            if until.is_given_up:
                return False
            if side.is_scarce(known):
                is_more = _drop_what_is_past(sides, known) >= side.kept.largest
                side.left = int(_SHARE_LEFT * side.room(known))
                fitting = min(side.kept.room // max(side.kept.largest, 1), _WHERE_NOTHING_IS_DROPPED)
                side.least = 1 if is_more else fitting or _WHERE_NOTHING_IS_DROPPED
    return True


class _Until:
    """Ends a part of an evaluation: before a tensor that an earlier side has still to give, and where there is hardly room.

    It ends too when one of the ``later`` sides, which waited for this one, need not wait any more.
    """

    def __init__(
        self,
        side: Side,
        earlier: Sequence[Side],
        later: Sequence[Side],
        known: Known,
        is_wanted: Callable[[], bool] | None,
    ) -> None:
        self._side, self._earlier, self._known, self._is_wanted = side, earlier, known, is_wanted
        self._waiting = [one for one in later if not one.is_over and one.waits_for((side,))]
        self._steps = side.least
        self.is_given_up = False

    def __call__(self) -> bool:
        self.is_given_up = self._is_wanted is not None and not self._is_wanted()
        if self.is_given_up or self._side.waits_for(self._earlier):
            return True
        if not all(one.waits_for((self._side,)) for one in self._waiting):
            return True
        self._steps -= 1
        return self._steps < 0 and self._side.is_scarce(self._known)


def _drop_what_is_past(sides: Sequence[Side], known: Known) -> int:
    """Let go of tensors that every side has come past; the bytes for which there is room again."""
    first, going = sides[0], [side for side in sides if not side.is_over]
    room = known.room + sum(side.kept.room for side in sides)
    for side in sides:
        past = [name for name in side.kept.values if not any(name in other.evaluation.ahead for other in going)]
        side.kept.drop(_for_no_candidate(first, past, sides) if side is first else past)
    held = (side.kept.values.values() for side in sides)
    known.forget_all_but(chain.from_iterable((*held, *(side.evaluation.values() for side in going))))
    return known.room + sum(side.kept.room for side in sides) - room


def _for_no_candidate(first: Side, names: Iterable[str], sides: Sequence[Side]) -> list[str]:
    """The oldest tensors of the first side, as many as give room for what is still to come, or half of all.

    A candidate to come finds the others. The first of those that are asked for once more stay, in the other half.
    """
    kept, share, half = first.kept, first.evaluation.share_done, inner_tensors.MOST_BYTES // 2
    to_come = _CAUTION * kept.given * (1 - share) / share if share > 0 else math.inf
    wanted, left = min(half, max(to_come, 4 * kept.largest)) - kept.room, half
    found = list[str]()
    for name in names:
        size = kept.values[name].nbytes
        if wanted <= 0:
            break
        if size <= left and any(side.looks_again_at(name) for side in sides):
            left -= size
        else:
            wanted -= size
            found.append(name)
    return found
