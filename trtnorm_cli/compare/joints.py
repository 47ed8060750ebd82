"""Where maps of features meet that a detector puts behind each other along an axis, at its own shapes and at others."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate


class Joints:
    """The places by the length of the whole axis, as it was and as it is now."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, int], dict[int, int | None]] = {}

    def learn(self, own: Sequence[int], now: Sequence[int]) -> None:
        """The lengths of some tensors at both. A place that is not always the same now is not known any more."""
        if len(own) == len(now) and sum(own) != sum(now):
            places = self._places.setdefault((sum(own), sum(now)), {})
            for was, place in zip(accumulate(own, initial=0), accumulate(now, initial=0), strict=True):
                places[was] = place if places.get(was, place) == place else None

    def place(self, own: int, now: int, place: int) -> int | None:
        """Where a ``place`` of an axis is now, which was as long as ``own``; None where nothing meets there."""
        counted = min(place + own if place < 0 else place, own)
        return self._places.get((own, now), {}).get(counted)
