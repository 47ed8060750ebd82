"""Models that TensorRT's parser accepts without a word and gets wrong: running its network shows each of them.

Every model is compared with ONNX Runtime, or with what the operator is defined to do where ONNX Runtime does not run it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx.parser
import pytest
from onnx import TensorProto, helper, inliner, numpy_helper

from tests.numerics import relative_error
from tests.tensorrt.network.harness import Bench, run_onnx

pytestmark = pytest.mark.rtx

RNG = np.random.default_rng(0)
HEAD = '<ir_version: 10, opset_import: ["" : {opset}]>\n'


def model_of(text: str, opset: int = 21, **initializers: np.ndarray) -> onnx.ModelProto:
    model = onnx.parser.parse_model(HEAD.format(opset=opset) + text)
    model.graph.initializer.extend(numpy_helper.from_array(v, name) for name, v in initializers.items())
    return model


def network_error(model: onnx.ModelProto, feeds: dict[str, np.ndarray], expected: np.ndarray | None = None) -> float:
    """How far the first output of TensorRT's network is from the model's."""
    network = Bench().parse(model)
    types = {i.name: helper.tensor_dtype_to_np_dtype(i.type.tensor_type.elem_type) for i in network.graph.input}
    actual = run_onnx(network, {name: values.astype(types[name]) for name, values in feeds.items()})
    name = model.graph.output[0].name
    return relative_error(run_onnx(model, feeds)[name] if expected is None else expected, actual[name])


GROUP_NORM = """
g (float[N, 4, L] x) => (float[N, 4, L] y) <float[4] s = {1, 2, 3, 4}, float[4] b = {0, 1, 0, 1}> {
    y = GroupNormalization <num_groups = GROUPS> (x, s, b)
}"""
DATA = RNG.normal(size=(2, 4, 8)).astype(np.float32) + np.arange(4, dtype=np.float32)[:, None]


def test_group_normalization_with_one_group_becomes_instance_normalization() -> None:
    assert network_error(model_of(GROUP_NORM.replace("GROUPS", "1")), {"x": DATA}) > 0.05


@pytest.mark.parametrize("groups", ["2", "4"])
def test_group_normalization_with_more_groups_is_right(groups: str) -> None:
    assert network_error(model_of(GROUP_NORM.replace("GROUPS", groups)), {"x": DATA}) < 3e-6


def negation_called_relu() -> onnx.ModelProto:
    return onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "my.domain" : 1]>
        g (float[4] x) => (float[4] y) { y = my.domain.Relu (x) }
        <domain: "my.domain", opset_import: ["" : 17]> Relu (a) => (b) { b = Neg (a) }"""
    )


def test_a_function_with_the_name_of_an_operator_becomes_the_operator() -> None:
    x = np.array([-1, 2, -3, 4], np.float32)
    assert network_error(negation_called_relu(), {"x": x}) > 1
    assert network_error(inliner.inline_local_functions(negation_called_relu()), {"x": x}) == 0


def test_float16_batch_normalization_loses_float32_parameters_out_of_range() -> None:
    text = """g (float16[1, 2, 3, 3] x) => (float16[1, 2, 3, 3] y) {
        y = BatchNormalization (x, s, b, m, v)
    }"""
    ones, zeros = np.ones(2, np.float32), np.zeros(2, np.float32)
    x = RNG.normal(size=(1, 2, 3, 3)).astype(np.float16) * np.float16(1000)
    huge = model_of(text, 15, s=ones * 100, b=zeros, m=zeros, v=ones * np.float32(1e6))
    expected = x.astype(np.float64) * 100 / 1000
    assert network_error(huge, {"x": x}, expected) > 0.99
    fine = model_of(text, 15, s=ones * 100, b=zeros, m=zeros, v=ones * np.float32(1e4))
    assert network_error(fine, {"x": x}, x.astype(np.float64)) < 3e-3


def test_double_arithmetic_becomes_single() -> None:
    text = "g (double[3] x) => (double[3] y) { a = Add (x, big) y = Sub (a, big) }"
    x = np.array([1.0, 2.0, 3.0])
    assert network_error(model_of(text, 17, big=np.array(1e9)), {"x": x}) > 0.5


def test_trilu_without_the_attribute_takes_the_lower_triangle() -> None:
    text = "g (float[3, 3] x) => (float[3, 3] y) { y = Trilu (x) }"
    x = RNG.normal(size=(3, 3)).astype(np.float32)
    assert network_error(model_of(text, 17), {"x": x}, np.tril(x)) == 0
    assert network_error(model_of(text, 17), {"x": x}) > 0.1
    assert network_error(model_of(text.replace("Trilu", "Trilu <upper = 1>"), 17), {"x": x}) == 0


def test_the_layout_of_recurrent_operators_is_ignored() -> None:
    text = """g (float[2, 3, 2] X, float[1, 3, 2] W, float[1, 3, 3] R) => (float[a, b, c, d] Y) {
        Y = RNN <hidden_size = 3, layout = LAYOUT> (X, W, R)
    }"""
    feeds = {n: RNG.normal(size=s).astype(np.float32) for n, s in (("X", (2, 3, 2)), ("W", (1, 3, 2)), ("R", (1, 3, 3)))}
    shapes = {}
    for layout in ("0", "1"):
        network = Bench().parse(model_of(text.replace("LAYOUT", layout), 17))
        shapes[layout] = run_onnx(network, feeds)["Y"].shape
    assert shapes["0"] == shapes["1"] == (2, 1, 3, 3)  # layout 1 ought to be [batch, sequence, directions, hidden]


def test_the_default_constants_of_selu_have_five_digits() -> None:
    model = model_of("g (float[4] x) => (float[4] y) { y = Selu (x) }", 17)
    error = network_error(model, {"x": np.array([-9, -1, 1, 2], np.float32)})
    assert 1e-5 < error < 1e-4


def test_an_epsilon_of_the_wrong_type_becomes_zero() -> None:
    model = model_of("g (float[1, 2, 4] x) => (float[1, 2, 4] y) { y = InstanceNormalization (x, s, b) }", 17,
                     s=np.ones(2, np.float32), b=np.zeros(2, np.float32))  # fmt: skip
    model.graph.node[0].attribute.append(helper.make_attribute("epsilon", 1))
    x = np.array([[[1, 2, 3, 4], [5, 7, 5, 7]]], np.float32)
    exact = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True))
    assert network_error(model, {"x": x}, exact) < 1e-5


def test_a_ceiling_keeps_windows_that_begin_in_the_padding() -> None:
    """ONNX leaves out a last window that starts behind the data; TensorRT computes it."""
    text = """g (float[1, 1, 2, 2] x) => (float[1, 1, 1, 1] y) {
        y = MaxPool <kernel_shape = [1, 1], strides = [2, 2], ceil_mode = 1> (x)
    }"""
    network = Bench().parse(model_of(text, 22))
    assert run_onnx(network, {"x": np.ones((1, 1, 2, 2), np.float32)})["y"].shape == (1, 1, 2, 2)


def test_an_input_of_a_loop_gets_the_name_that_it_has_inside() -> None:
    text = """g (int64 n, bool go, float[1] x) => (float[1] y) {
        y = Loop (n, go, x) <body = b (int64 i, bool inner, float[1] v) => (bool keep, float[1] next) {
            keep = Identity (inner)
            next = Add (v, v)
        }>
    }"""
    assert [value.name for value in Bench().parse(model_of(text, 17)).graph.input] == ["n", "inner", "x"]


@pytest.mark.parametrize(
    ("text", "opset", "shape"),
    [
        ("y = BatchNormalization (x, s, b, b, s)", 15, (2, 4, 3, 3)),
        ("y = InstanceNormalization (x, s, b)", 17, (2, 4, 3, 3)),
        ("y = LayerNormalization <axis = 1> (x, k)", 17, (2, 4, 3, 3)),
        ("y = MeanVarianceNormalization (x)", 17, (2, 4, 3, 3)),
        ("y = LpNormalization <axis = 1, p = 2> (x)", 17, (2, 4, 3, 3)),
        ("y = LRN <size = 3> (x)", 17, (2, 4, 3, 3)),
        ("y = RMSNormalization <axis = 1> (x, k)", 23, (2, 4, 3, 3)),
    ],
)
def test_the_other_normalizations_are_right(text: str, opset: int, shape: tuple[int, ...]) -> None:
    scales: dict[str, Any] = {"s": np.array([1, 2, 3, 4], np.float32), "b": np.array([0, 1, 0, -1], np.float32)}
    scales["k"] = RNG.normal(size=shape[1:]).astype(np.float32)
    used = {name: value for name, value in scales.items() if f" {name}" in text}
    model = model_of(f"g (float[N, 4, H, 3] x) => (float[N, 4, H, 3] y) {{ {text} }}", opset, **used)
    x = RNG.normal(size=shape).astype(np.float32) * 2 + 1
    expected = None
    if opset == 23:  # newer than the opset that ONNX Runtime has had for long
        expected = x / np.sqrt((x**2).mean((1, 2, 3), keepdims=True) + 1e-5) * scales["k"]
    assert network_error(model, {"x": x}, expected) < 2e-6


def test_types_of_a_double_model_are_those_of_the_network() -> None:
    network = Bench().parse(model_of("g (double[3] x) => (double[3] y) { y = Neg (x) }", 17))
    assert [value.type.tensor_type.elem_type for value in (*network.graph.input, *network.graph.output)] == [
        TensorProto.FLOAT,
        TensorProto.FLOAT,
    ]


@pytest.mark.parametrize(("data_type", "wrong"), [(TensorProto.UINT8, True), (TensorProto.INT8, False)])
def test_bytes_in_the_typed_field_of_an_initializer_are_read_four_times_too_wide(data_type: int, wrong: bool) -> None:
    """``onnx.helper.make_tensor`` writes small integers there; the same values as raw data are read right."""
    values = [8, 7, 1, 2]
    typed = model_of("g (float[4] x) => (float[4] y) { d = Cast <to = 1> (w) y = Add (x, d) }")
    raw = model_of("g (float[4] x) => (float[4] y) { d = Cast <to = 1> (w) y = Add (x, d) }")
    typed.graph.initializer.append(helper.make_tensor("w", data_type, [4], values))
    raw.graph.initializer.append(helper.make_tensor("w", data_type, [4], bytes(values), raw=True))
    feeds = {"x": np.zeros(4, np.float32)}
    assert network_error(raw, feeds) == 0
    assert (network_error(typed, feeds) > 0.5) is wrong
