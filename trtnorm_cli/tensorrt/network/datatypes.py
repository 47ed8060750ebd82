"""TensorRT's data types in ONNX's terms."""

from __future__ import annotations

import numpy as np
from ml_dtypes import bfloat16, float8_e4m3fn
from onnx import TensorProto

#: ``tensorrt.DataType`` name -> ONNX element type.
ONNX_TYPE = {
    "FLOAT": TensorProto.FLOAT,
    "HALF": TensorProto.FLOAT16,
    "BF16": TensorProto.BFLOAT16,
    "FP8": TensorProto.FLOAT8E4M3FN,
    "INT8": TensorProto.INT8,
    "UINT8": TensorProto.UINT8,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "BOOL": TensorProto.BOOL,
    "INT4": TensorProto.INT4,
    "FP4": TensorProto.FLOAT4E2M1,
}

#: Element type of a weights array read from memory, for the types that NumPy has no name for.
NUMPY_TYPE = {
    "FLOAT": np.dtype(np.float32),
    "HALF": np.dtype(np.float16),
    "BF16": np.dtype(bfloat16),
    "FP8": np.dtype(float8_e4m3fn),
    "INT8": np.dtype(np.int8),
    "UINT8": np.dtype(np.uint8),
    "INT32": np.dtype(np.int32),
    "INT64": np.dtype(np.int64),
    "BOOL": np.dtype(np.bool_),
}

#: Floating-point types whose arithmetic is evaluated in float32 and rounded once per layer.
NARROW_FLOATS = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN})

#: Types of which two elements share a byte. NumPy has no form for these bytes.
PACKED = frozenset({TensorProto.INT4, TensorProto.FLOAT4E2M1})


def onnx_type_of_array(array: np.ndarray) -> int:
    """The ONNX element type of a NumPy array. Raises ``KeyError`` for a type that TensorRT does not have."""
    return _FROM_NUMPY[array.dtype]


def element_bytes(onnx_type: int, count: int) -> int:
    """The number of bytes of ``count`` elements, where 4-bit types are packed in pairs."""
    bits = 4 if onnx_type in PACKED else 8 * _FROM_ONNX[onnx_type].itemsize
    return (bits * count + 7) // 8


_FROM_NUMPY = {dtype: ONNX_TYPE[name] for name, dtype in NUMPY_TYPE.items()}
_FROM_ONNX = {onnx_type: dtype for dtype, onnx_type in _FROM_NUMPY.items()}
