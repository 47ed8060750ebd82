from __future__ import annotations

import onnx

from tests.models import parse, random
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.precision.calibration import kept_by_values
from trtnorm_cli.precision.emulate import Emulator
from trtnorm_cli.precision.low_types import FP16

MODEL = """
g (float[1,3,8,8] x) => (float[1,4,8,8] y) {
    c = Conv <pads = [1, 1, 1, 1]> (x, w)
    s = Mul (c, c)
    y = Relu (s)
}"""


def test_random_images_are_widened_and_the_users_are_not() -> None:
    model = onnx.shape_inference.infer_shapes(parse(MODEL, {"w": random(4, 3, 3, 3)}))
    types, feeds = declared_types(model), [{"x": random(1, 3, 8, 8)}]
    with OrtRunner() as runner, Emulator(model, None, types, FP16, feeds, runner) as emulator:
        rest = (emulator, 1e-2, {"y"}, runner)

        assert set(kept_by_values(model, None, types, [], feeds, False, *rest)) == {"s"}
        assert kept_by_values(model, None, types, [], feeds, True, *rest) == {}
