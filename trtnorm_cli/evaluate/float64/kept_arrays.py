"""Arrays that are kept alive to be recognised by the memory that they lie in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np


class KeptArrays:
    """Arrays that are kept alive, with all their views, up to so many bytes."""

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes = self._room = most_bytes
        self._owners: dict[int, np.ndarray] = {}
        self._counted: set[int] = set()

    def __contains__(self, value: np.ndarray) -> bool:
        return id(owner_of(value)) in self._owners

    @property
    def room(self) -> int:
        """Bytes that are left."""
        return self._room

    def numbers(self) -> frozenset[int]:
        """One for each array."""
        return frozenset(self._owners)

    def among(self, values: Iterable[Any]) -> frozenset[int]:
        """The numbers of those that ``values`` lie in."""
        owners = (id(owner_of(value)) for value in values if isinstance(value, np.ndarray))
        return frozenset(number for number in owners if number in self._owners)

    def drop(self, numbers: Iterable[int]) -> None:
        """Let go of arrays."""
        for number in numbers:
            owner = self._owners.pop(number)
            if number in self._counted:
                self._counted.remove(number)
                self._room += owner.nbytes

    def hold(self, value: np.ndarray) -> None:
        """Keep what takes no room, or takes none any more."""
        owner = owner_of(value)
        self._owners[id(owner)] = owner
        if id(owner) in self._counted:
            self._counted.remove(id(owner))
            self._room += owner.nbytes

    def keep(self, value: np.ndarray) -> bool:
        """True if there was room, or it was kept already."""
        owner = owner_of(value)
        if value not in self:
            if owner.nbytes > self._room:
                return False
            self._room -= owner.nbytes
            self._owners[id(owner)] = owner
            self._counted.add(id(owner))
        return True


def owner_of(value: np.ndarray) -> np.ndarray:
    """The array that has the memory in which ``value`` lies."""
    while isinstance(value.base, np.ndarray):
        value = value.base
    return value
