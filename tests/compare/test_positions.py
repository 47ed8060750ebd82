"""Positions at which something is read between its elements: rounding moves them, and that is no defect."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.compare.test_verdict import compared
from tests.models import parse, random
from trtnorm_cli.compare.result import FAILED, PASSED

IMAGE = {"x": random(1, 2, 224, 224)}
# What no convolution smooths shows a shift best, in a tensor of the reference's name.
RESIZED = 'g (float[1, 2, 224, 224] x) => (float y) {{ [resize] t = Resize <mode = "{mode}"> (x, , {given}) y = Relu (t) }}'


def resized(mode: str, scale: float | None = None) -> onnx.ModelProto:
    """By 225 / 224: to that size, or by a scale."""
    if scale is None:
        return parse(RESIZED.format(mode=mode, given=", sizes"), {"sizes": np.array([1, 2, 225, 225])}, opset=18)
    scales = np.array([1, 1, scale, scale], np.float32)
    return parse(RESIZED.format(mode=mode, given="scales"), {"scales": scales}, opset=18)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_a_scale_that_is_rounded_is_the_size_that_it_gives(tmp_path: Path, mode: str, seed: int) -> None:
    image = {"x": random(1, 2, 224, 224, seed=seed)}
    found = compared(tmp_path, resized(mode, 225 / 224), resized(mode), image, shares_tensors=True)
    assert found.state == PASSED


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_a_scale_that_is_another_is_found(tmp_path: Path, mode: str) -> None:
    assert compared(tmp_path, resized(mode), resized(mode, 225 / 224 * (1 + 1e-5)), IMAGE, shares_tensors=True).state == FAILED


def warped(body: str, last: float = 63.0) -> onnx.ModelProto:
    """An image read at a grid of pixels and a flow, which ``body`` brings from -1 to 1."""
    rows = np.stack(np.meshgrid(np.arange(64), np.arange(64)), axis=-1)[None].astype(np.float32)
    constants = {"grid": rows, "two": np.float32(2), "one": np.float32(1), "last": np.float32(last)}
    constants["share"] = np.float32(2 / np.float64(last))
    constants["shares"] = (rows.astype(np.float64) * 2 / last - 1).astype(np.float32)
    text = f"""g (float[1, 3, 64, 64] x, float[1, 64, 64, 2] flow) => (float y) {{ {body}
        [sampled] t = GridSample <align_corners = 1, mode = "MODE"> (x, n) y = Relu (t) }}"""
    return parse(text, {name: value for name, value in constants.items() if f"{name}" in body}, opset=16)


AS_WRITTEN = "p = Add (grid, flow) d = Mul (p, two) q = Div (d, last) n = Sub (q, one)"
MERGED = "f = Mul (flow, share) n = Add (f, shares)"


def of_mode(model: onnx.ModelProto, mode: str) -> onnx.ModelProto:
    next(a for node in model.graph.node for a in node.attribute if a.name == "mode").s = mode.encode()
    return model


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_constants_of_positions_may_be_merged(tmp_path: Path, mode: str, seed: int) -> None:
    fed = {"x": random(1, 3, 64, 64, seed=seed), "flow": random(1, 64, 64, 2, seed=seed + 1)}
    models = (of_mode(warped(body), mode) for body in (AS_WRITTEN, MERGED))
    assert compared(tmp_path, *models, fed, shares_tensors=True).state == PASSED


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_positions_that_are_others_are_found(tmp_path: Path, mode: str) -> None:
    fed = {"x": random(1, 3, 64, 64), "flow": random(1, 64, 64, 2, seed=1)}
    models = of_mode(warped(AS_WRITTEN), mode), of_mode(warped(MERGED, 63 * (1 + 1e-5)), mode)
    assert compared(tmp_path, *models, fed, shares_tensors=True).state == FAILED
