"""Elementwise, unary, activation, reduction and matrix layers against NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.tensorrt.network.harness import Bench

pytestmark = pytest.mark.rtx

X = np.array([[-2.5, -1.5, -0.5, 0.0], [0.5, 1.5, 2.5, 3.7]], np.float32)
erf = np.vectorize(math.erf)

UNARY = {
    "EXP": np.exp, "ABS": np.abs, "NEG": np.negative, "SIN": np.sin, "COS": np.cos, "TAN": np.tan, "SINH": np.sinh,
    "COSH": np.cosh, "ATAN": np.arctan, "ASINH": np.arcsinh, "CEIL": np.ceil, "FLOOR": np.floor, "ERF": erf,
    "SIGN": np.sign, "ROUND": np.round, "ISINF": np.isinf, "ISNAN": np.isnan,
}  # fmt: skip
POSITIVE = {"LOG": np.log, "SQRT": np.sqrt, "RECIP": lambda x: 1 / x, "ACOSH": lambda x: np.arccosh(x)}
BOUNDED = {"ASIN": np.arcsin, "ACOS": np.arccos, "ATANH": np.arctanh}


@pytest.mark.parametrize(
    ("operation", "function", "data"),
    [
        *[(name, f, X) for name, f in UNARY.items()],
        *[(name, f, np.abs(X) + 1) for name, f in POSITIVE.items()],
        *[(name, f, X / 4) for name, f in BOUNDED.items()],
    ],
)
def test_unary_operations(operation: str, function: Any, data: np.ndarray) -> None:
    bench = Bench()
    layer = bench.network.add_unary(bench.input("x", data.shape), getattr(bench.trt.UnaryOperation, operation))
    (y,) = bench.run(layer.get_output(0), x=data)
    np.testing.assert_allclose(y, function(data.astype(np.float64)), rtol=3e-6, atol=1e-6)


def test_every_unary_operation_is_tested() -> None:
    assert set(Bench().trt.UnaryOperation.__members__) == {*UNARY, *POSITIVE, *BOUNDED, "NOT"}


def selu(x: np.ndarray) -> np.ndarray:
    return np.where(x > 0, 1.3 * x, 1.3 * (0.7 * np.exp(x) - 0.7))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (0.044715 * x**3 + x)))


#: TensorRT's documented formulas with alpha = 0.7 and beta = 1.3.
ACTIVATIONS = {
    "RELU": lambda x: np.maximum(x, 0),
    "SIGMOID": lambda x: 1 / (1 + np.exp(-x)),
    "TANH": np.tanh,
    "LEAKY_RELU": lambda x: np.where(x >= 0, x, 0.7 * x),
    "ELU": lambda x: np.where(x >= 0, x, 0.7 * (np.exp(x) - 1)),
    "SELU": selu,
    "SOFTSIGN": lambda x: x / (1 + np.abs(x)),
    "SOFTPLUS": lambda x: 0.7 * np.log(np.exp(1.3 * x) + 1),
    "CLIP": lambda x: np.maximum(0.7, np.minimum(1.3, x)),
    "HARD_SIGMOID": lambda x: np.maximum(0, np.minimum(1, 0.7 * x + 1.3)),
    "SCALED_TANH": lambda x: 0.7 * np.tanh(1.3 * x),
    "THRESHOLDED_RELU": lambda x: np.where(x > 0.7, x, 0),
    "GELU_ERF": lambda x: 0.5 * x * (1 + erf(np.sqrt(0.5) * x)),
    "GELU_TANH": gelu_tanh,
}


@pytest.mark.parametrize("kind", list(ACTIVATIONS))
def test_activations(kind: str) -> None:
    bench = Bench()
    layer = bench.network.add_activation(bench.input("x", X.shape), getattr(bench.trt.ActivationType, kind))
    layer.alpha, layer.beta = 0.7, 1.3
    (y,) = bench.run(layer.get_output(0), x=X)
    np.testing.assert_allclose(y, ACTIVATIONS[kind](X.astype(np.float64)), rtol=3e-6, atol=1e-6)


def test_every_activation_is_tested() -> None:
    assert set(Bench().trt.ActivationType.__members__) == set(ACTIVATIONS)


BINARY = {
    "SUM": np.add, "PROD": np.multiply, "MAX": np.maximum, "MIN": np.minimum, "SUB": np.subtract, "DIV": np.divide,
    "FLOOR_DIV": lambda a, b: np.floor(a / b), "EQUAL": np.equal, "GREATER": np.greater, "LESS": np.less,
}  # fmt: skip


@pytest.mark.parametrize("operation", list(BINARY))
def test_binary_operations_broadcast(operation: str) -> None:
    bench = Bench()
    a, b = bench.input("a", (2, 4)), bench.input("b", (2, 1))
    layer = bench.network.add_elementwise(a, b, getattr(bench.trt.ElementWiseOperation, operation))
    divisor = np.array([[0.5], [-2.5]], np.float32)
    (y,) = bench.run(layer.get_output(0), a=X, b=divisor)
    np.testing.assert_allclose(y, BINARY[operation](X.astype(np.float64), divisor), rtol=1e-6)


@pytest.mark.parametrize(("operation", "function"), [("MAX", np.maximum), ("MIN", np.minimum)])
def test_extremes_of_int64_beyond_int32(operation: str, function: Any) -> None:
    """ONNX Runtime 1.31 computes Max and Min of such values wrongly."""
    bench = Bench()
    a, b = bench.input("a", (4,), "INT64"), bench.input("b", (4,), "INT64")
    layer = bench.network.add_elementwise(a, b, getattr(bench.trt.ElementWiseOperation, operation))
    left, right = np.array([2**31, 3 * 10**9, 2**32, -7]), np.array([100, 2**31 - 1, 2**32 + 1, -(2**40)])
    (y,) = bench.run(layer.get_output(0), a=left, b=right)
    assert y.tolist() == function(left, right).tolist()


def test_power_of_floats() -> None:
    bench = Bench()
    a, b = bench.input("a", (4,)), bench.input("b", (4,))
    layer = bench.network.add_elementwise(a, b, bench.trt.ElementWiseOperation.POW)
    base, exponent = np.array([2, -3, 0.5, 4], np.float32), np.array([3, 2, -2, 0.5], np.float32)
    (y,) = bench.run(layer.get_output(0), a=base, b=exponent)
    np.testing.assert_allclose(y, [8, 9, 4, 2], rtol=1e-6)


@pytest.mark.parametrize(("operation", "function"), [("AND", np.logical_and), ("OR", np.logical_or), ("XOR", np.logical_xor)])
def test_logical_operations(operation: str, function: Any) -> None:
    bench = Bench()
    a, b = bench.input("a", (4,), "BOOL"), bench.input("b", (4,), "BOOL")
    layer = bench.network.add_elementwise(a, b, getattr(bench.trt.ElementWiseOperation, operation))
    inverse = bench.network.add_unary(layer.get_output(0), bench.trt.UnaryOperation.NOT)
    left, right = np.array([True, True, False, False]), np.array([True, False, True, False])
    y, n = bench.run(layer.get_output(0), inverse.get_output(0), a=left, b=right)
    assert y.tolist() == function(left, right).tolist()
    assert n.tolist() == (~function(left, right)).tolist()


def test_every_binary_operation_is_tested() -> None:
    assert set(Bench().trt.ElementWiseOperation.__members__) == {*BINARY, "POW", "AND", "OR", "XOR"}


def test_select_of_booleans_which_onnx_runtime_lacks() -> None:
    bench = Bench()
    condition, a, b = (bench.input(name, (4,), "BOOL") for name in "cab")
    layer = bench.network.add_select(condition, a, b)
    values = {name: np.array(bits, bool) for name, bits in (("c", [1, 1, 0, 0]), ("a", [1, 0, 1, 0]), ("b", [0, 1, 0, 1]))}
    (y,) = bench.run(layer.get_output(0), **values)
    assert y.tolist() == np.where(values["c"], values["a"], values["b"]).tolist()


def test_parametric_relu_broadcasts_its_slopes() -> None:
    bench = Bench()
    layer = bench.network.add_parametric_relu(bench.input("x", X.shape), bench.constant([[0.1], [0.2]]))
    (y,) = bench.run(layer.get_output(0), x=X)
    np.testing.assert_allclose(y, np.where(X >= 0, X, X * np.array([[0.1], [0.2]])), rtol=1e-6)


@pytest.mark.parametrize(("have", "want"), [("FLOAT", "INT32"), ("FLOAT", "BF16"), ("INT64", "BF16"), ("BOOL", "FLOAT")])
def test_cast(have: str, want: str) -> None:
    bench = Bench()
    values = {"FLOAT": X, "INT64": np.array([-3, 257, 5]), "BOOL": np.array([True, False])}[have]
    cast = bench.network.add_cast(bench.input("x", values.shape, have), getattr(bench.trt.DataType, want)).get_output(0)
    back = bench.network.add_cast(cast, bench.trt.DataType.FLOAT).get_output(0)
    (y,) = bench.run(back, x=values)
    expected = {"INT32": lambda v: np.trunc(v), "BF16": to_bfloat16, "FLOAT": lambda v: v}[want](values.astype(np.float32))
    assert y.tolist() == expected.tolist()


def to_bfloat16(x: np.ndarray) -> np.ndarray:
    """Round float32 to the nearest bfloat16, ties to even."""
    bits = x.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)


REDUCTIONS = {"SUM": np.sum, "PROD": np.prod, "MAX": np.max, "MIN": np.min, "AVG": np.mean}


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("operation", list(REDUCTIONS))
def test_reductions_over_a_mask_of_axes(operation: str, keep: bool) -> None:
    bench = Bench()
    x = np.random.default_rng(0).normal(size=(2, 3, 4)).astype(np.float32)
    layer = bench.network.add_reduce(bench.input("x", x.shape), getattr(bench.trt.ReduceOperation, operation), 0b101, keep)
    (y,) = bench.run(layer.get_output(0), x=x)
    np.testing.assert_allclose(y, REDUCTIONS[operation](x, axis=(0, 2), keepdims=keep), rtol=1e-5)


@pytest.mark.parametrize(("exclusive", "reverse"), [(False, False), (True, False), (False, True), (True, True)])
def test_cumulative_sum(exclusive: bool, reverse: bool) -> None:
    bench = Bench()
    x, operation = bench.input("x", (2, 4)), bench.trt.CumulativeOperation.SUM
    layer = bench.network.add_cumulative(x, bench.constant(1, np.int32), operation, exclusive, reverse)
    (y,) = bench.run(layer.get_output(0), x=X)
    flipped = X[:, ::-1] if reverse else X
    total = np.cumsum(flipped, 1) - (flipped if exclusive else 0)
    np.testing.assert_allclose(y, total[:, ::-1] if reverse else total, atol=1e-6)


@pytest.mark.parametrize(
    ("shapes", "operations", "equation"),
    [
        (((2, 3, 4), (2, 4, 5)), ("NONE", "NONE"), "bij,bjk->bik"),
        (((2, 4, 3), (2, 5, 4)), ("TRANSPOSE", "TRANSPOSE"), "bji,bkj->bik"),
        (((2, 4), (2, 4, 5)), ("VECTOR", "NONE"), "bj,bjk->bk"),
        (((2, 3, 4), (2, 4)), ("NONE", "VECTOR"), "bij,bj->bi"),
        (((2, 4), (2, 4)), ("VECTOR", "VECTOR"), "bj,bj->b"),
        (((1, 3, 4), (2, 4, 5)), ("NONE", "NONE"), "bij,bjk->bik"),
    ],
)
def test_matrix_products(shapes: Any, operations: tuple[str, str], equation: str) -> None:
    bench = Bench()
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=shape).astype(np.float32) for shape in shapes)
    left, right = (getattr(bench.trt.MatrixOperation, operation) for operation in operations)
    layer = bench.network.add_matrix_multiply(bench.input("a", a.shape), left, bench.input("b", b.shape), right)
    (y,) = bench.run(layer.get_output(0), a=a, b=b)
    repeated = np.repeat(a, b.shape[0], 0) if a.shape[0] == 1 else a
    np.testing.assert_allclose(y, np.einsum(equation, repeated, b), rtol=1e-5, atol=1e-6)


def test_einsum() -> None:
    bench = Bench()
    a, b = np.random.default_rng(2).normal(size=(2, 2, 3)).astype(np.float32)
    layer = bench.network.add_einsum([bench.input("a", (2, 3)), bench.input("b", (2, 3))], "ij,kj->ki")
    (y,) = bench.run(layer.get_output(0), a=a, b=b)
    np.testing.assert_allclose(y, b @ a.T, rtol=1e-5)


def test_ragged_softmax_as_documented() -> None:
    """The example of NVIDIA's operator reference: values behind a row's bound are zero."""
    bench = Bench()
    layer = bench.network.add_ragged_softmax(bench.input("x", (1, 2, 5)), bench.input("bounds", (1, 2, 1), "INT32"))
    x = np.array([[[1, 1, 1, 1, 0.5], [3, 4, -20, 10, 5]]], np.float32)
    (y,) = bench.run(layer.get_output(0), x=x, bounds=np.array([[[5], [3]]], np.int32))
    np.testing.assert_allclose(y, [[[0.21, 0.21, 0.21, 0.21, 0.13], [0.26, 0.73, 0.01, 0, 0]]], atol=0.011)
    assert (y[0, 1, 3:] == 0).all()


def test_softmax_along_the_axis_of_its_mask() -> None:
    """The example of NVIDIA's operator reference."""
    bench = Bench()
    layer = bench.network.add_softmax(bench.input("x", (1, 1, 2, 2)))
    layer.axes = 1 << 2
    (y,) = bench.run(layer.get_output(0), x=np.array([[[[1, 1], [3, 4]]]], np.float32))
    np.testing.assert_allclose(y, [[[[0.119, 0.048], [0.881, 0.952]]]], atol=1e-3)


@pytest.mark.parametrize("operation", ["MAX", "MIN"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_top_k(operation: str, dynamic: bool) -> None:
    bench = Bench()
    layer = bench.network.add_topk(bench.input("x", X.shape), getattr(bench.trt.TopKOperation, operation), 3, 0b10)
    if dynamic:
        layer.set_input(1, bench.input("k", (), "INT32"))
    values, indices = bench.run(layer.get_output(0), layer.get_output(1), x=X, k=np.array(3, np.int32))
    order = np.argsort(-X if operation == "MAX" else X, axis=1, kind="stable")[:, :3]
    assert indices.dtype == np.int32
    assert indices.tolist() == order.tolist()
    assert values.tolist() == np.take_along_axis(X, order, 1).tolist()


def test_non_zero() -> None:
    bench = Bench()
    layer = bench.network.add_non_zero(bench.input("x", (2, 3)))
    x = np.array([[0, 2, 0], [1, 0, 3]], np.float32)
    (y,) = bench.run(layer.get_output(0), x=x)
    assert y.dtype == np.int32
    assert y.tolist() == np.array(np.nonzero(x)).tolist()
