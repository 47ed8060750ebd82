"""Seeded random inputs, as the profile asks, or else as the uses of an input in the model demand."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING

import numpy as np
import onnx

from trtnorm_cli.evaluate.data.input_ranges import Domain, InputRanges
from trtnorm_cli.evaluate.data.shape_points import ShapePoint
from trtnorm_cli.evaluate.data.value_sets import Values
from trtnorm_cli.onnx_model.shapes import TensorType

if TYPE_CHECKING:
    from trtnorm_cli.profile.model import InputData

_INTEGERS_BELOW = 4
_MOST_SHUFFLED = 1 << 24


class DrawnFeeds(Mapping[str, np.ndarray]):
    """One array for each input, drawn by ``draw`` when the first of them is asked for; ``shapes`` are theirs."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], draw: Callable[[], dict[str, np.ndarray]]) -> None:
        self.shapes, self._draw = shapes, draw

    @cached_property
    def _arrays(self) -> dict[str, np.ndarray]:
        return self._draw()

    @property
    def elements(self) -> int:
        """The number of elements of all arrays."""
        return sum(map(math.prod, self.shapes.values()))

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)


def feeds_at(
    point: ShapePoint,
    inputs: Mapping[str, TensorType],
    data: Mapping[str, InputData],
    seed: int,
    domains: Mapping[str, Domain] | None = None,
) -> dict[str, np.ndarray]:
    """One array for each input. The same seed, input name and shape give the same values, whatever else is fed."""
    feeds = {}
    for name, shape in point.shapes.items():
        feeds[name] = draw(inputs[name], shape, data.get(name), _generator(seed, name), (domains or {}).get(name))
    for name, values in point.values.items():
        feeds[name] = np.array(values, dtype=feeds[name].dtype).reshape(feeds[name].shape)
    return feeds


def fitting_feeds(
    ranges: InputRanges, points: Sequence[ShapePoint], data: Mapping[str, InputData], seed: int
) -> tuple[list[DrawnFeeds], dict[str, str], list[str]]:
    """Feeds at each point, what was chosen for each input in words, and what there is to note.

    Nothing is drawn yet: of the largest shapes there are gigabytes, and they are seldom run.
    """
    feeds, notes = [], []
    chosen: dict[str, dict[str, list[str]]] = {name: {} for name in ranges.inputs}
    for point in points:
        domains = ranges.at(point.shapes, point.values)
        feeds.append(DrawnFeeds(point.shapes, partial(feeds_at, point, ranges.inputs, data, seed, domains)))
        for name, domain in domains.items():
            chosen[name].setdefault(_in_words(name, domain, point, data), []).append(point.label)
            if domain.note is not None and name not in data and name not in point.values:
                notes.append(domain.note)
    return feeds, {name: _one_line(texts) for name, texts in chosen.items() if texts}, list(dict.fromkeys(notes))


def _in_words(name: str, domain: Domain, point: ShapePoint, data: Mapping[str, InputData]) -> str:
    if name in point.values:
        return f"{', '.join(map(str, point.values[name]))} (the profile's values)"
    if name in data:
        settings = data[name].model_dump(exclude={"distribution"})
        shown = ", ".join(f"{key} {value}" for key, value in settings.items())
        return f"{data[name].distribution}{f' with {shown}' if shown else ''} (the profile's data)"
    return domain.text


def _one_line(texts: Mapping[str, Sequence[str]]) -> str:
    """The text, or each with the shapes that it is for."""
    if len(texts) == 1:
        return next(iter(texts))
    return "; ".join(f"{text} at {', '.join(labels)}" for text, labels in texts.items())


def _generator(seed: int, name: str) -> np.random.Generator:
    return np.random.default_rng([seed, zlib.crc32(name.encode())])


def draw(
    kind: TensorType, shape: tuple[int, ...], data: InputData | None, rng: np.random.Generator, domain: Domain | None = None
) -> np.ndarray:
    """Values of ``kind``'s element type from ``domain``.

    Without one they are standard normal, small integers, or coin tosses.
    """
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.dtype)
    if data is not None:
        return np.asarray(_values(data, shape, rng)).astype(dtype)
    if domain is not None:
        return np.asarray(_from_domain(domain, shape, rng)).astype(dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(dtype)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, _INTEGERS_BELOW, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _from_domain(domain: Domain, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    if domain.kind == "mask":
        return _masks(shape, domain.open, rng)
    if domain.kind == "choices":
        return np.asarray(rng.choice(np.array(domain.choices), shape))
    if domain.values is None:
        return rng.standard_normal(shape)
    if domain.kind == "evenly_real":
        return rng.uniform(domain.values.low, domain.values.high, shape)
    if domain.kind == "half_normal":
        distance = np.abs(rng.standard_normal(shape))
        return domain.values.low + distance if math.isfinite(domain.values.low) else domain.values.high - distance
    if domain.components is not None and shape and shape[-1] == len(domain.components):
        return np.stack([_whole(c, shape[:-1], rng) for c in domain.components], axis=-1)
    drawn = _different(domain.values, shape, rng) if domain.distinct else None
    if drawn is None:
        drawn = _whole(domain.values, shape, rng)
    if domain.shown is not None:
        _set_first(drawn, _whole(domain.shown, shape, rng))
    if domain.kind == "lengths" and drawn.size:
        drawn.reshape(-1)[0] = domain.values.high
    return drawn


def _masks(shape: tuple[int, ...], shown: int, rng: np.random.Generator) -> np.ndarray:
    """Coin tosses. The first of each row, along the last axis that has several places, hides nothing."""
    drawn = np.asarray(rng.integers(0, 2, shape))
    _set_first(drawn, np.full(shape, shown))
    return drawn


def _set_first(drawn: np.ndarray, other: np.ndarray) -> None:
    """Take the first of each row from ``other``.

    That is everything where no axis has several places, and nothing of a number.
    """
    axis = next((axis for axis in reversed(range(drawn.ndim)) if drawn.shape[axis] > 1), None)
    if axis is not None:
        np.moveaxis(drawn, axis, 0)[0] = np.moveaxis(other, axis, 0)[0]
    elif drawn.ndim:
        drawn[...] = other


def _whole(values: Values, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Whole numbers, each of the union as likely as any other."""
    counts = [int(high) - int(low) + 1 for low, high in values.parts]
    if len(counts) == 1:
        return np.asarray(rng.integers(int(values.low), int(values.high) + 1, shape))
    drawn = np.asarray(rng.integers(0, sum(counts), shape))
    found, before = np.empty_like(drawn), 0
    for (low, _), count in zip(values.parts, counts, strict=True):
        here = (drawn >= before) & (drawn < before + count)
        found[here] = drawn[here] - before + int(low)
        before += count
    return found


def _different(values: Values, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray | None:
    """Different numbers everywhere, or else within each row, or None where there are too few."""
    count = int(values.high) - int(values.low) + 1
    total, row = math.prod(shape), shape[-1] if shape else 1
    if len(values.parts) > 1 or count < row or not row or count * max(total // row, 1) > _MOST_SHUFFLED:
        return None
    if total <= count:
        return np.asarray(int(values.low) + rng.permutation(count)[:total].reshape(shape))
    rows = [rng.permutation(count)[:row] for _ in range(total // row)]
    return np.asarray(int(values.low) + np.stack(rows).reshape(shape))


def _values(data: InputData, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    from trtnorm_cli.profile.model import Constant, Integers, Normal, Ones, Uniform

    if isinstance(data, Normal):
        return rng.normal(data.mean, data.std, shape)
    if isinstance(data, Uniform):
        return rng.uniform(data.low, data.high, shape)
    if isinstance(data, Integers):
        if data.below > 2**63:  # only unsigned types reach so far
            return rng.integers(max(data.low, 0), data.below, shape, dtype=np.uint64)
        return rng.integers(data.low, data.below, shape, dtype=np.int64)
    if isinstance(data, Ones):
        return np.ones(shape)
    assert isinstance(data, Constant)
    return np.full(shape, data.value)
