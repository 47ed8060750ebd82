"""Two constants held against each other."""

from __future__ import annotations

import math

import numpy as np

from trtnorm_cli.differences.graph_nodes import Constant
from trtnorm_cli.differences.record import WeightDifference
from trtnorm_cli.onnx_model.stored import tensor_array

_FEW = 8
_AT_ONCE = 1 << 20


def few_values(constant: Constant) -> str | None:
    """The values of a small constant as text: sizes, axes, scales. None where there are more."""
    if math.prod(constant.shape) > _FEW:
        return None
    value = tensor_array(constant.tensor, constant.folder)
    if value.dtype.hasobject:
        return str(value.tolist())
    if value.dtype.kind in "iub":
        return str(value.tolist())
    single = value.astype(np.float64)
    return f"{float(single):.9g}" if not value.ndim else "[" + ", ".join(f"{one:.9g}" for one in single.ravel()) + "]"


def weight_difference(first: Constant, second: Constant, node: str) -> WeightDifference:
    """The largest difference between the values of two constants, where sizes and types allow to tell it."""
    worst = relative = None
    reason = ""
    if first.shape != second.shape:
        reason = "the sizes differ"
    else:
        values = [tensor_array(one.tensor, one.folder) for one in (first, second)]
        if any(value.dtype.hasobject or value.dtype.kind == "c" for value in values):
            reason = "the values are no real numbers"
        else:
            worst, relative, reason = _worst(values[0].ravel(), values[1].ravel())
    return WeightDifference(first.name, second.name, node, first.type_text, second.type_text, worst, relative, reason)


def _worst(first: np.ndarray, second: np.ndarray) -> tuple[float | None, float | None, str]:
    worst = largest = 0.0
    for start in range(0, first.size, _AT_ONCE):
        one, other = (value[start : start + _AT_ONCE].astype(np.float64) for value in (first, second))
        both = np.isfinite(one) & np.isfinite(other)
        same = (one == other) | (np.isnan(one) & np.isnan(other))
        if not (both | same).all():
            return None, None, "one has NaN or infinity where the other has not"
        worst = max(worst, float(np.abs(one[both] - other[both]).max(initial=0.0)))
        largest = max(largest, float(np.abs(one[both]).max(initial=0.0)))
    return worst, worst / largest if largest else None, ""
