"""Findings name the counts, the axis, and the node that made the channels."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, parse, random
from trtnorm_cli.onnx_model.surgery import open_model
from trtnorm_cli.rewrite.ambiguities import tolerant_types
from trtnorm_cli.rewrite.audit.channel_origin import origin_of_axis
from trtnorm_cli.rewrite.audit.diagnosis import Finding, diagnose, listed

BN = "[bn] y = BatchNormalization(x, gamma, beta, mu, var)"


def found(graph: str, weights: dict[str, np.ndarray] | None = None, opset: int = 17, pins=None) -> list[Finding]:
    model = parse(graph, weights, opset=opset)
    surgery, types = open_model(model, None), tolerant_types(model, pins)[0]
    nodes = [node for graph in surgery.graphs() for node in graph.nodes]
    return [finding for node in nodes if (finding := diagnose(node, surgery, types)) is not None]


def origin(graph: str, weights: dict[str, np.ndarray], tensor: str = "x", axis: int = 1) -> str:
    model = parse(graph, weights, opset=17)
    surgery = open_model(onnx.shape_inference.infer_shapes(model), None)
    types, _ = tolerant_types(model, None)
    return origin_of_axis(surgery.graph.tensors()[tensor], axis, surgery, types).text


def test_fitting_parameters_are_no_finding():
    assert found(f"g (float[N, 8, 5, 5] x) => (float[] y) {{ {BN} }}", batchnorm(8)) == []
    assert found(f"g (float[N] x) => (float[] y) {{ {BN} }}", batchnorm(1)) == []
    assert found(f"g (float[N, C, 5, 5] x) => (float[] y) {{ {BN} }}", batchnorm(8)) == []


def test_the_lines_of_a_finding():
    (finding,) = found(
        f"g (float[N, 3, 5, 5] a) => (float[] y) {{ [conv] c = Conv(a, w) [relu] x = Relu(c) {BN} }}",
        {"w": random(64, 3, 1, 1), **batchnorm(16)},
    )
    assert finding.lines() == [
        "scale, bias, mean and variance hold 16 values, but axis 1 of x [N, 64, 5, 5] has 64",
        "the 64 come from Conv conv, whose weight w is [64, 3, 1, 1], through Relu relu",
        "no axis of x has 16",
    ]
    assert finding.misfits == dict.fromkeys(("scale", "bias", "mean", "variance"), 16)


def test_only_the_parameters_that_do_not_fit_are_named():
    (finding,) = found(f"g (float[N, 8, 5, 5] x) => (float[] y) {{ {BN} }}", {**batchnorm(8), "mu": np.zeros(4, np.float32)})
    assert finding.lines()[0] == "mean holds 4 values, but axis 1 of x [N, 8, 5, 5] has 8"
    assert finding.matching_axes == ()


def test_matching_axes():
    (finding,) = found(f"g (float[16, 64, 16, 8] x) => (float[] y) {{ {BN} }}", batchnorm(16))
    assert finding.matching_axes == (0, 2)
    assert finding.lines()[-1] == "axis 0 and axis 2 of x has 16"


def test_every_one_of_several_is_found_although_inference_stops_at_the_first():
    steps = " ".join(
        f"c{i} = Conv(x{i}, w) [bn{i}] x{i + 1} = BatchNormalization(c{i}, gamma, beta, mu, var)" for i in range(3)
    )
    result = found(f"g (float[N, 4, 9, 9] x0) => (float[] x3) {{ {steps} }}", {"w": random(4, 4, 3, 3), **batchnorm(2)})
    assert [finding.node for finding in result] == ["bn0", "bn1", "bn2"]
    assert [finding.shape for finding in result] == [("N", 4, 7, 7), ("N", 4, 5, 5), ("N", 4, 3, 3)]


def test_inside_a_branch():
    graph = (
        "g (float[N, 4, 5, 5] a, bool t) => (float[] r) { x = Relu(a) r = If (t) <"
        f"then_branch = a1 () => (float[N, 4, 5, 5] y) {{ {BN} }},"
        "else_branch = b1 () => (float[N, 4, 5, 5] e) { e = Neg(x) }> }"
    )
    (finding,) = found(graph, batchnorm(2))
    assert finding.lines()[1] == "the 4 come from the input a, through Relu -> x"


def test_a_count_that_only_the_user_knows():
    graph = f"g (float[N, C, 5, 5] a) => (float[] y) {{ x = Relu(a) {BN} }}"
    assert found(graph, batchnorm(8)) == []
    (finding,) = found(graph, batchnorm(8), pins={"a": (1, 4, 5, 5)})
    assert finding.lines()[0].endswith("has 4")
    assert found(graph, batchnorm(4), pins={"a": (1, 4, 5, 5)}) == []


@pytest.mark.parametrize(
    ("graph", "weights", "opset", "line"),
    [
        (
            "g (float[N, 8, 5, 5] x) => (float[] y) { y = InstanceNormalization(x, s, b) }",
            {"s": random(4), "b": random(8)},
            17,
            "scale holds 4 values, but axis 1 of x [N, 8, 5, 5] has 8",
        ),
        (
            "g (float[N, 8, 5, 5] x) => (float[] y) { y = GroupNormalization <num_groups=4> (x, s, b) }",
            {"s": random(4), "b": random(4)},
            21,
            "scale and bias hold 4 values, but axis 1 of x [N, 8, 5, 5] has 8",
        ),
        (
            "g (float[N, 8, 5, 5] x) => (float[] y) { y = GroupNormalization <num_groups=4> (x, s, b) }",
            {"s": random(8), "b": random(8)},
            18,
            "scale and bias hold 8 values, but the node has num_groups=4, and this opset wants one value per group",
        ),
    ],
)
def test_other_normalizations(graph, weights, opset, line):
    (finding,) = found(graph, weights, opset)
    assert finding.lines()[0] == line


def test_group_normalization_as_the_opset_wants_it():
    graph = "g (float[N, 8, 5, 5] x) => (float[] y) { y = GroupNormalization <num_groups=4> (x, s, b) }"
    assert found(graph, {"s": random(4), "b": random(4)}, 18) == []
    assert found(graph, {"s": random(8), "b": random(8)}, 21) == []


ORIGINS = {
    "a permuted axis": (
        "g (float[2, 5, 5, 7] a) => (float[] x) { x = Transpose <perm=[0, 3, 1, 2]> (a) }", {}, 1,
        "the input a, through Transpose -> x",
    ),
    "a broadcast operand": (
        "g (float[2, 7, 5, 5] a) => (float[] x) { x = Add(b, a) }", {"b": random(7, 1, 1)}, 1, "the input a, through Add -> x",
    ),
    "the operand that is as long": (
        "g (float[2, 1, 5, 5] a, float[2, 7, 1, 1] c) => (float[] x) { x = Mul(a, c) }", {}, 1,
        "the input c, through Mul -> x",
    ),
    "flattened positions": (
        "g (float[2, 7, 5, 5] a) => (float[] x) { x = Reshape(a, s) }", {"s": np.array([2, 7, 25])}, 1,
        "the input a, through Reshape -> x",
    ),
    "split channels": (
        "g (float[2, 14, 5, 5] a) => (float[] x) { x = Reshape(a, s) }", {"s": np.array([2, 7, 50])}, 1,
        "Reshape -> x, fed with [2, 14, 5, 5], [3]",
    ),
    "a product": (
        "g (float[2, 3] a) => (float[] x) { x = MatMul(a, w) }", {"w": random(3, 7)}, 1,
        "MatMul -> x, whose weight w is [3, 7]",
    ),
    "joined channels": (
        "g (float[2, 3, 5, 5] a, float[2, 4, 5, 5] b) => (float[] x) { x = Concat <axis=1> (a, b) }", {}, 1,
        "Concat -> x, fed with [2, 3, 5, 5], [2, 4, 5, 5]",
    ),
    "a constant": ("g (float[1] a) => (float[] x) { x = Neg(k) }", {"k": random(2, 7)}, 1, "Neg -> x, fed with [2, 7]"),
    "a pooled map": (
        "g (float[2, 7, 6, 6] a) => (float[] x) { p = MaxPool <kernel_shape=[2, 2]> (a) x = Relu(p) }", {}, 1,
        "the input a, through MaxPool -> p, Relu -> x",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ORIGINS)
def test_where_an_axis_comes_from(case):
    graph, weights, axis, text = ORIGINS[case]
    assert origin(graph, weights, axis=axis) == text


def test_a_long_way_is_cut():
    steps = " ".join(f"x{i + 1} = Relu(x{i})" for i in range(6))
    assert origin(f"g (float[2, 7] x0) => (float[] x6) {{ {steps} }}", {}, "x6") == (
        "the input x0, through Relu -> x4, Relu -> x5, Relu -> x6 and 3 more nodes"
    )


def test_lists():
    assert [listed(list(names)) for names in ("a", "ab", "abc")] == ["a", "a and b", "a, b and c"]
