"""What ranges ask for: nothing of networks whose values fit, and all of a normalization whose values do not."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import pytest

from tests.models import parse, random
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.onnx_model.surgery import open_model
from trtnorm_cli.precision.demands import confirmed, range_demands, range_kept
from trtnorm_cli.precision.emulate import Emulator
from trtnorm_cli.precision.low_types import BF16, FP16, LowType
from trtnorm_cli.precision.mask_tensors import mask_tensors
from trtnorm_cli.precision.ranges import measured_ranges
from trtnorm_cli.precision.units import Unit, units
from trtnorm_cli.precision.wider_inputs import wider_inputs
from trtnorm_cli.records.precision import Kept
from trtnorm_cli.rewrite.norms.record import composite_norms


@pytest.fixture(scope="module")
def runner() -> Iterator[OrtRunner]:
    with OrtRunner() as one:
        yield one


class Case:
    """A model with everything that is asked of it."""

    def __init__(self, runner: OrtRunner, model: onnx.ModelProto, *feeds: dict[str, np.ndarray], low: LowType = FP16) -> None:
        self.model = onnx.shape_inference.infer_shapes(model, data_prop=True)
        self.types, self.low, self.feeds, self.runner = declared_types(self.model), low, feeds, runner
        composites = composite_norms(open_model(self.model, None), self.types)
        self.units: list[Unit] = units(self.model, self.types, composites)
        self.ranges = measured_ranges(self.model, None, self.types, self.units, low, feeds, runner)

    def kept(self, is_users_data: bool = True) -> dict[str, Kept]:
        return range_kept(self.ranges, self.model, self.units, self.low, is_users_data)

    def confirmed(self, max_error: float) -> dict[str, Kept]:
        demands = range_demands(self.ranges, self.model, self.units, self.low, True)
        with Emulator(self.model, None, self.types, self.low, self.feeds, self.runner) as emulator:
            return confirmed(demands, emulator, max_error)


LAYER_NORM_2D = """
g (float[1,16,8,8] x) => (float[1,16,8,8] out) {
    c = Conv <pads = [1, 1, 1, 1]> (x, w)
    mean = ReduceMean <axes = [1]> (c)
    d = Sub (c, mean)
    q = Mul (d, d)
    v = ReduceMean <axes = [1]> (q)
    ve = Add (v, eps)
    r = Sqrt (ve)
    n = Div (d, r)
    g = Mul (n, gamma)
    out = Relu (g)
}"""


def layer_norm_2d(scale: float) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    weights = {
        "w": random(16, 16, 3, 3) * np.float32(scale / 12),
        "eps": np.array(1e-6, np.float32),
        "gamma": random(1, 16, 1, 1, seed=1),
    }
    return parse(LAYER_NORM_2D, weights), {"x": random(1, 16, 8, 8)}


def test_squares_beyond_half_precision_keep_the_whole_normalization(runner: OrtRunner) -> None:
    case = Case(runner, *layer_norm_2d(300.0))

    kept = case.kept()

    assert set(kept) == {"mean", "d", "q", "v", "ve", "r", "n", "g"}
    assert {one.cause for one in kept.values()} == {"range"}
    assert kept["q"].tensor == "q"
    assert kept["q"].value is not None
    assert kept["q"].value > 65504
    assert "q reaches" in kept["q"].reason
    assert "fp16 ends at 65504" in kept["q"].reason


def test_the_same_network_with_usual_values_asks_for_nothing(runner: OrtRunner) -> None:
    assert Case(runner, *layer_norm_2d(1.0)).kept(is_users_data=False) == {}


def test_bfloat16_has_the_range(runner: OrtRunner) -> None:
    model, feeds = layer_norm_2d(300.0)

    assert Case(runner, model, feeds, low=BF16).kept() == {}


def test_random_data_have_a_wider_margin_than_the_users(runner: OrtRunner) -> None:
    model = parse("g (float[N] x) => (float[N] y) { y = Mul (x, x) }")
    case = Case(runner, model, {"x": np.array([1, 110], np.float32)})

    assert case.kept(is_users_data=True) == {}
    kept = case.kept(is_users_data=False)
    assert set(kept) == {"y"}
    assert "other data may be 8 times as large" in kept["y"].reason


def test_a_mean_of_more_than_half_precision_holds_is_added_up_in_float32(runner: OrtRunner) -> None:
    model = parse("g (float[1,1000] x) => (float[1,1] y) { y = ReduceMean <axes = [1]> (x) }")

    assert Case(runner, model, {"x": np.full((1, 1000), 100, np.float32)}).kept() == {}


def test_the_sum_of_a_softmax_over_a_long_row_overflows(runner: OrtRunner) -> None:
    model = parse("g (float[1,70000] x) => (float[1,70000] y) { y = Softmax <axis = 1> (x) }")

    kept = Case(runner, model, {"x": np.zeros((1, 70000), np.float32)}).kept()

    assert "adds up to 7e+04 in a row" in kept["y"].reason


def test_running_sums_are_float32(runner: OrtRunner) -> None:
    model = parse("g (float[4,8] x, int64 a) => (float[4,8] y) { s = CumSum (x, a)  y = Neg (s) }")

    kept = Case(runner, model, {"x": random(4, 8), "a": np.array(1)}).kept()

    assert set(kept) == {"s"}


ATTENTION = """
g (float[2,8,4] q, float[2,8] m) => (float[2,8,8] y) {
    one = Constant <value = float {1}> ()
    lowest = Constant <value = float {-3.4e38}> ()
    axes = Constant <value = int64[1] {1}> ()
    shown = Sub (one, m)
    hidden = Mul (shown, lowest)
    wide = Unsqueeze (hidden, axes)
    k = Transpose <perm = [0, 2, 1]> (q)
    scores = MatMul (q, k)
    masked = Add (scores, wide)
    y = Softmax <axis = -1> (masked)
}"""


def test_a_mask_is_no_magnitude_but_scores_are(runner: OrtRunner) -> None:
    m = np.array([[1] * 8, [0] * 8], np.float32)
    case = Case(runner, parse(ATTENTION), {"q": random(2, 8, 4), "m": m})
    wide = Case(runner, parse(ATTENTION), {"q": random(2, 8, 4) * 300, "m": m})

    assert mask_tensors(case.model, case.units) - {"axes"} == {"masked", "wide", "hidden", "shown", "lowest", "one", "m"}
    assert case.kept(is_users_data=False) == {}
    assert set(wide.kept()) == {"scores", "masked", "y"}


def test_a_mask_that_is_used_otherwise_too_is_a_magnitude() -> None:
    model = onnx.shape_inference.infer_shapes(parse(ATTENTION.replace("y = Softmax", "z = Abs (hidden)  y = Softmax")))

    assert "hidden" not in mask_tensors(model, units(model, declared_types(model)))


def test_a_large_offset_in_front_of_a_norm_keeps_it_with_what_makes_its_data(runner: OrtRunner) -> None:
    model = parse("""
        g (float[4,64] x) => (float[4,64] out) {
            h = Add (x, offset)
            t = Reshape (h, shape)
            y = LayerNormalization (t, s)
            out = Relu (y)
        }""", {"s": np.ones(64, np.float32), "offset": np.array(500, np.float32), "shape": np.array([4, 64])})  # fmt: skip
    case = Case(runner, model, {"x": random(4, 64)})

    kept = case.kept()

    assert set(kept) == {"h", "t", "y"}
    assert "varies so little about its mean" in kept["y"].reason
    assert set(case.confirmed(1e-2)) == {"h", "t", "y"}


def test_zeros_integers_and_constant_rows_ask_for_nothing(runner: OrtRunner) -> None:
    model = parse("""
        g (float[4,64] x, int64[4] i) => (float[4,64] out) {
            f = Cast <to = 1> (i)
            axes = Constant <value = int64[1] {1}> ()
            c = Unsqueeze (f, axes)
            y = LayerNormalization <epsilon = 1.0e-12> (x, s)
            d = Div (y, one)
            out = Mul (d, c)
        }""", {"s": np.ones(64, np.float32), "one": np.ones(1, np.float32)})  # fmt: skip
    x = random(4, 64)
    x[0], x[1], x[2] = 0.0, 77.7, 3.0

    for low in (FP16, BF16):
        assert Case(runner, model, {"x": x, "i": np.array([0, 1, 2, 2048])}, low=low).kept(is_users_data=False) == {}


def test_a_divisor_that_vanishes_is_kept(runner: OrtRunner) -> None:
    model = parse("""
        g (float[4,8] x) => (float[4,8] y) {
            q = Mul (x, small)
            d = Abs (q)
            r = Mul (x, small)
            y = Div (r, d)
        }""", {"small": np.array(1e-6, np.float32)})  # fmt: skip
    case = Case(runner, model, {"x": random(4, 8)})

    found = case.confirmed(1e-2)

    assert {"d", "y"} <= set(found)
    assert "is divided by" in found["d"].reason or "moves it by" in found["d"].reason


def test_digits_that_nobody_needs_are_given_up(runner: OrtRunner) -> None:
    """As of a residual branch with a LayerScale of 1e-6."""
    model = parse(
        "g (float[4,8] x) => (float[4,8] y) { b = Mul (x, small)  y = Add (x, b) }", {"small": np.array(1e-6, np.float32)}
    )
    case = Case(runner, model, {"x": random(4, 8)})

    assert set(case.kept()) == {"b", "y"}
    assert case.confirmed(1e-2) == {}


def test_tensors_that_are_infinite_in_float32_ask_for_nothing(runner: OrtRunner) -> None:
    model = parse("g (float[N] x) => (float[N] y) { l = Log (x)  y = Exp (l) }")

    assert Case(runner, model, {"x": np.array([0, 1, 2], np.float32)}).kept() == {}


def test_only_images_about_zero_are_spread() -> None:
    image, tokens, weights = random(1, 3, 4, 4), np.arange(4), np.abs(random(1, 3, 4, 4))

    (wider,) = wider_inputs([{"x": image, "ids": tokens, "w": weights}])

    assert (wider["x"].min(), wider["x"].max()) == (0, pytest.approx(255))
    assert wider["x"].std() == pytest.approx(255 / 12**0.5, rel=0.1)  # normal noise that is stretched alone has half of that
    np.testing.assert_array_equal(np.argsort(wider["x"], axis=None), np.argsort(image, axis=None))
    assert wider["ids"] is tokens
    assert wider["w"] is weights
    assert wider_inputs([{"ids": tokens, "rows": random(4, 8), "w": weights}]) == []
