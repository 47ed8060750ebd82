"""Normalization, scale, convolution and pooling layers against their definitions in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.tensorrt.network.harness import Bench, numpy_windows
from trtnorm_cli.tensorrt.network import UntranslatableLayer

pytestmark = pytest.mark.rtx

RNG = np.random.default_rng(0)


def normalized(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    wide = x.astype(np.float64)
    mean = wide.mean(axes, keepdims=True)
    return (wide - mean) / np.sqrt(wide.var(axes, keepdims=True) + epsilon)


@pytest.mark.parametrize(
    ("axes", "parameter_shape"),
    [((2, 3), (1, 6, 1, 1)), ((1, 2, 3), (1, 6, 4, 5)), ((3,), (1, 1, 1, 5)), ((1,), (1, 6, 1, 1))],
)
@pytest.mark.parametrize("version", [1, 2])
def test_normalization_over_the_axes_of_its_mask(axes: tuple[int, ...], parameter_shape: Any, version: int) -> None:
    bench = Bench()
    x = (RNG.normal(size=(2, 6, 4, 5)) * 3 + 7).astype(np.float32)
    scale, bias = RNG.normal(size=(2, *parameter_shape)).astype(np.float32)
    add = bench.network.add_normalization if version == 1 else bench.network.add_normalization_v2
    mask = sum(1 << axis for axis in axes)
    layer = add(bench.input("x", (-1, 6, -1, -1)), bench.constant(scale), bench.constant(bias), mask)
    layer.epsilon = 0.25
    (y,) = bench.run(layer.get_output(0), x=x)
    np.testing.assert_allclose(y, normalized(x, axes, 0.25) * scale + bias, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("version", "count"), [(1, 3), (2, 6)])
def test_group_normalization_has_one_scale_per_group_or_per_channel(version: int, count: int) -> None:
    bench = Bench()
    x = RNG.normal(size=(2, 6, 4, 5)).astype(np.float32)
    scale, bias = RNG.normal(size=(2, 1, count, 1, 1)).astype(np.float32)
    add = bench.network.add_normalization if version == 1 else bench.network.add_normalization_v2
    layer = add(bench.input("x", (-1, 6, -1, -1)), bench.constant(scale), bench.constant(bias), 0b1100)
    layer.num_groups = 3
    (y,) = bench.run(layer.get_output(0), x=x)
    grouped = normalized(x.reshape(2, 3, 2, 4, 5), (2, 3, 4), 1e-5).reshape(x.shape)
    repeated = [np.repeat(v, 6 // count, axis=1) for v in (scale, bias)]
    np.testing.assert_allclose(y, grouped * repeated[0] + repeated[1], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(("mode", "shape"), [("UNIFORM", ()), ("CHANNEL", (3, 1, 1)), ("ELEMENTWISE", (3, 4, 5))])
def test_scale_modes(mode: str, shape: tuple[int, ...]) -> None:
    bench = Bench()
    x = RNG.uniform(0.5, 2, size=(2, 3, 4, 5)).astype(np.float32)
    shift, scale, power = RNG.uniform(0.5, 2, size=(3, *shape)).astype(np.float32)
    kind = getattr(bench.trt.ScaleMode, mode)
    flat = [bench.weights(values.reshape(-1)) for values in (shift, scale, power)]
    layer = bench.network.add_scale_nd(bench.input("x", x.shape), kind, *flat, channel_axis=1)
    (y,) = bench.run(layer.get_output(0), x=x)
    np.testing.assert_allclose(y, (x * scale + shift) ** power, rtol=2e-6)


def test_scale_along_another_channel_axis_without_shift_and_power() -> None:
    bench = Bench()
    x, scale = RNG.normal(size=(2, 3, 4, 5)).astype(np.float32), RNG.normal(size=4).astype(np.float32)
    tensor, mode = bench.input("x", (-1, 3, 4, -1)), bench.trt.ScaleMode.CHANNEL
    layer = bench.network.add_scale_nd(tensor, mode, None, bench.weights(scale), None, channel_axis=2)
    (y,) = bench.run(layer.get_output(0), x=x)
    np.testing.assert_allclose(y, x * scale[:, None], rtol=1e-6)


def test_scale_per_element_of_a_run_time_dimension_is_refused() -> None:
    bench = Bench()
    tensor, mode = bench.input("x", (1, 3, -1, 5)), bench.trt.ScaleMode.ELEMENTWISE
    layer = bench.network.add_scale_nd(tensor, mode, None, bench.weights(np.ones(60)), None, channel_axis=1)
    with pytest.raises(UntranslatableLayer, match="known at run time only"):
        bench.model(layer.get_output(0))


def test_local_response_normalization_as_documented() -> None:
    """The example of NVIDIA's operator reference; it shows that alpha is divided by the window."""
    bench = Bench()
    layer = bench.network.add_lrn(bench.input("x", (1, 5, 2, 2)), 3, 1.0, 1.0, 0.1)
    x = np.broadcast_to(np.arange(5, dtype=np.float32)[None, :, None, None], (1, 5, 2, 2)).copy()
    (y,) = bench.run(layer.get_output(0), x=x)
    np.testing.assert_allclose(y[0, :, 0, 0], [0, 0.56603765, 0.4195804, 0.3071672, 0.47430828], rtol=1e-6)


def test_windows_over_several_batch_axes() -> None:
    bench = Bench()
    x = RNG.normal(size=(2, 3, 4, 6, 6)).astype(np.float32)
    tensor = bench.input("x", (-1, 3, 4, -1, 6))
    pool = bench.network.add_pooling_nd(tensor, bench.trt.PoolingType.MAX, (2, 2))
    pool.stride_nd = (2, 2)
    kernel = RNG.normal(size=(5, 4, 1, 1)).astype(np.float32)
    conv = bench.network.add_convolution_nd(tensor, 5, (1, 1), bench.weights(kernel))
    lrn = bench.network.add_lrn(tensor, 3, 1.0, 0.75, 1.0)
    y, z, r = bench.run(pool.get_output(0), conv.get_output(0), lrn.get_output(0), x=x)
    np.testing.assert_array_equal(y, x.reshape(2, 3, 4, 3, 2, 3, 2).max((4, 6)))
    np.testing.assert_allclose(z, np.einsum("abchw,kc->abkhw", x, kernel[:, :, 0, 0]), rtol=1e-5, atol=1e-5)
    squares = np.pad(x**2, ((0, 0), (0, 0), (1, 1), (0, 0), (0, 0)))
    sums = squares[:, :, :-2] + squares[:, :, 1:-1] + squares[:, :, 2:]
    np.testing.assert_allclose(r, x / (1 + sums / 3) ** 0.75, rtol=1e-5)


def average_over_input(window: np.ndarray) -> float:
    return float(np.nanmean(window))


def average_over_padded_input(window: np.ndarray) -> float:
    return float(np.nansum(window) / len(window))


POOLS = {
    "max": ("MAX", False, lambda w: float(np.nanmax(w))),
    "average without padding": ("AVERAGE", True, average_over_input),
    "average with padding": ("AVERAGE", False, average_over_padded_input),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("length", [7, 9, 10, 12])
@pytest.mark.parametrize("kind", list(POOLS))
@pytest.mark.parametrize("mode", ["EXPLICIT_ROUND_DOWN", "EXPLICIT_ROUND_UP"])
def test_pooling_counts_as_tensorrt_documents(mode: str, kind: str, length: int, dynamic: bool) -> None:
    """The denominator counts the window's overlap with the input or the padded input, never what a ceiling adds."""
    bench = Bench()
    name, excluded, reduce = POOLS[kind]
    x = RNG.normal(size=(1, 1, 4, length)).astype(np.float32)
    layer = bench.network.add_pooling_nd(
        bench.input("x", (1, 1, 4, -1 if dynamic else length)), getattr(bench.trt.PoolingType, name), (1, 3)
    )
    layer.stride_nd, layer.pre_padding, layer.post_padding = (1, 3), (0, 1), (0, 1)
    layer.padding_mode = getattr(bench.trt.PaddingMode, mode)
    layer.average_count_excludes_padding = excluded
    if not dynamic:
        count = tuple(layer.get_output(0).shape)[3]
    else:
        count = (length + 2 - 3 + (2 if mode.endswith("UP") else 0)) // 3 + 1
    (y,) = bench.run(layer.get_output(0), x=x)
    expected = np.stack([numpy_windows(row, 3, 3, 1, 1, count, reduce) for row in x[0, 0].astype(np.float64)])
    np.testing.assert_allclose(y[0, 0], expected, rtol=1e-5, atol=1e-6)


def test_blended_pooling() -> None:
    bench = Bench()
    x = RNG.normal(size=(1, 1, 4, 4)).astype(np.float32)
    layer = bench.network.add_pooling_nd(bench.input("x", x.shape), bench.trt.PoolingType.MAX_AVERAGE_BLEND, (2, 2))
    layer.stride_nd, layer.blend_factor = (2, 2), 0.3
    (y,) = bench.run(layer.get_output(0), x=x)
    windows = x.reshape(2, 2, 2, 2).transpose(0, 2, 1, 3).reshape(2, 2, 4)
    np.testing.assert_allclose(y[0, 0], 0.7 * windows.max(-1) + 0.3 * windows.mean(-1), rtol=1e-5, atol=1e-6)


def test_padding_wider_than_the_window() -> None:
    """ONNX Runtime refuses it in MaxPool; TensorRT pads with minus infinity."""
    bench = Bench()
    x = RNG.normal(size=(1, 1, 1, 5)).astype(np.float32)
    layer = bench.network.add_pooling_nd(bench.input("x", x.shape), bench.trt.PoolingType.MAX, (1, 2))
    layer.stride_nd, layer.post_padding = (1, 1), (0, 2)
    (y,) = bench.run(layer.get_output(0), x=x)
    assert y.shape == tuple(layer.get_output(0).shape)
    assert y[0, 0, 0].tolist() == [*np.maximum(x[0, 0, 0, :-1], x[0, 0, 0, 1:]).tolist(), x[0, 0, 0, -1], -np.inf]


def correlate(x: np.ndarray, kernel: np.ndarray, stride: int, dilation: int, before: int, after: int) -> np.ndarray:
    """A convolution layer along one axis: x [channels, length], kernel [maps, channels, taps]."""
    reach = dilation * (kernel.shape[2] - 1) + 1
    padded = np.pad(x.astype(np.float64), ((0, 0), (before, after)))
    starts = range(0, padded.shape[1] - reach + 1, stride)
    taps = np.stack([padded[:, s : s + reach : dilation] for s in starts], axis=-1)
    return np.einsum("mck,cks->ms", kernel, taps)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("length", [7, 8, 9])
@pytest.mark.parametrize("mode", ["EXPLICIT_ROUND_DOWN", "EXPLICIT_ROUND_UP", "SAME_UPPER", "SAME_LOWER"])
def test_convolution_padding_modes(mode: str, length: int, dynamic: bool) -> None:
    bench = Bench()
    x = RNG.normal(size=(1, 3, 1, length)).astype(np.float32)
    kernel, bias = RNG.normal(size=(2, 3, 1, 4)).astype(np.float32), np.array([0.5, -1], np.float32)
    layer = bench.network.add_convolution_nd(
        bench.input("x", (1, 3, 1, -1 if dynamic else length)), 2, (1, 4), bench.weights(kernel), bench.weights(bias)
    )
    layer.stride_nd, layer.pre_padding, layer.post_padding = (1, 3), (0, 1), (0, 0)
    layer.padding_mode = getattr(bench.trt.PaddingMode, mode)
    (y,) = bench.run(layer.get_output(0), x=x)
    total = (length - 1) // 3 * 3 + 4 - length
    before, after = {
        "EXPLICIT_ROUND_DOWN": (1, 0),
        "EXPLICIT_ROUND_UP": (1, -(length + 1 - 4) % 3),
        "SAME_UPPER": (total // 2, total - total // 2),
        "SAME_LOWER": (total - total // 2, total // 2),
    }[mode]
    expected = correlate(x[0, :, 0], kernel[:, :, 0], 3, 1, before, after) + bias[:, None]
    np.testing.assert_allclose(y[0, :, 0], expected, rtol=1e-5, atol=1e-5)


def test_convolution_with_groups_dilation_and_tensors_for_kernel_and_bias() -> None:
    bench = Bench()
    x, kernel, bias = (RNG.normal(size=s).astype(np.float32) for s in ((1, 4, 1, 9), (6, 2, 1, 3), (6,)))
    layer = bench.network.add_convolution_nd(bench.input("x", x.shape), 6, (1, 3), bench.trt.Weights())
    layer.set_input(1, bench.input("kernel", kernel.shape))
    layer.set_input(2, bench.input("bias", bias.shape))
    layer.num_groups, layer.dilation_nd, layer.padding_nd = 2, (1, 2), (0, 1)
    (y,) = bench.run(layer.get_output(0), x=x, kernel=kernel, bias=bias)
    halves = [correlate(x[0, 2 * g : 2 * g + 2, 0], kernel[3 * g : 3 * g + 3, :, 0], 1, 2, 1, 1) for g in (0, 1)]
    np.testing.assert_allclose(y[0, :, 0], np.concatenate(halves) + bias[:, None], rtol=1e-5, atol=1e-5)


def stamp(x: np.ndarray, kernel: np.ndarray, stride: int, dilation: int, before: int, after: int) -> np.ndarray:
    """A deconvolution along one axis: each input element adds the kernel [channels, maps, taps], scaled by itself."""
    reach = dilation * (kernel.shape[2] - 1) + 1
    out = np.zeros((kernel.shape[1], (x.shape[1] - 1) * stride + reach))
    for i in range(x.shape[1]):
        out[:, i * stride : i * stride + reach : dilation] += np.einsum("c,cmk->mk", x[:, i], kernel)
    return out[:, before : out.shape[1] - after]


@pytest.mark.parametrize("mode", ["EXPLICIT_ROUND_DOWN", "EXPLICIT_ROUND_UP", "SAME_UPPER", "SAME_LOWER"])
def test_deconvolution_padding_modes_and_groups(mode: str) -> None:
    bench = Bench()
    x, kernel = RNG.normal(size=(1, 4, 1, 5)).astype(np.float32), RNG.normal(size=(4, 3, 1, 3)).astype(np.float32)
    layer = bench.network.add_deconvolution_nd(bench.input("x", (1, 4, 1, -1)), 6, (1, 3), bench.weights(kernel))
    layer.num_groups, layer.stride_nd, layer.pre_padding, layer.post_padding = 2, (1, 2), (0, 1), (0, 0)
    layer.padding_mode = getattr(bench.trt.PaddingMode, mode)
    (y,) = bench.run(layer.get_output(0), x=x)
    trim = {"SAME_UPPER": (0, 1), "SAME_LOWER": (1, 0)}.get(mode, (1, 0))
    halves = [stamp(x[0, 2 * g : 2 * g + 2, 0], kernel[2 * g : 2 * g + 2, :, 0], 2, 1, *trim) for g in (0, 1)]
    np.testing.assert_allclose(y[0, :, 0], np.concatenate(halves), rtol=1e-5, atol=1e-5)


def test_padding_layer_pads_and_trims() -> None:
    bench = Bench()
    x = RNG.normal(size=(1, 2, 3, 4)).astype(np.float32)
    layer = bench.network.add_padding_nd(bench.input("x", x.shape), (1, -1), (0, 2))
    (y,) = bench.run(layer.get_output(0), x=x)
    assert y.tolist() == np.pad(x[:, :, :, 1:], ((0, 0), (0, 0), (1, 0), (0, 2))).tolist()
