"""The cost of a node, from the shapes of its inputs, before it is evaluated."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from trtnorm_cli.evaluate.float64.kernels.call import Call
from trtnorm_cli.evaluate.float64.kernels.windows import windows_of

MULTIPLY_ADDS_PER_SECOND = 5e9
"""Two slow cores; a faster machine only means that the budget is guarded with some reserve."""
_REPEATED_PER_SECOND = 2.5e8
# These look at no number, and those make another view of the same ones.
_ASK_SHAPES = frozenset(("Shape", "Size"))
_VIEWS = frozenset(
    ("Identity", "Expand", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Gather")
)


def predicted_seconds(call: Call) -> float:
    return multiply_adds(call) / MULTIPLY_ADDS_PER_SECOND + _repeated(call) / _REPEATED_PER_SECOND


def _repeated(call: Call) -> int:
    """The numbers that the inputs repeat: an Expand stores none of them, and who reduces its result reads each."""
    return 0 if call.op_type in _ASK_SHAPES | _VIEWS else sum(_repeats(value) for value in call.inputs)


def _repeats(value: Any) -> int:
    is_repeated = isinstance(value, np.ndarray) and any(
        size > 1 and stride == 0 for size, stride in zip(value.shape, value.strides, strict=True)
    )
    return value.size if is_repeated else 0


def multiply_adds(call: Call) -> float:
    """Of the operators that multiply matrices; others cost little more than their elements."""
    if call.op_type in ("Conv", "ConvTranspose", "DeformConv"):
        return _convolution(call)
    if call.op_type == "MatMul":
        a, b = call.inputs
        return a.size * (b.shape[-1] if b.ndim > 1 else 1) * _batches(a, b)
    if call.op_type == "Gemm":
        return call.x.size * call.inputs[1].size / max(call.x.shape[0 if call["transA"] else 1], 1)
    return 0.0


def _convolution(call: Call) -> float:
    x, weight = call.inputs[:2]
    if call.op_type == "ConvTranspose":
        return x.shape[0] * math.prod(x.shape[2:]) * weight.size
    output = windows_of(call, x.shape[2:], weight.shape[2:]).output
    return x.shape[0] * math.prod(output) * weight.size


def _batches(a: Any, b: Any) -> float:
    """How often ``a`` is used again by the broadcasting of a batch of ``b``."""
    batch_a, batch_b = math.prod(a.shape[:-2]), math.prod(b.shape[:-2])
    return max(batch_b / max(batch_a, 1), 1.0)
