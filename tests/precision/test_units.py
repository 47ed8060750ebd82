"""Which nodes belong together: normalizations and masked softmaxes."""

from __future__ import annotations

import numpy as np
import onnx

from tests.models import parse, random
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.onnx_model.surgery import open_model
from trtnorm_cli.precision.tensor_types import complete_types
from trtnorm_cli.precision.units import Unit, units
from trtnorm_cli.rewrite.norms.record import composite_norms

_RMS = """
g (float[2, 5, 8] x) => (float[2, 5, 8] y) {
    two = Constant<value_float = 2.0>()
    axes = Constant<value_ints = [-1]>()
    sq = Pow(x, two)
    m = ReduceMean(sq, axes)
    s = Add(m, eps)
    r = Sqrt(s)
    n = Div(x, r)
    z = Mul(n, w)
    y = Relu(z)
}
"""
_MASKED = """
g (float[2, 4, 5] q, float[2, 5, 6] k, float[1, 4, 6] mask, bool[4, 6] causal) => (float[2, 4, 6] y) {
    scores = MatMul(q, k)
    masked = Add(scores, mask)
    shown = Where(causal, masked, low)
    y = Softmax<axis = -1>(shown)
}
"""


def _units(model: onnx.ModelProto) -> list[Unit]:
    model = onnx.shape_inference.infer_shapes(model)
    types = declared_types(model)
    return units(model, types, composite_norms(open_model(model, None), types))


def test_a_normalization_in_pieces_is_one_unit() -> None:
    model = parse(_RMS, {"eps": np.float32(1e-6), "w": random(8)}, opset=18)
    (unit,) = _units(model)
    assert (unit.kind, unit.data, unit.output, unit.axes, unit.native) == ("RMSNorm", "x", "z", (2,), False)
    assert unit.epsilon is not None
    assert abs(unit.epsilon - 1e-6) < 1e-12
    assert unit.keys == {"sq", "m", "s", "r", "n", "z"}


def test_a_normalization_node_is_a_unit_with_axes_and_epsilon() -> None:
    graph = """
    g (float[2, 6, 4, 4] x) => (float[2, 6, 4, 4] y) {
        a = InstanceNormalization<epsilon = 0.125>(x, s, b)
        c = LayerNormalization<axis = 2>(a, t)
        y = GroupNormalization<num_groups = 2>(c, s, b)
    }
    """
    found = _units(parse(graph, {"s": random(6), "b": random(6), "t": random(4, 4)}, opset=21))
    assert [(u.kind, u.axes, u.groups, u.epsilon) for u in found] == [
        ("InstanceNorm", (2, 3), None, 0.125),
        ("LayerNorm", (2, 3), None, 1e-5),
        ("GroupNorm", None, 2, 1e-5),
    ]


def test_a_softmax_takes_its_masks_along() -> None:
    (unit,) = _units(parse(_MASKED, {"low": np.float32(-3.4e38)}, opset=17))
    assert (unit.kind, unit.data, unit.keys, unit.axes) == ("Softmax", "scores", {"masked", "shown", "y"}, (2,))
    assert not unit.is_norm


def test_what_else_reads_masked_scores_ends_the_unit() -> None:
    graph = _MASKED.replace("=> (float[2, 4, 6] y)", "=> (float[2, 4, 6] y, float[2, 4, 6] masked)")
    (unit,) = _units(parse(graph, {"low": np.float32(-3.4e38)}, opset=17))
    assert (unit.data, unit.keys) == ("masked", {"shown", "y"})


def test_records_of_normalizations_that_are_gone_are_passed_over() -> None:
    before = onnx.shape_inference.infer_shapes(parse(_RMS, {"eps": np.float32(1e-6), "w": random(8)}, opset=18))
    norms = composite_norms(open_model(before, None), declared_types(before))
    after = parse("g (float[2, 5, 8] x) => (float[2, 5, 8] y) { z = RMSNormalization(x, w) y = Relu(z) }", {"w": random(8)})
    (unit,) = units(after, declared_types(after), norms)
    assert (unit.kind, unit.native, unit.keys) == ("RMSNorm", True, {"z"})
    assert units(parse("g (float[2] a) => (float[2] b) { b = Relu(a) }"), {}, norms) == []


def test_completing_types_leaves_the_model_alone() -> None:
    model = parse("g (float[2, 8] x) => (float[2, 8] y) { z = Relu(x) y = Abs(z) }", opset=18)
    before = model.SerializeToString(deterministic=True)
    assert complete_types(model, {})["z"].shape == (2, 8)
    assert model.SerializeToString(deterministic=True) == before


_QUANTISED = """
g (float[2, 8] x, float[2, 8] z) => (float[2, 8] y) {
    q = QuantizeLinear(x, s, n)
    d = DequantizeLinear(q, s, n)
    t = DequantizeLinear(v, s, n)
    u = Transpose<perm = [1, 0]>(t)
    a = MatMul(d, u)
    b = MatMul(d, w)
    c = MatMul(z, w)
    y = Sum(a, b, c)
}
"""


def test_a_product_is_one_unit_with_what_it_dequantises_and_the_products_that_share_it() -> None:
    weights = {"s": np.float32(0.1), "n": np.int8(0), "v": np.ones((8, 8), np.int8), "w": random(8, 8)}
    (unit,) = _units(parse(_QUANTISED, weights, opset=18))
    assert unit.keys == {"d", "t", "u", "a", "b"}
    assert not unit.is_norm
