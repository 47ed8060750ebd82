"""A scale and shift of a tensor, y = s·x + t, where s and t depend on some axes of the tensor only."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np

from trtnorm_cli.light_dataclass import dataclass


class CannotMove(Exception):
    """A scale and shift cannot pass or be taken here; the message says why, naming node, tensor and value."""


@dataclass(frozen=True)
class Affine:
    """y = scale·x + shift. Both arrays are float64 and of one shape.

    They have the rank of the tensor, and size 1 along every axis on which nothing depends. Make one with ``affine``.
    """

    scale: np.ndarray
    shift: np.ndarray

    @property
    def rank(self) -> int:
        return self.scale.ndim

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.scale.shape)

    @property
    def axes(self) -> tuple[int, ...]:
        """The axes along which scale or shift differ."""
        return tuple(axis for axis, size in enumerate(self.shape) if size > 1)

    @property
    def is_identity(self) -> bool:
        return not self.scales and not self.shifts

    @property
    def scales(self) -> bool:
        return bool(np.any(self.scale != 1.0))

    @property
    def shifts(self) -> bool:
        return bool(np.any(self.shift != 0.0))

    def moved(self, move: Callable[[np.ndarray], np.ndarray]) -> Affine:
        """Scale and shift with their elements moved by ``move``, which does the same to both."""
        return affine(move(self.scale), move(self.shift))

    def after(self, first: Affine) -> Affine:
        """y = self(first(x))."""
        return affine(self.scale * first.scale, self.scale * first.shift + self.shift)

    def scale_only(self) -> Affine:
        """y = scale·x."""
        return affine(self.scale, np.zeros_like(self.shift))

    def require_only(self, axes: Collection[int], owner: str) -> None:
        """Raise ``CannotMove`` when scale or shift differ along other axes than ``axes``."""
        others = [axis for axis in self.axes if axis not in axes]
        if others:
            raise CannotMove(f"scale and shift differ along axis {others[0]} at {owner}, which works on it")

    def vector(self, axis: int, size: int, owner: str) -> tuple[np.ndarray, np.ndarray]:
        """Scale and shift, [size] each, of the elements along ``axis``. Raises ``CannotMove`` when others matter."""
        others = [other for other in self.axes if other != axis]
        if others:
            raise CannotMove(f"scale and shift differ along axis {others[0]} at {owner}, whose channels are on axis {axis}")
        return along(self.scale.reshape(-1), size, owner), along(self.shift.reshape(-1), size, owner)


def affine(scale: np.ndarray, shift: np.ndarray) -> Affine:
    """The scale and shift of a tensor; arrays that broadcast to the tensor and have its rank."""
    scale, shift = np.broadcast_arrays(np.asarray(scale, np.float64), np.asarray(shift, np.float64))
    for axis, size in enumerate(scale.shape):
        if size > 1 and _is_constant(scale, axis) and _is_constant(shift, axis):
            scale, shift = scale.take([0], axis), shift.take([0], axis)
    return Affine(scale, shift)


def per_channel(scale: np.ndarray, shift: np.ndarray, rank: int, axis: int = 1) -> Affine:
    """One value per element along ``axis`` of a tensor of ``rank``; the arrays are vectors of one length.

    Raises ``CannotMove`` where there is no such axis.
    """
    if axis >= rank:
        raise CannotMove(f"there is a scale for each element of axis {axis}, but the data has {rank} axes")
    shape = [1] * rank
    shape[axis] = scale.size
    return affine(scale.reshape(shape), shift.reshape(shape))


def identity(rank: int) -> Affine:
    """y = x."""
    return affine(np.ones([1] * rank), np.zeros([1] * rank))


def along(values: np.ndarray, size: int, owner: str) -> np.ndarray:
    """``values`` for ``size`` elements: there are as many of them, or a single one."""
    if values.size not in (1, size):
        raise CannotMove(f"there are {values.size} values for scale and shift, but {owner} makes {size} channels")
    return np.broadcast_to(values, (size,))


def _is_constant(values: np.ndarray, axis: int) -> bool:
    return bool(np.all(values == values.take([0], axis)))
