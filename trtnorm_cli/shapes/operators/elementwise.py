"""Operators that work element by element, with broadcasting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx

from trtnorm_cli.shapes import floating
from trtnorm_cli.shapes.condition import (
    at_most,
    below,
    both,
    choice,
    different,
    either,
    equal,
    maximum,
    minimum,
    negation,
)
from trtnorm_cli.shapes.expression import apply, modulo, truncated_divide
from trtnorm_cli.shapes.node import Node, elementwise, like
from trtnorm_cli.shapes.tensor import MOST_FLOATS, SymbolicTensor

BOOL = onnx.TensorProto.BOOL
# Operators that had a `broadcast` attribute with rules of its own before this opset.
_NUMPY_BROADCASTING = 7

# fmt: off
SAME_SHAPE = (
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Celu", "Cos", "Cosh", "CumSum", "Elu", "Erf", "Exp",
    "Gelu", "HardSigmoid", "HardSwish", "Hardmax", "IsInf", "IsNaN", "LRN", "LeakyRelu", "Log",
    "LogSoftmax", "LpNormalization", "MeanVarianceNormalization", "Mish", "PRelu", "Reciprocal", "ReverseSequence", "Scatter",
    "ScatterElements", "ScatterND", "Selu", "Shrink", "Sigmoid", "Sign", "SimplifiedLayerNormalization", "Sin", "Sinh",
    "Softmax", "Softplus", "Softsign", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Trilu",
)
# fmt: on


def same_shape(node: Node) -> list[SymbolicTensor]:
    """Outputs of the shape of input 0. Of further outputs nothing is known."""
    dtype = BOOL if node.proto.op_type in ("IsInf", "IsNaN") else None
    return [like(node.input(0), dtype=dtype)]


def identity(node: Node) -> list[SymbolicTensor]:
    return [node.input(0)]


def cast(node: Node) -> list[SymbolicTensor]:
    source = node.input(0)
    target = like(source, dtype=node.input(1).dtype if node.proto.op_type == "CastLike" else int(node.attributes.get("to", 0)))
    if source.elements is None or not target.holds_sizes:
        return [target]
    return [SymbolicTensor(target.dtype, source.shape, elementwise(_cast(source, target), source.elements))]


def _cast(source: SymbolicTensor, target: SymbolicTensor) -> Callable[[Any], Any]:
    if target.floating:
        kind = target.floating
        if source.floating:
            return lambda v: v if isinstance(v, float) or source.floating == kind else apply("to_float", v, kind)
        return lambda v: floating.from_size(v, kind)
    if source.floating:
        return (lambda v: None) if target.dtype == BOOL else floating.to_size
    return (lambda v: different(v, 0)) if target.dtype == BOOL else (lambda v: v)


def unary(on_sizes: Callable[[Any], Any] | None, on_floats: Callable[[Any], Any] | None) -> Callable[[Node], Any]:
    """An operator of one input that is followed for integers, floating-point numbers, or both."""

    def rule(node: Node) -> list[SymbolicTensor]:
        source = node.input(0)
        function = on_floats if source.floating else on_sizes
        if source.elements is None or function is None:
            return [like(source)]
        return [SymbolicTensor(source.dtype, source.shape, elementwise(function, source.elements))]

    return rule


def _negated(value: Any) -> Any:
    return -value if isinstance(value, float) else apply("float_neg", value)


def _absolute(value: Any) -> Any:
    return maximum(value, -value)


def _variadic(node: Node, on_sizes: Callable[..., Any] | None, on_floats: Callable[..., Any] | None) -> list[SymbolicTensor]:
    inputs = node.inputs()
    if node.opset < _NUMPY_BROADCASTING and len(inputs) == 2:
        return [like(inputs[0])]
    shape = node.broadcast(node.named_shapes())
    dtype = next((tensor.dtype for tensor in inputs if tensor.dtype), 0)
    function = on_floats if inputs[0].floating else on_sizes
    result = SymbolicTensor(dtype, shape)
    arrays = [tensor.elements for tensor in inputs]
    known = [array for array in arrays if array is not None]
    is_table = bool(inputs[0].floating) and max(array.size for array in known or [np.zeros(0)]) > MOST_FLOATS
    if function is None or len(known) < len(arrays) or is_table:
        return [result]
    elements = elementwise(function, *known)
    return [SymbolicTensor(dtype, tuple(elements.shape), elements)]


def binary(
    on_sizes: Callable[..., Any] | None, on_floats: Callable[..., Any] | None = None, dtype: int | None = None
) -> Callable[[Node], list[SymbolicTensor]]:
    """An operator of inputs that are broadcast to each other. ``dtype`` is that of its output if not the inputs'."""

    def rule(node: Node) -> list[SymbolicTensor]:
        (result,) = _variadic(node, on_sizes, _in_type(node, on_floats))
        return [result if dtype is None else SymbolicTensor(dtype, result.shape, result.elements)]

    return rule


def _in_type(node: Node, function: Callable[..., Any] | None) -> Callable[..., Any] | None:
    kind = node.input(0).floating
    return None if function is None or kind is None else lambda a, b: function(a, b, kind)


def where(node: Node) -> list[SymbolicTensor]:
    shape = node.broadcast(node.named_shapes())
    condition, yes, no = (node.input(i).elements for i in range(3))
    dtype = node.input(1).dtype
    if condition is None or yes is None or no is None:
        return [SymbolicTensor(dtype, shape)]
    function = (lambda c, a, b: None) if node.input(1).floating else choice
    elements = elementwise(function, condition, yes, no)
    return [SymbolicTensor(dtype, tuple(elements.shape), elements)]


def clip(node: Node) -> list[SymbolicTensor]:
    source = node.input(0)
    if source.elements is None or "min" in node.attributes or "max" in node.attributes:
        return [like(source)]
    elements = source.elements
    functions = (_of_numbers(max), _of_numbers(min)) if source.floating else (maximum, minimum)
    for index, function in enumerate(functions, 1):
        if node.has(index):
            bound = node.input(index).elements
            if bound is None:
                return [like(source)]
            elements = elementwise(function, elements, bound)
    return [SymbolicTensor(source.dtype, source.shape, elements)]


def _of_numbers(function: Callable[[float, float], float]) -> Callable[[Any, Any], Any]:
    """The function of two numbers; nothing is known of expressions."""
    return lambda a, b: function(a, b) if isinstance(a, float) and isinstance(b, float) else None


def power(node: Node) -> list[SymbolicTensor]:
    base, exponent = node.input(0), node.input(1)
    (result,) = _variadic(node, None, None)
    powers = exponent.vector()
    if base.elements is None or base.floating or powers is None or len(powers) != 1 or powers[0] not in (1, 2, 1.0, 2.0):
        return [like(base, result.shape)]
    squared = elementwise((lambda v: v * v) if powers[0] == 2 else (lambda v: v), base.elements)
    return [SymbolicTensor(base.dtype, result.shape, squared)]


def _modulo(a: Any, b: Any) -> Any:
    return modulo(a, b)


def mod(node: Node) -> list[SymbolicTensor]:
    if int(node.attributes.get("fmod", 0)):
        return _variadic(node, lambda a, b: a - b * truncated_divide(a, b), None)
    return _variadic(node, _modulo, None)


def quantize(node: Node) -> list[SymbolicTensor]:
    zero = node.input(2).dtype or int(node.attributes.get("output_dtype", 0)) or onnx.TensorProto.UINT8
    return [like(node.input(0), dtype=zero)]


def dequantize(node: Node) -> list[SymbolicTensor]:
    return [like(node.input(0), dtype=node.input(1).dtype)]


def divide(a: Any, b: Any) -> Any:
    return None if b == 0 else truncated_divide(a, b)


RULES: dict[str, Callable[[Node], list[SymbolicTensor]]] = {
    **dict.fromkeys(SAME_SHAPE, same_shape),
    "Identity": identity,
    "Cast": cast,
    "CastLike": cast,
    "Neg": unary(lambda v: -v, _negated),
    "Abs": unary(_absolute, lambda v: floating.plain("float_abs", v)),
    "Floor": unary(None, floating.floor),
    "Ceil": unary(None, floating.ceil),
    "Round": unary(None, floating.round_half_even),
    "Sqrt": unary(None, lambda v: floating.plain("float_sqrt", v)),
    "Relu": unary(lambda v: maximum(v, 0), None),
    "Not": unary(negation, None),
    "Add": binary(lambda a, b: a + b, floating.add),
    "Sub": binary(lambda a, b: a - b, floating.subtract),
    "Mul": binary(lambda a, b: a * b, floating.multiply),
    "Div": binary(divide, floating.divide),
    "Mod": mod,
    "Pow": power,
    "Max": binary(maximum),
    "Min": binary(minimum),
    "Sum": binary(None),
    "Mean": binary(None),
    "BitShift": binary(None),
    "BitwiseAnd": binary(None),
    "BitwiseOr": binary(None),
    "BitwiseXor": binary(None),
    "And": binary(both, dtype=BOOL),
    "Or": binary(either, dtype=BOOL),
    "Xor": binary(different, dtype=BOOL),
    "Equal": binary(equal, dtype=BOOL),
    "Less": binary(below, dtype=BOOL),
    "LessOrEqual": binary(at_most, dtype=BOOL),
    "Greater": binary(lambda a, b: below(b, a), dtype=BOOL),
    "GreaterOrEqual": binary(lambda a, b: at_most(b, a), dtype=BOOL),
    "Where": where,
    "Clip": clip,
    "QuantizeLinear": quantize,
    "DequantizeLinear": dequantize,
}
