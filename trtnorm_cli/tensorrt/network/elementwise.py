"""Layers that compute each element by itself: elementwise, unary, activation, parametric ReLU, select, cast, constant."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto
from onnx.helper import tensor_dtype_to_np_dtype

from trtnorm_cli.tensorrt.network.context import LayerContext

_BINARY = {
    "SUM": "Add",
    "PROD": "Mul",
    "SUB": "Sub",
    "DIV": "Div",  # integers: towards zero in both
    "POW": "Pow",
    "AND": "And",
    "OR": "Or",
    "XOR": "Xor",
    "EQUAL": "Equal",
    "GREATER": "Greater",
    "LESS": "Less",
}

_UNARY = {
    "EXP": "Exp",
    "LOG": "Log",
    "SQRT": "Sqrt",
    "RECIP": "Reciprocal",
    "ABS": "Abs",
    "NEG": "Neg",
    "SIN": "Sin",
    "COS": "Cos",
    "TAN": "Tan",
    "SINH": "Sinh",
    "COSH": "Cosh",
    "ASIN": "Asin",
    "ACOS": "Acos",
    "ATAN": "Atan",
    "ASINH": "Asinh",
    "ACOSH": "Acosh",
    "ATANH": "Atanh",
    "CEIL": "Ceil",
    "FLOOR": "Floor",
    "ERF": "Erf",
    "NOT": "Not",
    "SIGN": "Sign",
    "ROUND": "Round",  # to nearest, ties to even
    "ISINF": "IsInf",
    "ISNAN": "IsNaN",
}


def elementwise(layer: LayerContext) -> str:
    """``IElementWiseLayer``: a binary operation on tensors of equal rank, with broadcasting of dimensions of length 1."""
    operation = layer.handle.op.name
    a, b = layer.wide(0), layer.wide(1)
    if operation == "FLOOR_DIV":
        return layer.narrow(_floor_div(layer, a, b))
    if operation == "MAX":
        return layer.narrow(layer.larger(a, b, layer.wide_type()))
    if operation == "MIN":
        return layer.narrow(layer.smaller(a, b, layer.wide_type()))
    if operation not in _BINARY:
        raise layer.layer.refused(f"no translation of the operation {operation}")
    if operation in ("GREATER", "LESS") and layer.tensor(0).dtype == "BOOL":
        a, b = (layer.cast(x, TensorProto.BOOL, TensorProto.INT32) for x in (a, b))
    return layer.narrow(layer.op(_BINARY[operation], a, b))


def _floor_div(layer: LayerContext, a: str, b: str) -> str:
    if layer.wide_type(0) == TensorProto.FLOAT:
        return layer.op("Floor", layer.op("Div", a, b))
    # Div rounds towards zero; a - (a mod b) is a multiple of b, so that nothing is left to round.
    return layer.op("Div", layer.op("Sub", a, layer.op("Mod", a, b)), b)


def unary(layer: LayerContext) -> str:
    """``IUnaryLayer``."""
    operation = layer.handle.op.name
    if operation not in _UNARY:
        raise layer.layer.refused(f"no translation of the operation {operation}")
    return layer.narrow(layer.op(_UNARY[operation], layer.wide(0)))


def activation(layer: LayerContext) -> str:
    """``IActivationLayer``, with TensorRT's meaning of alpha and beta for each type."""
    kind = layer.handle.type.name
    x, alpha, beta = layer.wide(0), layer.handle.alpha, layer.handle.beta
    if kind in _PLAIN_ACTIVATION and not (kind == "RELU" and layer.wide_type() != TensorProto.FLOAT):
        op, attributes = _PLAIN_ACTIVATION[kind]
        return layer.narrow(layer.op(op, x, **{name: {"alpha": alpha, "beta": beta}[of] for name, of in attributes.items()}))
    if kind in _COMPOSED_ACTIVATION:
        return layer.narrow(_COMPOSED_ACTIVATION[kind](layer, x, alpha, beta))
    raise layer.layer.refused(f"no translation of the activation {kind}")


def _gelu_erf(layer: LayerContext, x: str, alpha: float, beta: float) -> str:
    return layer.op("Gelu", x)


def _gelu_tanh(layer: LayerContext, x: str, alpha: float, beta: float) -> str:
    return layer.op("Gelu", x, approximate="tanh")


def _softplus(layer: LayerContext, x: str, alpha: float, beta: float) -> str:
    """alpha · log(exp(beta · x) + 1)"""
    scaled = x if beta == 1 else layer.op("Mul", x, layer.scalar(beta))
    y = layer.op("Softplus", scaled)
    return y if alpha == 1 else layer.op("Mul", y, layer.scalar(alpha))


def _scaled_tanh(layer: LayerContext, x: str, alpha: float, beta: float) -> str:
    """alpha · tanh(beta · x)"""
    return layer.op("Mul", layer.op("Tanh", layer.op("Mul", x, layer.scalar(beta))), layer.scalar(alpha))


def _clip(layer: LayerContext, x: str, alpha: float, beta: float) -> str:
    """max(alpha, min(beta, x)). For integers the bounds, which are floats, end where the type ends."""
    bounds = [alpha, beta]
    if layer.wide_type() != TensorProto.FLOAT:
        limits = np.iinfo(tensor_dtype_to_np_dtype(layer.wide_type()))
        bounds = [min(max(int(bound), limits.min), limits.max) for bound in bounds]
    low, high = (layer.scalar(bound, layer.wide_type()) for bound in bounds)
    return layer.larger(layer.smaller(x, high, layer.wide_type()), low, layer.wide_type())


def _integer_relu(layer: LayerContext, x: str, alpha: float, beta: float) -> str:
    return layer.larger(x, layer.scalar(0, layer.wide_type()), layer.wide_type())


#: ONNX operator, and which of alpha and beta each attribute takes.
_PLAIN_ACTIVATION: dict[str, tuple[str, dict[str, str]]] = {
    "RELU": ("Relu", {}),
    "SIGMOID": ("Sigmoid", {}),
    "TANH": ("Tanh", {}),
    "LEAKY_RELU": ("LeakyRelu", {"alpha": "alpha"}),
    "ELU": ("Elu", {"alpha": "alpha"}),
    "SELU": ("Selu", {"alpha": "alpha", "gamma": "beta"}),
    "SOFTSIGN": ("Softsign", {}),
    "HARD_SIGMOID": ("HardSigmoid", {"alpha": "alpha", "beta": "beta"}),
    "THRESHOLDED_RELU": ("ThresholdedRelu", {"alpha": "alpha"}),
}

_COMPOSED_ACTIVATION = {
    "RELU": _integer_relu,
    "SOFTPLUS": _softplus,
    "SCALED_TANH": _scaled_tanh,
    "CLIP": _clip,
    "GELU_ERF": _gelu_erf,
    "GELU_TANH": _gelu_tanh,
}


def parametric_relu(layer: LayerContext) -> str:
    """``IParametricReLULayer``: x where x ≥ 0, slope · x elsewhere, with slopes broadcast to x."""
    return layer.narrow(layer.op("PRelu", layer.wide(0), layer.wide(1)))


def select(layer: LayerContext) -> str:
    """``ISelectLayer``: input 1 where the condition holds, input 2 elsewhere, with broadcasting."""
    inputs = [layer.value(i) for i in range(3)]
    return layer.move("Where", inputs, layer.tensor(1).onnx_type, data=(1, 2))


def cast(layer: LayerContext) -> str:
    """``ICastLayer``, and ``IIdentityLayer`` where a weakly typed network gave its output another type.

    Floating point to integer truncates towards zero and, in TensorRT, ends where int32 ends. ONNX leaves that undefined.
    """
    have, want = layer.tensor(0).onnx_type, layer.output().onnx_type
    if have == want:
        return layer.op("Identity", layer.value(0))
    if want == TensorProto.INT32 and layer.wide_type() == TensorProto.FLOAT:
        return _saturated_int32(layer, layer.wide(0))
    return layer.cast(layer.value(0), have, want)


def _saturated_int32(layer: LayerContext, x: str) -> str:
    """By way of int64, because the largest int32 is no float32."""
    limits = np.iinfo(np.int32)
    bounded = layer.op("Clip", x, layer.scalar(-(2.0**31)), layer.scalar(2.0**31))
    whole = layer.cast(bounded, TensorProto.FLOAT, TensorProto.INT64)
    whole = layer.smaller(whole, layer.scalar(limits.max, TensorProto.INT64), TensorProto.INT64)
    return layer.cast(whole, TensorProto.INT64, TensorProto.INT32)


def constant(layer: LayerContext) -> str:
    """``IConstantLayer``: an initializer in the type of the weights."""
    values = layer.weights(layer.handle.weights)
    shape = layer.shape_of(layer.output())
    if values is None:
        return layer.cast(layer.op("ConstantOfShape", layer.ints(*shape)), TensorProto.FLOAT, layer.output().onnx_type)
    return layer.cast(layer.initializer(values, shape, "weights"), values.onnx_type, layer.output().onnx_type)
