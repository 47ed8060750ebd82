"""Layers that move data: shuffle, slice, gather, scatter, concatenation, fill, resize, one-hot, NMS."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tests.models import parse
from tests.tensorrt.network.harness import Bench, run_onnx
from trtnorm_cli.tensorrt.network import UntranslatableLayer

pytestmark = pytest.mark.rtx

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("dynamic", [False, True])
def test_shuffle_transposes_reshapes_and_transposes(dynamic: bool) -> None:
    bench = Bench()
    x = RNG.normal(size=(2, 3, 4)).astype(np.float32)
    layer = bench.network.add_shuffle(bench.input("x", x.shape))
    layer.first_transpose, layer.second_transpose = (2, 0, 1), (1, 2, 0)
    if dynamic:
        layer.set_input(1, bench.constant([0, -1, 6], np.int64))
    else:
        layer.reshape_dims = (0, -1, 6)
    (y,) = bench.run(layer.get_output(0), x=x)
    assert y.tolist() == x.transpose(2, 0, 1).reshape(4, -1, 6).transpose(1, 2, 0).tolist()


def test_shuffle_zero_can_mean_an_empty_dimension() -> None:
    bench = Bench()
    layer = bench.network.add_shuffle(bench.input("x", (0, 3)))
    layer.zero_is_placeholder, layer.reshape_dims = False, (3, 0)
    (y,) = bench.run(layer.get_output(0), x=np.zeros((0, 3), np.float32))
    assert y.shape == (3, 0)


def test_shuffle_to_a_scalar_and_shuffle_that_does_nothing() -> None:
    bench = Bench()
    x = bench.input("x", (1, 1))
    scalar, same = bench.network.add_shuffle(x), bench.network.add_shuffle(x)
    scalar.reshape_dims = ()
    y, z = bench.run(scalar.get_output(0), same.get_output(0), x=np.array([[7]], np.float32))
    assert (y.shape, float(y), z.tolist()) == ((), 7, [[7]])


def test_squeeze_unsqueeze_and_concatenation() -> None:
    bench = Bench()
    x = bench.input("x", (-1, 1, 3))
    squeezed = bench.network.add_squeeze(x, bench.constant([-2], np.int32)).get_output(0)
    wider = bench.network.add_unsqueeze(squeezed, bench.constant([0, 3], np.int64)).get_output(0)
    joined = bench.network.add_concatenation([squeezed, squeezed])
    joined.axis = 1
    data = RNG.normal(size=(2, 1, 3)).astype(np.float32)
    a, b, c = bench.run(squeezed, wider, joined.get_output(0), x=data)
    assert a.tolist() == data[:, 0].tolist()
    assert b.tolist() == data[:, 0][None, :, :, None].tolist()
    assert c.tolist() == np.concatenate([data[:, 0]] * 2, 1).tolist()


def test_squeeze_without_axes_removes_what_is_statically_one() -> None:
    bench = Bench()
    layer = bench.network.add_squeeze(bench.input("x", (1, -1, 1, 3)))
    (y,) = bench.run(layer.get_output(0), x=np.ones((1, 2, 1, 3), np.float32))
    assert y.shape == (2, 3)


def sliced(x: np.ndarray, start: Any, size: Any, stride: Any, mode: str, fill: float = 0) -> np.ndarray:
    """out[i] = in[start + i · stride] along every axis, by TensorRT's words for what lies outside."""
    for axis, (s, n, step) in enumerate(zip(start, size, stride, strict=True)):
        index, length = s + np.arange(n) * step, x.shape[axis]
        inside = (index >= 0) & (index < length)
        if mode == "WRAP":
            index = index % length
        elif mode == "REFLECT":
            phase = index % max(2 * (length - 1), 1)
            index = np.minimum(phase, 2 * (length - 1) - phase)
        x = np.take(x, np.clip(index, 0, length - 1), axis)
        if mode == "FILL":
            x = np.where(inside.reshape(-1, *[1] * (x.ndim - axis - 1)), x, fill)
    return x


INSIDE = [((1, 0), (2, 3), (1, 2)), ((3, 4), (4, 5), (-1, -1)), ((0, 2), (3, 4), (1, 0)), ((2, 3), (0, 2), (1, 1))]
OUTSIDE = [((-3, 1), (9, 5), (1, 2)), ((2, -1), (3, 7), (-2, 1)), ((-9, 0), (20, 5), (1, 1)), ((5, 5), (2, 6), (3, -2))]


# As far outside as an axis has other elements to reflect.
NEAR = [((-3, 0), (10, 9), (1, 1)), ((-1, -4), (5, 9), (1, 1))]
# Cut off at one end or both, and longer or not at the other.
SHIFTED = [((1, -2), (4, 4), (1, 1)), ((3, 1), (9, 3), (1, 1)), ((4, -5), (2, 5), (1, 1)), ((-2, 9), (2, 1), (1, 1))]


@pytest.mark.parametrize("how", ["static", "dynamic", "dynamic but the stride", "dynamic and shape unknown"])
@pytest.mark.parametrize(
    ("mode", "start", "size", "stride"),
    [
        *[("STRICT_BOUNDS", *case) for case in INSIDE],
        *[(mode, *case) for mode in ("CLAMP", "WRAP", "REFLECT", "FILL") for case in [*INSIDE, *OUTSIDE, *NEAR, *SHIFTED]],
    ],
)
def test_slice_modes(mode: str, start: Any, size: Any, stride: Any, how: str) -> None:
    bench = Bench()
    x = RNG.normal(size=(4, 5)).astype(np.float32)
    tensor = bench.input("x", (-1, -1) if how.endswith("unknown") else (4, 5))
    layer = bench.network.add_slice(tensor, start, size, stride)
    if how != "static":
        for i in (1, 2) if how.endswith("stride") else (1, 2, 3):
            layer.set_input(i, bench.input(f"p{i}", (2,), "INT64"))
    layer.mode = getattr(bench.trt.SampleMode, mode)
    if mode == "FILL":
        layer.set_input(4, bench.constant(9.5))
    parameters = {f"p{i}": np.array(v, np.int64) for i, v in enumerate((start, size, stride), 1)}
    (y,) = bench.run(layer.get_output(0), x=x, **parameters)
    np.testing.assert_array_equal(y, sliced(x, start, size, stride, mode, 9.5))


@pytest.mark.parametrize(
    ("mode", "start", "size", "operator"),
    [
        ("FILL", (-1, 0), (5, 7), "Pad"),
        ("FILL", (-1, 1), (5, 4), "Pad"),
        ("FILL", (1, 3), (4, 5), "Pad"),
        ("FILL", (4, 0), (2, 5), "Gather"),  # nothing is left of the input
        ("FILL", (-2, 0), (2, 5), "Gather"),
        ("CLAMP", (-9, 0), (14, 7), "Pad"),
        ("CLAMP", (-1, 1), (5, 4), "Gather"),
        *[("REFLECT", start, size, "Pad") for start, size, _ in NEAR],
        ("REFLECT", (-4, 0), (8, 5), "Gather"),  # reflected twice
        ("REFLECT", (0, 0), (8, 5), "Gather"),
        ("WRAP", (-1, 0), (5, 7), "Gather"),
    ],
)
def test_what_is_put_around_the_input_or_cut_off_is_a_pad(mode: str, start: Any, size: Any, operator: str) -> None:
    """It is the same for inputs of other lengths. Elsewhere, elements are taken by their index."""
    bench = Bench()
    layer = bench.network.add_slice(bench.input("x", (4, 5)), start, size, (1, 1))
    layer.mode = getattr(bench.trt.SampleMode, mode)
    found = {node.op_type for node in bench.model(layer.get_output(0)).graph.node}
    assert (operator in found, {"Gather": "Pad", "Pad": "Gather"}[operator] in found) == (True, False)


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
@pytest.mark.parametrize("shape", ["n, 3, 8, 9", "n, 3, h, w"], ids=["of a batch", "of images"])
def test_a_pad_of_run_time_lengths_is_a_pad(mode: str, shape: str) -> None:
    """The parser works out how long the result is. By their index, elements would be taken at the lengths that it was told."""
    text = f'g (float[{shape}] x) => (float[n, 3, c, d] y) {{ y = Pad<mode="{mode}">(x, p) }}'
    model = parse(text, {"p": np.array([0, 0, 1, 2, 0, 0, 2, 0])})
    network = Bench().parse(model)
    assert [node.op_type for node in network.graph.node if "x" in node.input and node.op_type != "Shape"] == ["Pad"]
    feeds = {"x": RNG.normal(size=(2, 3, 8, 9)).astype(np.float32)}
    np.testing.assert_array_equal(run_onnx(network, feeds)["y"], run_onnx(model, feeds)["y"])


def test_lengths_that_are_not_those_of_the_data_are_no_pad() -> None:
    """A size is followed through the layers that the parser makes of a Pad, and only those."""
    bench = Bench()
    x, other = bench.input("x", (-1, -1)), bench.input("other", (-1, -1))

    def longer(of: Any, by: list[int], kind: str = "SUM", taken: list[int] | None = None) -> Any:
        shape = bench.network.add_shape(of).get_output(0)
        if taken is not None:
            shape = bench.network.add_gather(shape, bench.constant(taken, np.int64), 0).get_output(0)
        added = bench.constant(by, np.int64)
        return bench.network.add_elementwise(shape, added, getattr(bench.trt.ElementWiseOperation, kind)).get_output(0)

    def operator(size: Any) -> str:
        layer = bench.network.add_slice(x, (-1, 0), (1, 1), (1, 1))
        layer.set_input(2, size)
        layer.mode = bench.trt.SampleMode.FILL
        made = bench.model(layer.get_output(0))
        bench.network.unmark_output(layer.get_output(0))
        return "Pad" if any(node.op_type == "Pad" for node in made.graph.node) else "Gather"

    assert operator(longer(x, [1, 2])) == "Pad"
    assert operator(longer(x, [1, 2], taken=[0, 1])) == "Pad"
    assert operator(longer(x, [-1, 0], "SUB")) == "Pad"
    assert operator(longer(x, [0, 2])) == "Gather", "something is cut off"
    assert operator(longer(x, [1, 2], "PROD")) == "Gather"
    assert operator(longer(x, [1, 2], taken=[1, 0])) == "Gather"
    assert operator(longer(other, [1, 2])) == "Gather"
    assert operator(longer(x, [2])) == "Gather", "one number for both axes"
    halves = bench.network.add_cast(bench.network.add_shape(x).get_output(0), bench.trt.DataType.FLOAT).get_output(0)
    for _ in range(2):
        half = bench.constant([0.5, 1.5])
        halves = bench.network.add_elementwise(halves, half, bench.trt.ElementWiseOperation.SUM).get_output(0)
    assert operator(bench.network.add_cast(halves, bench.trt.DataType.INT64).get_output(0)) == "Gather", "it is rounded"
    both = bench.network.add_elementwise(longer(x, [1, 2]), longer(x, [0, 0]), bench.trt.ElementWiseOperation.SUM)
    assert operator(both.get_output(0)) == "Gather"


def test_slice_of_a_scalar() -> None:
    """The parser makes one of a ConstantOfShape without dimensions."""
    bench = Bench()
    (y,) = bench.run(bench.network.add_slice(bench.input("x", ()), (), (), ()).get_output(0), x=np.array(3.0, np.float32))
    np.testing.assert_array_equal(y, np.array(3.0))
    assert y.shape == ()


@pytest.mark.parametrize("dynamic", [False, True])
def test_slice_of_some_axes(dynamic: bool) -> None:
    bench = Bench()
    x = RNG.normal(size=(2, 4, 5)).astype(np.float32)
    layer = bench.network.add_slice(bench.input("x", x.shape), (3, 1), (3, 2), (-1, 2))
    if dynamic:
        layer.set_input(5, bench.input("axes", (2,), "INT64"))
    else:
        layer.axes = (-1, 1)
    (y,) = bench.run(layer.get_output(0), x=x, axes=np.array([-1, 1]))
    assert y.tolist() == x[:, 1:5:2, 3:0:-1].tolist()


def test_slice_with_stride_zero_repeats_along_axes() -> None:
    """What the parser makes of Expand, here along one axis of three and with a run-time size."""
    bench = Bench()
    layer = bench.network.add_slice(bench.input("x", (2, 1, 3)), (0,), (4,), (0,))
    layer.axes = (1,)
    layer.set_input(2, bench.input("size", (1,), "INT64"))
    x = RNG.normal(size=(2, 1, 3)).astype(np.float32)
    (y,) = bench.run(layer.get_output(0), x=x, size=np.array([4]))
    assert y.tolist() == np.repeat(x, 4, 1).tolist()


@pytest.mark.parametrize("axis", [1, 2])
def test_gather_with_an_elementwise_dimension(axis: int) -> None:
    bench = Bench()
    x, where = RNG.normal(size=(2, 3, 4)).astype(np.float32), RNG.integers(0, 3, size=(2, 2, 5)).astype(np.int32)
    layer = bench.network.add_gather(bench.input("x", x.shape), bench.input("where", where.shape, "INT32"), axis)
    layer.num_elementwise_dims = 1
    (y,) = bench.run(layer.get_output(0), x=x, where=where)
    assert y.tolist() == np.stack([np.take(x[b], where[b], axis - 1) for b in range(2)]).tolist()


def test_gather_elements_nd_and_scatter() -> None:
    bench = Bench()
    x = RNG.normal(size=(3, 4)).astype(np.float32)
    tensor, where = bench.input("x", x.shape), bench.input("where", (3, 2), "INT32")
    elements = bench.network.add_gather_v2(tensor, where, bench.trt.GatherMode.ELEMENT)
    elements.axis = 1
    nd = bench.network.add_gather_v2(tensor, where, bench.trt.GatherMode.ND)
    put = bench.network.add_scatter(tensor, where, bench.input("new", (3, 2)), bench.trt.ScatterMode.ELEMENT)
    put.axis = 1
    put_nd = bench.network.add_scatter(tensor, where, bench.input("flat", (3,)), bench.trt.ScatterMode.ND)
    at = np.array([[0, 3], [1, 2], [2, 0]], np.int32)
    new, flat = RNG.normal(size=(3, 2)).astype(np.float32), np.array([7, 8, 9], np.float32)
    tensors = [layer.get_output(0) for layer in (elements, nd, put, put_nd)]
    a, b, c, d = bench.run(*tensors, x=x, where=at, new=new, flat=flat)
    assert a.tolist() == np.take_along_axis(x, at, 1).tolist()
    assert b.tolist() == x[at[:, 0], at[:, 1]].tolist()
    expected = x.copy()
    np.put_along_axis(expected, at.astype(np.int64), new, 1)
    assert c.tolist() == expected.tolist()
    expected = x.copy()
    expected[at[:, 0], at[:, 1]] = flat
    assert d.tolist() == expected.tolist()


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["FLOAT", "INT32"])
def test_one_hot_counts_from_the_back_and_leaves_out_of_range_rows_off(axis: int, dtype: str) -> None:
    bench = Bench()
    values = bench.constant([2, 5], np.float32 if dtype == "FLOAT" else np.int32)
    layer = bench.network.add_one_hot(bench.input("i", (4,), "INT32"), values, bench.constant(3, np.int32), axis)
    (y,) = bench.run(layer.get_output(0), i=np.array([0, -2, 3, -4], np.int32))
    expected = np.full((4, 3), 2)
    expected[0, 0] = expected[1, 1] = 5
    assert y.tolist() == (expected.T if axis == 0 else expected).tolist()


def test_reverse_sequence() -> None:
    bench = Bench()
    x = RNG.normal(size=(4, 2)).astype(np.float32)
    layer = bench.network.add_reverse_sequence(bench.input("x", x.shape), bench.input("n", (2,), "INT32"))
    (y,) = bench.run(layer.get_output(0), x=x, n=np.array([3, 1], np.int32))
    assert y.tolist() == np.stack([x[[2, 1, 0, 3], 0], x[:, 1]], 1).tolist()


@pytest.mark.parametrize("dtype", ["FLOAT", "INT32", "INT64"])
def test_fill_is_affine_in_the_indices(dtype: str) -> None:
    """The example of NVIDIA's header: alpha 1, beta [100, 10]."""
    bench = Bench()
    numpy_type = {"FLOAT": np.float32, "INT32": np.int32, "INT64": np.int64}[dtype]
    layer = bench.network.add_fill((1,), bench.trt.FillOperation.LINSPACE, getattr(bench.trt.DataType, dtype))
    layer.set_input(0, bench.input("shape", (2,), "INT64"))
    layer.set_input(1, bench.constant(1, numpy_type))
    layer.set_input(2, bench.constant([100, 10], numpy_type))
    (y,) = bench.run(layer.get_output(0), shape=np.array([3, 4]))
    assert y.dtype == numpy_type
    assert y.tolist() == [[1, 11, 21, 31], [101, 111, 121, 131], [201, 211, 221, 231]]


def test_static_fill_and_random_fill() -> None:
    bench = Bench()
    ramp = bench.network.add_fill((4,), bench.trt.FillOperation.LINSPACE, bench.trt.DataType.FLOAT)
    ramp.alpha, ramp.beta = 1.5, 0.25
    (y,) = bench.run(ramp.get_output(0))
    assert y.tolist() == [1.5, 1.75, 2.0, 2.25]
    noise = bench.network.add_fill((4,), bench.trt.FillOperation.RANDOM_NORMAL, bench.trt.DataType.FLOAT)
    with pytest.raises(UntranslatableLayer, match="RANDOM_NORMAL draws its values from the engine's own generator"):
        bench.model(noise.get_output(0))


def linear(x: np.ndarray, at: np.ndarray) -> np.ndarray:
    at = np.clip(at, 0, len(x) - 1)
    low = np.floor(at).astype(int)
    high = np.minimum(low + 1, len(x) - 1)
    return x[low] * (1 - (at - low)) + x[high] * (at - low)


COORDINATES = {
    "ALIGN_CORNERS": lambda i, n, m: i * (n - 1) / max(m - 1, 1),
    "ASYMMETRIC": lambda i, n, m: i * n / m,
    "HALF_PIXEL": lambda i, n, m: (i + 0.5) * n / m - 0.5,
}
ROUNDINGS = {
    "HALF_UP": lambda v: np.floor(v + 0.5),
    "HALF_DOWN": lambda v: np.ceil(v - 0.5),
    "FLOOR": np.floor,
    "CEIL": np.ceil,
}


@pytest.mark.parametrize("given", ["lengths", "tensor"])
@pytest.mark.parametrize("length", [1, 3, 5, 8, 13])
@pytest.mark.parametrize("coordinates", list(COORDINATES))
@pytest.mark.parametrize("mode", ["LINEAR", *ROUNDINGS])
def test_resize(mode: str, coordinates: str, length: int, given: str) -> None:
    bench = Bench()
    x = RNG.normal(size=(1, 1, 1, 5)).astype(np.float32)
    layer = bench.network.add_resize(bench.input("x", x.shape))
    layer.resize_mode = getattr(bench.trt.InterpolationMode, "LINEAR" if mode == "LINEAR" else "NEAREST")
    layer.coordinate_transformation = getattr(bench.trt.ResizeCoordinateTransformation, coordinates)
    if mode != "LINEAR":
        layer.nearest_rounding = getattr(bench.trt.ResizeRoundMode, mode)
    if given == "tensor":
        layer.set_input(1, bench.input("size", (4,), "INT64"))
    else:
        layer.shape = (1, 1, 1, length)
    (y,) = bench.run(layer.get_output(0), x=x, size=np.array([1, 1, 1, length]))
    at = COORDINATES[coordinates](np.arange(length), 5, length)
    row = x[0, 0, 0].astype(np.float64)
    if mode == "LINEAR":
        np.testing.assert_allclose(y[0, 0, 0], linear(row, at), rtol=1e-5, atol=1e-6)
    else:
        rounded = np.clip(ROUNDINGS[mode](at), 0, 4).astype(int)
        clear = np.abs(at * 2 - np.round(at * 2)) > 1e-6  # float32 coordinates decide ties by their rounding
        clear |= np.abs(at * 2 - np.round(at * 2)) == 0
        assert y[0, 0, 0][clear].tolist() == row[rounded][clear].astype(np.float32).tolist()


@pytest.mark.parametrize(("length", "is_whole"), [(8, True), (6, False), (2, False)])
def test_lengths_that_are_multiples_are_written_as_factors(length: int, is_whole: bool) -> None:
    bench = Bench()
    layer = bench.network.add_resize(bench.input("x", (1, 1, 4, 4)))
    layer.shape = (1, 1, length, 4)
    (node,) = [node for node in bench.model(layer.get_output(0)).graph.node if node.op_type == "Resize"]
    assert (len(node.input) == 3) is is_whole


def test_resize_by_a_fraction_follows_the_ratio_of_lengths_and_says_so() -> None:
    from trtnorm_cli.tensorrt.network.translate import translate_network

    bench = Bench()
    x = RNG.normal(size=(1, 1, 1, 4)).astype(np.float32)
    layer = bench.network.add_resize(bench.input("x", x.shape))
    layer.resize_mode = bench.trt.InterpolationMode.LINEAR
    layer.coordinate_transformation = bench.trt.ResizeCoordinateTransformation.HALF_PIXEL
    layer.scales = [1, 1, 1, 0.6]
    (y,) = bench.run(layer.get_output(0), x=x)
    at = COORDINATES["HALF_PIXEL"](np.arange(2), 4, 2)
    np.testing.assert_allclose(y[0, 0, 0], linear(x[0, 0, 0].astype(np.float64), at), rtol=1e-6)
    notes = translate_network(bench.network, bench.trt).notes
    assert len(notes) == 1
    assert "coordinates follow the ratio of lengths" in notes[0]


@pytest.mark.parametrize("made", [225, 150, 400])
def test_a_scale_that_is_the_ratio_of_lengths_in_float32_is_written(made: int) -> None:
    """With the ratio itself positions would be 4e-6 of a pixel off."""
    bench, scale = Bench(), np.float32(made / 224)
    x = RNG.normal(size=(1, 1, 1, 224)).astype(np.float32)
    layer = bench.network.add_resize(bench.input("x", x.shape))
    layer.resize_mode = bench.trt.InterpolationMode.LINEAR
    layer.scales = [1, 1, 1, float(scale)]
    model = bench.model(layer.get_output(0))
    (node,) = [node for node in model.graph.node if node.op_type == "Resize"]
    (stated,) = [onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer if tensor.name == node.input[2]]
    assert stated[3] == scale
    (y,) = bench.run(layer.get_output(0), x=x)
    assert y.shape[3] == made


def test_resize_of_run_time_lengths_by_scales_and_single_pixels() -> None:
    bench = Bench()
    layer = bench.network.add_resize(bench.input("x", (1, 1, -1, -1)))
    layer.resize_mode = bench.trt.InterpolationMode.LINEAR
    layer.coordinate_transformation = bench.trt.ResizeCoordinateTransformation.HALF_PIXEL
    layer.selector_for_single_pixel = bench.trt.ResizeSelector.UPPER
    layer.scales = [1, 1, 2, 0.5]
    x = RNG.normal(size=(1, 1, 2, 2)).astype(np.float32)
    (y,) = bench.run(layer.get_output(0), x=x)
    np.testing.assert_allclose(y[0, 0, :, 0], linear(x[0, 0, :, 0], COORDINATES["HALF_PIXEL"](np.arange(4), 2, 4)), rtol=1e-6)


@pytest.mark.parametrize("mode", ["FILL", "CLAMP", "REFLECT"])
def test_grid_sample_outside_the_image(mode: str) -> None:
    bench = Bench()
    layer = bench.network.add_grid_sample(bench.input("x", (1, 1, 1, 3)), bench.input("grid", (1, 1, 2, 2)))
    layer.sample_mode, layer.align_corners = getattr(bench.trt.SampleMode, mode), True
    layer.interpolation_mode = bench.trt.InterpolationMode.LINEAR
    grid = np.array([[[[0.5, 0], [2, 0]]]], np.float32)  # columns 1.5 and 3 of 0, 1, 2
    (y,) = bench.run(layer.get_output(0), x=np.array([[[[10, 20, 40]]]], np.float32), grid=grid)
    assert y[0, 0, 0].tolist() == [30, {"FILL": 0, "CLAMP": 40, "REFLECT": 20}[mode]]


BOXES = np.array([[[0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30], [0, 0, 9, 9]]], np.float32)
SCORES = np.array([[[0.9, 0.1], [0.8, 0.75], [0.7, 0.85], [0.6, 0.2]]], np.float32)


@pytest.mark.parametrize("centred", [False, True])
def test_non_maximum_suppression_sorts_by_score_across_classes(centred: bool) -> None:
    bench = Bench()
    scores = bench.input("scores", (2, 4, 2))
    layer = bench.network.add_nms(bench.input("boxes", (2, 4, 4)), scores, bench.constant(3, np.int32))
    layer.set_input(3, bench.constant(0.5))
    layer.set_input(4, bench.constant(0.15))
    boxes = BOXES
    if centred:
        layer.bounding_box_format = bench.trt.BoundingBoxFormat.CENTER_SIZES
        boxes = np.concatenate([(BOXES[..., :2] + BOXES[..., 2:]) / 2, BOXES[..., 2:] - BOXES[..., :2]], -1)
    selected, count = bench.run(
        layer.get_output(0), layer.get_output(1), boxes=np.repeat(boxes, 2, 0), scores=np.repeat(SCORES, 2, 0)
    )
    one = [[0, 0, 0], [0, 1, 2], [0, 1, 1], [0, 0, 2]]
    assert selected.tolist() == one + [[1, c, b] for _, c, b in one]
    assert (int(count), count.shape, selected.dtype) == (8, (), np.int32)


def test_non_maximum_suppression_over_more_boxes_than_it_considers_is_refused() -> None:
    bench = Bench()
    layer = bench.network.add_nms(bench.input("b", (1, 9, 4)), bench.input("s", (1, 9, 2)), bench.constant(3, np.int32))
    layer.topk_box_limit = 8
    with pytest.raises(UntranslatableLayer, match="9 boxes, of which it considers 8"):
        bench.model(layer.get_output(0))
