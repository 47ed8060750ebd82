"""short-time-fourier-transform: an STFT of frames of a fixed length as a convolution."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models import loaded, operators, parse, random, saved
from tests.numerics import relative_error
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from tests.rewritings import rewrite as rewrite_model
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.onnx_model.stored import brought_in
from trtnorm_cli.rewrite.parts import fourier_tables
from trtnorm_cli.rewrite.rules import short_time_fourier_transform as rule
from trtnorm_cli.tensorrt.network import network_of

NAME = rule.RULE.name


def stft(
    shape: str = "2, 40, 1",
    step: int = 3,
    window: np.ndarray | None = None,
    length: int | None = 8,
    onesided: int | None = None,
    kind: str = "float",
) -> onnx.ModelProto:
    """A model of one STFT, without what is None."""
    stated = "" if onesided is None else f"<onesided={onesided}>"
    weights = {"step": np.array(step)} | ({} if window is None else {"window": window})
    weights |= {} if length is None else {"length": np.array(length)}
    given = [name if name in weights else "" for name in ("step", "window", "length")]
    while not given[-1]:
        given.pop()
    graph = f"g ({kind}[{shape}] x) => ({kind}[] y) {{ y = STFT {stated} (x, {', '.join(given)}) }}"
    return parse(graph, weights, opset=17)


def by_definition(x: np.ndarray, step: int, window: np.ndarray, onesided: bool = True) -> np.ndarray:
    """Frame by frame, as the specification has it."""
    x, length = x.astype(np.float64), len(window)
    signal = x if x.ndim == 2 else x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]
    frames = [signal[:, start : start + length] * window for start in range(0, signal.shape[1] - length + 1, step)]
    turns = np.exp(-2j * np.pi * np.outer(np.arange(length), np.arange(length)) / length)
    made = np.stack(frames, axis=1) @ (turns[:, : length // 2 + 1] if onesided else turns)
    return np.stack([made.real, made.imag], axis=-1)


def outputs(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return evaluate_float64(model, {"x": x}).outputs["y"]


@pytest.mark.parametrize("shape", ["2, 40, 1", "2, 40", "B, T, 1", "B, T"])
@pytest.mark.parametrize("has_window", [True, False])
def test_signals_of_one_number_for_each_time(rewrite, shape, has_window):
    sizes = tuple({"B": 2, "T": 40}.get(size) or int(size) for size in shape.split(", "))
    window = np.hanning(8).astype(np.float32) if has_window else None
    result = rewrite(stft(shape, window=window, length=None if has_window else 8), pins={"x": sizes})
    assert result.rules == [NAME]
    assert operators(result.model) == ["Transpose" if len(sizes) == 3 else "Reshape", "Conv", "Transpose", "Reshape"]
    x = random(*sizes)
    wanted = by_definition(x, 3, np.ones(8) if window is None else window)
    assert relative_error(wanted, outputs(result.model, x)) < 1e-6


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 12), st.integers(1, 7), st.integers(0, 20), st.booleans(), st.booleans())
def test_every_length_and_step(rewrite_once, length, step, further, is_complex, onesided):
    onesided = onesided and not is_complex
    window = random(length)
    model = stft(f"2, {length + further}, {1 + is_complex}", step, window, length, int(onesided))
    x = random(2, length + further, 1 + is_complex)
    wanted = by_definition(x, step, window, onesided)
    assert np.abs(wanted - outputs(rewrite_once(model, rule.RULE), x)).max() < 1e-6 * max(1, np.abs(wanted).max())


def test_frames_of_music_are_long(rewrite):
    """Half of a spectrum is a table of half the size: source separation takes frames of 4,096 values."""
    assert rewrite(stft("1, 4096, 1", 1024, length=4096)).rules == [NAME]


def test_one_frame_of_the_whole_signal(rewrite):
    result = rewrite(stft("2, 12, 1", length=None))
    x = random(2, 12, 1)
    assert relative_error(by_definition(x, 3, np.ones(12)), outputs(result.model, x)) < 1e-6


@pytest.mark.parametrize(("kind", "dtype"), [("float16", np.float16), ("double", np.float64)])
def test_other_types(rewrite, kind, dtype):
    window = np.hanning(8).astype(dtype)
    result = rewrite(stft(window=window, kind=kind))
    assert operators(result.model).count("Cast") == (2 if kind == "float16" else 0)
    x = random(2, 40, 1, dtype=dtype)
    wanted = by_definition(x, 3, window.astype(np.float64))
    assert relative_error(wanted, outputs(result.model, x)) < (1e-3 if kind == "float16" else 1e-14)


REFUSALS = [
    Refusal(fourier_tables.data_are_floats, stft(""), "type or rank of the data of"),
    Refusal(rule.data_are_signals, stft("2, 40, 4"), "holds neither real nor complex numbers"),
    Refusal(rule.data_are_signals, stft("40"), "has data of 1 axes"),
    Refusal(rule.frames_are_known, stft("2, T, 1", length=None), "the length of a frame of"),
    Refusal(rule.frames_are_known, stft(step=0), "has a step of 0"),
    Refusal(rule.frames_are_known, stft(window=np.ones(6, np.float32)), "has shape [6], and its frames 8 values"),
    Refusal(rule.half_is_of_real_data, stft("2, 40, 2"), "is one-sided, and its data are complex"),
    Refusal(rule.table_is_small, stft("1, 6000, 1", length=5800), "its table would have 33,651,600 numbers"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_second_pass_changes_nothing(rewrite):
    assert rewrite(rewrite(stft()).model).outcome.changes == []


@pytest.mark.rtx
def test_tensorrt_takes_the_right_angles_then(tmp_path):
    """TensorRT for RTX 1.7 computes them in float32: those of the last values are off by 1e-4."""
    window = np.hanning(400).astype(np.float32)
    before, x = stft("1, 4000, 1", 160, window, 400), random(1, 4000, 1)
    wanted = by_definition(x, 160, window.astype(np.float64))

    def error(model: onnx.ModelProto) -> float:
        made = network_of(saved(brought_in(model), tmp_path / "m.onnx"), tmp_path / "network.onnx")
        (result,) = evaluate_float64(made.network, {"x": x}).outputs.values()
        return relative_error(wanted, result)

    rewriting = rewrite_model(loaded(before, tmp_path))
    assert error(before) > 1e-5
    assert error(rewriting.model) < 1e-7
