"""Values of the operators that exports compute from constants most often, as ``onnx.reference`` computes them.

But sums and products of matrices are in float64, and rounded once. NumPy and ONNX Runtime add up along the first axes one
number after the other, which is 5e-6 off for the norm of a weight of 768 x 48 x 128.

To import ONNX's reference implementation takes longer than to clean most models. What is not here, or of another type, form or
opset than here, is left to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

# Booleans, integers and floats that NumPy knows by itself: arithmetic on the others has rules of its own.
_PLAIN = "biuf"
_CAST_TO = {
    onnx.TensorProto.BOOL: np.bool_,
    onnx.TensorProto.DOUBLE: np.float64,
    onnx.TensorProto.FLOAT: np.float32,
    onnx.TensorProto.INT32: np.int32,
    onnx.TensorProto.INT64: np.int64,
}

_Inputs = Sequence[Any]
_Attributes = Mapping[str, Any]
_Kernel = Callable[[_Inputs, _Attributes], Any]


def has_kernel(operator: str) -> bool:
    """True where ``value_of`` computes some forms of ``operator``."""
    return operator in _KERNELS


def value_of(operator: str, opset: int, inputs: _Inputs, attributes: _Attributes) -> np.ndarray | None:
    """The one output of ``operator`` of ONNX's own domain; None where it is left to the reference implementation.

    ``inputs`` are arrays, and None where one is left out; ``attributes`` are Python values, and protobuf for a tensor.
    """
    kernel, since, known = _KERNELS.get(operator, (None, 0, ()))
    if kernel is None or opset < since or not attributes.keys() <= set(known):
        return None
    if any(array is not None and array.dtype.kind not in _PLAIN for array in inputs):
        return None
    try:
        with np.errstate(all="ignore"):
            result = kernel(inputs, attributes)
    except (IndexError, TypeError, ValueError):
        return None
    return None if result is None else np.asarray(result)


def _elementwise(compute: Callable[[Any], Any]) -> _Kernel:
    def kernel(inputs: _Inputs, attributes: _Attributes) -> Any:
        (data,) = inputs
        result = compute(data)
        return result if result.dtype == data.dtype else None

    return kernel


def _extreme(compute: Callable[[Any, Any], Any]) -> _Kernel:
    def kernel(inputs: _Inputs, attributes: _Attributes) -> Any:
        a, b = inputs
        return compute(a, b) if a.dtype == b.dtype and a.dtype.kind != "b" else None

    return kernel


def _arithmetic(compute: Callable[[Any, Any], Any]) -> _Kernel:
    def kernel(inputs: _Inputs, attributes: _Attributes) -> Any:
        a, b = inputs
        result = compute(a, b) if a.dtype == b.dtype else None
        return result if result is not None and result.dtype == a.dtype else None

    return kernel


def _divide(a: np.ndarray, b: np.ndarray) -> Any:
    if a.dtype.kind not in "iu":
        return np.divide(a, b)
    rounded_down, rest = np.floor_divide(a, b), np.remainder(a, b)
    towards_zero = (rest != 0) & ((a < 0) ^ (b < 0))
    return rounded_down + towards_zero.astype(a.dtype)


def _matmul(a: np.ndarray, b: np.ndarray) -> Any:
    product = np.dot if a.ndim <= 2 and b.ndim <= 2 else np.matmul
    if a.dtype.kind != "f":
        return product(a, b)
    return product(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)


def _gemm(inputs: _Inputs, attributes: _Attributes) -> Any:
    a, b, c = (*inputs, None)[:3]
    if a.dtype != b.dtype or a.dtype.kind != "f" or (c is not None and c.dtype != a.dtype):
        return None
    left, right = (
        one.astype(np.float64).T if attributes.get(name, 0) else one.astype(np.float64)
        for one, name in ((a, "transA"), (b, "transB"))
    )
    result = attributes.get("alpha", 1.0) * np.dot(left, right)
    return (result if c is None else result + attributes.get("beta", 1.0) * c).astype(a.dtype)


def _einsum(inputs: _Inputs, attributes: _Attributes) -> Any:
    if len({one.dtype for one in inputs}) > 1 or inputs[0].dtype.kind != "f":
        return None
    equation = attributes["equation"]
    equation = equation.decode() if isinstance(equation, bytes) else equation
    return np.einsum(equation, *(one.astype(np.float64) for one in inputs), optimize=True).astype(inputs[0].dtype)


def _cast(inputs: _Inputs, attributes: _Attributes) -> Any:
    target = _CAST_TO.get(attributes["to"])
    return None if target is None else inputs[0].astype(target)


def _clip(inputs: _Inputs, attributes: _Attributes) -> Any:
    data, least, most = (*inputs, None, None)[:3]
    if any(bound is not None and (bound.size != 1 or bound.dtype != data.dtype) for bound in (least, most)):
        return None
    return data if least is most is None else np.clip(data, least, most)


def _concat(inputs: _Inputs, attributes: _Attributes) -> Any:
    axis, kinds = attributes["axis"], {array.dtype for array in inputs}
    return np.concatenate(inputs, axis) if len(kinds) == 1 else None


def _constant_of_shape(inputs: _Inputs, attributes: _Attributes) -> Any:
    value = attributes.get("value")
    filling = np.zeros(1, np.float32) if value is None else onnx.numpy_helper.to_array(value)
    if filling.size != 1 or filling.dtype.kind not in _PLAIN:
        return None
    return np.full(tuple(inputs[0]), filling.flat[0])


def _expand(inputs: _Inputs, attributes: _Attributes) -> Any:
    data, shape = inputs
    return data * np.ones(shape, dtype=data.dtype)


def _gather(inputs: _Inputs, attributes: _Attributes) -> Any:
    data, indices = inputs
    return np.take(np.ascontiguousarray(data).reshape(data.shape), indices, axis=attributes.get("axis", 0))


def _modulo(inputs: _Inputs, attributes: _Attributes) -> Any:
    return _arithmetic(np.fmod if attributes.get("fmod", 0) == 1 else np.mod)(inputs, attributes)


def _logical(compute: Callable[[Any, Any], Any]) -> _Kernel:
    """Of two inputs of one type, a comparison or what is true of booleans."""

    def kernel(inputs: _Inputs, attributes: _Attributes) -> Any:
        a, b = inputs
        return compute(a, b) if a.dtype == b.dtype else None

    return kernel


def _power(inputs: _Inputs, attributes: _Attributes) -> Any:
    a, b = inputs
    return np.power(a, b).astype(a.dtype)


def _range(inputs: _Inputs, attributes: _Attributes) -> Any:
    start, end, step = inputs
    if any(bound.size != 1 for bound in inputs) or step.item() == 0:
        return None
    return np.arange(start.item(), end.item(), step.item()).astype(start.dtype)


def _reduction(compute: Callable[[np.ndarray, tuple[int, ...]], np.ndarray]) -> _Kernel:
    """Of floats, with the axes as an attribute or as an input. ``compute`` keeps the axes with a size of one."""

    def kernel(inputs: _Inputs, attributes: _Attributes) -> Any:
        data, chosen = (*inputs, None)[:2]
        axes = attributes.get("axes") if chosen is None else chosen.reshape(-1).tolist()
        if data.dtype.kind != "f" or (not axes and attributes.get("noop_with_empty_axes", 0)):
            return None
        every = range(data.ndim)
        places = tuple(every[axis] for axis in axes or every)
        result = compute(data, places).astype(data.dtype)
        return result if attributes.get("keepdims", 1) else result.squeeze(places)

    return kernel


def _sum(data: np.ndarray, axes: tuple[int, ...]) -> Any:
    return np.add.reduce(data, axis=axes, dtype=np.float64, keepdims=True)


def _sum_of_squares(data: np.ndarray, axes: tuple[int, ...]) -> Any:
    names, kept = list(range(data.ndim)), [axis for axis in range(data.ndim) if axis not in axes]
    summed = np.einsum(data, names, data, names, kept, dtype=np.float64)
    return np.expand_dims(summed, axes)


def _mean(data: np.ndarray, axes: tuple[int, ...]) -> Any:
    return _sum(data, axes) / math.prod(data.shape[axis] for axis in axes)


def _scatter(inputs: _Inputs, attributes: _Attributes) -> Any:
    data, indices, updates = inputs
    if attributes.get("reduction", "none") != "none" or data.dtype != updates.dtype:
        return None
    result = np.copy(data)
    result[tuple(np.moveaxis(indices, -1, 0))] = updates
    return result


def _squeeze(inputs: _Inputs, attributes: _Attributes) -> Any:
    data, axes = (*inputs, None)[:2]
    return np.squeeze(data) if axes is None else np.squeeze(data, axis=tuple(axes.reshape(-1).tolist()))


def _reshape(inputs: _Inputs, attributes: _Attributes) -> Any:
    data, shape = inputs
    wanted = shape.copy()
    if not attributes.get("allowzero", 0):
        kept = np.flatnonzero(shape == 0)
        wanted[kept] = np.array(data.shape)[kept]
    return np.reshape(data, tuple(wanted))


def _slice(inputs: _Inputs, attributes: _Attributes) -> Any:
    data, starts, ends, axes, steps = (*inputs, None, None)[:5]
    if any(bounds is not None and bounds.ndim != 1 for bounds in (starts, ends, axes, steps)):
        return None
    taken = [slice(0, size) for size in data.shape]
    places = range(len(starts)) if axes is None else axes
    strides = [None] * len(starts) if steps is None else steps
    for start, end, axis, step in zip(starts, ends, places, strides, strict=True):
        taken[axis] = slice(start, end, step)
    return data[tuple(taken)]


def _transpose(inputs: _Inputs, attributes: _Attributes) -> Any:
    return np.transpose(inputs[0], attributes.get("perm"))


def _unsqueeze(inputs: _Inputs, attributes: _Attributes) -> Any:
    """Before opset 13 the axes are an attribute, and are inserted one after the other."""
    if "axes" not in attributes:
        data, axes = inputs
        return np.expand_dims(data, tuple(axes.reshape(-1).tolist()))
    (data,), places = inputs, list(attributes["axes"])
    return np.expand_dims(data, tuple(places)) if places == sorted(places) and min(places, default=-1) >= 0 else None


def _where(inputs: _Inputs, attributes: _Attributes) -> Any:
    condition, x, y = inputs
    return np.where(condition, x, y) if x.dtype == y.dtype else None


_REDUCTION = ("axes", "keepdims", "noop_with_empty_axes")

# The kernel, the first opset that it is for, and the attributes that it knows.
_KERNELS: dict[str, tuple[_Kernel, int, tuple[str, ...]]] = {
    "Abs": (_elementwise(np.absolute), 6, ()),
    "Add": (_arithmetic(np.add), 7, ()),
    "And": (_logical(np.logical_and), 7, ()),
    "Cast": (_cast, 6, ("to",)),
    "Ceil": (_elementwise(np.ceil), 6, ()),
    "Clip": (_clip, 11, ()),
    "Concat": (_concat, 4, ("axis",)),
    "ConstantOfShape": (_constant_of_shape, 9, ("value",)),
    "Cos": (_elementwise(np.cos), 7, ()),
    "Div": (_arithmetic(_divide), 7, ()),
    "Einsum": (_einsum, 12, ("equation",)),
    "Equal": (_logical(np.equal), 7, ()),
    "Exp": (_elementwise(np.exp), 6, ()),
    "Expand": (_expand, 8, ()),
    "Floor": (_elementwise(np.floor), 6, ()),
    "Gather": (_gather, 1, ("axis",)),
    "Gemm": (_gemm, 7, ("alpha", "beta", "transA", "transB")),
    "Greater": (_logical(np.greater), 7, ()),
    "Less": (_logical(np.less), 7, ()),
    "MatMul": (_arithmetic(_matmul), 1, ()),
    "Max": (_extreme(np.maximum), 8, ()),
    "Min": (_extreme(np.minimum), 8, ()),
    "Mod": (_modulo, 10, ("fmod",)),
    "Mul": (_arithmetic(np.multiply), 7, ()),
    "Neg": (_elementwise(np.negative), 6, ()),
    "Not": (lambda inputs, attributes: np.logical_not(inputs[0]), 1, ()),
    "Or": (_logical(np.logical_or), 7, ()),
    "Pow": (_power, 7, ()),
    "Range": (_range, 11, ()),
    "ReduceL1": (_reduction(lambda data, axes: _sum(np.absolute(data), axes)), 1, _REDUCTION),
    "ReduceL2": (_reduction(lambda data, axes: np.sqrt(_sum_of_squares(data, axes))), 1, _REDUCTION),
    "ReduceMean": (_reduction(_mean), 1, _REDUCTION),
    "ReduceSum": (_reduction(_sum), 1, _REDUCTION),
    "Relu": (lambda inputs, attributes: np.maximum(inputs[0], 0).astype(inputs[0].dtype), 6, ()),
    "Reshape": (_reshape, 5, ("allowzero",)),
    "ScatterND": (_scatter, 11, ("reduction",)),
    "Sin": (_elementwise(np.sin), 7, ()),
    "Slice": (_slice, 10, ()),
    "Sqrt": (lambda inputs, attributes: np.sqrt(inputs[0]).astype(inputs[0].dtype), 6, ()),
    "Squeeze": (_squeeze, 13, ()),
    "Sub": (_arithmetic(np.subtract), 7, ()),
    "Tile": (lambda inputs, attributes: np.tile(inputs[0], inputs[1]), 6, ()),
    "Transpose": (_transpose, 1, ("perm",)),
    "Unsqueeze": (_unsqueeze, 1, ("axes",)),
    "Where": (_where, 9, ()),
}
