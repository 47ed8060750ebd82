"""Read the values of a ``tensorrt.Weights``, also of the types that TensorRT's Python API does not convert.

``Weights.numpy()`` returns an array for the types that NumPy has, and the ``Weights`` object itself for bfloat16, float8
and 4-bit types. The object wraps the C++ structure ``nvinfer1::Weights {DataType type; const void* values; int64_t
count;}``, which is read in place. Where that structure lies inside the Python object is verified on an array of known
address before it is relied on.
"""

from __future__ import annotations

import ctypes
from functools import cached_property
from typing import Any

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.tensorrt.network.datatypes import NUMPY_TYPE, ONNX_TYPE, element_bytes, onnx_type_of_array


class _WeightsStruct(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int32), ("values", ctypes.c_void_p), ("count", ctypes.c_int64)]


@dataclass(frozen=True)
class TensorValues:
    """Values that TensorRT holds, as ONNX element type, number of elements, and little-endian bytes.

    ``content`` may be TensorRT's own memory, which is valid while the network is there.
    """

    onnx_type: int
    count: int
    content: np.ndarray

    @cached_property
    def raw(self) -> bytes:
        """A copy of the bytes."""
        return self.content.tobytes()

    def array(self) -> np.ndarray:
        """The values as a flat array. 4-bit types have no NumPy form and raise ``KeyError``."""
        by_type = {ONNX_TYPE[name]: dtype for name, dtype in NUMPY_TYPE.items()}
        return np.frombuffer(self.raw, dtype=by_type[self.onnx_type])


def read_weights(weights: Any, trt: Any) -> TensorValues | None:
    """The values of ``weights`` (what a layer's property returned), or None when TensorRT holds an empty set.

    ``weights`` is a NumPy view that the network owns, or a ``Weights`` object. Raises ``RuntimeError`` when the memory
    layout of ``Weights`` objects is not the known one.
    """
    if isinstance(weights, np.ndarray):
        return _from_array(weights)
    converted = weights.numpy()
    if isinstance(converted, np.ndarray):
        return _from_array(converted)
    return _from_memory(weights, trt)


def _from_array(array: np.ndarray) -> TensorValues | None:
    if array.size == 0:
        return None
    return values_of(array)


def values_of(array: np.ndarray) -> TensorValues:
    """The values of an array."""
    return TensorValues(onnx_type_of_array(array), array.size, np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def _from_memory(weights: Any, trt: Any) -> TensorValues | None:
    _require_known_layout(trt)
    struct = _struct_of(weights)
    if not struct.count or not struct.values:
        return None
    onnx_type = ONNX_TYPE[weights.dtype.name]
    raw = ctypes.string_at(struct.values, element_bytes(onnx_type, struct.count))
    return TensorValues(onnx_type, struct.count, np.frombuffer(raw, np.uint8))


def _struct_of(weights: Any) -> _WeightsStruct:
    """The C++ structure behind the object. Pybind11 keeps its address right after the object header."""
    address = ctypes.c_void_p.from_address(id(weights) + object.__basicsize__).value
    if not address:
        raise RuntimeError("a Weights object of TensorRT holds no C++ structure")
    return _WeightsStruct.from_address(address)


def _require_known_layout(trt: Any) -> None:
    probe = np.arange(3, dtype=np.float32)
    weights = trt.Weights(probe)
    struct = _struct_of(weights)
    if (struct.values, struct.count) != (probe.ctypes.data, probe.size):
        raise RuntimeError("the memory layout of TensorRT's Weights objects is not the known one")
