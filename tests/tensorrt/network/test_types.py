"""Types: constants of every type, arithmetic narrower than float32, quantization, names and symbolic dimensions."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto

from tests.tensorrt.network.harness import Bench, run_onnx
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.tensorrt.network import UntranslatableLayer
from trtnorm_cli.tensorrt.network.translate import translate
from trtnorm_cli.tensorrt.network.weights import read_weights

pytestmark = pytest.mark.rtx


@pytest.mark.parametrize(
    "dtype", [np.float32, np.float16, np.int32, np.int64, np.int8, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn]
)
def test_constants_keep_their_bits(dtype: Any) -> None:
    bench = Bench()
    values = np.array([0, 1, -2, 3.5, 100, -128]).astype(dtype)
    bench.keep.append(values)
    names = {"bfloat16": "BF16", "float8_e4m3fn": "FP8"}
    name = names.get(np.dtype(dtype).name)
    kind = getattr(bench.trt.DataType, name) if name else None
    weights = bench.trt.Weights(kind, values.ctypes.data, values.size) if name else bench.trt.Weights(values)
    layer = bench.network.add_constant((2, 3), weights)
    read = read_weights(layer.weights, bench.trt)
    assert read is not None
    assert read.raw == values.tobytes()
    assert read.array().astype(np.float64).tolist() == values.astype(np.float64).tolist()
    model = bench.model(bench.network.add_cast(layer.get_output(0), bench.trt.DataType.FLOAT).get_output(0))
    assert run_onnx(model, {})["y0"].tolist() == values.reshape(2, 3).astype(np.float32).tolist()
    assert model.graph.initializer[0].raw_data == values.tobytes()


def test_weights_of_four_bits_are_read_packed() -> None:
    bench = Bench()
    packed = np.array([0x21, 0x43, 0x05], np.uint8)
    weights = bench.trt.Weights(bench.trt.DataType.INT4, packed.ctypes.data, 6)
    read = read_weights(weights, bench.trt)
    assert read is not None
    assert (read.onnx_type, read.count, read.raw) == (TensorProto.INT4, 6, packed.tobytes())


def test_empty_weights_are_none() -> None:
    bench = Bench()
    assert read_weights(bench.trt.Weights(), bench.trt) is None
    assert read_weights(np.array([], np.float32), bench.trt) is None


@pytest.mark.parametrize(("name", "dtype"), [("HALF", np.float16), ("BF16", ml_dtypes.bfloat16)])
def test_narrow_arithmetic_rounds_once_per_layer(name: str, dtype: Any) -> None:
    """(x · 1.1 + 0.1) in a scale layer is float32 inside; a sum of two layers rounds twice."""
    bench = Bench()
    x32 = bench.input("x", (1, 1, 1, 64))
    x = bench.network.add_cast(x32, getattr(bench.trt.DataType, name)).get_output(0)
    parameters = np.array([0.1, 1.1]).astype(dtype)
    bench.keep.append(parameters)
    kind, address = getattr(bench.trt.DataType, name), parameters.ctypes.data
    shift, scale = (bench.trt.Weights(kind, address + i * parameters.itemsize, 1) for i in (0, 1))
    layer = bench.network.add_scale(x, bench.trt.ScaleMode.UNIFORM, shift, scale, bench.trt.Weights(kind))
    once = bench.network.add_cast(layer.get_output(0), bench.trt.DataType.FLOAT).get_output(0)
    square = bench.network.add_elementwise(x, x, bench.trt.ElementWiseOperation.PROD).get_output(0)
    total = bench.network.add_elementwise(square, x, bench.trt.ElementWiseOperation.SUM).get_output(0)
    twice = bench.network.add_cast(total, bench.trt.DataType.FLOAT).get_output(0)
    data = np.random.default_rng(0).normal(size=(1, 1, 1, 64)).astype(np.float32)
    y, z = bench.run(once, twice, x=data)
    narrow, wide = data.astype(dtype).astype(np.float32), parameters.astype(np.float32)
    assert y.tolist() == (narrow * wide[1] + wide[0]).astype(dtype).astype(np.float32).tolist()
    product = (narrow * narrow).astype(dtype).astype(np.float32)
    assert z.tolist() == (product + narrow).astype(dtype).astype(np.float32).tolist()


@pytest.mark.parametrize("name", ["BF16", "BOOL", "INT8"])
def test_every_layer_that_moves_data_moves_types_that_onnx_runtime_lacks(name: str) -> None:
    bench = Bench()
    n, kind = bench.network, getattr(bench.trt.DataType, name)
    x = n.add_cast(bench.input("x", (2, 4), "INT32"), kind).get_output(0)
    zero = n.add_cast(bench.constant(0, np.int32), kind).get_output(0)
    where = n.add_cast(bench.input("w", (2, 4), "INT32"), bench.trt.DataType.BOOL).get_output(0)
    index = bench.constant([[1, 0, 1, 0], [0, 0, 1, 1]], np.int32)
    shuffle = n.add_shuffle(x)
    shuffle.first_transpose, shuffle.reshape_dims = (1, 0), (8,)
    padded = n.add_slice(x, (-1, -1), (4, 6), (1, 1))
    padded.mode = bench.trt.SampleMode.FILL
    padded.set_input(4, zero)
    repeated = n.add_slice(n.add_slice(x, (0, 0), (1, 4), (1, 1)).get_output(0), (0, 0), (3, 4), (0, 1))
    elements = n.add_gather_v2(x, index, bench.trt.GatherMode.ELEMENT)
    layers = {
        "shuffle": shuffle,
        "pad": padded,
        "repeat": repeated,
        "select": n.add_select(where, x, n.add_unsqueeze(zero, bench.constant([0, 1], np.int32)).get_output(0)),
        "gather": n.add_gather(x, bench.constant([1, 0], np.int32), 0),
        "elements": elements,
        "concat": n.add_concatenation([x, x]),
    }
    data, mask = np.array([[1, 0, 1, 1], [0, 1, 1, 0]], np.int32), np.array([[1, 1, 0, 0], [1, 0, 1, 0]], np.int32)
    casts = [n.add_cast(layer.get_output(0), bench.trt.DataType.INT32).get_output(0) for layer in layers.values()]
    got = dict(zip(layers, bench.run(*casts, x=data, w=mask), strict=True))
    expected = {
        "shuffle": data.T.reshape(8),
        "pad": np.pad(data, 1),
        "repeat": np.repeat(data[:1], 3, 0),
        "select": np.where(mask, data, 0),
        "gather": data[[1, 0]],
        "elements": np.take_along_axis(data, np.array([[1, 0, 1, 0], [0, 0, 1, 1]]), 0),
        "concat": np.concatenate([data, data]),
    }
    assert {k: v.tolist() for k, v in got.items()} == {k: v.tolist() for k, v in expected.items()}


def test_quantize_and_dequantize_round_ties_to_even_and_clamp() -> None:
    bench = Bench()
    n, x = bench.network, bench.input("x", (6,))
    quantized = n.add_quantize(x, bench.constant(0.5), bench.trt.DataType.INT8).get_output(0)
    restored = n.add_dequantize(quantized, bench.constant(0.5), bench.trt.DataType.FLOAT).get_output(0)
    integers = n.add_cast(quantized, bench.trt.DataType.INT32).get_output(0)
    y, z = bench.run(integers, restored, x=np.array([0.25, 0.75, -0.25, -1.25, 99, -99], np.float32))
    assert y.tolist() == [0, 2, 0, -2, 127, -128]
    assert z.tolist() == [0, 1, 0, -1, 63.5, -64]


def test_dequantize_per_channel() -> None:
    bench = Bench()
    weights = bench.network.add_constant((2, 2), bench.weights([[10, -20], [30, -40]], np.int8)).get_output(0)
    layer = bench.network.add_dequantize(weights, bench.constant([0.5, 0.25]), bench.trt.DataType.FLOAT)
    layer.axis = 1
    (y,) = bench.run(layer.get_output(0))
    assert y.tolist() == [[5, -5], [15, -10]]


def quantized_model(
    quantized: int, scale: np.ndarray, axis: int = 1, block: int = 0, with_zero: bool = True
) -> onnx.ModelProto:
    """Data through QuantizeLinear and DequantizeLinear, as quantisers write it: with a zero point in the quantized type."""
    dtype = onnx.helper.tensor_dtype_to_np_dtype(quantized)
    attributes = {"axis": axis, **({"block_size": block} if block else {})}
    stated = {} if with_zero else {"output_dtype": quantized}
    constants = [onnx.numpy_helper.from_array(scale, "s"), onnx.numpy_helper.from_array(np.zeros(scale.shape, dtype), "z")]
    tail = ["s", "z"] if with_zero else ["s"]
    nodes = [
        onnx.helper.make_node("QuantizeLinear", ["x", *tail], ["q"], **attributes, **stated),
        onnx.helper.make_node("DequantizeLinear", ["q", *tail], ["y"], **attributes),
    ]
    ends = [onnx.helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 8]) for name in "xy"]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], constants[: len(tail)])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=11)


@pytest.mark.parametrize("with_zero", [True, False], ids=["zero point", "output_dtype"])
@pytest.mark.parametrize("form", ["tensor", "rows", "columns", "blocks"])
@pytest.mark.parametrize("quantized", ["INT8", "FLOAT8E4M3FN", "INT4", "FLOAT4E2M1"])
def test_what_the_parser_makes_of_quantized_data_computes_the_same(quantized: str, form: str, with_zero: bool) -> None:
    """The parser writes the zero point of integers as a constant of FLOAT, whatever its type was."""
    scales = {"tensor": (), "rows": (4,), "columns": (8,), "blocks": (4, 2)}[form]
    rng = np.random.default_rng(0)
    scale = rng.uniform(0.05, 0.2, scales).astype(np.float32)
    model = quantized_model(
        TensorProto.DataType.Value(quantized), scale, 0 if form == "rows" else 1, 4 if form == "blocks" else 0, with_zero
    )
    feeds = {"x": rng.normal(size=(4, 8)).astype(np.float32)}
    wanted, got = (evaluate_float64(one, feeds).outputs["y"] for one in (model, Bench().parse(model)))
    assert np.array_equal(wanted, got)
    assert len(np.unique(got)) > 4


def test_a_zero_point_that_is_not_zero_is_refused() -> None:
    bench = Bench()
    quantized = bench.network.add_quantize(bench.input("x", (4,)), bench.constant(0.5), bench.trt.DataType.INT8)
    quantized.set_input(2, bench.constant(3.0))
    with pytest.raises(UntranslatableLayer, match="a zero point that is not 0") as caught:
        bench.run(quantized.get_output(0), x=np.zeros(4, np.float32))
    assert caught.value.type == "QUANTIZE"


def test_the_parser_reads_unsigned_data_as_signed_and_its_network_says_so() -> None:
    """What TensorRT computes is not the model then: 99 is 198 steps of 0.5, and int8 ends at 127."""
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 13]>
        g (float[2] x) => (float[2] y) <float s = {0.5}, uint8 z = {0}> {
            q = QuantizeLinear (x, s, z)
            y = DequantizeLinear (q, s, z)
        }"""
    )
    feeds = {"x": np.array([99, 1], np.float32)}
    assert run_onnx(model, feeds)["y"].tolist() == [99, 1]
    assert run_onnx(Bench().parse(model), feeds)["y"].tolist() == [63.5, 1]


NAMED = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[batch, 4, height, 8] image) => (float[batch, 4, height, 8] result) {
    [first] hidden = Relu (image)
    [second] result = Add (hidden, image)
}
"""


def test_names_origins_and_symbolic_dimensions_survive() -> None:
    model = Bench().parse(onnx.parser.parse_model(NAMED))
    (image,) = model.graph.input
    dims = [d.dim_param or d.dim_value for d in image.type.tensor_type.shape.dim]
    assert (image.name, dims) == ("image", ["batch", 4, "height", 8])
    assert [node.name for node in model.graph.node] == ["first", "second"]
    assert [list(node.output) for node in model.graph.node] == [["hidden"], ["result"]]
    origin = {p.key: p.value for p in model.graph.node[0].metadata_props}
    assert origin == {"trt.layer": "first", "trt.type": "ACTIVATION", "onnx.node": "first"}


def test_repeated_names_stay_apart() -> None:
    bench = Bench()
    tensor = bench.input("x", (2,))
    for _ in range(3):
        layer = bench.network.add_unary(tensor, bench.trt.UnaryOperation.NEG)
        layer.name, layer.get_output(0).name = "same", "same"
        tensor = layer.get_output(0)
    model = bench.model(tensor)
    assert len({node.name for node in model.graph.node}) == 3
    assert run_onnx(model, {"x": np.array([1, 2], np.float32)})["y0"].tolist() == [-1, -2]


def test_translating_the_same_network_twice_gives_the_same_model() -> None:
    """Layers keep the class that they were given the first time."""
    bench = Bench()
    first = bench.parse(onnx.parser.parse_model(NAMED))
    assert translate(bench.network, bench.trt).SerializeToString() == first.SerializeToString()


def test_an_input_that_is_an_output_and_a_constant_that_is_an_output() -> None:
    model = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17]>
        g (float[2] x) => (float[2] y, float[2] z) <float[2] z = {3, 4}> { y = Identity (x) }"""
    )
    outputs = run_onnx(Bench().parse(model), {"x": np.array([1, 2], np.float32)})
    assert {name: values.tolist() for name, values in outputs.items()} == {"y": [1, 2], "z": [3, 4]}


def test_layers_that_nothing_depends_on_are_left_out() -> None:
    bench = Bench()
    x = bench.input("x", (2,))
    bench.network.add_fill((4,), bench.trt.FillOperation.RANDOM_NORMAL, bench.trt.DataType.FLOAT)
    assert len(bench.model(bench.network.add_unary(x, bench.trt.UnaryOperation.NEG).get_output(0)).graph.node) == 1


def test_an_input_of_float4_needs_a_later_opset():
    """``Bench.model`` has the checker look at it."""
    bench = Bench()
    tensor = bench.input("x", (2, 4), "FP4")
    model = bench.model(bench.network.add_cast(tensor, bench.trt.DataType.FLOAT).get_output(0))
    assert [opset.version for opset in model.opset_import if not opset.domain] == [23]
