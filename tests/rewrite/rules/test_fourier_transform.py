"""fourier-transform: a DFT along any axis, of any length, forward, back and half of it, as a matrix product."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models import loaded, operators, parse, random
from tests.numerics import relative_error
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from tests.rewritings import rewrite as rewrite_model
from tests.tensorrt.builds import built
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.parts import fourier_tables
from trtnorm_cli.rewrite.rules import fourier_transform as rule

NAME = rule.RULE.name


def dft(
    shape: str = "3, 6, 1", axis: int | None = 1, length: int | None = None, attributes: str = "", kind: str = "float", opset=20
) -> onnx.ModelProto:
    """A model of one DFT; the axis is an attribute before opset 20."""
    inputs, weights = ["x"], {}
    if length is not None or (opset >= 20 and axis is not None):
        inputs.append("length" if length is not None else "")
        weights |= {} if length is None else {"length": np.array(length)}
    if opset >= 20 and axis is not None:
        inputs.append("axis")
        weights["axis"] = np.array(axis)
    stated = [attributes] * bool(attributes) + [f"axis={axis}"] * (opset < 20 and axis is not None)
    made = f"y = DFT <{', '.join(stated)}> ({', '.join(inputs)})" if stated else f"y = DFT ({', '.join(inputs)})"
    return parse(f"g ({kind}[{shape}] x) => ({kind}[] y) {{ {made} }}", weights, opset=opset)


def by_definition(x: np.ndarray, axis: int, length: int, inverse: bool = False, onesided: bool = False) -> np.ndarray:
    """Sum by sum, as the specification has it."""
    values = np.moveaxis(x.astype(np.float64), axis, -2)
    values = values[..., 0] + 1j * values[..., 1] if values.shape[-1] == 2 else values[..., 0] + 0j
    padded = np.zeros((*values.shape[:-1], length), complex)
    kept = min(values.shape[-1], length)
    padded[..., :kept] = values[..., :kept]
    if inverse and onesided:  # the other half is that of real data
        half = length // 2 + 1
        padded[..., 0] = padded[..., 0].real
        if length % 2 == 0:
            padded[..., half - 1] = padded[..., half - 1].real
        padded[..., half:] = padded[..., 1 : length - half + 1][..., ::-1].conj()
    turns = np.outer(np.arange(length), np.arange(length)) * (1j if inverse else -1j) * 2 * np.pi / length
    made = padded @ np.exp(turns) / (length if inverse else 1)
    if inverse and onesided:
        return np.moveaxis(made.real[..., None], -2, axis)
    made = made[..., : length // 2 + 1] if onesided else made
    return np.moveaxis(np.stack([made.real, made.imag], axis=-1), -2, axis)


def outputs(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    return evaluate_float64(model, {"x": x}).outputs["y"]


@pytest.mark.parametrize("attributes", ["", "onesided=1", "inverse=1"])
@pytest.mark.parametrize("opset", [17, 19, 20])
@pytest.mark.parametrize("axis", [0, 1, 2, -2, -3, None])
def test_every_axis_and_opset(rewrite, axis, opset, attributes):
    result = rewrite(dft("4, 5, 6, 1", axis, attributes=attributes, opset=opset))
    assert result.rules == [NAME]
    assert "DFT" not in operators(result.model)
    x = random(4, 5, 6, 1)
    at = (1 if opset < 20 else 2) if axis is None else axis % 4
    wanted = by_definition(x, at, x.shape[at], inverse="inv" in attributes, onesided="one" in attributes)
    assert relative_error(wanted, outputs(result.model, x)) < 1e-6


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.integers(1, 9), st.integers(1, 12), st.booleans(), st.booleans(), st.booleans())
def test_every_length(rewrite_once, count, length, is_complex, inverse, onesided):
    is_complex = is_complex if not onesided else inverse
    attributes = f"inverse={int(inverse)}, onesided={int(onesided)}"
    count = min(count, length // 2 + 1) if inverse and onesided else count
    made = rewrite_once(dft(f"2, {count}, {1 + is_complex}", 1, length, attributes), rule.RULE)
    x = random(2, count, 1 + is_complex)
    wanted = by_definition(x, 1, length, inverse, onesided)
    assert np.abs(wanted - outputs(made, x)).max() < 1e-6 * max(1, np.abs(wanted).max())


def test_half_of_a_spectrum_back(rewrite):
    """irfft: without a length twice as many real numbers as there are complex ones, less two."""
    result = rewrite(dft("3, 5, 2", 1, attributes="inverse=1, onesided=1"))
    x = random(3, 5, 2)
    wanted = np.fft.irfft(x[..., 0].astype(np.float64) + 1j * x[..., 1], axis=1)[..., None]
    assert wanted.shape == (3, 8, 1)
    assert relative_error(wanted, outputs(result.model, x)) < 1e-6


@pytest.mark.parametrize("shape", ["N, 6, 1", "N, 6, H, 2", "6, 2"])
def test_lengths_that_are_known_at_run_time(rewrite, shape):
    sizes = tuple(int(size) if size.isdigit() else 3 for size in shape.split(", "))
    axis = 0 if len(sizes) == 2 else 1
    result = rewrite(dft(shape, axis), pins={"x": sizes})
    assert result.rules == [NAME]
    x = random(*sizes)
    assert relative_error(by_definition(x, axis, 6), outputs(result.model, x)) < 1e-6


@pytest.mark.parametrize(("kind", "dtype"), [("float16", np.float16), ("double", np.float64)])
def test_other_types(rewrite, kind, dtype):
    result = rewrite(dft(kind=kind, attributes="onesided=1"))
    assert operators(result.model).count("Cast") == (2 if kind == "float16" else 0)
    x = random(3, 6, 1, dtype=dtype)
    wanted = by_definition(x, 1, 6, onesided=True)
    assert relative_error(wanted, outputs(result.model, x)) < (1e-3 if kind == "float16" else 1e-14)


def test_two_axes_one_after_the_other(rewrite):
    """The Fourier transform of an image, as FNet mixes tokens with it."""
    graph = "g (float[2, 4, 6, 1] x) => (float[] y) { a = DFT (x, , first) y = DFT (a, , second) }"
    result = rewrite(parse(graph, {"first": np.array(1), "second": np.array(2)}, opset=20))
    assert result.rules == [NAME, NAME]
    x = random(2, 4, 6, 1)
    wanted = np.fft.fft2(x[..., 0].astype(np.float64))
    assert relative_error(np.stack([wanted.real, wanted.imag], -1), outputs(result.model, x)) < 1e-6


def with_unknown_length() -> onnx.ModelProto:
    return parse("g (float[2, 6, 1] x, int64 n) => (float[] y) { y = DFT (x, n) }", opset=20)


REFUSALS = [
    Refusal(fourier_tables.data_are_floats, dft(""), "type or rank of the data of"),
    Refusal(fourier_tables.data_are_real_or_complex, dft("3, 6, 4"), "holds neither real nor complex numbers"),
    Refusal(fourier_tables.data_are_real_or_complex, dft("3, 6, C"), "holds neither real nor complex numbers"),
    Refusal(rule.axis_is_of_values, dft(axis=2), "has axis 2 of 3"),
    Refusal(rule.axis_is_of_values, dft(axis=5), "has axis 5 of 3"),
    Refusal(rule.axis_is_of_values, dft("3, L, 1"), "the length of axis 1 of"),
    Refusal(rule.is_defined, dft(length=0), "has a length of 0"),
    Refusal(rule.is_defined, dft("3, 6, 2", attributes="onesided=1"), "is one-sided, and its data are complex"),
    Refusal(rule.is_defined, dft("3, 6, 1", attributes="onesided=1, inverse=1"), "is one-sided, and its data are real"),
    Refusal(rule.is_defined, dft("3, 6, 2", 1, 8, "onesided=1, inverse=1"), "takes 5 values for half of a spectrum"),
    Refusal(rule.table_is_small, dft("1, 4097, 1"), "its table would have 33,570,818 numbers"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_length_that_is_computed_is_left_alone(rewrite):
    result = rewrite(with_unknown_length())
    assert result.outcome.changes == []


def test_a_second_pass_changes_nothing(rewrite):
    assert rewrite(rewrite(dft()).model).outcome.changes == []


@pytest.mark.rtx
def test_tensorrt_takes_it_then(tmp_path):
    before = dft("2, 12, 1", attributes="onesided=1", opset=17)
    assert not built(before, tmp_path).ok
    assert built(rewrite_model(loaded(before, tmp_path)).model, tmp_path).ok
