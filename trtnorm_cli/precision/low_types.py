"""The types that a float32 model can be computed in instead: IEEE half precision and bfloat16."""

from __future__ import annotations

import numpy as np
import onnx

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.light_dataclass import dataclass


@dataclass(frozen=True)
class LowType:
    """A floating type of 16 bits.

    ``largest`` is its largest finite value, ``smallest_normal`` the smallest with all digits, ``smallest`` the smallest above
    zero. ``half_ulp`` is the largest relative error of rounding a value in the normal range. ``exact_integers`` is the number
    up to which all integers have a value of their own.
    """

    name: str
    onnx_type: int
    numpy_dtype: np.dtype
    largest: float
    smallest_normal: float
    smallest: float
    half_ulp: float
    exact_integers: int

    def rounded(self, values: np.ndarray) -> np.ndarray:
        """``values`` rounded to the type, to the nearest; what is larger than ``largest`` becomes infinite."""
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return np.asarray(values).astype(self.numpy_dtype)


def _from_digits(name: str, onnx_type: int, digits: int, highest: int, lowest: int) -> LowType:
    """A binary type with ``digits`` significant bits, and exponents from ``lowest`` (of normal values) to ``highest``."""
    return LowType(
        name=name,
        onnx_type=onnx_type,
        numpy_dtype=np.dtype(onnx.helper.tensor_dtype_to_np_dtype(onnx_type)),
        largest=(2 - 2.0 ** (1 - digits)) * 2.0**highest,
        smallest_normal=2.0**lowest,
        smallest=2.0 ** (lowest + 1 - digits),
        half_ulp=2.0**-digits,
        exact_integers=2**digits,
    )


FP16 = _from_digits("fp16", onnx.TensorProto.FLOAT16, 11, 15, -14)
BF16 = _from_digits("bf16", onnx.TensorProto.BFLOAT16, 8, 127, -126)
_BY_NAME = {kind.name: kind for kind in (FP16, BF16)}


def low_type(name: str) -> LowType:
    """The type that users call ``name``; raises ``UsageProblem`` for any other name."""
    if name not in _BY_NAME:
        raise UsageProblem(f"there is no low precision {name!r}", "", f"it is one of {', '.join(_BY_NAME)}")
    return _BY_NAME[name]
