"""The model as written, in float64, against the narrowed one, in float32, on the same inputs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from trtnorm_cli.evaluate.float64 import Float64Model, ReferenceUnavailable, evaluate_float64
from trtnorm_cli.evaluate.metrics import distance
from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.precision.wide.rounding import SMALLEST, as_float32
from trtnorm_cli.profile.model import Tolerance

Feeds = Mapping[str, np.ndarray]
# Results that move further than this are said, and beyond the other they are no results.
SAID, REFUSED = 1e-3, 3e-2
# The model as written rounds too, where parts of it are float32; so many times as much is not put down to the narrowing.
_TIMES_AS_WRITTEN = 8.0
# So many elements of an integer output must differ before a difference is more than a tie that fell the other way.
_FEWEST_FLIPS = 3
_LONGEST = 160


@dataclass(frozen=True)
class Point:
    """Inputs for one trial, and how to call them."""

    label: str
    feeds: Feeds


@dataclass(frozen=True)
class Difference:
    """One output at one point: the narrowed model's distance from float64, and that of the model as written.

    ``written`` is None where that was not run: ONNX Runtime has no double kernel for many operators. ``tolerated`` is true
    where the build profile's tolerance holds, and None where it gives none.
    """

    output: str
    point: Point
    narrowed: float
    written: float | None
    tolerated: bool | None = None

    @property
    def by_narrowing(self) -> float:
        """The distance that the narrowing explains: zero where the model as written is about as far off."""
        return 0.0 if self.written is not None and self.narrowed <= _TIMES_AS_WRITTEN * self.written else self.narrowed

    @property
    def is_said(self) -> bool:
        return not self.by_narrowing <= SAID and self.tolerated is not True

    @property
    def is_refused(self) -> bool:
        return (not self.by_narrowing <= REFUSED and self.tolerated is None) or self.tolerated is False


@dataclass(frozen=True)
class Checked:
    """Differences at all points that were tried; ``skipped`` names the others and says why."""

    tried: tuple[str, ...]
    differences: tuple[Difference, ...]
    skipped: tuple[str, ...]

    @property
    def worst(self) -> Difference | None:
        return max(
            self.differences, key=lambda one: (one.is_refused, one.is_said, one.by_narrowing, one.narrowed), default=None
        )


class Checker:
    """Runs both models; ``written`` and ``narrowed`` are files, and ``exact`` is the first of them raised to float64."""

    def __init__(
        self,
        runner: OrtRunner,
        written: Path,
        narrowed: Path,
        exact: Float64Model,
        tolerances: Mapping[str, Tolerance],
        budget_s: float,
    ) -> None:
        self._runner, self._written, self._narrowed, self._exact = runner, written, narrowed, exact
        self._tolerances, self._budget_s = tolerances, budget_s

    def check(self, points: Iterable[Point]) -> Checked:
        """Try the points in order, until one takes longer than is left."""
        tried: list[str] = []
        found: list[Difference] = []
        skipped: list[str] = []
        for point in points:
            try:
                found += self._differences(point)
                tried.append(point.label)
            except (ReferenceUnavailable, RunFailed) as error:
                why = error.reason if isinstance(error, RunFailed) else str(error)
                skipped.append(f"{point.label}: {_short(why)}")
        return Checked(tuple(tried), tuple(found), tuple(skipped))

    def _differences(self, point: Point) -> list[Difference]:
        reference = evaluate_float64(self._exact, point.feeds, budget_s=self._budget_s)
        self._budget_s = max(self._budget_s - reference.seconds, 0.1)
        narrowed = self._runner.run(self._narrowed, narrow_feeds(point.feeds))
        written = self._as_written(point.feeds)
        found = []
        for name, truth in reference.outputs.items():
            if name in narrowed and isinstance(truth, np.ndarray):
                own = None if written is None else off(truth, written[name])
                given = self._tolerances.get(name, self._tolerances.get(""))
                kept = None if given is None else _within(truth, narrowed[name], given)
                found.append(Difference(name, point, off(truth, narrowed[name]), own, kept))
        return found

    def _as_written(self, feeds: Feeds) -> Feeds | None:
        try:
            return self._runner.run(self._written, feeds)
        except RunFailed:
            return None


def _short(why: str) -> str:
    """The first line, which may be a sentence of ONNX Runtime's with paths and source lines."""
    line = (why.splitlines() or ["it does not say why"])[0]
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}…"


def narrow_feeds(feeds: Feeds) -> dict[str, np.ndarray]:
    """The feeds of the engine: float32 for doubles."""
    return {name: as_float32(value) if value.dtype == np.float64 else value for name, value in feeds.items()}


def off(truth: np.ndarray, got: np.ndarray) -> float:
    """How far ``got`` is from ``truth``, relative to the largest element; infinite where shapes differ.

    Where ``truth`` is not finite nothing can be said. What is too small for float32 counts as zero on both sides: exp(−200) of
    random data far from where a model has its own says nothing against it. Of integers it is the share of elements that differ,
    where that is less: labels have no distance.
    """
    if truth.shape != got.shape:
        return math.inf
    if truth.dtype.kind in "SUO" or got.dtype.kind in "SUO":
        return 0.0 if np.array_equal(truth, got) else math.inf
    known = np.isfinite(truth.astype(np.float64))
    if not known.any():
        return 0.0
    apart = distance(_seen(truth[known]), _seen(got[known])).relative_max
    if got.dtype.kind not in "iub":
        return apart
    differing = int(np.sum(truth[known] != got[known]))
    return 0.0 if differing < _FEWEST_FLIPS else min(apart, differing / int(np.sum(known)))


def _seen(values: np.ndarray) -> np.ndarray:
    """``values`` with zero for what is below float32's normal numbers."""
    return np.where(np.abs(values) < SMALLEST, 0.0, values) if values.dtype.kind == "f" else values


def _within(truth: np.ndarray, got: np.ndarray, given: Tolerance) -> bool:
    if truth.shape != got.shape:
        return False
    w, g = truth.astype(np.float64), got.astype(np.float64)
    return bool(np.isclose(g, w, rtol=given.rtol or 0.0, atol=given.atol or 0.0, equal_nan=True).all())
