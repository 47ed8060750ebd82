"""A model in a low type: where casts are, what they are shared by, and what keeps its name."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import operators, parse, random
from tests.precision.typing_cases import run, typed, typed_model
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.precision.low_types import BF16, FP16

HALF, FLOAT = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
_CHAIN = """
g (float[2, 8] x) => (float[2, 8] y) {
    a = MatMul(x, w)
    b = Exp(a)
    c = Sqrt(b)
    d = MatMul(c, w)
    y = Relu(d)
}
"""
_W = {"w": random(8, 8) * 0.1}


def _types(model: onnx.ModelProto) -> dict[str, int]:
    return {name: kind.dtype for name, kind in declared_types(onnx.shape_inference.infer_shapes(model)).items()}


def test_only_inputs_and_outputs_are_cast_where_nothing_stays_float32() -> None:
    done = typed(_CHAIN, _W)
    assert operators(done.model) == ["Cast", "MatMul", "Exp", "Sqrt", "MatMul", "Relu", "Cast"]
    assert (done.casts, done.islands, done.kept) == (2, (), ())
    assert done.model.graph.input[0].type.tensor_type.elem_type == FLOAT
    assert done.model.graph.output[0].type.tensor_type.elem_type == FLOAT
    assert [tensor.data_type for tensor in done.model.graph.initializer] == [HALF]
    x = random(2, 8)
    expected = run(parse(_CHAIN, _W, opset=18), {"x": x})[0]
    assert np.linalg.norm(run(done.model, {"x": x})[0] - expected) < 2e-3 * np.linalg.norm(expected)


def test_io_low_needs_no_cast() -> None:
    done = typed(_CHAIN, _W, io="low")
    assert (done.casts, operators(done.model)) == (0, ["MatMul", "Exp", "Sqrt", "MatMul", "Relu"])
    assert done.model.graph.input[0].type.tensor_type.elem_type == HALF
    assert done.model.graph.output[0].type.tensor_type.elem_type == HALF


def test_what_is_kept_is_an_island_between_two_casts() -> None:
    done = typed(_CHAIN, _W, ("b",))
    assert done.casts == 4
    assert [island.nodes for island in done.islands] == [("Exp -> b",)]
    assert [one.cause for one in done.kept] == ["asked"]
    kinds = _types(done.model)
    assert (kinds["b"], kinds["c"]) == (FLOAT, HALF)


def test_islands_merge_where_a_cheap_node_is_between_them() -> None:
    graph = _CHAIN.replace("c = Sqrt(b)", "b1 = Abs(b) c = Sqrt(b1)")
    done = typed(graph, _W, ("b", "c"))
    assert done.casts == 4
    assert [one.cause for one in done.kept] == ["asked", "joined", "asked"]
    assert len(done.islands) == 1


def test_a_product_between_islands_stays_low() -> None:
    done = typed(_CHAIN.replace("b = Exp(a)", "a1 = Exp(a) b = MatMul(a1, w)"), _W, ("a1", "c"))
    assert done.casts == 6
    assert _types(done.model)["b"] == HALF


def test_readers_share_one_cast() -> None:
    graph = """
    g (float[2, 8] x) => (float[2, 8] y) {
        a = MatMul(x, w)
        b = Exp(a)
        c = Sqrt(a)
        d = Abs(a)
        e = MatMul(a, w)
        f = Sum(b, c, d)
        h = MatMul(f, w)
        y = Add(h, e)
    }
    """
    done = typed(graph, _W, ("b", "c", "d"))
    assert done.casts == 4
    assert [one.cause for one in done.kept] == ["asked", "asked", "asked", "joined"]


def test_a_constant_is_stored_in_each_type_it_is_read_in() -> None:
    graph = "g (float[8, 8] x) => (float[8, 8] y) { a = MatMul(x, c) b = Exp(a) d = Add(b, c) y = MatMul(d, c) }"
    done = typed(graph, {"c": random(8, 8)}, ("b", "d"))
    stored = {tensor.name: tensor.data_type for tensor in done.model.graph.initializer}
    assert stored == {"c": FLOAT, "c_fp16": HALF}
    assert not any(node.op_type == "Cast" and node.input[0].startswith("c") for node in done.model.graph.node)


def test_an_output_that_others_read_keeps_its_name_and_type() -> None:
    graph = "g (float[2, 8] x) => (float[2, 8] y, float[2, 8] a) { a = MatMul(x, w) y = MatMul(a, w) }"
    done = typed(graph, _W)
    kinds = _types(done.model)
    assert [value.name for value in done.model.graph.output] == ["y", "a"]
    assert (kinds["y"], kinds["a"], kinds["a_fp16"]) == (FLOAT, FLOAT, HALF)
    assert done.casts == 3


@pytest.mark.parametrize("io", ["keep", "low"])
def test_outputs_that_are_inputs_and_constants(io: str) -> None:
    graph = "g (float[2, 8] x) => (float[2, 8] y, float[2, 8] x, float[8, 8] w) { y = MatMul(x, w) }"
    done = typed(graph, _W, io="low" if io == "low" else "keep")
    wanted = HALF if io == "low" else FLOAT
    assert [value.type.tensor_type.elem_type for value in done.model.graph.output] == [wanted] * 3
    x = random(2, 8).astype(np.float16 if io == "low" else np.float32)
    assert [value.dtype for value in run(done.model, {"x": x})] == [x.dtype] * 3


def test_shapes_and_integers_are_left_alone() -> None:
    graph = """
    g (float[N, 8] x, int64[N] i) => (float[M, 8] y, int64[K] s) {
        a = MatMul(x, w)
        s = Shape(a)
        b = Reshape(a, s)
        z = ReduceMax<keepdims = 0>(i)
        y = Gather(b, i)
    }
    """
    done = typed(graph, _W)
    assert operators(done.model) == ["Cast", "MatMul", "Shape", "Reshape", "ReduceMax", "Gather", "Cast"]


def test_what_resizes_states_its_scales_in_float32() -> None:
    graph = 'g (float[1, 2, 4, 4] x) => (float[1, 2, 8, 8] y) { a = Exp(x) y = Resize<mode = "linear">(a, , scales) }'
    done = typed(graph, {"scales": np.float32([1, 1, 2, 2])})
    assert [tensor.data_type for tensor in done.model.graph.initializer] == [FLOAT]
    run(done.model, {"x": random(1, 2, 4, 4)})


def test_branches_stay_float32_and_read_float32() -> None:
    graph = """
    g (float[2, 8] x, bool c) => (float[2, 8] y) {
        a = MatMul(x, w)
        b = If(c) <
            then_branch = g1 () => (float[2, 8] t) { t = Exp(a) },
            else_branch = g2 () => (float[2, 8] e) { e = MatMul(a, w) }
        >
        y = MatMul(b, w)
    }
    """
    done = typed(graph, _W)
    assert [one.cause for one in done.kept] == ["control-flow"]
    assert {tensor.name: tensor.data_type for tensor in done.model.graph.initializer} == {"w": FLOAT, "w_fp16": HALF}
    run(done.model, {"x": random(2, 8), "c": np.array(True)})
    low = typed(graph, _W, io="low")
    run(low.model, {"x": random(2, 8).astype(np.float16), "c": np.array(False)})


def test_integers_become_the_low_type_without_a_detour() -> None:
    graph = "g (int64[2, 8] x) => (float[2, 8] y) { a = Cast<to = 1>(x) b = MatMul(a, w) y = MatMul(b, w) }"
    done = typed(graph, _W)
    assert operators(done.model) == ["Cast", "MatMul", "MatMul", "Cast"]
    assert done.casts == 1


_GUARDED = """
g (float16[2, 8] x) => (float16[2, 8] y) {
    a = MatMul(x, w16)
    b = Cast<to = 1>(a)
    c = Exp(b)
    d = Cast<to = 10>(c)
    y = MatMul(d, w16)
}
"""


def test_casts_of_the_file_vanish_where_nothing_between_needs_float32() -> None:
    done = typed(_GUARDED, {"w16": random(8, 8).astype(np.float16)})
    assert operators(done.model) == ["MatMul", "Exp", "MatMul"]
    kept = typed(_GUARDED, {"w16": random(8, 8).astype(np.float16)}, ("c",))
    assert operators(kept.model) == ["MatMul", "Cast", "Exp", "Cast", "MatMul"]
    run(kept.model, {"x": random(2, 8).astype(np.float16)})


def test_a_cast_of_the_file_whose_result_is_an_output_stays_there() -> None:
    graph = "g (float[2, 8] x) => (float16[2, 8] z, float[2, 8] y) { a = MatMul(x, w) z = Cast<to = 10>(a) y = Relu(a) }"
    for io in ("keep", "low"):
        done = typed(graph, _W, io="low" if io == "low" else "keep")
        x = random(2, 8).astype(np.float16 if io == "low" else np.float32)
        z, y = run(done.model, {"x": x})
        assert z.dtype == np.float16
        assert np.array_equal(np.maximum(z.astype(np.float32), 0), y.astype(np.float32))


def test_a_normalization_in_pieces_is_of_one_type() -> None:
    graph = """
    g (float[2, 8] x) => (float[2, 8] y) {
        a = MatMul(x, w)
        axes = Constant<value_ints = [-1]>()
        m = ReduceMean(a, axes)
        s = Sub(a, m)
        q = Mul(s, s)
        v = ReduceMean(q, axes)
        e = Add(v, eps)
        r = Sqrt(e)
        n = Div(s, r)
        y = MatMul(n, w)
    }
    """
    done = typed(graph, {**_W, "eps": np.float32(1e-5)}, ("v",))
    assert done.casts == 4
    assert {kept.key for kept in done.kept} == {"m", "s", "q", "v", "e", "r", "n"}


def test_initializers_that_are_graph_inputs_are_constants() -> None:
    model = parse("g (float[2, 8] x, float[8, 8] w) => (float[2, 8] y) { y = MatMul(x, w) }", _W, opset=18)
    done = typed_model(model)
    assert [value.name for value in done.model.graph.input] == ["x"]
    assert [tensor.data_type for tensor in done.model.graph.initializer] == [HALF]


def test_bfloat16_raises_the_opset() -> None:
    graph = """
    g (float[1, 4, 8, 8] x) => (float[1, 4] y) {
        a = Conv(x, w)
        b, c = Split<axis = 1>(a, half)
        d = Concat<axis = 1>(c, b)
        e = GroupNormalization<num_groups = 2>(d, s, s)
        y = ReduceMean<keepdims = 0>(e, axes)
    }
    """
    weights = {"w": random(4, 4, 3, 3), "half": np.array([2, 2]), "s": random(2)}
    done = typed(graph, {**weights, "axes": np.array([2, 3])}, low=BF16)
    assert done.model.opset_import[0].version == 22
    assert [value.type.tensor_type.elem_type for value in done.model.graph.output] == [FLOAT]
    old = typed("g (float[2, 8] x) => (float[2] y) { a = MatMul(x, w) y = ReduceMean<axes = [1], keepdims = 0>(a) }", _W,
                low=BF16, opset=13)  # fmt: skip
    assert old.model.opset_import[0].version == 22


def test_large_values_become_the_largest_of_the_type_and_infinity_stays() -> None:
    graph = "g (float[3] x) => (float[3] y) { y = Min(x, c) }"
    done = typed(graph, {"c": np.float32([1e9, np.inf, 1])})
    (stored,) = done.model.graph.initializer
    assert onnx.numpy_helper.to_array(stored).tolist() == [FP16.largest, np.inf, 1]


def test_a_quantised_model_of_an_old_opset_becomes_half_too() -> None:
    """QuantizeLinear and DequantizeLinear take half from opset 19 on."""
    graph = """g (float[2, 8] x) => (float[2, 8] y) {
        q = QuantizeLinear (x, scale, zero)  a = DequantizeLinear (q, scale, zero)
        b = DequantizeLinear (integers, scale, zero)
        p = MatMul (a, b)  y = Relu (p)
    }"""
    integers = np.arange(-32, 32).reshape(8, 8).astype(np.int8)
    weights = {"scale": np.float32(0.125), "zero": np.int8(0), "integers": integers}
    done = typed(graph, weights, opset=13)
    assert done.kept == ()
    assert done.model.opset_import[0].version == 22
    x = np.round(random(2, 8) * 8) / np.float32(8)
    np.testing.assert_array_equal(run(done.model, {"x": x})[0], run(parse(graph, weights, opset=13), {"x": x})[0])
