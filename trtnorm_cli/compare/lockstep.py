"""Evaluate a model and its candidates beside each other in float64, so that few of their tensors are kept at a time.

A tensor is kept until all have come past it: then nobody looks at it any more, and what follows from it is known already. Where
there is room for all tensors they are kept for candidates to come, and the model is evaluated first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from trtnorm_cli.compare import inner_tensors
from trtnorm_cli.compare.inner_tensors import InnerTensors, SliceDistances, is_suspicious
from trtnorm_cli.evaluate.float64 import Evaluation, Known, ReferenceUnavailable
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.progress import Stage, stage

# Of the room that there is after something was dropped, what is left when it is time for the next.
_SHARE_LEFT = 0.75
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

    @property
    def is_over(self) -> bool:
        """True once it is done, or has failed."""
        return self.error is not None or self.evaluation.is_done

    def go_on(self, told: Stage | None, until: Callable[[], bool]) -> None:
        """Evaluate more nodes, and end before one if ``until`` says so."""
        try:
            self.evaluation.go_on(told, until)
        except ReferenceUnavailable as error:
            self.error = error

    def looks_again_at(self, name: str) -> bool:
        """True where the first one's tensor of this name is asked for once more, for what rounding explains."""
        return self.seen is not None and is_suspicious(self.seen, name)

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


def go_together(first: Side, others: Sequence[Side], known: Known, is_wanted: Callable[[], bool] | None = None) -> bool:
    """Evaluate ``first`` and the ``others``, which look at its tensors, to the end of all; nothing more once ``first`` failed.

    ``known`` is that of all of them. False where it was given up because it is not wanted any more.
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
            until = _Until(side, earlier, known, is_wanted)
            side.go_on(told, until)
            if until.is_given_up:
                return False
            if side.is_scarce(known):
                is_more = _drop_what_is_past(sides, known)
                side.left = int(_SHARE_LEFT * side.room(known))
                is_full = not is_more and side.room(known) < side.kept.largest
                side.least = _WHERE_NOTHING_IS_DROPPED if is_full else 1
    return True


class _Until:
    """Ends a part of an evaluation: before a tensor that an earlier side has still to give, and where there is hardly room."""

    def __init__(self, side: Side, earlier: Sequence[Side], known: Known, is_wanted: Callable[[], bool] | None) -> None:
        self._side, self._earlier, self._known, self._is_wanted = side, earlier, known, is_wanted
        self._steps = side.least
        self.is_given_up = False

    def __call__(self) -> bool:
        self.is_given_up = self._is_wanted is not None and not self._is_wanted()
        if self.is_given_up or self._side.waits_for(self._earlier):
            return True
        self._steps -= 1
        return self._steps < 0 and self._side.is_scarce(self._known)


def _drop_what_is_past(sides: Sequence[Side], known: Known) -> bool:
    """Let go of tensors that every side has come past; True if there is more room now."""
    going = [side for side in sides if not side.is_over]
    room = known.room + sum(side.kept.room for side in sides)
    for side in sides:
        past = [name for name in side.kept.values if not any(name in other.evaluation.ahead for other in going)]
        side.kept.drop(_oldest(side.kept, _not_looked_at_again(past, sides) if side is sides[0] else past))
    held = (side.kept.values.values() for side in sides)
    known.forget_all_but(chain.from_iterable((*held, *(side.evaluation.values() for side in going))))
    return known.room + sum(side.kept.room for side in sides) > room


def _not_looked_at_again(names: Sequence[str], sides: Sequence[Side]) -> list[str]:
    """Of tensors of the first side, those that are not asked for once more; the first of the others have half the room."""
    first, left, rest = sides[0].kept, inner_tensors.MOST_BYTES // 2, list[str]()
    for name in names:
        size = first.values[name].nbytes
        if size <= left and any(side.looks_again_at(name) for side in sides):
            left -= size
        else:
            rest.append(name)
    return rest


def _oldest(kept: InnerTensors, names: Iterable[str]) -> list[str]:
    """As many of these tensors as give half of the room back: a candidate to come finds what is left."""
    wanted, found = inner_tensors.MOST_BYTES // 2 - kept.room, list[str]()
    for name in names:
        if wanted <= 0:
            break
        wanted -= kept.values[name].nbytes
        found.append(name)
    return found
