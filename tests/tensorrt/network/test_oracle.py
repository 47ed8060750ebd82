"""TensorRT against the translation, on the one thing that TensorRT evaluates without a GPU: shapes.

The shape of a tensor that depends on constants alone is computed on the host when it is asked for. A fill layer whose
dimensions are the result of other layers therefore shows what these layers compute: eight integers, or real numbers in
millionths.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.tensorrt.network.harness import Bench

pytestmark = pytest.mark.rtx

A = [7, -7, 7, -7, 6, -6, 0]
B = [2, 2, -2, -2, 3, 3, 5]
ROW = [10, 11, 12, 13, 14]
FRACTIONS = [2.5, -2.5, 1.5, -0.5, 0.5, 3.7, -3.7]
SHIFT = 10**10  # dimensions cannot be negative
MILLION = 1e6

Build = Callable[[Bench], Any]


def on_the_host(build: Build) -> list[int]:
    """What TensorRT itself computes: the result of ``build``, an integer vector, read off as a shape."""
    bench = Bench()
    tensor = as_int64(bench, build(bench))
    (count,) = tensor.shape
    shifted = binary(bench, "SUM", tensor, bench.constant([SHIFT] * count, np.int64))
    fill = bench.network.add_fill((1,), bench.trt.FillOperation.LINSPACE, bench.trt.DataType.INT64)
    fill.set_input(0, shifted)
    fill.set_input(1, bench.constant(0, np.int64))
    fill.set_input(2, bench.constant([0] * count, np.int64))
    return [d - SHIFT for d in fill.get_output(0).shape]


def translated(build: Build) -> list[int]:
    bench = Bench()
    (y,) = bench.run(as_int64(bench, build(bench)))
    return [int(v) for v in y]


def as_int64(bench: Bench, tensor: Any) -> Any:
    if tensor.dtype == bench.trt.DataType.INT64:
        return tensor
    return bench.network.add_cast(tensor, bench.trt.DataType.INT64).get_output(0)


def in_millionths(build: Build) -> Build:
    """Real results as integers."""

    def scaled(bench: Bench) -> Any:
        tensor = build(bench)
        flat = bench.network.add_shuffle(tensor)
        flat.reshape_dims = (int(np.prod(tensor.shape)),)
        large = binary(bench, "PROD", flat.get_output(0), bench.constant([MILLION] * int(np.prod(tensor.shape))))
        return bench.network.add_unary(large, bench.trt.UnaryOperation.ROUND).get_output(0)

    return scaled


def assert_same_numbers(build: Build) -> None:
    """Both agree up to the rounding of float32."""
    ours, theirs = (np.array(compute(in_millionths(build))) / MILLION for compute in (translated, on_the_host))
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=2e-6)
    assert len(set(theirs)) > 1  # an evaluation that gave up shows one value everywhere


def binary(bench: Bench, operation: str, a: Any, b: Any) -> Any:
    return bench.network.add_elementwise(a, b, getattr(bench.trt.ElementWiseOperation, operation)).get_output(0)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    "operation", ["SUM", "PROD", "MAX", "MIN", "SUB", "DIV", "FLOOR_DIV", "POW", "EQUAL", "GREATER", "LESS"]
)
def test_integer_arithmetic(operation: str, dtype: Any) -> None:
    def build(bench: Bench) -> Any:
        return binary(bench, operation, bench.constant(A, dtype), bench.constant(B, dtype))

    assert translated(build) == on_the_host(build)


@pytest.mark.parametrize("operation", ["NEG", "ABS", "SIGN"])
def test_integer_unary(operation: str) -> None:
    def build(bench: Bench) -> Any:
        return bench.network.add_unary(bench.constant(A, np.int64), getattr(bench.trt.UnaryOperation, operation)).get_output(0)

    assert translated(build) == on_the_host(build)


@pytest.mark.parametrize("operation", ["ROUND", "FLOOR", "CEIL", "SIGN", "ABS", "NEG"])
def test_rounding_of_floats(operation: str) -> None:
    def build(bench: Bench) -> Any:
        return bench.network.add_unary(bench.constant(FRACTIONS), getattr(bench.trt.UnaryOperation, operation)).get_output(0)

    assert translated(build) == on_the_host(build)


@pytest.mark.parametrize(
    ("values", "dtype", "want"),
    [
        *[(FRACTIONS, np.float32, want) for want in ("INT32", "INT64", "BOOL")],
        *[([2**32 + 5, -3], np.int64, want) for want in ("INT32", "BOOL")],
        ([3e9, -3e9, 5.5], np.float32, "INT32"),
    ],
)
def test_casts(values: list[float], dtype: Any, want: str) -> None:
    def build(bench: Bench) -> Any:
        return bench.network.add_cast(bench.constant(values, dtype), getattr(bench.trt.DataType, want)).get_output(0)

    assert translated(build) == on_the_host(build)


INSIDE = [(0, 3, 1), (4, 5, -1), (2, 4, 0), (1, 2, 2)]
OUTSIDE = [(-3, 7, 1), (1, 7, 2), (4, 8, -2)]


@pytest.mark.parametrize(
    ("mode", "start", "size", "stride"),
    [
        *[("STRICT_BOUNDS", *case) for case in INSIDE],
        *[(mode, *case) for mode in ("CLAMP", "WRAP", "REFLECT") for case in [*INSIDE, *OUTSIDE]],
    ],
)
def test_slice_modes(mode: str, start: int, size: int, stride: int) -> None:
    def build(bench: Bench) -> Any:
        layer = bench.network.add_slice(bench.constant(ROW, np.int64), (start,), (size,), (stride,))
        layer.mode = getattr(bench.trt.SampleMode, mode)
        return layer.get_output(0)

    assert translated(build) == on_the_host(build)


@pytest.mark.parametrize("values", [[1, 2, 4], [-1, -2, -4], [3, -4, 0]])
@pytest.mark.parametrize("operation", ["SUM", "PROD", "MAX", "MIN", "AVG"])
def test_integer_reductions(operation: str, values: list[int]) -> None:
    def build(bench: Bench) -> Any:
        kind = getattr(bench.trt.ReduceOperation, operation)
        return bench.network.add_reduce(bench.constant(values, np.int64), kind, 1, True).get_output(0)

    assert translated(build) == on_the_host(build)


@pytest.mark.parametrize("indices", [[0, 2], [-1, -5]])
def test_gather_counts_negative_indices_from_the_back(indices: list[int]) -> None:
    def build(bench: Bench) -> Any:
        return bench.network.add_gather(bench.constant(ROW, np.int64), bench.constant(indices, np.int64), 0).get_output(0)

    assert translated(build) == on_the_host(build)


def test_select_concatenation_shape_and_shuffle() -> None:
    def build(bench: Bench) -> Any:
        network = bench.network
        less = binary(bench, "LESS", bench.constant(A, np.int64), bench.constant(B, np.int64))
        chosen = network.add_select(less, bench.constant(A, np.int64), bench.constant(B, np.int64)).get_output(0)
        shape = network.add_shape(bench.constant(np.zeros((2, 3)))).get_output(0)
        joined = network.add_concatenation([network.add_slice(chosen, (1,), (4,), (1,)).get_output(0), shape])
        shuffle = network.add_shuffle(joined.get_output(0))
        shuffle.reshape_dims, shuffle.second_transpose = (2, 3), (1, 0)
        flat = network.add_shuffle(shuffle.get_output(0))
        flat.reshape_dims = (6,)
        return flat.get_output(0)

    assert translated(build) == on_the_host(build)


REALS = [0.7, -0.7, 1.9, -1.9, 0.2, 3.1, -2.6]
POSITIVE = [0.7, 1.7, 2.9, 0.1, 5.5]
BOUNDED = [0.7, -0.7, 0.2, -0.1, 0.95]
DOMAIN = {"LOG": POSITIVE, "SQRT": POSITIVE, "ACOSH": [1.5, 2.5, 1.1], "ASIN": BOUNDED, "ACOS": BOUNDED, "ATANH": BOUNDED}
REAL_UNARY = [
    "EXP", "LOG", "SQRT", "RECIP", "ABS", "NEG", "SIN", "COS", "TAN", "SINH", "COSH", "ASIN", "ACOS", "ATAN", "ASINH", "ACOSH",
    "ATANH", "ERF",
]  # fmt: skip


@pytest.mark.parametrize("operation", REAL_UNARY)
def test_functions_of_real_numbers(operation: str) -> None:
    def build(bench: Bench) -> Any:
        values = bench.constant(DOMAIN.get(operation, REALS))
        return bench.network.add_unary(values, getattr(bench.trt.UnaryOperation, operation)).get_output(0)

    assert_same_numbers(build)


ACTIVATIONS = [
    "RELU", "SIGMOID", "TANH", "LEAKY_RELU", "ELU", "SELU", "SOFTSIGN", "SOFTPLUS", "CLIP", "HARD_SIGMOID", "SCALED_TANH",
    "THRESHOLDED_RELU", "GELU_ERF", "GELU_TANH",
]  # fmt: skip


@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 0.8), (0.8, 0.3)])
@pytest.mark.parametrize("kind", ACTIVATIONS)
def test_activations(kind: str, alpha: float, beta: float) -> None:
    """Also with alpha above beta, where a clip gives alpha and ONNX's gives the upper bound."""

    def build(bench: Bench) -> Any:
        layer = bench.network.add_activation(bench.constant(REALS), getattr(bench.trt.ActivationType, kind))
        layer.alpha, layer.beta = alpha, beta
        # A constant beside it, so that a clip to one value still shows two.
        return bench.network.add_concatenation([layer.get_output(0), bench.constant([0.123])]).get_output(0)

    assert_same_numbers(build)


@pytest.mark.parametrize("operation", ["SUM", "PROD", "MAX", "MIN", "SUB", "DIV", "FLOOR_DIV"])
def test_real_arithmetic(operation: str) -> None:
    def build(bench: Bench) -> Any:
        return binary(bench, operation, bench.constant(REALS), bench.constant(REALS[::-1]))

    assert_same_numbers(build)


def test_power_of_real_numbers() -> None:
    def build(bench: Bench) -> Any:
        return binary(bench, "POW", bench.constant([2.5, -2.0, 9.0, 0.3]), bench.constant([2.0, 3.0, 0.5, -1.5]))

    assert_same_numbers(build)


@pytest.mark.parametrize("mode", ["UNIFORM", "CHANNEL", "ELEMENTWISE"])
def test_scale(mode: str) -> None:
    def build(bench: Bench) -> Any:
        count = {"UNIFORM": 1, "CHANNEL": 3, "ELEMENTWISE": 6}[mode]
        shift, scale, power = (bench.weights(np.linspace(0.5, 1.5, count) + i) for i in range(3))
        x, kind = bench.constant(np.linspace(0.1, 2, 6).reshape(1, 3, 2, 1)), getattr(bench.trt.ScaleMode, mode)
        return bench.network.add_scale_nd(x, kind, shift, scale, power, channel_axis=1).get_output(0)

    assert_same_numbers(build)


@pytest.mark.parametrize("operation", ["SUM", "PROD", "MAX", "MIN", "AVG"])
def test_real_reductions(operation: str) -> None:
    def build(bench: Bench) -> Any:
        x, kind = bench.constant(np.array(REALS[:6]).reshape(2, 3)), getattr(bench.trt.ReduceOperation, operation)
        return bench.network.add_reduce(x, kind, 0b10, False).get_output(0)

    assert_same_numbers(build)


@pytest.mark.parametrize("operations", [("NONE", "NONE"), ("TRANSPOSE", "NONE"), ("NONE", "TRANSPOSE"), ("VECTOR", "NONE")])
def test_matrix_products(operations: tuple[str, str]) -> None:
    def build(bench: Bench) -> Any:
        left, right = (getattr(bench.trt.MatrixOperation, operation) for operation in operations)
        a = bench.constant(REALS[:2] if operations[0] == "VECTOR" else [REALS[:2], REALS[2:4]])
        return bench.network.add_matrix_multiply(a, left, bench.constant([REALS[3:5], REALS[5:]]), right).get_output(0)

    assert_same_numbers(build)


@pytest.mark.parametrize("indices", [[0, 2], [-1, 1], [3, -4]])
@pytest.mark.parametrize("axis", [0, -1])
def test_one_hot(indices: list[int], axis: int) -> None:
    def build(bench: Bench) -> Any:
        values, depth = bench.constant([0, 7], np.int32), bench.constant(3, np.int32)
        hot = bench.network.add_one_hot(bench.constant(indices, np.int32), values, depth, axis).get_output(0)
        flat = bench.network.add_shuffle(hot)
        flat.reshape_dims = (6,)
        return flat.get_output(0)

    assert translated(build) == on_the_host(build)


def test_gather_elements() -> None:
    def build(bench: Bench) -> Any:
        data, where = bench.constant([5, 9, 1], np.int64), bench.constant([-1, 0], np.int64)
        return bench.network.add_gather_v2(data, where, bench.trt.GatherMode.ELEMENT).get_output(0)

    assert translated(build) == on_the_host(build)


@pytest.mark.parametrize("static", [True, False])
def test_fill(static: bool) -> None:
    def build(bench: Bench) -> Any:
        layer = bench.network.add_fill((2, 3), bench.trt.FillOperation.LINSPACE, bench.trt.DataType.FLOAT)
        if static:
            layer.shape, layer.alpha, layer.beta = (5,), 1.5, -0.25
        else:
            layer.set_input(1, bench.constant(1.5))
            layer.set_input(2, bench.constant([0.5, -0.25]))
        return layer.get_output(0)

    assert_same_numbers(build)
