"""layernorm-further-outputs: outputs that nobody uses go, those that somebody uses are written out."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models import operators, parse, random
from tests.numerics import relative_error
from tests.oracle import evaluate
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.norms import affine, norm, standardized, unknown_rank
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.parts import data_channels
from trtnorm_cli.rewrite.rules import layernorm_further_outputs as rule

NAME = rule.RULE.name
THREE = "y, m, d = LayerNormalization <axis={}> (x, s, b)"
BOTH = ", float[] m, float[] d"
EPSILON = float(np.float32(1e-5))


def ln(axis: int = -1, outputs: str = "", node: str = "", shape: str = "N, 5, 6", **more) -> onnx.ModelProto:
    return norm(node or THREE.format(axis), more.pop("weights", affine(6)), shape, outputs=outputs, **more)


def by_definition(x: np.ndarray, axis: int, scale: np.ndarray, bias: np.ndarray | None) -> dict[str, np.ndarray]:
    x = x.astype(np.float64)
    axes = tuple(range(axis % x.ndim, x.ndim))
    y = standardized(x, axes) * scale + (0 if bias is None else bias)
    deviation = 1 / np.sqrt(x.var(axes, keepdims=True) + EPSILON)
    return {"y": y, "m": x.mean(axes, keepdims=True), "d": deviation}


@pytest.mark.parametrize(
    "node", [THREE.format(-1), "y, m = LayerNormalization(x, s, b)", 'y, "", d = LayerNormalization(x, s)']
)
def test_outputs_that_nobody_uses_go(rewrite, node):
    result = rewrite(ln(node=node), pins={"x": (2, 5, 6)})
    assert result.rules == [NAME]
    assert operators(result.model) == ["LayerNormalization"]
    (left,) = result.model.graph.node
    assert list(left.output) == ["y"]
    assert left.name == "norm"


@pytest.mark.parametrize("axis", [-1, -2, 1, 0])
@pytest.mark.parametrize("used", ["m", "d", "both"])
@pytest.mark.parametrize("opset", [17, 18, 21])
def test_outputs_that_somebody_uses(rewrite, axis, used, opset):
    outputs = BOTH if used == "both" else f", float[] {used}"
    model = ln(axis, outputs, shape="2, 5, 6", opset=opset)
    result = rewrite(model)
    assert result.rules == [NAME]
    assert "LayerNormalization" not in operators(result.model)
    x, weights = random(2, 5, 6), affine(6)
    wanted = by_definition(x, axis, weights["s"], weights["b"])
    for name, got in evaluate(result.model, {"x": x}).items():
        assert relative_error(wanted[name], got) < 1e-12


def test_without_a_bias_and_with_one_that_is_an_empty_name(rewrite):
    for inputs in ("(x, s)", '(x, s, "")'):
        result = rewrite(ln(outputs=BOTH, node=f"y, m, d = LayerNormalization{inputs}", shape="2, 5, 6"))
        assert result.rules == [NAME]
        x = random(2, 5, 6)
        wanted = by_definition(x, -1, affine(6)["s"], None)
        assert all(relative_error(wanted[name], got) < 1e-12 for name, got in evaluate(result.model, {"x": x}).items())


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_half_precision_keeps_its_statistics_in_float32(rewrite, kind):
    dtype = {"float16": np.float16, "bfloat16": onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.BFLOAT16)}[kind]
    model = ln(outputs=BOTH, kind=kind, weights=affine(6, dtype=dtype), shape="2, 5, 6")
    result = rewrite(model)
    assert result.rules == [NAME]
    typed = onnx.shape_inference.infer_shapes(result.model, check_type=True, strict_mode=True)
    kinds = [value.type.tensor_type.elem_type for value in typed.graph.output]
    assert kinds[1:] == [onnx.TensorProto.FLOAT] * 2


def test_inside_a_branch(rewrite):
    model = parse(
        "g (float[N, 5, 6] x, bool t) => (float[] r) { r = If (t) <"
        "then_branch = a () => (float[] p) { n, m = LayerNormalization(x, s, b) p = Add(n, m) },"
        "else_branch = o () => (float[] q) { q = Neg(x) }> }",
        affine(6),
    )
    result = rewrite(model)
    assert result.rules == [NAME]
    feeds = {"x": random(2, 5, 6), "t": np.array(True)}
    assert relative_error(evaluate(model, feeds)["r"], evaluate(result.model, feeds)["r"]) < 1e-6


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 5), min_size=2, max_size=4), st.integers(0, 3), st.floats(-20, 20), st.integers(0, 2**16))
def test_any_shape_and_axis(rewrite_once, shape, axis, offset, seed):
    rng = np.random.default_rng(seed)
    axis = axis % len(shape)
    weights = affine(*shape[axis:])
    model = norm(THREE.format(axis), weights, ", ".join(map(str, shape)), outputs=BOTH)
    x = (rng.standard_normal(shape) + offset).astype(np.float32)
    got = evaluate_float64(rewrite_once(model, rule.RULE), {"x": x}).outputs
    wanted = by_definition(x, axis, weights["s"], weights["b"])
    assert all(relative_error(wanted[name], got[name]) < 1e-9 for name in wanted)


REFUSALS = [
    Refusal(
        data_channels.type_and_rank_are_known, unknown_rank(THREE.format(-1), affine(6)), "type or rank of the data of norm"
    ),
    Refusal(rule.it_has_further_outputs, ln(node="y = LayerNormalization(x, s, b)"), "norm has one output"),
    Refusal(rule.it_has_further_outputs, ln(node='y, "", "" = LayerNormalization(x, s, b)'), "norm has one output"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


@pytest.mark.parametrize("outputs", ["", BOTH])
def test_a_second_pass_changes_nothing(rewrite, outputs):
    twice = rewrite(rewrite(ln(outputs=outputs), pins={"x": (2, 5, 6)}).model, pins={"x": (2, 5, 6)})
    assert twice.outcome.changes == []
