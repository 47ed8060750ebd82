"""Hold the tensors inside a rewritten model to those of its source, slice by slice, in float64.

A defect in one channel is diluted on its way to the outputs: one of 256 that is off by 1e-4 moves a class score by a few 1e-6,
next to what rounding moves it by. Where it happens it is 1e-4 of its slice. Rewriting and TensorRT's parser keep the names of
tensors around what they change, so most tensors of a model have a partner.

The distance of a slice (all elements with one index along one axis) is ‖c − r‖₂ / ‖r‖₂; for slices far smaller than the
others, a tenth of their root mean square stands for ‖r‖₂. Slices that are percents apart carry another meaning under the same
name, as when a scale moved across them: what goes wrong there is large, and shows in the outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from trtnorm_cli.evaluate.float64 import Follower
from trtnorm_cli.evaluate.tolerance import allowed_each
from trtnorm_cli.light_dataclass import dataclass

FLOOR_ULPS = 16.0
_OTHER_MEANING = 1e-2
_SMALL_SLICE = 0.1
_MOST_SLICES = 1 << 14
# What passes of a slice's own noise, as for an output but nearer: roundings have not added up yet; and of the noise of all
# slices together, in standard deviations.
_OWN_NOISE, _COMMON_NOISE = 3.0, 5.0
# The unluckiest of many slices is looked at: a thousand allow twice as much as one.
_DECADES_TO_DOUBLE = 3.0
_MOST_BYTES = 1 << 29
# Two computations of one formula in float64 are nearer than this, in units in the last place of the model's own type.
_SAME_ULPS = 1e-5


@dataclass(frozen=True)
class Difference:
    """A slice of an inner tensor that is off. ``share`` is measured over allowed."""

    tensor: str
    axis: int
    index: int
    distance: float
    allowed: float

    @property
    def share(self) -> float:
        return self.distance / self.allowed

    def text(self) -> str:
        return (
            f"inside, {self.tensor} is {self.distance:.2e} away in float64 at index {self.index} of axis {self.axis}, "
            f"rounding explains {self.allowed:.2e}"
        )


@dataclass
class InnerTensors:
    """Tensors of a model by name, up to half a gibibyte of them."""

    values: dict[str, np.ndarray] = field(default_factory=dict)
    _room: int = _MOST_BYTES

    def keep(self, name: str, value: Any) -> Any:
        if isinstance(value, np.ndarray) and value.dtype == np.float64 and value.nbytes <= self._room:
            self.values[name] = value
            self._room -= value.nbytes
        return value

    def of(self, name: str, value: Any) -> np.ndarray | None:
        """The tensor of this name in the shape of ``value``, where both can be held to each other."""
        known = self.values.get(name)
        if known is None or not isinstance(value, np.ndarray) or value.dtype != np.float64 or value.size != known.size:
            return None
        return known.reshape(value.shape)


@dataclass
class SliceDistances:
    """Distances of another run from ``reference``, by tensor and axis; of tensors that move at least one slice by ``floor``.

    With ``names`` only these are looked at.
    """

    reference: InnerTensors
    floor: float
    names: frozenset[str] | None = None
    found: dict[str, dict[int, np.ndarray]] = field(default_factory=dict)

    def watch(self, name: str, value: Any) -> Any:
        wanted = self.reference.of(name, value) if self.names is None or name in self.names else None
        if wanted is not None:
            shape = self.reference.values[name].shape
            found = slice_distances(wanted.reshape(shape), value.reshape(shape), self.floor)
            if found:
                self.found[name] = found
        return value


@dataclass
class Recognition:
    """A candidate's tensors while it is evaluated: one that is another's but for float64's rounding becomes that one.

    What follows from it is then known already. ``slices`` are held to the reference, ``others`` are tensors of earlier
    candidates, ``ulp`` is that of the model's own type, ``follower`` follows the reference's ties. ``depth`` has the distance
    of each tensor as a whole, in the order of execution.
    """

    slices: SliceDistances
    others: Sequence[InnerTensors]
    ulp: float
    follower: Follower
    own: InnerTensors = field(default_factory=InnerTensors)
    depth: dict[str, float] = field(default_factory=dict)

    def watch(self, name: str, value: Any) -> Any:
        value = self.follower.follow(name, value)
        same = self._same(self.slices.reference, name, value)
        if same is not None:
            self.depth[name] = 0.0
            return same
        known = self.slices.reference.of(name, value)
        if known is not None:
            self.depth[name] = relative_distance(known, value)
        self.slices.watch(name, value)
        for other in self.others:
            same = self._same(other, name, value)
            if same is not None:
                return same
        return self.own.keep(name, value)

    def _same(self, other: InnerTensors, name: str, value: Any) -> np.ndarray | None:
        known = other.of(name, value)
        return known if known is not None and _is_same(known, value, _SAME_ULPS * self.ulp) else None


def _is_same(one: np.ndarray, other: np.ndarray, limit: float) -> bool:
    """True where no element, or else no slice along any axis, is further off than ``limit`` of its own size."""
    difference = np.abs(other - one)
    sizes = np.abs(one)
    if bool(np.all(difference <= limit * sizes)):
        return True
    if not np.isfinite(difference).all() or float(difference.max()) > float(sizes.max()) * limit:
        return False
    squares, limits = np.square(difference), np.square(limit * sizes)
    for axis, length in enumerate(one.shape):
        rest = tuple(i for i in range(one.ndim) if i != axis)
        if length > 1 and not bool(np.all(squares.sum(rest) <= limits.sum(rest))):
            return False
    return one.size > 1


def slice_distances(wanted: np.ndarray, got: np.ndarray, floor: float) -> dict[int, np.ndarray]:
    """The distance of every slice along every axis; nothing where no slice is further than ``floor`` or not all is finite."""
    difference = got - wanted
    size = float(np.sqrt(np.mean(np.square(wanted)))) if wanted.size else 0.0
    most = float(np.max(np.abs(difference), initial=0.0))
    if not np.isfinite(most) or not np.isfinite(size) or most <= floor * _SMALL_SLICE * size:
        return {}
    squares = np.square(difference)
    found = {}
    for axis, length in enumerate(wanted.shape):
        if 1 < length <= _MOST_SLICES:
            sizes = _slice_sizes(wanted, axis)
            if sizes.min() > 0:
                found[axis] = np.sqrt(np.sum(squares, tuple(i for i in range(wanted.ndim) if i != axis))) / sizes
    return found


def relative_distance(wanted: np.ndarray, got: np.ndarray) -> float:
    """‖got − wanted‖₂ / ‖wanted‖₂."""
    difference, whole = (got - wanted).ravel(), wanted.ravel()
    size = float(np.dot(whole, whole))
    return math.sqrt(float(np.dot(difference, difference)) / size) if size > 0 else math.inf


def means_the_same(distance: float) -> bool:
    """False where a tensor carries another meaning under its name, or is not finite."""
    return distance < _OTHER_MEANING


def suspicious(distances: SliceDistances) -> list[str]:
    """Tensors with a slice beyond the floor, and none that carries another meaning."""
    return [
        name
        for name, axes in distances.found.items()
        if axes and distances.floor < max(float(d.max()) for d in axes.values()) < _OTHER_MEANING
    ]


def first_difference(
    distances: SliceDistances, names: Iterable[str], noise: Iterable[Mapping[str, Mapping[int, np.ndarray]]]
) -> Difference | None:
    """The worst slice of the first tensor, in the order of execution, that is further off than rounding explains.

    ``noise`` are the slices' distances in perturbed runs. Where none is so far off, the worst slice of all.
    """
    runs, worst = list(noise), None
    for name in names:
        found = _worst_slice(name, distances, runs)
        if worst is None or found.share > worst.share:
            worst = found
        if worst.share > 1:
            break
    return worst


def _worst_slice(name: str, distances: SliceDistances, runs: list[Mapping[str, Mapping[int, np.ndarray]]]) -> Difference:
    """The slice with the largest share of what is allowed.

    A tensor may have thousands of slices of one element, and a few runs tell little of each: so the noise of all slices along
    the axis together allows as much as the slice's own.
    """
    found = []
    for axis, measured in distances.found[name].items():
        samples = np.stack([run.get(name, {}).get(axis, np.zeros_like(measured)) for run in runs])
        sizes = _slice_sizes(distances.reference.values[name], axis)
        together = np.sqrt(np.mean(np.square(samples * sizes))) / sizes
        caution = 1 + np.log10(measured.size) / _DECADES_TO_DOUBLE
        explained = np.maximum(allowed_each(list(samples), _OWN_NOISE), _COMMON_NOISE * together)
        limits = caution * np.maximum(explained, distances.floor)
        index = int(np.argmax(measured / limits))
        found.append(Difference(name, axis, index, float(measured[index]), float(limits[index])))
    return max(found, key=lambda difference: difference.share)


def _slice_sizes(wanted: np.ndarray, axis: int) -> np.ndarray:
    """‖r‖₂ of every slice, of small ones a tenth of their root mean square."""
    norms = np.sqrt(np.sum(np.square(wanted), tuple(i for i in range(wanted.ndim) if i != axis)))
    return np.maximum(norms, _SMALL_SLICE * float(np.sqrt(np.mean(np.square(norms)))))
