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
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import field
from typing import Any

import numpy as np

from trtnorm_cli.compare.squares import Apart, Sizes, apart, first_apart, furthest_and_square
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
MOST_BYTES = 1 << 29
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
    """Tensors of a model by name, up to half a gibibyte of them; with ``names`` only these.

    ``given`` are the bytes of all that it was given, ``largest`` those of the largest one. ``has_all`` is false once one was
    dropped, or left out for want of room.
    """

    values: dict[str, np.ndarray] = field(default_factory=dict)
    names: Set[str] | None = None
    given: int = 0
    largest: int = 0
    has_all: bool = True
    _room: int = field(default_factory=lambda: MOST_BYTES)
    _sizes: dict[str, Sizes] = field(default_factory=dict)

    def keep(self, name: str, value: Any) -> bool:
        """False where it is not kept: it is none of those, or there is no room."""
        if self.names is not None and name not in self.names:
            return False
        before = self.values.get(name)
        room = self._room + (0 if before is None else before.nbytes)
        if not isinstance(value, np.ndarray) or value.dtype != np.float64:
            return False
        if value.nbytes > MOST_BYTES:
            return False
        self.given += value.nbytes
        self.largest = max(self.largest, value.nbytes)
        if value.nbytes > room:
            self.has_all = False
            return False
        if value is not before:
            self.values[name] = value
            self._sizes.pop(name, None)
            self._room = room - value.nbytes
        return True

    @property
    def room(self) -> int:
        """Bytes that are left."""
        return self._room

    def drop(self, names: Iterable[str]) -> None:
        """Let go of tensors."""
        for name in names:
            self._room += self.values.pop(name).nbytes
            self._sizes.pop(name, None)
            self.has_all = False

    def of(self, name: str, value: Any) -> np.ndarray | None:
        """The tensor of this name in the shape of ``value``, where both can be held to each other."""
        known = self.values.get(name)
        if known is None or not isinstance(value, np.ndarray) or value.dtype != np.float64 or value.size != known.size:
            return None
        return known.reshape(value.shape)

    def sizes(self, name: str) -> Sizes:
        """The sizes of a tensor that is kept, in its own shape."""
        return self._sizes.setdefault(name, Sizes(self.values[name]))


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
            self.look(name, value)
        return value

    def look(self, name: str, value: np.ndarray, measured: Apart | None = None) -> Apart:
        """Measure a tensor that has a partner, and its slices; where it was ``measured`` in its partner's shape, these."""
        wanted = self.reference.values[name]
        measured = apart(wanted, value.reshape(wanted.shape)) if measured is None else measured
        found = slice_distances(wanted, measured, self.floor, self.reference.sizes(name))
        if found:
            self.found[name] = found
        return measured


@dataclass
class Recognition:
    """A candidate's tensors while it is evaluated: one that is another's but for float64's rounding becomes that one.

    What follows from it is then known already. ``slices`` are held to the reference, ``others`` are earlier candidates, ``ulp``
    is that of the model's own type, ``follower`` follows the reference's ties. ``depth`` has the distance of each tensor as a
    whole, in the order of execution.
    """

    slices: SliceDistances
    others: Sequence[Recognition]
    ulp: float
    follower: Follower
    own: InnerTensors = field(default_factory=InnerTensors)
    depth: dict[str, float] = field(default_factory=dict)

    def watch(self, name: str, value: Any) -> Any:
        value = self.follower.follow(name, value)
        for other in self.others:
            if other.ulp == self.ulp and other.has_measured(name, value):
                self._take_over(other, name, value)
                return value
        same, measured = self._same(self.slices.reference, name, value)
        if same is not None:
            self.depth[name] = 0.0
            return same
        for other in self.others:
            same, _ = self._same(other.own, name, value)
            if same is not None:
                self._take_over(other, name, same)
                return same
        self._measure(name, value, measured)
        self.own.keep(name, value)
        return value

    def has_measured(self, name: str, value: Any) -> bool:
        """True where this very tensor is known not to be the reference's, and how far it is."""
        known = self.own.of(name, value)
        return known is not None and _is_one(known, value) and math.isfinite(self.depth.get(name, math.inf))

    def _measure(self, name: str, value: Any, measured: Apart | None = None) -> None:
        if self.slices.reference.of(name, value) is not None:
            measured = self.slices.look(name, value, measured)
            self.depth[name] = _relative(measured.square, self.slices.reference.sizes(name).square)

    def _take_over(self, other: Recognition, name: str, same: np.ndarray) -> None:
        """Take over what was measured of the same tensor of another candidate."""
        if other.slices.floor != self.slices.floor:
            self._measure(name, same)
        elif name in other.depth:
            self.depth[name] = other.depth[name]
            if name in other.slices.found:
                self.slices.found[name] = other.slices.found[name]

    def _same(self, other: InnerTensors, name: str, value: Any) -> tuple[np.ndarray | None, Apart | None]:
        """The other model's tensor where this is the same, or else how far it is, if that was measured in the other's shape."""
        known = other.of(name, value)
        if known is None or (_is_one(known, value) and math.isfinite(other.sizes(name).square)):
            return known, None
        kept, limit = other.sizes(name), _SAME_ULPS * self.ulp
        has_its_shape = other.values[name].shape == known.shape
        is_same, measured = _held_to(known, value, limit, limit * kept.largest, kept if has_its_shape else Sizes(known))
        return known if is_same else None, measured if has_its_shape else None


def _is_one(one: np.ndarray, other: np.ndarray) -> bool:
    """True for two views of the same elements."""
    places = (array.__array_interface__["data"] for array in (one, other))
    return one.strides == other.strides and len(set(places)) == 1


def _held_to(one: np.ndarray, other: np.ndarray, limit: float, furthest: float, sizes: Sizes) -> tuple[bool, Apart | None]:
    """True where no slice along any axis is further off than ``limit`` of its own size, which ``sizes`` of ``one`` have.

    Nor is any element further off than ``furthest``: of tensors that differ, the first few show it. How far they are where that
    was measured.
    """
    most = first_apart(one, other)
    if most == 0:
        return True, None
    if not most <= furthest < math.inf:
        return False, None
    measured = apart(one, other)
    if not measured.furthest <= furthest:
        return False, measured
    if not measured.squares:  # one element
        return measured.square <= limit**2 * sizes.square, measured
    return all(bool(np.all(measured.squares[axis] <= limit**2 * sizes.squares[axis])) for axis in measured.squares), measured


def slice_distances(wanted: np.ndarray, got: Apart, floor: float, sizes: Sizes | None = None) -> dict[int, np.ndarray]:
    """The distance of every slice along every axis; nothing where no slice is further than ``floor`` or not all is finite.

    ``got`` is how far the other tensor is, and ``sizes`` are those of ``wanted``, where they are known already.
    """
    sizes = Sizes(wanted) if sizes is None else sizes
    # The squares of all slices are summed where these are small, too: a model that differs has few that are not looked at.
    squares = sizes.squares if got.squares else {}
    size = math.sqrt(sizes.square / wanted.size) if wanted.size else 0.0
    if not math.isfinite(got.furthest) or not math.isfinite(size) or got.furthest <= floor * _SMALL_SLICE * size:
        return {}
    found = {}
    for axis, of_slices in got.squares.items():
        if len(of_slices) <= _MOST_SLICES:
            lengths = _slice_sizes(squares[axis])
            if lengths.min() > 0:
                found[axis] = np.sqrt(of_slices) / lengths
    return found


def relative_distance(wanted: np.ndarray, got: np.ndarray) -> float:
    """‖got − wanted‖₂ / ‖wanted‖₂."""
    return _relative(furthest_and_square(wanted, got)[1], Sizes(wanted).square)


def _relative(square: float, whole: float) -> float:
    return math.sqrt(square / whole) if whole > 0 else math.inf


def means_the_same(distance: float) -> bool:
    """False where a tensor carries another meaning under its name, or is not finite."""
    return distance < _OTHER_MEANING


def suspicious(distances: SliceDistances) -> list[str]:
    """Tensors with a slice beyond the floor, and none that carries another meaning, whose partner is still kept."""
    return [name for name in distances.found if name in distances.reference.values and is_suspicious(distances, name)]


def is_suspicious(distances: SliceDistances, name: str) -> bool:
    """True where the tensor of this name has such slices."""
    furthest = max((float(found.max()) for found in distances.found.get(name, {}).values()), default=0.0)
    return distances.floor < furthest < _OTHER_MEANING


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
        sizes = _slice_sizes(distances.reference.sizes(name).squares[axis])
        together = np.sqrt(np.mean(np.square(samples * sizes))) / sizes
        caution = 1 + np.log10(measured.size) / _DECADES_TO_DOUBLE
        explained = np.maximum(allowed_each(list(samples), _OWN_NOISE), _COMMON_NOISE * together)
        limits = caution * np.maximum(explained, distances.floor)
        index = int(np.argmax(measured / limits))
        found.append(Difference(name, axis, index, float(measured[index]), float(limits[index])))
    return max(found, key=lambda difference: difference.share)


def _slice_sizes(squares: np.ndarray) -> np.ndarray:
    """‖r‖₂ of slices by their ``squares``, of small ones a tenth of their root mean square."""
    return np.maximum(np.sqrt(squares), _SMALL_SLICE * math.sqrt(float(np.mean(squares))))
