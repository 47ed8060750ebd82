"""Doubles as float32: how they are rounded, and what that does to them."""

from __future__ import annotations

import numpy as np

from trtnorm_cli.light_dataclass import dataclass

LARGEST = float(np.finfo(np.float32).max)
SMALLEST = float(np.finfo(np.float32).smallest_normal)


@dataclass(frozen=True)
class Rounding:
    """The effect of rounding on the elements of a tensor; the fields are those of ``NarrowedConstant``."""

    worst_relative: float
    clamped: int
    raised: int
    spread: float


def as_float32(values: np.ndarray) -> np.ndarray:
    """``values`` (float64) to the nearest float32, but finite stays finite and what is not zero does not become zero.

    A double that masks (−1.8e308) or guards a division (1e-300) keeps its purpose so.
    """
    magnitude = np.abs(values)
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        kept = np.clip(magnitude, SMALLEST, LARGEST)
        special = (magnitude == 0) | ~np.isfinite(values)
        return np.asarray(np.where(special, values, np.copysign(kept, values)).astype(np.float32))


def rounding_of(values: np.ndarray, rounded: np.ndarray) -> Rounding:
    """The distance of ``rounded``, made by ``as_float32``, from ``values``."""
    real = np.isfinite(values) & (values != 0)
    magnitude = np.abs(values[real])
    clamped, raised = magnitude > LARGEST, magnitude < SMALLEST
    usual = ~(clamped | raised)
    error = np.abs(rounded[real].astype(np.float64) - values[real])
    relative = error[usual] / magnitude[usual]
    return Rounding(
        worst_relative=float(np.max(relative, initial=0.0)),
        clamped=int(np.sum(_rounds_beyond(magnitude))),
        raised=int(np.sum(raised)),
        spread=_spread(values[real][usual], error[usual]),
    )


def _rounds_beyond(magnitude: np.ndarray) -> np.ndarray:
    """True where the nearest float32 would be infinite."""
    with np.errstate(over="ignore"):
        return np.isinf(magnitude.astype(np.float32))


def _spread(values: np.ndarray, error: np.ndarray) -> float:
    """The largest error over the range of the values. It is 0 for equal values, which nobody tells apart."""
    if values.size < 2:
        return 0.0
    with np.errstate(over="ignore"):
        span = float(np.max(values) - np.min(values))
    return float(np.max(error)) / span if span > 0 else 0.0
