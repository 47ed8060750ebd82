"""Tables that a model computes from constants alone, and the constants of other models that hold them."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

# The errors of what is computed are followed to first order.
_MORE_THAN_BOUND = 2.0
# So many units of float32 may a constant be off.
_UNITS_OF_EACH, _UNITS_OF_LARGEST = 16 * 2.0**-24, 128 * 2.0**-24
_COMPUTED = (np.float64, *map(np.dtype, ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")))


class ComputedConstants:
    """Values that were computed from constants alone, by name, with how far a constant in the place of one may be off.

    A constant that was once found to hold one does so under any name.
    """

    def __init__(self) -> None:
        self._computed: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self._held: dict[Hashable, np.ndarray] = {}
        self._sizes: set[int] = set()

    @staticmethod
    def takes(value: np.ndarray, error: np.ndarray) -> bool:
        """True where a constant says something of ``value``: of what float32 leaves open by much it does not."""
        return value.size > 0 and value.dtype in _COMPUTED and is_little(error, value)

    def learn(self, name: str, value: np.ndarray, error: np.ndarray) -> None:
        """Remember ``value`` and its ``error``, which broadcasts to it. That of the first model stays."""
        self._computed.setdefault(name, (value, error))

    def held(self, name: str, constant: np.ndarray, kind: np.dtype, identity: Callable[[], Hashable]) -> np.ndarray | None:
        """The value that the ``constant`` of this ``name`` holds, which is read as ``kind``; ``identity`` tells its numbers."""
        if name not in self._computed and constant.size not in self._sizes:
            return None
        key = kind, identity()
        if key not in self._held and name in self._computed:
            value, error = self._computed[name]
            if (value.dtype, value.shape) == (kind, constant.shape) and _is_within(constant, value, error):
                self._held[key] = value
                self._sizes.add(value.size)
        return self._held.get(key)

    def forget(self, is_gone: Callable[[np.ndarray], bool]) -> None:
        """Forget values that are remembered no more."""
        self._computed = {name: found for name, found in self._computed.items() if not is_gone(found[0])}
        self._held = {key: value for key, value in self._held.items() if not is_gone(value)}


def is_little(error: np.ndarray, value: np.ndarray) -> bool:
    """True where an error is of few units of each number, and of some of the largest: a grid may pass through zero.

    Numbers that are exact, as an infinity that a mask puts among others, tell nothing of how large these are.
    """
    is_off = np.broadcast_to(error, value.shape) > 0
    if not is_off.any():
        return True
    off, size = np.broadcast_to(error, value.shape)[is_off], np.abs(value[is_off])
    return bool(
        np.all(_MORE_THAN_BOUND * off <= _UNITS_OF_EACH * size + _UNITS_OF_LARGEST * size.max()) and size.max() < np.inf
    )


def _is_within(constant: np.ndarray, value: np.ndarray, error: np.ndarray) -> bool:
    if value.dtype != np.float64:
        return np.array_equal(constant, value)
    is_near = np.abs(constant - value) <= _MORE_THAN_BOUND * error
    is_other_zero = (constant == 0) & (value == 0) & (np.signbit(constant) != np.signbit(value))
    return bool(np.all((is_near | (constant == value)) & ~is_other_zero))
