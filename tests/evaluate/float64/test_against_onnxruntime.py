"""Each kernel against ONNX Runtime, over drawn attributes: in float64 where it has such a kernel, else in float32."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from tests.evaluate.float64.nodes import assert_close, in_float64, node_model
from tests.shapes.runs import IS_RECENT_RUNTIME
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed

drawn = settings(max_examples=30, deadline=None, derandomize=True)
SINGLE, DOUBLE = 2e-6, 1e-12


@pytest.fixture(scope="module")
def runner():
    with OrtRunner(timeout_s=30, threads=1) as runner:
        yield runner


@pytest.fixture(scope="module")
def agree(runner):
    """Compares one node; a drawn example that ONNX Runtime refuses is drawn again."""

    def check(
        op_type: str,
        inputs: Sequence[Any],
        opset: int = 21,
        outputs: int = 1,
        tolerance: float = SINGLE,
        steps: int = 0,
        below: float | None = None,
        **attributes: Any,
    ) -> None:
        model, feeds = node_model(op_type, inputs, attributes, opset, outputs)
        try:
            expected = runner.run(model, feeds)
        except RunFailed:
            reject()
        actual = evaluate_float64(model, feeds).outputs
        for name, value in expected.items():
            if value.dtype.kind == "f":
                if below is not None:
                    assume(np.abs(value).max(initial=0.0) < below)
                assert_close(actual[name], value, tolerance)
            else:
                assert actual[name].dtype == value.dtype
                difference = np.abs(actual[name].astype(np.int64) - value.astype(np.int64)).max(initial=0)
                assert difference <= steps

    return check


def normal(*shape: int, seed: int = 0, dtype: type = np.float32) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(dtype)


sizes = st.integers(4, 9)
spatial = st.integers(1, 3)


@st.composite
def windows(draw: Any, rank: int) -> dict[str, Any]:
    each = lambda low, high: draw(st.lists(st.integers(low, high), min_size=rank, max_size=rank))  # noqa: E731
    attributes: dict[str, Any] = {"strides": each(1, 3), "dilations": each(1, 2)}
    mode = draw(st.sampled_from(["NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    if mode == "NOTSET":
        attributes["pads"] = [*each(0, 2), *each(0, 2)]
    else:
        attributes["auto_pad"] = mode
    return attributes


@drawn
@given(st.data(), spatial)
def test_conv(agree, data, rank):
    attributes = data.draw(windows(rank))
    if "auto_pad" in attributes and attributes["auto_pad"].startswith("SAME"):
        attributes["dilations"] = [1] * rank
    group, per_group = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    maps = group * data.draw(st.integers(1, 2))
    x = normal(2, group * per_group, *(data.draw(sizes) for _ in range(rank)))
    kernel = [data.draw(st.integers(1, 3)) for _ in range(rank)]
    w = normal(maps, per_group, *kernel, seed=1)
    agree("Conv", [x, w, normal(maps, seed=2) if data.draw(st.booleans()) else None], group=group, **attributes)


@drawn
@given(st.data(), st.integers(1, 3))
def test_conv_transpose(agree, data, rank):
    each = lambda low, high: [data.draw(st.integers(low, high)) for _ in range(rank)]  # noqa: E731
    group, per_group = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))
    attributes: dict[str, Any] = {"strides": each(1, 3), "dilations": each(1, 2), "group": group}
    form = data.draw(st.sampled_from(["pads", "output_shape", "auto_pad", "none"]))
    x = normal(2, 2 * group, *(data.draw(st.integers(2, 5)) for _ in range(rank)))
    kernel = attributes["strides"] if form == "auto_pad" else each(1, 3)
    w = normal(2 * group, per_group, *kernel, seed=1)
    if form == "pads":
        attributes |= {"pads": [*each(0, 1), *each(0, 1)], "output_padding": [s - 1 for s in attributes["strides"]]}
    elif form == "output_shape":
        attributes["output_shape"] = [n * s for n, s in zip(x.shape[2:], attributes["strides"], strict=True)]
        if data.draw(st.booleans()):
            attributes["auto_pad"] = data.draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER"]))
    elif form == "auto_pad":
        attributes["auto_pad"] = data.draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER", "VALID"]))
    agree("ConvTranspose", [x, w, normal(group * per_group, seed=2)], **attributes)


@drawn
@given(st.data(), spatial, st.sampled_from(["MaxPool", "AveragePool", "LpPool"]), st.booleans())
def test_pooling(agree, data, rank, op_type, ceil):
    attributes = data.draw(windows(rank)) | {"kernel_shape": [data.draw(st.integers(2, 3)) for _ in range(rank)]}
    if "auto_pad" in attributes:
        attributes["dilations"] = [1] * rank
    if "pads" in attributes:
        attributes["pads"] = [min(p, 1) for p in attributes["pads"]]
        attributes["ceil_mode"] = int(ceil)
    if op_type == "AveragePool":
        attributes["count_include_pad"] = data.draw(st.integers(0, 1))
    if op_type == "LpPool":
        attributes["p"] = data.draw(st.integers(1, 3))
    x = normal(2, 2, *(data.draw(st.integers(5, 9)) for _ in range(rank)))
    agree(op_type, [x], opset=19, **attributes)


@drawn
@given(st.data(), spatial, st.integers(0, 1), st.booleans())
def test_max_pool_indices(agree, data, rank, order, ceil):
    attributes = data.draw(windows(rank)) | {"kernel_shape": [data.draw(st.integers(2, 3)) for _ in range(rank)]}
    attributes.pop("auto_pad", None)
    attributes["pads"] = [min(p, 1) for p in attributes.get("pads", [0] * 2 * rank)]
    x = normal(2, 3, *(data.draw(st.integers(5, 9)) for _ in range(rank)), dtype=np.float64)
    agree("MaxPool", [x], opset=12, outputs=2, tolerance=DOUBLE, storage_order=order, ceil_mode=int(ceil), **attributes)


COORDINATES = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"]


@settings(max_examples=120, deadline=None, derandomize=True)
@given(st.data(), st.sampled_from(COORDINATES), st.sampled_from(["nearest", "linear", "cubic"]), st.booleans())
def test_resize(agree, data, coordinates, mode, by_sizes):
    assume(mode != "nearest" or coordinates != "half_pixel_symmetric")  # its ties are decided by the last bit
    rank = 2 if mode == "cubic" else data.draw(st.integers(1, 3 if mode == "nearest" else 2))
    x = normal(1, 2, *(data.draw(sizes) for _ in range(rank)))
    attributes = {"coordinate_transformation_mode": coordinates, "mode": mode}
    if mode == "nearest":
        attributes["nearest_mode"] = data.draw(st.sampled_from(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]))
    if mode == "cubic":
        attributes |= {
            "exclude_outside": data.draw(st.integers(0, 1)),
            "cubic_coeff_a": data.draw(st.sampled_from([-0.75, -0.5])),
        }
    if mode != "nearest" and rank == 2 and coordinates != "half_pixel_symmetric":
        attributes["antialias"] = data.draw(st.integers(0, 1))
    if by_sizes:
        wanted = [1, 2, *(data.draw(st.integers(2, 20)) for _ in range(rank))]
        agree("Resize", [x, None, None, np.array(wanted, np.int64)], opset=19, **attributes)
    else:
        scales = [1, 1, *(data.draw(st.sampled_from([0.5, 0.6, 0.7, 1.0, 1.3, 1.5, 2.0, 2.7, 1 / 3])) for _ in range(rank))]
        agree("Resize", [x, None, np.array(scales, np.float32)], opset=19, **attributes)


@drawn
@given(st.data(), st.sampled_from(["nearest", "linear"]), st.sampled_from([("Upsample", 9), ("Resize", 10)]))
def test_resize_of_old_opsets(agree, data, mode, operator):
    factors = [1.0, 1.5, 2.0, 2.7] if operator[0] == "Upsample" else [0.4, 0.5, 0.7, 1.0, 1.5, 2.0]
    scales = np.array([1, 1, *(data.draw(st.sampled_from(factors)) for _ in range(2))], np.float32)
    agree(operator[0], [normal(1, 2, data.draw(sizes), data.draw(sizes)), scales], opset=operator[1], mode=mode)


@drawn
@given(st.data(), st.sampled_from(["nearest", "linear", "cubic"]))
def test_resize_crops(agree, data, mode):
    roi = np.array([0, 0, 0.1, 0.2, 1, 1, data.draw(st.sampled_from([0.7, 1.3])), 0.8], np.float32)
    # ONNX Runtime ignores the region of an axis that keeps its length.
    length = st.sampled_from([1, 2, 3, 4, 5, 8, 9])
    wanted = np.array([1, 1, data.draw(length), data.draw(length)], np.int64)
    attributes = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.5, "mode": mode}
    agree("Resize", [normal(1, 1, 6, 7), roi, None, wanted], opset=13, **attributes)


@drawn
@given(
    st.sampled_from(["bilinear", "bicubic", "nearest"]),
    st.sampled_from(["zeros", "border", "reflection"]),
    st.booleans(),
    st.integers(0, 100),
)
def test_grid_sample(agree, mode, padding, aligned, seed):
    x, grid = normal(2, 3, 5, 6, seed=seed), normal(2, 4, 7, 2, seed=seed + 1) * 0.8
    agree("GridSample", [x, grid], opset=16, tolerance=1e-5, mode=mode, padding_mode=padding, align_corners=int(aligned))


def test_what_grid_sample_finds_outside_is_zero_beside_infinite_elements():
    x = np.full((1, 1, 3, 3), np.inf, np.float32)
    grid = np.array([[[-4.0, 0.0], [0.0, 4.0], [0.0, 0.0]]], np.float32).reshape(1, 1, 3, 2)
    y = in_float64("GridSample", [x, grid], opset=20, mode="linear", padding_mode="zeros", align_corners=1)
    np.testing.assert_array_equal(y[0, 0, 0, :2], 0)
    assert not np.isfinite(y[0, 0, 0, 2])


@drawn
@given(st.data(), st.sampled_from(["avg", "max"]), st.sampled_from(["half_pixel", "output_half_pixel"]))
def test_roi_align(agree, data, mode, coordinates):
    x = normal(2, 2, 8, 9)
    corners = np.random.default_rng(data.draw(st.integers(0, 99))).uniform(-2, 12, size=(3, 4))
    rois = np.concatenate([corners[:, :2], corners[:, :2] + np.abs(corners[:, 2:])], axis=1).astype(np.float32)
    ratio = data.draw(st.integers(0, 3))
    agree(
        "RoiAlign",
        [x, rois, np.array([0, 1, 1])],
        opset=16,
        mode=mode,
        coordinate_transformation_mode=coordinates,
        output_height=3,
        output_width=2,
        sampling_ratio=ratio,
        spatial_scale=data.draw(st.sampled_from([1.0, 0.5])),
        tolerance=1e-5,
    )


WITH_ALPHA = ("Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu")
WITH_BETA = ("Affine", "ScaledTanh", "HardSigmoid")


@drawn
@given(st.data(), st.sampled_from(["RNN", "GRU", "LSTM"]), st.sampled_from(["forward", "reverse", "bidirectional"]))
def test_recurrent(agree, data, op_type, direction):
    gates, kinds = {"RNN": (1, 1), "GRU": (3, 2), "LSTM": (4, 3)}[op_type]
    steps, batch, features, hidden, both = 4, 3, 2, 5, 2 if direction == "bidirectional" else 1
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    functions = ["Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu"]
    if data.draw(st.booleans()):
        names = [data.draw(st.sampled_from([*functions, "Softsign", "Softplus"])) for _ in range(kinds * both)]
        attributes["activations"] = names
        for key, takers, value in (("activation_alpha", WITH_ALPHA, 0.4), ("activation_beta", WITH_BETA, 0.6)):
            if set(names) & set(takers):
                attributes[key] = [value] * sum(name in takers for name in names)
    if data.draw(st.booleans()):
        attributes["clip"] = 0.3
    if op_type == "GRU":
        attributes["linear_before_reset"] = data.draw(st.integers(0, 1))
    if op_type == "LSTM":
        attributes["input_forget"] = data.draw(st.integers(0, 1))
    maybe = lambda value: value if data.draw(st.booleans()) else None  # noqa: E731
    inputs = [
        normal(steps, batch, features),
        normal(both, gates * hidden, features, seed=1) * 0.5,
        normal(both, gates * hidden, hidden, seed=2) * 0.5,
        maybe(normal(both, 2 * gates * hidden, seed=3)),
        maybe(np.array([4, 2, 3], np.int32)),
        maybe(normal(both, batch, hidden, seed=4)),
    ]
    if op_type == "LSTM":
        inputs += [maybe(normal(both, batch, hidden, seed=5)), maybe(normal(both, 3 * hidden, seed=6))]
    outputs = 3 if op_type == "LSTM" else 2
    agree(op_type, inputs, opset=14, outputs=outputs, tolerance=1e-4, below=1e3, **attributes)  # some explode


REDUCTIONS = ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.data(), st.sampled_from(REDUCTIONS), st.integers(0, 1), st.integers(0, 1))
def test_reductions(agree, data, name, keepdims, noop):
    x = np.abs(normal(2, 3, 4, dtype=np.float64))
    axes = data.draw(st.sampled_from([None, [0], [-1], [0, 2], [1, -1], []]))
    # ONNX Runtime before 1.24 takes no logarithm and no square where it reduces over no axis, as ONNX meant it then.
    assume(IS_RECENT_RUNTIME or not (noop and not axes))
    attributes = {"keepdims": keepdims, "noop_with_empty_axes": noop}
    agree(f"Reduce{name}", [x, None if axes is None else np.array(axes, np.int64)], opset=18, tolerance=DOUBLE, **attributes)


@drawn
@given(st.data(), st.sampled_from(["Softmax", "LogSoftmax", "Hardmax"]), st.sampled_from([11, 13]), st.integers(-3, 2))
def test_softmax_of_both_meanings(agree, data, name, opset, axis):
    agree(name, [normal(2, 3, 4)], opset=opset, axis=axis)


@drawn
@given(st.data(), st.sampled_from(["constant", "reflect", "edge", "wrap"]))
def test_pad(agree, data, mode):
    axes = data.draw(st.sampled_from([None, [1], [-1, 0], [0, 1, 2]]))
    count = 3 if axes is None else len(axes)
    low = -1 if mode == "constant" else 0
    pads = np.array([data.draw(st.integers(low, 2)) for _ in range(2 * count)], np.int64)
    inputs = [normal(4, 5, 6, dtype=np.float64), pads, np.array(1.5), None if axes is None else np.array(axes, np.int64)]
    agree("Pad", inputs, opset=19, tolerance=DOUBLE, mode=mode)


@pytest.mark.parametrize("pads", [[3, -1, -1, 2], [-5, 0, 6, 0], [0, 5, 0, -5], [0, 7, 0, -4]])
def test_a_pad_may_move_everything_out(agree, pads):
    agree("Pad", [normal(4, 5, dtype=np.float64), np.array(pads), np.array(1.5)], opset=19, tolerance=DOUBLE, mode="constant")


far = st.sampled_from([-(2**63), -9, -4, -2, -1, 0, 1, 2, 3, 9, 2**63 - 1])


@settings(max_examples=100, deadline=None, derandomize=True)
@given(far, far, st.sampled_from([-(2**31), -3, -2, -1, 1, 2, 3]), st.integers(-2, 1))
def test_slice(agree, start, end, step, axis):
    assume(step > 0 or end != 2**63 - 1)  # ONNX Runtime takes this end for "to the begin" when it steps backward
    inputs = [normal(5, 4, dtype=np.float64), *(np.array([v], np.int64) for v in (start, end, axis, step))]
    agree("Slice", inputs, opset=13, tolerance=DOUBLE)


@drawn
@given(st.sampled_from(["none", "add", "mul", "max", "min"]), st.integers(-2, 1), st.integers(0, 20))
def test_scatter_elements(agree, reduction, axis, seed):
    indices = np.random.default_rng(seed).integers(-3, 3, size=(2, 3))
    if reduction == "none":
        indices = np.argsort(normal(3, 3, seed=seed), axis=axis)[:2]
    agree("ScatterElements", [normal(3, 3, dtype=np.float64), indices, normal(2, 3, seed=3, dtype=np.float64)], opset=18,
          tolerance=DOUBLE, axis=axis, reduction=reduction)  # fmt: skip


@drawn
@given(st.integers(0, 1), st.integers(0, 50))
def test_gather_nd(agree, batch, seed):
    indices = np.random.default_rng(seed).integers(-2, 2, size=(2, 3, 2))
    agree("GatherND", [normal(2, 2, 3, 4, dtype=np.float64), indices], opset=13, tolerance=DOUBLE, batch_dims=batch)


@drawn
@given(st.integers(0, 1), st.integers(0, 1), st.integers(-2, 1), st.integers(1, 4), st.integers(0, 30))
def test_top_k(agree, largest, ties, axis, count, seed):
    x = np.random.default_rng(seed).normal(size=(4, 5))
    x = np.round(x) if ties else x
    agree("TopK", [x, np.array([count], np.int64)], opset=11, outputs=2, tolerance=DOUBLE, axis=axis, largest=largest)


@drawn
@given(st.integers(0, 200), st.integers(0, 1), st.sampled_from([0.0, 0.3, 0.7]), st.integers(0, 6))
def test_non_max_suppression(agree, seed, centred, overlap, limit):
    generator = np.random.default_rng(seed)
    boxes, scores = (
        generator.uniform(0, 1, (2, 12, 4)).astype(np.float32),
        generator.uniform(0, 1, (2, 3, 12)).astype(np.float32),
    )
    inputs = [boxes, scores, np.array([limit]), np.array([overlap], np.float32), np.array([0.2], np.float32)]
    agree("NonMaxSuppression", inputs, opset=11, center_point_box=centred)


@pytest.mark.skipif(not IS_RECENT_RUNTIME, reason="ONNX Runtime before 1.24 has no DeformConv")
@drawn
@given(st.data(), st.integers(1, 2), st.integers(1, 2))
def test_deform_conv(agree, data, group, offset_group):
    attributes = {"strides": [data.draw(st.integers(1, 2)) for _ in range(2)], "dilations": [1, data.draw(st.integers(1, 2))]}
    attributes |= {"pads": [data.draw(st.integers(0, 1)) for _ in range(4)], "group": group, "offset_group": offset_group}
    x, w = normal(2, 4, 6, 7, dtype=np.float64), normal(2, 4 // group, 2, 3, dtype=np.float64)
    extents = (2, 2 * attributes["dilations"][1] + 1)
    out = [
        (n + attributes["pads"][i] + attributes["pads"][i + 2] - extents[i]) // attributes["strides"][i] + 1
        for i, n in enumerate(x.shape[2:])
    ]
    offset = normal(2, offset_group * 12, *out, seed=1, dtype=np.float64) * 2
    mask = normal(2, offset_group * 6, *out, seed=2, dtype=np.float64) if data.draw(st.booleans()) else None
    inputs = [x, w, offset, normal(2, seed=3, dtype=np.float64), mask]
    agree("DeformConv", inputs, opset=19, tolerance=1e-12, **attributes)


@drawn
@given(st.data(), st.sampled_from([np.int8, np.uint8, np.int16, np.uint16]), st.sampled_from(["tensor", "axis", "block"]))
def test_quantize_and_dequantize(agree, data, dtype, spread):
    x = normal(4, 6) * 100
    axis = data.draw(st.integers(-2, 1))
    shape = {"tensor": (), "axis": (x.shape[axis],), "block": (2, 6) if axis % 2 == 0 else (4, 3)}[spread]
    attributes = {"axis": axis} | ({"block_size": 2} if spread == "block" else {})
    scale = np.random.default_rng(1).uniform(0.5, 2, shape).astype(np.float32)
    zero = np.random.default_rng(2).integers(0, 20, shape).astype(dtype)
    agree("QuantizeLinear", [x, scale, zero], steps=1, **attributes)
    q = np.random.default_rng(3).integers(0, 100, x.shape).astype(dtype)
    agree("DequantizeLinear", [q, scale, zero], **attributes)


@drawn
@given(st.data(), st.booleans(), st.sampled_from([np.int8, np.uint8]))
def test_products_of_integers(agree, data, per_channel, dtype):
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))
    draw = lambda *shape: generator.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape).astype(dtype)  # noqa: E731
    agree("MatMulInteger", [draw(3, 4), draw(4, 5), draw(), draw(5) if per_channel else draw()], opset=10)
    x, w, pads = draw(1, 2, 5, 5), draw(3, 2, 3, 3), {"pads": [1, 0, 1, 2]}
    scale = np.full(3 if per_channel else (), 0.02, np.float32)
    zeros = np.zeros(3 if per_channel else (), dtype)
    quantized = [x, np.float32(0.02), draw(), w, scale, zeros, np.float32(0.5), draw(), np.arange(3, dtype=np.int32)]
    agree("QLinearConv", quantized, opset=10, steps=1, **pads)  # a tie in float32 is none in float64
    agree("ConvInteger", [x.view(np.uint8), w.view(np.uint8), np.uint8(3), np.uint8(7)], opset=10, **pads)


@drawn
@given(st.sampled_from([7, 9, 14, 15]), st.integers(2, 5), st.integers(0, 20))
def test_batch_normalization(agree, opset, rank, seed):
    x = normal(3, 4, 2, 3, 2, seed=seed)[(slice(None),) * rank + (0,) * (5 - rank)]
    parameters = [normal(4, seed=i) for i in range(3)] + [np.abs(normal(4, seed=4))]
    agree("BatchNormalization", [x, *parameters], opset=opset, epsilon=1e-3)
    if opset >= 14:
        agree("BatchNormalization", [x, *parameters], opset=opset, outputs=3, training_mode=1, momentum=0.7)


@drawn
@given(st.integers(1, 6), st.integers(0, 9))
def test_local_response_normalization(agree, size, seed):
    agree("LRN", [normal(2, 5, 3, 3, seed=seed)], opset=13, size=size, alpha=0.3, beta=0.6, bias=1.5)


@drawn
@given(st.integers(-3, 2), st.integers(0, 3))
def test_one_hot(agree, axis, depth):
    indices = np.array([[0, 1, -1], [2, -3, 5]], np.int64)
    agree("OneHot", [indices, np.array(depth + 1), np.array([-1.0, 2.0], np.float32)], opset=11, axis=axis)


@drawn
@given(st.integers(-3, 3), st.sampled_from([np.int32, np.int64, np.float32]), st.integers(0, 1))
def test_division_and_remainder(agree, low, dtype, fmod):
    a = np.arange(-7, 8).astype(dtype)
    b = np.where(np.arange(15) % 4 + low == 0, 3, np.arange(15) % 4 + low).astype(dtype)
    agree("Div", [a, b], opset=14)
    if fmod or dtype != np.float32:
        agree("Mod", [a, b], opset=13, fmod=fmod)


@drawn
@given(st.integers(0, 1), st.integers(0, 1), st.sampled_from([(3, 4), (2, 3, 4)]), st.integers(-2, 1))
def test_cumulative_sum(agree, exclusive, reverse, shape, axis):
    inputs = [normal(*shape, dtype=np.float64), np.array(axis, np.int64)]
    agree("CumSum", inputs, opset=14, tolerance=DOUBLE, exclusive=exclusive, reverse=reverse)


@drawn
@given(st.integers(0, 1), st.integers(0, 1), st.sampled_from([None, (), (5,), (3, 1), (3, 5)]), st.booleans())
def test_gemm(agree, trans_a, trans_b, bias, scaled):
    a = normal(4, 3, dtype=np.float64) if trans_a else normal(3, 4, dtype=np.float64)
    b = normal(5, 4, dtype=np.float64) if trans_b else normal(4, 5, dtype=np.float64)
    attributes = {"alpha": 0.3, "beta": 1.7} if scaled else {}
    c = None if bias is None else normal(*bias, seed=2, dtype=np.float64)
    agree("Gemm", [a, b, c], opset=13, tolerance=DOUBLE, transA=trans_a, transB=trans_b, **attributes)


@drawn
@given(st.sampled_from(["Unique"]), st.sampled_from([None, 0, 1, -1]), st.integers(0, 1), st.integers(0, 30))
def test_unique(agree, name, axis, ordered, seed):
    x = np.random.default_rng(seed).integers(0, 3, (4, 3)).astype(np.float64)
    attributes = {} if axis is None else {"axis": axis}
    agree(name, [x], opset=11, outputs=4, tolerance=DOUBLE, sorted=ordered, **attributes)


EQUATIONS = ["ij,jk->ik", "bij,bjk->bik", "...ij->...ji", "ii->i", "ij,ij->", "i j , j -> i", "bhid,bhjd->bhij"]


@pytest.mark.parametrize("equation", EQUATIONS)
def test_einsum(agree, equation):
    size = {"i": 3, "j": 3, "k": 4, "b": 2, "h": 2, "d": 5}
    terms = equation.split("->")[0].replace(" ", "").split(",")
    shapes = [[2, 3, 3] if "..." in term else [size[c] for c in term] for term in terms]
    agree("Einsum", [normal(*s, seed=i, dtype=np.float64) for i, s in enumerate(shapes)], opset=12, tolerance=DOUBLE,
          equation=equation)  # fmt: skip


PLAIN = "Abs Atan Asinh Ceil Cos Cosh Erf Exp Floor HardSwish Identity Mish Neg Reciprocal Relu Round Sigmoid Sign Sin Sinh"
ELEMENTWISE: dict[str, dict[str, Any]] = {
    **{name: {} for name in [*PLAIN.split(), "Softplus", "Softsign", "Tan", "Tanh"]},
    "Celu": {"alpha": 0.7},
    "Elu": {"alpha": 1.3},
    "Gelu": {"approximate": "tanh"},
    "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
    "LeakyRelu": {"alpha": 0.2},
    "Selu": {"alpha": 1.5, "gamma": 1.2},
    "Shrink": {"lambd": 0.5, "bias": 0.2},
    "ThresholdedRelu": {"alpha": 0.4},
}


@pytest.mark.parametrize("op_type", ELEMENTWISE)
def test_elementwise(agree, op_type):
    x = np.concatenate([np.linspace(-30, 30, 61), [-2.5, -0.5, 0.5, 1.5, 2.5, -0.0, 1e-4, 40, -40], normal(99)])
    agree(op_type, [x.astype(np.float32)], opset=20, tolerance=1e-6, **ELEMENTWISE[op_type])


@pytest.mark.parametrize(("op_type", "low", "high"), [("Acos", -1, 1), ("Acosh", 1, 9), ("Asin", -1, 1), ("Atanh", -0.99, 0.99),
                                                     ("Log", 0, 9), ("Sqrt", 0, 9)])  # fmt: skip
def test_elementwise_with_a_domain(agree, op_type, low, high):
    agree(op_type, [np.linspace(low, high, 50, dtype=np.float32)], opset=13)
