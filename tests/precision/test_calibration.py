"""From calibration inputs to kept nodes: random images stand for images of 0 to 255 too."""

from __future__ import annotations

import onnx

from tests.models import parse, random
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.precision.calibration import KeptByValues, kept_by_values, value_ranges
from trtnorm_cli.precision.emulate import Emulator
from trtnorm_cli.precision.low_types import FP16

BRIGHT = """
g (float[1,3,8,8] x) => (float[1,4,8,8] y) {
    c = Conv <pads = [1, 1, 1, 1]> (x, w)
    s = Mul (c, c)
    r = Relu (s)
    t0 = Tanh (r)  t1 = Tanh (t0)  t2 = Tanh (t1)  t3 = Tanh (t2)  t4 = Tanh (t3)  t5 = Tanh (t4)
    t6 = Tanh (t5)  t7 = Tanh (t6)  t8 = Tanh (t7)  t9 = Tanh (t8)
    y = Tanh (t9)
}"""
BRIGHTER = BRIGHT.replace("Tanh", "Neg")


def found(graph: str, is_users_data: bool, float32: frozenset[str] = frozenset()) -> KeptByValues:
    model = onnx.shape_inference.infer_shapes(parse(graph, {"w": random(4, 3, 3, 3)}))
    types, feeds = declared_types(model), [{"x": random(1, 3, 8, 8)}]
    with OrtRunner() as runner, Emulator(model, None, types, FP16, feeds, runner) as emulator:
        ranges = value_ranges(model, None, types, [], FP16, feeds, is_users_data, runner)
        return kept_by_values(model, [], ranges, emulator, 1e-2, float32)


def test_a_network_fed_noise_survives_images_of_0_to_255() -> None:
    kept = found(BRIGHT, is_users_data=False).kept

    assert set(kept) == {"s", "r", "t0"}
    assert "with images of 0 to 255" in kept["s"].reason


def test_what_is_float32_already_is_not_named_again() -> None:
    assert "s" not in found(BRIGHT, is_users_data=False, float32=frozenset({"s"})).kept


def test_the_users_images_are_what_they_are() -> None:
    assert found(BRIGHT, is_users_data=True) == KeptByValues({})


def test_a_network_that_overflows_throughout_is_made_for_other_images() -> None:
    result = found(BRIGHTER, is_users_data=False)

    assert result.kept == {}
    assert "would overflow in fp16 with images of 0 to 255" in result.notes[0]
    assert "precision: {data: …}" in result.notes[0]
