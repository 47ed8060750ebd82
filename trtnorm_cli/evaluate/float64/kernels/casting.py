"""Cast, CastLike and Constant."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto, numpy_helper
from onnx.helper import tensor_dtype_to_np_dtype

from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, NotImplementedHere, one


def cast(call: Call) -> np.ndarray:
    """To a number or a boolean; numbers lose their fraction on the way to an integer."""
    if call["to"] == TensorProto.STRING:
        raise NotImplementedHere("a cast to strings")
    return converted(call.x, np.dtype(tensor_dtype_to_np_dtype(call["to"])), call["saturate"] != 0)


def cast_like(call: Call) -> np.ndarray:
    return converted(call.x, call.inputs[1].dtype, call["saturate"] != 0)


def converted(x: np.ndarray, target: Any, saturate: bool) -> np.ndarray:
    if target.name == "float8_e8m0fnu":
        raise NotImplementedHere("a cast to float8e8m0, which has rounding modes of its own")
    if target.name.startswith(("float8", "float4")):
        return to_narrow_float(x, target, saturate)
    return x.astype(np.float64).astype(target) if x.dtype == object else x.astype(target, copy=False)


def to_narrow_float(x: np.ndarray, target: Any, saturate: bool) -> np.ndarray:
    """Rounded once, half to even; beyond the largest number that, or the type's infinity or NaN."""
    rounded = x.astype(np.float64).astype(target)
    if not saturate:
        return rounded
    largest = float(ml_dtypes.finfo(target).max)
    return np.where(np.isnan(x), rounded, np.clip(x, -largest, largest).astype(target))


CONSTANT_TYPES: dict[str, Any] = {
    "value": None,
    **dict.fromkeys(("value_float", "value_floats"), np.float32),
    **dict.fromkeys(("value_int", "value_ints"), np.int64),
    **dict.fromkeys(("value_string", "value_strings"), object),
}
"""Attributes of Constant; one of float32 is left only where arithmetic on shapes keeps its type."""


def constant(call: Call) -> np.ndarray:
    for name, dtype in CONSTANT_TYPES.items():
        if call[name] is not None:
            return np.asarray(call[name], dtype)
    if call["sparse_value"] is not None:
        return dense(call["sparse_value"])
    raise NotImplementedHere("a Constant without a value")


def dense(sparse: Any) -> np.ndarray:
    """A SparseTensorProto as an array: indices are flat, or one row per element."""
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    result = np.zeros(tuple(sparse.dims), values.dtype)
    where = (indices,) if indices.ndim == 1 else tuple(indices.T)
    if indices.ndim == 1:
        result.reshape(-1)[where] = values
    else:
        result[where] = values
    return result


KERNELS: dict[str, Kernel] = {"Cast": one(cast), "CastLike": one(cast_like), "Constant": one(constant)}
