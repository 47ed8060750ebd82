"""The operators that TensorRT does not build in a low type although ONNX allows it.

Measured with TensorRT for RTX 1.7.1 by ``python -m benchmarks.low_precision_operators``; the table is in docs/precision.md.
ONNX's own schemas say of the others (Celu, Range; in bfloat16 also Einsum, OneHot, ReverseSequence, Shrink, TopK).
"""

from __future__ import annotations

from collections.abc import Mapping

from trtnorm_cli.precision.low_types import BF16, FP16, LowType

_POOL = "its parser takes LpPool and LpNormalization in float32 and half alone"
_ACTIVATION = "its parser takes the operator in float32 and half alone"
REFUSED: Mapping[str, Mapping[str, str]] = {
    FP16.name: {
        "MeanVarianceNormalization": "its parser adds float32 constants to half data",
    },
    BF16.name: {
        "ConvTranspose": "its compiler cannot infer the type of the result",
        "GRU": "its parser mixes float32 into the gates",
        "GlobalLpPool": _POOL,
        "HardSwish": _ACTIVATION,
        "LpNormalization": _POOL,
        "LpPool": _POOL,
        "MeanVarianceNormalization": "its parser adds float32 constants to bfloat16 data",
        "Mish": _ACTIVATION,
    },
}


def why_refused(operator: str, low: LowType) -> str | None:
    """The reason why TensorRT does not build ``operator`` in ``low``; None where it does."""
    return REFUSED[low.name].get(operator)
