"""A model is computed in the low type node by node, with real rounding, as the switches say."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
import pytest

from tests.models import parse, random
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.onnx_model.shapes import TensorType, declared_types
from trtnorm_cli.precision.emulate import Emulator, SwitchedModel
from trtnorm_cli.precision.low_types import BF16, FP16, LowType
from trtnorm_cli.precision.plan import InputsAndOutputs


@pytest.fixture(scope="module")
def runner() -> Iterator[OrtRunner]:
    with OrtRunner() as one:
        yield one


def types_of(model: onnx.ModelProto) -> dict[str, TensorType]:
    return declared_types(onnx.shape_inference.infer_shapes(model, data_prop=True))


def emulator(
    runner: OrtRunner,
    model: onnx.ModelProto,
    feeds: Mapping[str, np.ndarray],
    low: LowType = FP16,
    io: InputsAndOutputs = "keep",
) -> Emulator:
    return Emulator(model, None, types_of(model), low, [feeds], runner, io)


def in_low(values: np.ndarray, low: LowType = FP16) -> np.ndarray:
    return low.rounded(values).astype(np.float32)


LINEAR = """
g (float[N,8] x) => (float[N,8] y) {
    h = MatMul (x, w)
    y = Tanh (h)
}"""


@pytest.mark.parametrize("low", [FP16, BF16], ids=lambda low: low.name)
def test_inputs_constants_and_outputs_of_a_low_node_are_rounded_and_sums_are_not(runner: OrtRunner, low: LowType) -> None:
    w, x = random(8, 8), random(4, 8, seed=1)
    with emulator(runner, parse(LINEAR, {"w": w}), {"x": x}, low) as one:
        found = one._once({"x": x}, frozenset({"h"}))["y"]

    np.testing.assert_allclose(found, np.tanh(in_low(in_low(x, low) @ in_low(w, low), low)), rtol=1e-6)


def test_a_node_that_is_not_low_is_as_it_was(runner: OrtRunner) -> None:
    w, x = random(8, 8), random(4, 8, seed=1)
    with emulator(runner, parse(LINEAR, {"w": w}), {"x": x}) as one:
        assert one.errors(()).relative == {"y": 0.0}
        assert one.order == ("h", "y")


def test_the_error_is_that_of_the_outputs_and_a_run_is_made_once(runner: OrtRunner) -> None:
    w, x = random(8, 8), random(4, 8, seed=1)
    with emulator(runner, parse(LINEAR, {"w": w}), {"x": x}) as one:
        first, second = one.errors(["h", "y"]), one.errors(["y", "h", "of no node"])

        assert 1e-4 < first.relative["y"] < 1e-3
        assert first == second
        assert one.evaluations == 1


def test_a_product_alone_in_float32_is_low_as_tensorrt_makes_it(runner: OrtRunner) -> None:
    model = parse(
        "g (float[N,8] x) => (float[N,8] y) { a = Neg (x)  h = MatMul (a, w)  t = Tanh (h)  y = Neg (t) }", {"w": random(8, 8)}
    )
    with emulator(runner, model, {"x": random(4, 8, seed=1)}) as one:
        everything = one.errors(one.keys)

        assert one.errors(one.keys - {"h"}) == everything
        assert one.errors(one.keys - {"h", "t"}).largest < everything.largest


def test_overflow_is_infinite(runner: OrtRunner) -> None:
    model = parse("g (float[N] x) => (float[N] y) { s = Mul (x, x)  y = Neg (s) }")
    with emulator(runner, model, {"x": np.full(4, 300, np.float32)}) as one:
        assert one.errors(["s"]).largest == np.inf


def test_integers_pass_and_what_only_chooses_is_not_rounded_twice(runner: OrtRunner) -> None:
    model = parse("""
        g (float[N,8] x) => (float[N,2] v, int64[N,2] i) {
            a, b = Split <axis = 1> (x)
            s = Add (a, b)
            v, i = TopK <axis = 1> (s, k)
        }""", {"k": np.array([2])}, opset=13)  # fmt: skip
    x = random(4, 8)
    with emulator(runner, model, {"x": x}) as one:
        found = one.errors(one.keys)

    assert set(one.order) == {"a", "s", "v"}
    assert 0 < found.relative["v"] < 1e-3
    assert found.differing["i"] <= 0.5


@pytest.mark.parametrize("opset", [9, 11, 13, 18])
def test_every_opset_is_switched(runner: OrtRunner, opset: int) -> None:
    w, x = random(8, 8), random(4, 8, seed=1)
    with emulator(runner, parse(LINEAR, {"w": w}, opset=opset), {"x": x}, BF16) as one:
        assert 1e-3 < one.errors(one.keys).largest < 1e-2


def test_scales_of_a_resize_stay_float32(runner: OrtRunner) -> None:
    model = parse("""
        g (float[1,1,3,3] x) => (float[1,1,10,10] y) { y = Resize <mode = "nearest"> (x, , scales) }
        """, {"scales": np.array([1, 1, 3.3337, 3.3337], np.float32)})  # fmt: skip
    with emulator(runner, model, {"x": np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3)}) as one:
        assert one.errors(one.keys).relative == {"y": 0.0}


def test_a_mask_that_stands_for_infinity_hides_without_being_infinite(runner: OrtRunner) -> None:
    model = parse("""
        g (float[2,4] x, float[2,4] m) => (float[2,4] y) {
            h = Mul (m, lowest)
            s = Add (x, h)
            y = Softmax <axis = -1> (s)
        }""", {"lowest": np.array(-3.4e38, np.float32)})  # fmt: skip
    hidden = np.array([[0, 1, 1, 0], [1, 1, 1, 1]], np.float32)
    with emulator(runner, model, {"x": random(2, 4), "m": hidden}) as one:
        assert one.errors(one.keys).largest < 1e-3


def test_a_loop_stays_as_it_is_and_reads_what_low_nodes_make(runner: OrtRunner) -> None:
    model = parse("""
        g (float[4] x, bool c) => (float[4] y) {
            a = Mul (x, x)
            y = If (c) <
                then_branch = t () => (float[4] yes) { yes = Add (a, a) },
                else_branch = e () => (float[4] no) { no = Neg (a) }
            >
        }""")  # fmt: skip
    x = random(4)
    with emulator(runner, model, {"x": x, "c": np.array(True)}) as one:
        assert one.order == ("a",)
        found = one._once({"x": x, "c": np.array(True)}, frozenset({"a"}))["y"]

    np.testing.assert_array_equal(found, 2 * in_low(in_low(x) ** 2))


def test_inputs_and_outputs_are_rounded_where_they_become_low(runner: OrtRunner) -> None:
    w, x = random(8, 8), random(4, 8, seed=1)
    with emulator(runner, parse(LINEAR, {"w": w}), {"x": x}, io="low") as one:
        assert 1e-4 < one.errors(()).largest < 1e-3


def test_a_model_without_floats_has_nothing_to_switch(runner: OrtRunner) -> None:
    with emulator(runner, parse("g (int64[N] x) => (int64[N] y) { y = Add (x, x) }"), {"x": np.arange(4)}) as one:
        assert one.order == ()
        assert one.errors(()).largest == 0.0


def test_names_that_the_model_uses_are_left_alone() -> None:
    model = parse('g (float[N] x) => (float[N] y) { "trtnorm.low/switches" = Neg (x)  y = Neg ("trtnorm.low/switches") }')

    assert SwitchedModel(model, None, types_of(model), FP16).switches == "trtnorm.low2/switches"
