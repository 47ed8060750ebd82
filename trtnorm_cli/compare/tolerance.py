"""How far a candidate may be from the truth: calibrated on the reference's own rounding, floored by the type's epsilon.

Two questions are asked of a candidate c against a reference r, where T is r evaluated in float64:

* exact: is c the same function? c is evaluated in float64 too, so no rounding of the arithmetic is in the way; what is left
  is the rounding of its constants. Allowed: |r − T|, at least EXACT_ULPS units in the last place.
* native: does c still compute well in its own types? Allowed: FACTOR times |r − T|, at least NATIVE_ULPS units; a sum over a
  whole plane, as in an instance norm, costs some hundred float32 units in ONNX Runtime.

Both distances are the larger of relative L2 and largest difference over largest value.
"""

from __future__ import annotations

from dataclasses import dataclass

import ml_dtypes
import numpy as np

from trtnorm_cli.compare.metrics import Distance

FACTOR = 4.0
EXACT_ULPS = 4.0
_NATIVE_ULPS = {"float64": 4096.0, "float32": 512.0, "float16": 32.0, "bfloat16": 16.0}


@dataclass(frozen=True)
class Bound:
    """Largest distance that passes, for the exact and for the native run."""

    exact: float
    native: float


def calibrated(reference_error: Distance | None, *dtypes: np.dtype) -> Bound:
    """The bound for an output of ``dtypes`` (reference and candidate; the coarser counts).

    ``reference_error`` is the distance of the reference from float64, or None when that is not known.
    """
    own = 0.0 if reference_error is None else reference_error.largest
    coarsest = max(dtypes, key=epsilon)
    return Bound(
        exact=max(own, EXACT_ULPS * epsilon(coarsest)),
        native=max(FACTOR * own, _NATIVE_ULPS.get(coarsest.name, 0.0) * epsilon(coarsest)),
    )


def epsilon(dtype: np.dtype) -> float:
    """The spacing of ``dtype`` at 1; zero for types that are not floating: they must agree exactly."""
    try:
        return float(ml_dtypes.finfo(dtype).eps)
    except ValueError:
        return 0.0
