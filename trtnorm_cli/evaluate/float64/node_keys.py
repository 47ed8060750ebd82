"""Keys that tell a node from those that compute something else: operator, attributes and inputs, however they are written."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from functools import cache
from typing import Any

import numpy as np
import onnx

from trtnorm_cli.evaluate.float64.kernels.call import Call

# The versions of these operators, from opset 7 on, differ in nothing but the types that they take.
_OF_ONE_MEANING = frozenset(
    (
        *("Add", "Concat", "Conv", "ConvTranspose", "Cos", "Div", "Erf", "Exp", "Gather", "Gemm", "GridSample", "Log"),
        *("MatMul", "Mul", "Neg", "PRelu", "Relu", "Sigmoid", "Sin", "Sqrt", "Sub", "Tanh", "Where"),
    )
)
# What these take has axes of length one in front until all have the same number of axes.
_BROADCASTING = frozenset(("Add", "Div", "Max", "Mean", "Min", "Mul", "Pow", "Sub", "Sum", "Where"))
# An axis counted from the end is that from the front.
_OF_ONE_AXIS = frozenset(("LogSoftmax", "Softmax"))
# The names of GridSample's modes since opset 20.
_MODES = {"bilinear": "linear", "bicubic": "cubic"}


def node_key(
    call: Call, token: Callable[[Any], Hashable | None], seen: dict[tuple[int, int], tuple[Mapping[str, Any], Hashable]]
) -> Hashable | None:
    """The key of what the results of a node follow from; None where an input or an attribute cannot be recognised.

    ``seen`` are attributes that were frozen before, by identity and the rank of the data, which some are counted by.
    """
    kind, inputs = call.op_type, call.inputs
    if kind == "MatMul" and min(map(np.ndim, inputs)) > 1:
        inputs = tuple(map(_without_leading_ones, inputs))
    rank = 0
    if kind in _BROADCASTING and not call.attributes:  # before opset 7 they said where the axes belong
        rank = max(map(np.ndim, inputs), default=0)
        inputs = tuple(map(_without_ones_in_front, inputs))
    tokens = tuple(map(token, inputs))
    if None in tokens:
        return None
    place = id(call.attributes), np.ndim(inputs[0]) if inputs else 0
    if place not in seen:
        attributes = _spelled_out(call)
        frozen = tuple((name, _frozen(value)) for name, value in sorted(attributes.items()))
        seen[place] = call.attributes, None if any(value is _UNKNOWN for _, value in frozen) else frozen
    compared = seen[place][1]
    if compared is None:
        return None
    version = 0 if kind in _OF_ONE_MEANING else _version(kind, call.opset)
    return kind, version, compared, tokens, rank, tuple(map(bool, call.outputs))


@cache
def _version(kind: str, opset: int) -> int:
    """The opset that brought the operator as ``opset`` has it."""
    try:
        return int(onnx.defs.get_schema(kind, opset).since_version)
    except onnx.defs.SchemaError:
        return opset


class _Unknown:
    """Stands for an attribute that is not compared: a graph, for one."""


_UNKNOWN = _Unknown()


def _frozen(value: Any) -> Hashable:
    if value is None or isinstance(value, str | int | float | bytes):
        return value
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.tobytes()
    if isinstance(value, list | tuple) and all(isinstance(item, str | int | float | bytes) for item in value):
        return tuple(value)
    return _UNKNOWN


def _spelled_out(call: Call) -> Mapping[str, Any]:
    """The attributes of a node as all models write them that mean the same."""
    if call.op_type == "GridSample":
        mode = str(call["mode"])
        return {**call.attributes, "mode": _MODES.get(mode, mode)}
    if call.op_type in _OF_ONE_AXIS and isinstance(call.attributes.get("axis"), int):
        return {**call.attributes, "axis": call.attributes["axis"] % max(call.x.ndim, 1)}
    return _of_convolution(call.attributes, call.x.ndim - 2) if call.op_type == "Conv" else call.attributes


def _of_convolution(attributes: Mapping[str, Any], spatial: int) -> dict[str, Any]:
    """The attributes of a Conv with those that were left out; the kernel's size is that of the weight."""
    defaults = {"strides": [1] * spatial, "dilations": [1] * spatial, "pads": [0] * 2 * spatial, "auto_pad": "NOTSET"}
    given = {name: value for name, value in attributes.items() if value is not None and name != "kernel_shape"}
    return {**defaults, **given}


def _without_ones_in_front(value: Any) -> Any:
    """Broadcasting puts them there again."""
    if isinstance(value, np.ndarray):
        while value.ndim and value.shape[0] == 1:
            value = value.reshape(value.shape[1:])
    return value


def _without_leading_ones(value: Any) -> Any:
    """A stack of one matrix is that matrix."""
    if not isinstance(value, np.ndarray):
        return value
    while value.ndim > 2 and value.shape[0] == 1:
        value = value[0]
    return value
