"""Kernels against PyTorch's in float64, over drawn attributes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.evaluate.float64.nodes import assert_close, in_float64

torch = pytest.importorskip("torch")
functional = torch.nn.functional
pytestmark = pytest.mark.torch

drawn = settings(max_examples=25, deadline=None, derandomize=True)
TOLERANCE = 1e-12


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape)


def tensor(array: np.ndarray) -> Any:
    return torch.from_numpy(np.ascontiguousarray(array))


def lists(data: Any, rank: int, low: int, high: int) -> list[int]:
    return data.draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))


@drawn
@given(st.data(), st.integers(1, 3), st.integers(1, 3))
def test_conv(data, rank, group):
    strides, dilations, kernel = (lists(data, rank, 1, high) for high in (3, 2, 3))
    pads = lists(data, rank, 0, 2)
    x, w = normal(2, 2 * group, *lists(data, rank, 5, 9)), normal(3 * group, 2, *kernel, seed=1)
    bias = normal(3 * group, seed=2)
    convolve = getattr(functional, f"conv{rank}d")
    expected = convolve(tensor(x), tensor(w), tensor(bias), strides, pads, dilations, group)
    attributes = {"strides": strides, "pads": pads * 2, "dilations": dilations, "group": group}
    assert_close(in_float64("Conv", [x, w, bias], **attributes), expected, TOLERANCE)


@drawn
@given(st.data(), st.integers(1, 3), st.integers(1, 2))
def test_conv_in_pieces(data, rank, group):
    """Windows, padded inputs and threads for a few numbers at a time; some windows lie in the padding alone."""
    from trtnorm_cli.evaluate.float64.kernels import convolution, working_memory

    strides, dilations, kernel = (lists(data, rank, 1, high) for high in (3, 3, 3))
    sizes, pads = lists(data, rank, 5, 9), lists(data, 2 * rank, 0, 4)
    x, w = normal(2, 2 * group, *sizes), normal(3 * group, 2, *kernel, seed=1)
    around = [n for pair in reversed(list(zip(pads[:rank], pads[rank:], strict=True))) for n in pair]
    convolve = getattr(functional, f"conv{rank}d")
    expected = convolve(functional.pad(tensor(x), around), tensor(w), None, strides, 0, dilations, group)
    limits = {
        "MATRIX_ELEMENTS": st.sampled_from([1, 200, 2000]),
        "WHOLE_ELEMENTS": st.sampled_from([1, 40, 1 << 21]),
        "LEAST_COLUMNS": st.integers(1, 5),
        "MOST_ELEMENTS": st.sampled_from([1, 200, 500, 1 << 21]),
        "WORTH_THREADS": st.sampled_from([1, 1 << 27]),
    }
    attributes = {"strides": strides, "pads": pads, "dilations": dilations, "group": group}
    with pytest.MonkeyPatch.context() as patch:
        for name, values in limits.items():
            patch.setattr(convolution, name, data.draw(values))
        patch.setattr(working_memory, "MOST_ELEMENTS", convolution.MOST_ELEMENTS)
        assert_close(in_float64("Conv", [x, w], **attributes), expected, TOLERANCE)


def test_windows_of_a_large_convolution_stay_small(monkeypatch):
    """All positions of a slice of space at a time would be several times the memory that is used again."""
    from trtnorm_cli.evaluate.float64.kernels import convolution

    x, w = normal(1, 16, 8, 48, 64), normal(4, 16, 3, 3, 3, seed=1)
    made = []
    real = convolution.working_memory
    monkeypatch.setattr(convolution, "working_memory", lambda name, shape, kind: made.append(shape) or real(name, shape, kind))
    monkeypatch.setattr(convolution, "copied", lambda values, name, kind: made.append(values.shape) or values.astype(kind))
    assert_close(in_float64("Conv", [x, w], pads=[1] * 6), functional.conv3d(tensor(x), tensor(w), None, 1, 1), TOLERANCE)
    assert len(made) > 2
    assert max(map(math.prod, made)) <= convolution.MATRIX_ELEMENTS * 2


@drawn
@given(st.data(), st.integers(1, 3), st.integers(1, 3))
def test_conv_transpose(data, rank, group):
    strides, dilations, kernel = (lists(data, rank, 1, high) for high in (3, 2, 3))
    pads = [data.draw(st.integers(0, (k - 1) * d)) for k, d in zip(kernel, dilations, strict=True)]
    extra = [data.draw(st.integers(0, max(s, d) - 1)) for s, d in zip(strides, dilations, strict=True)]
    x, w = normal(2, 2 * group, *lists(data, rank, 3, 5)), normal(2 * group, 3, *kernel, seed=1)
    bias = normal(3 * group, seed=2)
    convolve = getattr(functional, f"conv_transpose{rank}d")
    expected = convolve(tensor(x), tensor(w), tensor(bias), strides, pads, extra, group, dilations)
    attributes = {"strides": strides, "pads": pads * 2, "dilations": dilations, "group": group, "output_padding": extra}
    assert_close(in_float64("ConvTranspose", [x, w, bias], **attributes), expected, TOLERANCE)


@drawn
@given(st.data(), st.integers(1, 3), st.booleans())
def test_max_pool(data, rank, ceil):
    kernel, strides, dilations = lists(data, rank, 2, 3), lists(data, rank, 1, 3), lists(data, rank, 1, 2)
    pads = [data.draw(st.integers(0, k // 2)) for k in kernel]
    x = normal(2, 3, *lists(data, rank, 5, 9))
    pool = getattr(functional, f"max_pool{rank}d")
    expected, places = pool(tensor(x), kernel, strides, pads, dilations, ceil, return_indices=True)
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads * 2, "dilations": dilations, "ceil_mode": int(ceil)}
    values, indices = in_float64("MaxPool", [x], opset=12, outputs=2, **attributes)
    assert_close(values, expected, 0)
    planes = np.arange(6).reshape(2, 3, *(1,) * rank) * int(np.prod(x.shape[2:]))
    np.testing.assert_array_equal(indices - planes, places.numpy())


@drawn
@given(st.data(), st.integers(1, 3), st.booleans(), st.booleans())
def test_average_pool(data, rank, ceil, include):
    kernel, strides = lists(data, rank, 2, 3), lists(data, rank, 1, 3)
    pads = [data.draw(st.integers(0, k // 2)) for k in kernel]
    x = normal(2, 3, *lists(data, rank, 5, 9))
    expected = getattr(functional, f"avg_pool{rank}d")(tensor(x), kernel, strides, pads, ceil, include)
    attributes = {"kernel_shape": kernel, "strides": strides, "pads": pads * 2, "ceil_mode": int(ceil)}
    assert_close(in_float64("AveragePool", [x], count_include_pad=int(include), **attributes), expected, TOLERANCE)


@pytest.mark.parametrize("p", [1, 2, 3])
def test_lp_pool(p):
    x = np.abs(normal(2, 3, 7, 8))
    expected = functional.lp_pool2d(tensor(x), p, 3, 2)
    assert_close(in_float64("LpPool", [x], opset=18, p=p, kernel_shape=[3, 3], strides=[2, 2]), expected, TOLERANCE)


EPSILON = float(np.float32(1e-3))


@pytest.mark.parametrize("training", [False, True])
def test_batch_normalization(training):
    x, scale, bias, mean = normal(4, 3, 5, 6), normal(3, seed=1), normal(3, seed=2), normal(3, seed=3)
    variance, keep = np.abs(normal(3, seed=4)), float(np.float32(0.7))
    parameters = [tensor(v.copy()) for v in (mean, variance)]
    expected = functional.batch_norm(tensor(x), *parameters, tensor(scale), tensor(bias), training, 1 - keep, EPSILON)
    outputs = 3 if training else 1
    result = in_float64("BatchNormalization", [x, scale, bias, mean, variance], outputs=outputs, epsilon=1e-3, momentum=0.7,
                        **({"training_mode": 1} if training else {}))  # fmt: skip
    assert_close(result[0] if training else result, expected, TOLERANCE)
    if training:
        assert_close(result[1], parameters[0], TOLERANCE)
        population = mean_of_batch_variance(x) * (1 - keep) + variance * keep
        assert_close(result[2], population, TOLERANCE)  # torch keeps the unbiased variance


def mean_of_batch_variance(x: np.ndarray) -> np.ndarray:
    return tensor(x).transpose(0, 1).reshape(x.shape[1], -1).var(dim=1, unbiased=False).numpy()


@pytest.mark.parametrize("opset", [7, 9])
@pytest.mark.parametrize("outputs", [1, 5])
def test_batch_normalization_of_old_opsets_trains_with_more_outputs(opset, outputs):
    x, scale, bias, mean = normal(4, 3, 5), normal(3, seed=1), normal(3, seed=2), normal(3, seed=3)
    variance = np.abs(normal(3, seed=4))
    statistics = (tensor(mean.copy()), tensor(variance.copy()))
    expected = functional.batch_norm(tensor(x), *statistics, tensor(scale), tensor(bias), outputs > 1, eps=EPSILON)
    result = in_float64("BatchNormalization", [x, scale, bias, mean, variance], opset, outputs, epsilon=1e-3)
    assert_close(result if outputs == 1 else result[0], expected, TOLERANCE)


def test_batch_normalization_per_activation():
    x, parameters = normal(2, 3, 4), [np.abs(normal(3, 4, seed=i)) for i in range(4)]
    scale, bias, mean, variance = parameters
    result = in_float64("BatchNormalization", [x, *parameters], opset=7, spatial=0, epsilon=1e-3)
    assert_close(result, (x - mean) / np.sqrt(variance + EPSILON) * scale + bias, TOLERANCE)


@pytest.mark.parametrize("shape", [(2, 6, 5), (2, 6, 4, 5), (2, 6, 3, 2, 4)])
def test_instance_and_group_normalization(shape):
    x, scale, bias = normal(*shape), normal(6, seed=1), normal(6, seed=2)
    expected = functional.instance_norm(tensor(x), weight=tensor(scale), bias=tensor(bias), eps=EPSILON)
    assert_close(in_float64("InstanceNormalization", [x, scale, bias], epsilon=1e-3), expected, TOLERANCE)
    for groups in (1, 2, 3, 6):
        expected = functional.group_norm(tensor(x), groups, tensor(scale), tensor(bias), EPSILON)
        result = in_float64("GroupNormalization", [x, scale, bias], opset=21, num_groups=groups, epsilon=1e-3)
        assert_close(result, expected, TOLERANCE)
        per_group = [np.repeat(v[:groups], 6 // groups) for v in (scale, bias)]
        expected = functional.group_norm(tensor(x), groups, *map(tensor, per_group), EPSILON)
        inputs = [x, scale[:groups], bias[:groups]]
        result = in_float64("GroupNormalization", inputs, opset=18, num_groups=groups, epsilon=1e-3)
        assert_close(result, expected, TOLERANCE)


@pytest.mark.parametrize("axis", [-1, -2, 1, 2, 3])
def test_layer_and_rms_normalization(axis):
    x = normal(2, 3, 4, 5)
    shape = x.shape[axis:]
    scale, bias = normal(*shape, seed=1), normal(*shape, seed=2)
    expected = functional.layer_norm(tensor(x), shape, tensor(scale), tensor(bias), EPSILON)
    y, mean, inverse = in_float64("LayerNormalization", [x, scale, bias], opset=17, outputs=3, axis=axis, epsilon=1e-3)
    assert_close(y, expected, TOLERANCE)
    axes = tuple(range(axis % 4, 4))
    assert_close(mean, tensor(x).mean(dim=axes, keepdim=True), TOLERANCE)
    assert_close(inverse, (tensor(x).var(dim=axes, keepdim=True, unbiased=False) + EPSILON).rsqrt(), TOLERANCE)
    expected = functional.rms_norm(tensor(x), shape, tensor(scale), EPSILON)
    assert_close(in_float64("RMSNormalization", [x, scale], opset=23, axis=axis, epsilon=1e-3), expected, TOLERANCE)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_local_response_normalization(size):
    x = normal(2, 6, 4, 3)
    expected = functional.local_response_norm(tensor(x), size, 0.5, 0.75, 2.0)
    result = in_float64("LRN", [x], opset=13, size=size, alpha=0.5, beta=0.75, bias=2.0)
    if size % 2:
        assert_close(result, expected, TOLERANCE)
    else:  # torch's window of even size lies one channel lower
        assert_close(result, np.flip(functional.local_response_norm(tensor(np.flip(x, 1)), size, 0.5, 0.75, 2.0).numpy(), 1),
                     TOLERANCE)  # fmt: skip


@drawn
@given(st.data(), st.sampled_from(["linear", "cubic"]), st.booleans(), st.booleans())
def test_resize(data, mode, aligned, antialias):
    assume(not (antialias and aligned))
    x, wanted = normal(1, 2, *lists(data, 2, 4, 9)), lists(data, 2, 2, 15)
    kind = {"linear": "bilinear", "cubic": "bicubic"}[mode]
    expected = functional.interpolate(tensor(x), size=wanted, mode=kind, align_corners=aligned, antialias=antialias)
    attributes = {"mode": mode, "coordinate_transformation_mode": "align_corners" if aligned else "half_pixel"}
    if antialias:  # torch filters within the image, and cubically with another constant
        attributes |= {"antialias": 1, "exclude_outside": 1, "cubic_coeff_a": -0.5}
    sizes = np.array([1, 2, *wanted], np.int64)
    assert_close(in_float64("Resize", [x, None, None, sizes], opset=19, **attributes), expected, 1e-7 if antialias else 1e-12)


@drawn
@given(
    st.sampled_from(["bilinear", "bicubic", "nearest"]),
    st.sampled_from(["zeros", "border", "reflection"]),
    st.booleans(),
    st.integers(0, 99),
)
def test_grid_sample(mode, padding, aligned, seed):
    x, grid = normal(2, 3, 5, 6, seed=seed), normal(2, 4, 7, 2, seed=seed + 1)
    expected = functional.grid_sample(tensor(x), tensor(grid), mode, padding, aligned)
    attributes = {"mode": mode, "padding_mode": padding, "align_corners": int(aligned)}
    assert_close(in_float64("GridSample", [x, grid], opset=16, **attributes), expected, 1e-11)
    if mode == "bilinear":
        x, grid = normal(2, 3, 4, 5, 6, seed=seed), normal(2, 3, 4, 5, 3, seed=seed + 1)
        expected = functional.grid_sample(tensor(x), tensor(grid), mode, padding, aligned)
        attributes["mode"] = "linear"
        assert_close(in_float64("GridSample", [x, grid], opset=20, **attributes), expected, 1e-11)


ORDER = {"RNN": [0], "GRU": [1, 0, 2], "LSTM": [0, 3, 1, 2]}
"""Where torch's gates lie that ONNX has in its order."""


@pytest.mark.parametrize("op_type", ["RNN", "GRU", "LSTM"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_recurrent(op_type, direction):
    both = direction == "bidirectional"
    module = getattr(torch.nn, op_type)(3, 5, bidirectional=both).double()
    x = normal(6, 2, 3)
    expected, state = module(tensor(x))

    def parameter(name: str) -> np.ndarray:
        parts = []
        for end in ("", "_reverse")[: 2 if both else 1]:
            gates = getattr(module, f"{name}_l0{end}").detach().numpy()
            parts.append(np.concatenate([np.split(gates, len(ORDER[op_type]))[i] for i in ORDER[op_type]]))
        return np.stack(parts)

    bias = np.concatenate([parameter("bias_ih"), parameter("bias_hh")], axis=1)
    attributes = {"hidden_size": 5, "direction": direction} | ({"linear_before_reset": 1} if op_type == "GRU" else {})
    inputs = [x, parameter("weight_ih"), parameter("weight_hh"), bias]
    y, *last = in_float64(op_type, inputs, opset=14, outputs=3 if op_type == "LSTM" else 2, **attributes)
    assert_close(y.transpose(0, 2, 1, 3).reshape(6, 2, -1), expected.detach(), TOLERANCE)
    for result, wanted in zip(last, state if op_type == "LSTM" else (state,), strict=True):
        assert_close(result, wanted.detach(), TOLERANCE)


ACTIVATIONS = {
    "Celu": ({"alpha": 1.5}, lambda x: functional.celu(x, 1.5)),
    "Elu": ({"alpha": 1.5}, lambda x: functional.elu(x, 1.5)),
    "Erf": ({}, torch.erf),
    "Gelu": ({}, functional.gelu),
    "HardSwish": ({}, functional.hardswish),
    "LeakyRelu": ({"alpha": 0.25}, lambda x: functional.leaky_relu(x, 0.25)),
    "LogSoftmax": ({"axis": 0}, lambda x: functional.log_softmax(x, 0)),
    "Mish": ({}, functional.mish),
    "Selu": ({}, functional.selu),
    "Sigmoid": ({}, torch.sigmoid),
    "Softmax": ({"axis": 0}, lambda x: functional.softmax(x, 0)),
    "Softplus": ({}, torch.nn.Softplus(threshold=1e9)),
    "Softsign": ({}, functional.softsign),
    "Tanh": ({}, torch.tanh),
}


@pytest.mark.parametrize("op_type", ACTIVATIONS)
def test_activations(op_type):
    attributes, function = ACTIVATIONS[op_type]
    x = np.concatenate([np.linspace(-40, 40, 81), normal(200)])
    result, expected = in_float64(op_type, [x], opset=20, **attributes), function(tensor(x)).numpy()
    # Selu's constants are float32 in ONNX.
    np.testing.assert_allclose(result, expected, rtol=1e-7 if op_type == "Selu" else 1e-13, atol=1e-15)


@pytest.mark.parametrize(
    ("op_type", "low", "high"),
    [
        *(("Acos", -1, 1), ("Acosh", 1, 30), ("Asin", -1, 1), ("Asinh", -30, 30), ("Atan", -30, 30), ("Atanh", -0.999, 0.999)),
        *(("Cos", -30, 30), ("Cosh", -30, 30), ("Sin", -30, 30), ("Sinh", -30, 30), ("Tan", -1.5, 1.5), ("Log", 1e-9, 30)),
    ],
)
def test_functions_of_one_number(op_type, low, high):
    x = np.linspace(low, high, 301)
    expected = getattr(torch, op_type.lower())(tensor(x)).numpy()
    np.testing.assert_allclose(in_float64(op_type, [x], opset=22), expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5), (2, 3, 4, 5, 2)])
def test_global_pooling(shape):
    x = normal(*shape)
    axes = tuple(range(2, x.ndim))
    assert_close(in_float64("GlobalAveragePool", [x]), tensor(x).mean(dim=axes, keepdim=True), TOLERANCE)
    assert_close(in_float64("GlobalMaxPool", [x]), tensor(x).amax(dim=axes, keepdim=True), 0)
    for p in (1, 2, 3):
        expected = torch.linalg.vector_norm(tensor(x), p, dim=axes, keepdim=True)
        assert_close(in_float64("GlobalLpPool", [x], p=p), expected, TOLERANCE)


@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("name", ["Blackman", "Hamming", "Hann"])
def test_windows(name, periodic):
    coefficients = {"alpha": 25 / 46, "beta": 21 / 46} if name == "Hamming" else {}
    function = getattr(torch, f"{name.lower()}_window")
    expected = function(16, periodic=bool(periodic), dtype=torch.float64, **coefficients).numpy()
    result = in_float64(f"{name}Window", [np.array(16)], opset=17, periodic=periodic)
    assert_close(result, expected, 1e-7)  # the specification has the coefficients as float32


def test_gelu_of_tanh():
    x = normal(100)
    expected = functional.gelu(tensor(x), approximate="tanh")
    assert_close(in_float64("Gelu", [x], opset=20, approximate="tanh"), expected, TOLERANCE)


def test_short_time_fourier_transform():
    x, window = normal(2, 64), normal(16, seed=1)
    expected = torch.stft(tensor(x), 16, 5, window=tensor(window), center=False, return_complex=True)
    result = in_float64("STFT", [x[..., None], np.array(5), window, np.array(16)], opset=17)
    assert_close(result, torch.view_as_real(expected).transpose(1, 2), TOLERANCE)


@pytest.mark.parametrize("causal", [0, 1])
def test_attention(causal):
    q, k, v = normal(2, 4, 5, 8), normal(2, 2, 7, 8, seed=1), normal(2, 2, 7, 6, seed=2)
    expected = functional.scaled_dot_product_attention(*map(tensor, (q, k, v)), is_causal=bool(causal), enable_gqa=True)
    assert_close(in_float64("Attention", [q, k, v], opset=23, is_causal=causal), expected, TOLERANCE)


def test_determinant_and_folding():
    x = normal(3, 4, 4)
    assert_close(in_float64("Det", [x], opset=11), torch.linalg.det(tensor(x)), TOLERANCE)
    columns = normal(2, 3 * 4, 30, seed=1)
    expected = functional.fold(tensor(columns), (6, 7), (2, 2))
    image, block = np.array([6, 7]), np.array([2, 2])
    assert_close(in_float64("Col2Im", [columns, image, block], opset=18), expected, TOLERANCE)


def test_max_unpool():
    x = normal(2, 3, 6, 8)
    values, places = functional.max_pool2d(tensor(x), 2, 2, return_indices=True)
    expected = functional.max_unpool2d(values, places, 2, 2)
    planes = np.arange(6).reshape(2, 3, 1, 1) * 48
    inputs = [values.numpy(), places.numpy() + planes]
    assert_close(in_float64("MaxUnpool", inputs, opset=11, kernel_shape=[2, 2], strides=[2, 2]), expected, 0)
