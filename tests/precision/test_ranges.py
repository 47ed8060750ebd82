"""Ranges are measured inside the graph, and are what NumPy finds in the tensors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import onnx
import pytest

from tests.models import parse, random
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.onnx_model.shapes import TensorType, declared_types
from trtnorm_cli.onnx_model.walk import subgraphs
from trtnorm_cli.precision.low_types import BF16, FP16, LowType
from trtnorm_cli.precision.ranges import InstrumentedModel, Ranges, measured_ranges
from trtnorm_cli.precision.units import units


@pytest.fixture(scope="module")
def runner() -> Iterator[OrtRunner]:
    with OrtRunner() as one:
        yield one


def types_of(model: onnx.ModelProto) -> dict[str, TensorType]:
    return declared_types(onnx.shape_inference.infer_shapes(model, data_prop=True))


def ranges(runner: OrtRunner, model: onnx.ModelProto, *feeds: dict[str, np.ndarray], low: LowType = FP16) -> Ranges:
    types = types_of(model)
    return measured_ranges(model, None, types, units(model, types), low, feeds, runner)


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 18])
@pytest.mark.parametrize("low", [FP16, BF16], ids=lambda low: low.name)
def test_magnitudes_and_what_rounding_costs(runner: OrtRunner, opset: int, low: LowType) -> None:
    x, w = random(4, 8), random(8, 8, seed=1)
    model = parse("g (float[N,8] x) => (float[N,8] y) { h = MatMul (x, w)  y = Relu (h) }", {"w": w}, opset=opset)

    found = ranges(runner, model, {"x": x}, low=low).tensors

    assert set(found) == {"x", "h", "y"}
    rounded = low.rounded(x).astype(np.float32)
    assert found["x"].largest == np.abs(x).max()
    assert found["x"].smallest == np.abs(x).min()
    assert found["x"].rounding == pytest.approx(np.linalg.norm(rounded - x) / np.linalg.norm(x), rel=1e-2)
    assert found["y"].smallest == pytest.approx(np.min((x @ w)[x @ w > 0]), rel=1e-4)


def test_the_worst_of_all_runs_counts(runner: OrtRunner) -> None:
    model = parse("g (float[N] x) => (float[N] y) { y = Neg (x) }")

    found = ranges(runner, model, {"x": random(8)}, {"x": np.full(3, 1e5, np.float32)}, {"x": np.full(3, 1e-9, np.float32)})

    assert found.tensors["y"].largest == 1e5
    assert found.tensors["y"].smallest == pytest.approx(1e-9)
    assert found.tensors["y"].rounding == np.inf
    assert found.runs == 3


def test_what_only_moves_values_has_the_range_of_what_it_moves(runner: OrtRunner) -> None:
    model = parse("g (float[2,3] x) => (float[3,2] y) { t = Transpose (x)  y = Exp (t) }")

    found = ranges(runner, model, {"x": random(2, 3)}).tensors

    assert found["t"] == found["x"]


def test_infinities_of_float32_are_told_apart(runner: OrtRunner) -> None:
    model = parse("g (float[N] x) => (float[N] y) { l = Log (x)  y = Exp (l) }")

    found = ranges(runner, model, {"x": np.array([0, 1, 2], np.float32)}).tensors

    assert not found["l"].is_finite
    assert found["y"].is_finite


def test_zeros_divide_nothing(runner: OrtRunner) -> None:
    model = parse("g (float[N] x) => (float[N] y) { y = Sqrt (x) }")

    found = ranges(runner, model, {"x": np.zeros(4, np.float32)}).tensors["x"]

    assert (found.largest, found.smallest, found.rounding, found.element) == (0.0, np.inf, 0.0, 0.0)


def test_finite_numbers_whose_squares_are_not_are_no_overflow_in_bfloat16(runner: OrtRunner) -> None:
    model = parse("g (float[N] x) => (float[N] y) { y = Neg (x) }")

    found = ranges(runner, model, {"x": np.full(4, 1e30, np.float32)}, low=BF16).tensors["x"]

    assert found.is_finite
    assert found.rounding < 1e-2


def test_a_tensor_without_elements_is_measured_with_the_others(runner: OrtRunner) -> None:
    model = parse("""
        g (float[N] x, int64[M] at) => (float[M] y) { some = Gather (x, at)  y = Mul (some, some) }
        """)  # fmt: skip

    found = ranges(runner, model, {"x": random(4), "at": np.zeros(0, np.int64)}).tensors

    assert found["y"].largest == 0.0


def test_a_divisor_is_measured_by_element(runner: OrtRunner) -> None:
    model = parse("g (float[N] x, float[N] d) => (float[N] y) { y = Div (x, d) }")
    d = np.array([1.0, 1e-7], np.float32)

    found = ranges(runner, model, {"x": random(2), "d": d}).tensors

    assert found["d"].rounding < 1e-3
    assert found["d"].element == pytest.approx(abs(float(np.float16(1e-7)) - 1e-7) / 1e-7, rel=1e-2)
    assert found["x"].element == 0.0


@pytest.mark.parametrize("opset", [11, 18])
def test_a_row_of_a_softmax_that_is_as_long_as_the_type_is_summed(runner: OrtRunner, opset: int) -> None:
    graph = """
        g (float[2,N] x) => (float[2,N] y, float[2,8] z) {
            y = Softmax <axis = 1> (x)
            s = Slice (x, b, e, a)
            z = Softmax <axis = 1> (s)
        }"""
    model = parse(graph, {"b": np.array([0]), "e": np.array([8]), "a": np.array([1])}, opset=opset)
    x = random(2, 1000)

    found = ranges(runner, model, {"x": x})

    assert found.sums == {"y": pytest.approx(float(np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1).max()), rel=1e-5)}
    assert ranges(runner, model, {"x": x}, low=BF16).sums == {}


LAYER_NORM = "g (float[N,64] x) => (float[N,64] y) { y = LayerNormalization <epsilon = 1.0e-5> (x, s) }"


def test_a_large_offset_loses_the_variance(runner: OrtRunner) -> None:
    model = parse(LAYER_NORM, {"s": np.ones(64, np.float32)})
    x = random(4, 64)
    offset = x + np.array([[0], [0], [0], [1000]], np.float32)

    plain = ranges(runner, model, {"x": x}).variances["y"]
    moved = ranges(runner, model, {"x": offset}).variances["y"]

    assert plain.smallest == pytest.approx(float(x.var(axis=1).min()), rel=1e-4)
    assert plain.mean < 4e-4
    lost = offset[3].astype(np.float64) - offset[3].mean(dtype=np.float64)
    rounded = offset[3].astype(np.float16).astype(np.float64)
    expected = np.std(rounded - offset[3]) / np.std(lost)
    assert moved.worst == pytest.approx(expected, rel=1e-2)
    assert moved.mean == pytest.approx(expected / 2, rel=1e-2)


def test_constant_and_zero_rows_lose_nothing(runner: OrtRunner) -> None:
    model = parse(LAYER_NORM.replace("1.0e-5", "1.0e-12"), {"s": np.ones(64, np.float32)})
    x = random(4, 64)
    x[1], x[2] = 300.1, 0.0

    found = ranges(runner, model, {"x": x}).variances["y"]

    assert found.worst < 1e-3
    assert found.smallest < 1e-6


def test_groups_and_planes_are_rows(runner: OrtRunner) -> None:
    model = parse("""
        g (float[1,4,8,8] x) => (float[1,4,8,8] y) {
            a = InstanceNormalization (x, s, s)
            y = GroupNormalization <num_groups = 2> (a, t, t)
        }""", {"s": np.ones(4, np.float32), "t": np.ones(2, np.float32)}, opset=18)  # fmt: skip
    x = random(1, 4, 8, 8) * np.array([1, 2, 3, 4], np.float32).reshape(1, 4, 1, 1)

    found = ranges(runner, model, {"x": x}).variances

    assert found["a"].smallest == pytest.approx(float(x.var(axis=(2, 3)).min()), rel=1e-4)
    assert found["y"].smallest == pytest.approx(1.0, rel=1e-2)


def test_the_mean_of_an_rms_norm_is_no_offset(runner: OrtRunner) -> None:
    model = parse(
        "g (float[N,64] x) => (float[N,64] y) { y = RMSNormalization (x, s) }", {"s": np.ones(64, np.float32)}, opset=23
    )

    found = ranges(runner, model, {"x": random(4, 64) + 1000}).variances["y"]

    assert found.smallest == pytest.approx(1e6, rel=1e-2)
    assert found.worst < 4e-4


def test_tensors_are_let_go_as_soon_as_they_are_measured(runner: OrtRunner) -> None:
    """What measures the first tensor comes last: ONNX Runtime begins there."""
    model = parse("g (float[N] x) => (float[N] c) { a = Exp (x)  b = Exp (a)  c = Exp (b) }")
    nodes = InstrumentedModel(model, types_of(model), (), FP16).model.graph.node[3:]

    measured = [graph.node[0].input[0] for node in nodes for graph in list(subgraphs(node))[1:]]

    assert measured == ["c", "b", "a", "x"]


@pytest.mark.slow
def test_a_measured_run_takes_little_more_memory_than_a_plain_one(runner: OrtRunner) -> None:
    """Sixty tensors of 8 MB, of which two live at a time."""
    names = ["x", *(f"t{index}" for index in range(60))]
    lines = " ".join(f"{after} = Relu ({before})" for before, after in itertools.pairwise(names))
    model = parse(f"g (float[N] x) => (float[N] t59) {{ {lines} }}")
    with OrtRunner(memory_bytes=400 << 20) as limited:
        found = ranges(limited, model, {"x": np.ones(2 << 20, np.float32)})

    assert found.tensors["t59"].largest == 1.0
