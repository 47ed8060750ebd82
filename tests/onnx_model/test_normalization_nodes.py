"""The normalization nodes of a model and what their parameters look like."""

from __future__ import annotations

import numpy as np
import onnx

from tests.models import batchnorm, parse, random
from trtnorm_cli.onnx_model.normalization_nodes import Normalization, Parameter, normalizations


def found(graph: str, weights: dict[str, np.ndarray], opset: int = 21) -> list[Normalization]:
    return normalizations(onnx.shape_inference.infer_shapes(parse(graph, weights, opset=opset)))


def test_a_batchnorm():
    (norm,) = found(
        "g (float16[N, 2, 7, 7] x) => (float16[] y)"
        "{ [conv] c = Conv(x, w) [bn] y = BatchNormalization <epsilon=0.5>(c, gamma, beta, mu, var) }",
        {"w": random(4, 2, 3, 3, dtype=np.float16), **batchnorm(4)},
    )
    assert (norm.operator, norm.name, norm.output) == ("BatchNormalization", "bn", "y")
    assert (norm.input_shape, norm.input_dtype, norm.channels) == (("N", 4, 5, 5), "float16", 4)
    assert norm.parameters == tuple(
        Parameter(role, tensor, (4,), "float")
        for role, tensor in (("scale", "gamma"), ("bias", "beta"), ("mean", "mu"), ("variance", "var"))
    )
    assert (norm.epsilon, norm.fed_by) == (0.5, "Conv conv")


def test_every_operator():
    weights = {"s": random(4), "b": random(4), "l": random(6), **batchnorm(4)}
    rows = """a = InstanceNormalization(x, s, b)
        c = GroupNormalization <num_groups=2>(x, s, b)
        d = LayerNormalization(x, l)
        e = MeanVarianceNormalization(x)
        f = LpNormalization <p=1>(x)
        h = LRN <size=3>(x)
        i = SimplifiedLayerNormalization(x, l)
        y = Sum(a, c, d, e, f, h, i)"""
    norms = {n.operator: n for n in found(f"g (float[2, 4, 5, 6] x) => (float[] y) {{ {rows} }}", weights)}
    assert list(norms) == [
        "InstanceNormalization", "GroupNormalization", "LayerNormalization", "MeanVarianceNormalization", "LpNormalization",
        "LRN", "SimplifiedLayerNormalization",
    ]  # fmt: skip
    assert norms["InstanceNormalization"].channels == norms["GroupNormalization"].channels == 4
    assert norms["LayerNormalization"].channels == norms["SimplifiedLayerNormalization"].channels == 6
    assert [p.role for p in norms["LayerNormalization"].parameters] == ["scale"]
    assert {n.operator for n in norms.values() if n.epsilon is None} == {"MeanVarianceNormalization", "LpNormalization", "LRN"}
    assert norms["GroupNormalization"].attributes == {"num_groups": 2}
    assert norms["LRN"].parameters == ()


def test_rms_normalization():
    (norm,) = found("g (float[2, 4, 6] x) => (float[] y) { y = RMSNormalization(x, s) }", {"s": random(6)}, opset=23)
    assert (norm.channels, norm.epsilon, norm.fed_by) == (6, 1e-5, "input x")


def test_unknown_shapes_types_and_parameters_of_run_time():
    (norm,) = normalizations(
        parse(
            "g (float[2, 4, 5] x) => (float[] y) { r = Odd(x) s = Odd(x) y = InstanceNormalization(r, s, b) }", {"b": random(4)}
        )
    )
    assert (norm.input_shape, norm.input_dtype, norm.channels) == (None, "?", None)
    assert norm.parameters[0] == Parameter("scale", "s", None, "?")
    assert norm.parameters[1] == Parameter("bias", "b", (4,), "float")


def test_branches_are_searched_and_other_domains_are_not():
    model = parse(
        "g (float[2, 4] x, bool t) => (float[] y) { z = BatchNormalization(x, gamma, beta, mu, var) y = If (t) <"
        "then_branch = a () => (float[] p) { p = BatchNormalization(z, gamma, beta, mu, var) },"
        "else_branch = b () => (float[] q) { q = Neg(x) }> }",
        batchnorm(4),
    )
    norms = normalizations(onnx.shape_inference.infer_shapes(model))
    assert [n.output for n in norms] == ["z", "p"]
    assert norms[1].input_shape == (2, 4)
    assert norms[1].parameters[0].shape == (4,)
    model.graph.node[0].domain = "com.microsoft"
    assert [n.output for n in normalizations(model)] == ["p"]
