"""The distance from the truth that a candidate may have, calibrated on the network's own noise.

Two questions are asked of a candidate c against a reference r, where T is r evaluated in float64:

* exact: is c the same function? c is evaluated in float64 too, so no rounding of the arithmetic is in the way. What is left
  is the rounding of its constants. The noise is how far T moves when its constants are rounded otherwise.
* native: does c still compute well in its own types? The noise is how far T moves when everything is rounded: inputs,
  constants and every intermediate result.

Either noise is measured in a few seeded runs (:mod:`trtnorm_cli.compare.calibration`), once for outputs as a whole and once for
single elements. What is closer than a few units in the last place needs no measurement.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import ml_dtypes
import numpy as np

from trtnorm_cli.evaluate.metrics import Distance
from trtnorm_cli.light_dataclass import dataclass

# Sound rewritings of a network that works in turns, RAFT, were seen at 3.5 times the largest of four runs.
FACTOR = 8.0
# The more the runs scatter, the less a few of them tell of the next one; an output of one element scatters most.
_MOST_SCATTER = 8.0
# Attributes are float32 in ONNX and constants of functions in TensorRT, so equal functions differ by this much.
EXACT_ULPS = 2.0
_NATIVE_ULPS = {"float64": 512.0, "float32": 64.0, "float16": 8.0, "bfloat16": 4.0}
# Without float64 nobody knows how far the reference itself is off: a sum over a plane costs hundreds of units.
_UNKNOWN_NATIVE_ULPS = {"float64": 4096.0, "float32": 512.0, "float16": 32.0, "bfloat16": 16.0}
# An output that rounding alone moves further than this says nothing about a candidate.
_MOST_NOISE, _MOST_NOISE_ULPS = 0.03, 16.0
# So far beyond even a useless bound a candidate is wrong all the same.
BEYOND_DOUBT = 4.0


@dataclass(frozen=True)
class Bound:
    """Largest distances that pass, for the exact and for the native run."""

    exact: Distance
    native: Distance


def both(value: float) -> Distance:
    return Distance(value, value)


def at_least(one: Distance, other: Distance) -> Distance:
    """The larger of either distance."""
    return Distance(max(one.relative_l2, other.relative_l2), max(one.relative_max, other.relative_max))


def without_calibration(reference_error: Distance | None, known: Distance | None, *dtypes: np.dtype) -> Bound:
    """The distance allowed before noise is measured, for an output of ``dtypes``, of which the coarser counts.

    ``reference_error`` is the distance of the reference's run from float64, None when that is not known. ``known`` is the
    native bound that smaller inputs gave.
    """
    coarsest = max(dtypes, key=epsilon)
    ulp = epsilon(coarsest)
    if reference_error is None:
        native = both(_UNKNOWN_NATIVE_ULPS.get(coarsest.name, 0.0) * ulp)
    else:
        own = both(FACTOR * reference_error.largest)
        native = at_least(own, both(_NATIVE_ULPS.get(coarsest.name, 0.0) * ulp))
    return Bound(both(EXACT_ULPS * ulp), native if known is None else at_least(native, known))


def allowed(noise: Sequence[Distance]) -> Distance:
    """The distance allowed where runs with roundings of their own have these distances from the truth."""
    return Distance(_allowed([d.relative_l2 for d in noise]), _allowed([d.relative_max for d in noise]))


def _allowed(samples: Sequence[float]) -> float:
    return float(allowed_each([np.array([sample]) for sample in samples])[0])


def allowed_each(samples: Sequence[np.ndarray], factor: float = FACTOR) -> np.ndarray:
    """The distances allowed, one for each of many that a few runs gave."""
    largest, smallest = np.max(samples, axis=0), np.min(samples, axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        scatter = np.where(smallest > 0, largest / smallest, _MOST_SCATTER)
        return np.where(np.isfinite(largest) & (largest > 0), factor * np.minimum(scatter, _MOST_SCATTER) * largest, largest)


def share(measured: Distance, limit: Distance) -> float:
    """The measured distance over the one allowed. Up to 1 passes."""
    pairs = ((measured.relative_l2, limit.relative_l2), (measured.relative_max, limit.relative_max))
    return max(0.0 if found == 0 else found / most if most > 0 else math.inf for found, most in pairs)


def says_something(limit: Distance, dtype: np.dtype) -> bool:
    """True while a candidate could be told from noise, which is while the bound is a few percent at most."""
    return limit.largest <= max(_MOST_NOISE, _MOST_NOISE_ULPS * epsilon(dtype))


def epsilon(dtype: np.dtype) -> float:
    """The spacing of ``dtype`` at 1. It is zero for types that are not floating, which must agree exactly."""
    try:
        return float(ml_dtypes.finfo(dtype).eps)
    except ValueError:
        return 0.0
