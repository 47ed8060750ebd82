"""Operators on integers with a scale and a zero point for each tensor, as the operators on floats that they stand for.

y = quantize(f(dequantize(a), dequantize(b)))
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.rewrite.parts.dynamic_quantization import dequantised, given
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode

if TYPE_CHECKING:
    from trtnorm_cli.rewrite.rule import Node, Tensor

Floats = tuple["NewNode | NewConstant", ...]
# Before, DequantizeLinear has a single scale.
_AXIS_SINCE = 13


@dataclass(frozen=True)
class Form:
    """``tensors`` are the numbers of the inputs that a scale and a zero point follow, ``result`` that of the result's scale.

    ``weights`` is the tensor that may have a scale for each index along ``axis``. ``floats`` makes the operator on floats of
    the dequantised tensors. ``bias`` is an input of integers without a scale of its own.
    """

    tensors: Callable[[Node], tuple[int, ...]]
    result: int
    floats: Callable[[Match, Floats], NewNode]
    weights: int | None = None
    axis: int = 0
    bias: int | None = None


def _plain(operator: str, keeps: tuple[str, ...] = (), **added: Any) -> Callable[[Match, Floats], NewNode]:
    """The operator of this name with the attributes ``keeps`` of the node."""

    def made(m: Match, inputs: Floats) -> NewNode:
        attributes = {name: value for name, value in m.root.attrs.items() if name in keeps}
        return NewNode(operator, inputs, {**added, **attributes}, role="float")

    return made


def _channels_first(inner: Callable[[Match, Floats], NewNode]) -> Callable[[Match, Floats], NewNode]:
    """Around an operator on channels behind the batch, where the node has them last."""

    def made(m: Match, inputs: Floats) -> NewNode:
        if not m.root.attrs.get("channels_last", 0):
            return inner(m, inputs)
        kind = m.type_of(m.root.inputs[0])
        rank = len(kind.shape or ()) if kind is not None else 0
        first = NewNode("Transpose", inputs, {"perm": [0, rank - 1, *range(1, rank - 1)]}, role="channels_first")
        return NewNode("Transpose", (inner(m, (first,)),), {"perm": [0, *range(2, rank), 1]}, role="channels_last")

    return made


def _where(m: Match, inputs: Floats) -> NewNode:
    return NewNode("Where", (m.root.inputs[0], *inputs), role="float")


def _convolution(m: Match, inputs: Floats) -> NewNode:
    names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    return _plain("Conv", names)(m, (*inputs, *_bias(m, 8, 1.0)))


def _gemm(m: Match, inputs: Floats) -> NewNode:
    bias = _bias(m, 6, float(m.root.attrs.get("alpha", 1.0)))
    return _plain("Gemm", ("alpha", "transA", "transB"))(m, (*inputs, *bias))


def _bias(m: Match, index: int, factor: float) -> tuple[NewConstant, ...]:
    """The bias at input ``index``, whose steps are products of those of both factors; nothing where there is none."""
    bias = given(m.root, index)
    if bias is None:
        return ()
    held, x, w = (m.surgery.constant(tensor) for tensor in (bias, m.root.inputs[1], m.root.inputs[4]))
    assert held is not None, "the precondition holds"
    assert x is not None, "the precondition holds"
    assert w is not None, "the precondition holds"
    steps = (
        factor * x.astype(np.float64).reshape(()) * (w.astype(np.float64).reshape(-1) if w.size > 1 else float(w.reshape(())))
    )
    return (NewConstant("bias", (held.astype(np.float64) * steps).astype(np.float32)),)


_POOLING = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")


def _at(*numbers: int) -> Callable[[Node], tuple[int, ...]]:
    return lambda node: numbers


OF_ONNX: Mapping[str, Form] = {
    "QLinearConv": Form(_at(0, 3), 6, _convolution, weights=3, axis=0, bias=8),
    "QLinearMatMul": Form(_at(0, 3), 6, _plain("MatMul"), weights=3, axis=-1),
}
OF_MICROSOFT: Mapping[str, Form] = {
    "QGemm": Form(_at(0, 3), 7, _gemm, weights=3, axis=-1, bias=6),
    "QLinearAdd": Form(_at(0, 3), 6, _plain("Add")),
    "QLinearAveragePool": Form(_at(0), 3, _channels_first(_plain("AveragePool", _POOLING))),
    "QLinearConcat": Form(lambda node: tuple(range(2, len(node.inputs), 3)), 0, _plain("Concat", ("axis",))),
    "QLinearGlobalAveragePool": Form(_at(0), 3, _channels_first(_plain("GlobalAveragePool"))),
    "QLinearLeakyRelu": Form(_at(0), 3, _plain("LeakyRelu", ("alpha",))),
    "QLinearMul": Form(_at(0, 3), 6, _plain("Mul")),
    "QLinearSigmoid": Form(_at(0), 3, _plain("Sigmoid")),
    "QLinearWhere": Form(_at(1, 4), 7, _where),
}


def parameters_are_constants(m: Match) -> str | None:
    """scales and zero points are float32 and integers of the file, and single numbers but for those of weights."""
    form = _form(m)
    results = () if given(m.root, form.result) is None else (form.result - 1,)
    for first in (*form.tensors(m.root), *results):
        for tensor in (given(m.root, first + 1), given(m.root, first + 2)):
            value = None if tensor is None else m.surgery.constant(tensor)
            if tensor is not None and value is None:
                return f"{tensor.name}, a parameter of {describe(m.root)}, is computed at run time"
            if value is not None and value.size != 1 and first != form.weights:
                return f"{tensor.name} has {value.size} values, where one is wanted"  # type: ignore[union-attr]
        scale = given(m.root, first + 1)
        kind = None if scale is None else m.surgery.constant(scale)
        if kind is None or kind.dtype != np.float32:
            return f"the scale of input {first} of {describe(m.root)} is no float32"
    return None


def weights_are_as_they_should_be(m: Match) -> str | None:
    """weights with several scales stand in the file, and a bias has integers of the file."""
    form = _form(m)
    bias = None if form.bias is None else given(m.root, form.bias)
    if bias is not None and m.surgery.constant(bias) is None:
        return f"{bias.name}, the bias of {describe(m.root)}, is computed at run time"
    if form.weights is None or _constant(m, form.weights + 1).size == 1:
        return None
    value = m.surgery.constant(m.root.inputs[form.weights])
    if value is None:
        return f"{m.root.inputs[form.weights].name}, which has several scales, is computed at run time"
    wanted = value.shape[_axis(m, form, value.ndim)]
    found = _constant(m, form.weights + 1).shape
    return None if found == (wanted,) else f"the weights of {describe(m.root)} have {wanted} rows and scales of {list(found)}"


def _axis(m: Match, form: Form, rank: int) -> int:
    """The axis of the weights along which scales lie."""
    return 0 if m.root.attrs.get("transB", 0) else form.axis % rank


def _form(m: Match) -> Form:
    return {**OF_ONNX, **OF_MICROSOFT}[m.root.op]


def _constant(m: Match, index: int) -> np.ndarray:
    value = m.surgery.constant(m.root.inputs[index])
    assert value is not None, "the precondition holds"
    return value


def with_floats(m: Match) -> NewNode:
    """Dequantised inputs, the operator on floats, and its result quantised."""
    form = _form(m)
    made = form.floats(m, tuple(_dequantised(m, first, form) for first in form.tensors(m.root)))
    if given(m.root, form.result) is None:
        return replace(made, name=m.root.name)
    scale = NewConstant("scale", _constant(m, form.result).reshape(()))
    zero = given(m.root, form.result + 1)
    kind = _type_of_result(m)
    value = np.zeros((), kind) if zero is None else _constant(m, form.result + 1).reshape(())
    return NewNode("QuantizeLinear", (made, scale, NewConstant("zero", value)), name=m.root.name, role="quantised")


def _type_of_result(m: Match) -> np.dtype:
    """That of the data, where no zero point of the result says it."""
    import onnx

    first = m.root.inputs[_form(m).tensors(m.root)[0]]
    value, kind = m.surgery.constant(first), m.type_of(first)
    if value is not None:
        return value.dtype
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.dtype)) if kind is not None and kind.dtype else np.dtype(np.uint8)


def _dequantised(m: Match, first: int, form: Form) -> NewNode | NewConstant:
    tensor = m.root.inputs[first]
    scale, zero = _constant(m, first + 1), given(m.root, first + 2)
    zeros = None if zero is None else _constant(m, first + 2)
    value = m.surgery.constant(tensor)
    attributes: dict[str, Any] = {}
    if scale.size > 1:
        assert value is not None, "the precondition holds"
        axis = _axis(m, form, value.ndim)
        zeros = zeros if zeros is None or zeros.size > 1 else np.broadcast_to(zeros.reshape(()), scale.shape).copy()
        if m.opset < _AXIS_SINCE:
            shape = (-1, *[1] * (value.ndim - axis - 1))
            return NewConstant(
                "weight", dequantised(value, scale.reshape(shape), None if zeros is None else zeros.reshape(shape))
            )
        attributes = {"axis": axis}
    else:
        scale, zeros = scale.reshape(()), None if zeros is None else zeros.reshape(())
    data: Tensor | NewConstant = tensor if value is None else NewConstant("weight", value)
    parameters = [NewConstant("scale", scale)]
    if zeros is not None:
        parameters.append(NewConstant("zero", zeros))
    return NewNode("DequantizeLinear", (data, *parameters), attributes, role="dequantised")
