"""Fourier transforms: what ONNX Runtime makes of every form, and what they demand of a signal's length."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import parse
from tests.shapes.runs import agree
from trtnorm_cli.shapes.propagate import propagate

WEIGHTS = {
    "step": np.array(3),
    "window": np.ones(8, np.float32),
    "length": np.array(8),
    "odd": np.array(7),
    "axis": np.array(-2),
}


def model(shape: str, body: str, opset: int = 17) -> onnx.ModelProto:
    return parse(
        f"g (float[{shape}] x) => (float[?, ?, ?, ?] y) {{ y = {body} }}",
        {name: value for name, value in WEIGHTS.items() if f" {name}" in body},
        opset=opset,
    )


@pytest.mark.parametrize(
    ("shape", "opset", "body"),
    [
        ("N, L, 3, 1", 17, "DFT(x)"),
        ("N, L, 3, 1", 17, "DFT<onesided=1>(x)"),
        ("N, L, 3, 2", 17, "DFT<inverse=1>(x)"),
        ("N, 3, L, 1", 17, "DFT<axis=2, onesided=1>(x)"),
        ("N, 3, L, 1", 17, "DFT<axis=-2>(x, odd)"),
        ("N, 3, L, 1", 20, "DFT(x)"),
        ("N, L, 3, 1", 20, "DFT<onesided=1>(x, odd)"),
        ("N, 3, L, 1", 20, "DFT<onesided=1>(x, , axis)"),
        ("N, 3, L, 2", 20, "DFT<onesided=1, inverse=1>(x)"),
        ("N, 3, 5, 2", 20, "DFT<onesided=1, inverse=1>(x, length)"),
    ],
)
def test_transforms_of_an_axis(shape, opset, body):
    made = model(shape, body, opset)
    sizes = propagate(made).tensors
    assert sizes["y"].size is not None
    assert all(agree(made, *({"N": 2, "L": length} for length in (2, 5, 8, 9))))


@pytest.mark.parametrize("signal", ["N, L, 1", "N, L"])
@pytest.mark.parametrize(
    "body",
    ["STFT(x, step, window)", "STFT(x, step, , length)", "STFT<onesided=0>(x, step, window, length)", "STFT(x, step, , odd)"],
)
def test_frames_of_a_signal(signal, body):
    made = model(signal, body)
    assert propagate(made).tensors["y"].size is not None
    assert all(agree(made, *({"N": 2, "L": length} for length in range(8, 16))))


def test_a_frame_has_to_fit_into_the_signal():
    made = propagate(model("N, L, 1", "STFT(x, step, window)"))
    (demand,) = made.constraints
    assert "dimension 1 must not be smaller than a frame of 8 values" in demand.demand


def shape_of(graph: str, opset: int = 17) -> list[str] | None:
    shape = propagate(parse(graph, opset=opset)).tensors["y"].shape
    return None if shape is None else [str(size) for size in shape]


def test_what_is_known_at_run_time_only():
    graph = "g (float[N, L, 1] x, int64 step, int64 n) => (float[?, ?, ?, ?] y) { y = STFT(x, step, , n) }"
    assert shape_of(graph) == ["N", "None", "n.values[0]//2 + 1", "2"]
    axis = "g (float[N, L, 1] x, int64 axis) => (float[?, ?, ?] y) { y = DFT(x, , axis) }"
    assert shape_of(axis, 20) == ["None", "None", "None"]
    assert shape_of("g (float[] x) => (float[] y) { y = DFT(x) }") is None
