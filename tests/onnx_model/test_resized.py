"""The sizes of what is resized by scales in float32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, parse, random, saved
from trtnorm_cli import api
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.onnx_model.infer import checker_objection, does_not_fit_together
from trtnorm_cli.onnx_model.inference import infer_types
from trtnorm_cli.onnx_model.resized import with_scales_for_inference
from trtnorm_cli.onnx_model.shapes import declared_types

# Rounded, and times 224: 225 in float32, 224.99999618 in double.
SCALE = np.float32(225 / 224)
SCALES = {"s": np.array([1, 1, SCALE, SCALE], np.float32)}
CASES = {
    "a constant": ("g (float[1, 3, 224, 224] x) => (F y) { t = Resize (x, , s) y = Relu (t) }", 18, (1, 3, 225, 225)),
    "a size that is not known": (
        "g (float[N, 3, 224, 224] x) => (F y) { t = Resize (x, , s) y = Relu (t) }",
        18,
        (None, 3, 225, 225),
    ),
    "Resize of opset 10": ("g (float[1, 3, 224, 224] x) => (F y) { t = Resize (x, s) y = Relu (t) }", 10, (1, 3, 225, 225)),
    "Upsample": ("g (float[1, 3, 224, 224] x) => (F y) { t = Upsample (x, s) y = Relu (t) }", 9, (1, 3, 225, 225)),
    "a result of the model": ("g (float[1, 3, 224, 224] x) => (F t) { t = Resize (x, , s) }", 18, (1, 3, 225, 225)),
    "one behind the other": (
        "g (float[1, 3, 224, 224] x) => (F y) { a = Resize (x, , s) p = AveragePool <kernel_shape = [2, 2]> (a) "
        "t = Resize (p, , s) y = Relu (t) }",
        18,
        (1, 3, 225, 225),
    ),
    "a node": (
        "g (float[1, 3, 224, 224] x) => (F y) { r = Constant <value = float[4] {1, 1, 1.0044642686843872, "
        "1.0044642686843872}> () t = Resize (x, , r) y = Relu (t) }",
        18,
        (1, 3, 225, 225),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("text", "opset", "shape"), CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("data_prop", [False, True])
def test_sizes_are_those_in_float32(text: str, opset: int, shape: tuple[int | None, ...], data_prop: bool) -> None:
    model = parse(text.replace("F", "float[a, b, c, d]"), SCALES if "s)" in text else {}, opset=opset)
    types = declared_types(infer_types(model, data_prop))
    assert types["t"].shape == shape
    assert types["t" if "F t" in text else "y"].shape[1:] == shape[1:]


@pytest.mark.parametrize("scale", [2.0, 0.5, 1.5, 1 / 3])
def test_what_both_say_stays(scale: float) -> None:
    model = parse(
        CASES["a constant"][0].replace("F", "float[a, b, c, d]"), {"s": np.array([1, 1, scale, scale], np.float32)}, opset=18
    )
    plain = onnx.shape_inference.infer_shapes(model)
    assert infer_types(model, data_prop=False) == plain


def test_a_rewriting_with_such_a_resize_runs(tmp_path: Path) -> None:
    """ONNX Runtime puts a result where another of the size that the file says was."""
    text = """g (float[1, 3, 224, 224] x) => (float[a, b, c, d] y) {
        a = Relu (x) t = Resize <mode = "linear"> (a, , s) c = Conv (t, w)
        [bn] b = BatchNormalization (c, gamma, beta, mu, var) y = Relu (b) }"""
    weights = {**SCALES, "w": random(8, 3, 3, 3), **batchnorm(8)}
    source = saved(parse(text, weights, opset=17), tmp_path / "m.onnx")
    made = api.rewrite(source, output=tmp_path / "out.onnx")
    assert len(made.rewriting.changes) == 1
    feeds = {"x": random(1, 3, 224, 224)}
    with OrtRunner() as runner:
        before, behind = (runner.run(file, feeds)["y"] for file in (source, tmp_path / "out.onnx"))
    assert before.shape == behind.shape == (1, 8, 223, 223)
    np.testing.assert_allclose(behind, before, atol=1e-4)


def test_a_region_is_no_scale() -> None:
    """Sizes are given, and the second input says what is cropped."""
    text = """g (float[1, 3, 10, 10] x) => (float[a, b, c, d] t) {
        t = Resize <mode = "linear", coordinate_transformation_mode = "tf_crop_and_resize"> (x, roi, , sizes) }"""
    region = np.array([0, 0, 0.7, 0.7, 1, 1, 1, 1], np.float32)
    model = parse(text, {"roi": region, "sizes": np.array([1, 3, 5, 5])}, opset=18)
    assert declared_types(infer_types(model, data_prop=True))["t"].shape == (1, 3, 5, 5)


@pytest.mark.parametrize("scale", [3e38, np.inf, np.nan, -1.0, 0.0])
def test_scales_that_mean_nothing_are_left_to_others(scale: float) -> None:
    text = CASES["a constant"][0].replace("F", "float[a, b, c, d]")
    model = parse(text, {"s": np.array([1, 1, scale, scale], np.float32)}, opset=18)
    assert with_scales_for_inference(model, model) is None


def test_a_model_that_says_what_runtimes_give_fits_together() -> None:
    text = """g (float[1, 3, 224, 224] x) => (float[1, 3, 225, ROWS] y) {
        t = Resize (x, , s) p = MatMul (t, v) y = Add (p, w) }"""
    weights = {**SCALES, "v": random(225, 5)}
    good = parse(text.replace("ROWS", "5"), {**weights, "w": random(1, 3, 225, 5)}, opset=18)
    assert checker_objection(infer_types(good, data_prop=True), full_check=True) is None
    assert not does_not_fit_together(good)
    bad = parse(text.replace("ROWS", "7"), {**weights, "w": random(1, 3, 7, 7)}, opset=18)
    assert "Incompatible dimensions" in (checker_objection(bad, full_check=True) or "")
    assert does_not_fit_together(bad)


def test_resizes_that_share_scales_get_their_own() -> None:
    """Each round gives further ones, so that no name may come twice."""
    text = """g (float[1, 3, 224, 224] x, float[1, 3, 224, 224] z) => (float[a, b, c, d] y) {
        t = Resize (x, , s) u = Resize (z, , s) y = Add (t, u) }"""
    model = parse(text, SCALES, opset=18)
    once = with_scales_for_inference(model, infer_types(model, data_prop=False))
    assert once is not None
    names = [tensor.name for tensor in once.graph.initializer]
    assert len(set(names)) == len(names) == 3
    assert [node.input[2] for node in once.graph.node[:2]] == names[1:]
    assert with_scales_for_inference(once, infer_types(once, data_prop=False)) is None
