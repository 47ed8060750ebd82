"""batchnorm-runtime-parameters: two operations of full size, whatever is computed and whatever is known."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.models import batchnorm, operators, parse, random
from tests.numerics import relative_error
from tests.oracle import evaluate, feeds_for
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.onnx_model.shapes import pinned_types
from trtnorm_cli.rewrite.parts import batchnorm as shared
from trtnorm_cli.rewrite.parts import data_channels
from trtnorm_cli.rewrite.rules import batchnorm_runtime_parameters as rule

NAME = rule.RULE.name
PARAMETERS = ("gamma", "beta", "mu", "var")
TYPES = {"float": np.float32, "float16": np.float16, "double": np.float64, "bfloat16": ml_dtypes.bfloat16}


def bn(
    runtime: tuple[str, ...] = PARAMETERS,
    shape: str = "N, 4, 5, 6",
    kind: str = "float",
    parameter_kind: str = "float",
    attributes: str = "",
    opset: int = 17,
    length: str = "4",
    **weights: np.ndarray,
) -> onnx.ModelProto:
    inputs = "".join(f", {parameter_kind}[{length}] {name}" for name in runtime)
    node = f"[bn] y = BatchNormalization {attributes}(x, {', '.join(PARAMETERS)})"
    graph = f"g ({kind}[{shape}] x{inputs}) => ({kind}[] y) {{ {node} }}"
    known = {**batchnorm(4, TYPES[parameter_kind]), **weights}
    return parse(graph, {name: value for name, value in known.items() if name not in runtime}, opset=opset)


def worst(before: onnx.ModelProto, after: onnx.ModelProto, pins: dict[str, tuple[int, ...]] | None = None) -> float:
    """The largest error relative to the largest value, with a positive variance."""
    feeds = feeds_for(before, {**dict.fromkeys(PARAMETERS, (4,)), **(pins or {})})
    if "var" in feeds:
        feeds["var"] = np.abs(feeds["var"]) + feeds["var"].dtype.type(0.1)
    wanted, got = evaluate(before, feeds)["y"], evaluate(after, feeds)["y"]
    return relative_error(wanted, got)


def full_size_operations(model: onnx.ModelProto, pins: dict[str, tuple[int, ...]]) -> list[str]:
    types = pinned_types(model, {**dict.fromkeys(PARAMETERS, (4,)), **pins})
    return [n.op_type for n in model.graph.node if types[n.output[0]].shape == pins["x"]]


@pytest.mark.parametrize("runtime", [c for n in (1, 2, 3, 4) for c in itertools.combinations(PARAMETERS, n)], ids="+".join)
def test_any_of_them_computed(rewrite, runtime):
    model = bn(runtime)
    result = rewrite(model)
    assert result.rules == [NAME]
    assert full_size_operations(result.model, {"x": (2, 4, 5, 6)}) == ["Mul", "Add"]
    assert worst(model, result.model) < (1e-12 if runtime == PARAMETERS else 1e-6)


@pytest.mark.parametrize("shape", ["N, 4", "N, 4, 7", "N, 4, H, W", "2, 4, 3, 5, 2", "N, C, 5, 6"])
def test_every_rank(rewrite, shape):
    sizes = tuple(4 if s == "C" else int(s) if s.isdigit() else 3 for s in shape.split(", "))
    model = bn(shape=shape)
    result = rewrite(model, pins={"x": sizes, **dict.fromkeys(PARAMETERS, (4,))})
    assert result.rules == [NAME]
    assert full_size_operations(result.model, {"x": sizes}) == ["Mul", "Add"]
    assert worst(model, result.model, {"x": sizes}) < 1e-12


@pytest.mark.parametrize("opset", [7, 9, 13, 14, 18, 21])
def test_every_opset(rewrite, opset):
    model = bn(opset=opset)
    result = rewrite(model)
    assert result.rules == [NAME]
    assert worst(model, result.model) < 1e-12


@pytest.mark.parametrize(
    ("kind", "parameter_kind"),
    [("float16", "float16"), ("float16", "float"), ("bfloat16", "float"), ("double", "double"), ("float", "double")],
)
@pytest.mark.parametrize("runtime", [("gamma", "beta"), PARAMETERS])
def test_mixed_types(rewrite, kind, parameter_kind, runtime):
    model = bn(runtime, kind=kind, parameter_kind=parameter_kind)
    result = rewrite(model)
    assert result.rules == [NAME]
    half = kind in ("float16", "bfloat16")
    assert (operators(result.model)[-1] == "Cast") == half
    assert worst(model, result.model) < 1e-6
    onnx.checker.check_model(result.model)
    inferred = onnx.shape_inference.infer_shapes(result.model, check_type=True, strict_mode=True)
    assert inferred.graph.output[0].type.tensor_type.elem_type == model.graph.input[0].type.tensor_type.elem_type


def test_what_is_known_is_computed_once_in_float64(rewrite):
    """Conditional normalization: only scale and bias come from outside, so that 1/√(σ²+ε) is a constant."""
    result = rewrite(bn(("gamma", "beta")))
    assert "Sqrt" not in operators(result.model)
    assert operators(result.model) == ["Div", "Reshape", "Mul", "Mul", "Sub", "Reshape", "Add"]
    stored = [numpy_helper.to_array(t) for t in result.model.graph.initializer]
    wanted = np.sqrt(batchnorm(4)["var"].astype(np.float64) + np.float64(np.float32(1e-5))).astype(np.float32)
    assert any(value.shape == wanted.shape and (value == wanted).all() for value in stored)


def test_statistics_of_the_batch_as_dynamo_writes_them(rewrite):
    """``track_running_stats=False`` from torch.onnx.export(dynamo=True)."""
    model = parse(
        "g (float[N, 4, 5, 6] x) => (float[] y) { v1 = ReduceMean <keepdims=0> (x, axes) v2 = ReduceMean (x, axes)"
        " d = Sub(x, v2) q = Mul(d, d) v5 = ReduceMean <keepdims=0> (q, axes)"
        " [bn] y = BatchNormalization(x, gamma, beta, v1, v5) }",
        {"axes": np.array([0, 2, 3]), **{n: v for n, v in batchnorm(4).items() if n in ("gamma", "beta")}},
        opset=18,
    )
    result = rewrite(model)
    assert result.rules == [NAME]
    assert worst(model, result.model, {"x": (2, 4, 5, 6)}) < 1e-6


def test_parameters_of_the_outer_graph(rewrite):
    model = parse(
        "g (float[N, 4, 5, 6] x, bool t, float[4] k) => (float[] r) { gamma = Exp(k) r = If (t) <"
        "then_branch = a () => (float[N, 4, 5, 6] y) { y = BatchNormalization(x, gamma, beta, mu, var) },"
        "else_branch = b () => (float[N, 4, 5, 6] e) { e = Mul(x, x) }> }",
        {name: value for name, value in batchnorm(4).items() if name != "gamma"},
    )
    result = rewrite(model)
    assert result.rules == [NAME]
    feeds = {"x": random(2, 4, 5, 6), "k": random(4), "t": np.array(True)}
    wanted, got = evaluate(model, feeds)["r"], evaluate(result.model, feeds)["r"]
    assert np.max(np.abs(wanted - got)) < 1e-6


def test_a_shared_parameter_and_a_residual(rewrite):
    model = parse(
        "g (float[N, 4, 5, 6] a, float[4] p) => (float[] z, float[] x) { x = Relu(a) q = Exp(p)"
        " y = BatchNormalization(x, q, p, p, q) z = Add(y, x) }"
    )
    result = rewrite(model)
    assert result.rules == [NAME]
    feeds = {"a": random(2, 4, 5, 6), "p": random(4)}
    assert np.max(np.abs(evaluate(model, feeds)["z"] - evaluate(result.model, feeds)["z"])) < 1e-12


SPOILT = np.array([1, np.nan, 1, 1], np.float32)
NEGATIVE = np.array([1, 1, -3, 1], np.float32)
REFUSALS = [
    Refusal(rule.a_parameter_is_computed, bn(()), "all parameters of bn are constants"),
    Refusal(
        shared.is_inference,
        parse(
            "g (float[N, 4, 5, 6] x, float[4] g) => (float[] y)"
            " { [bn] y, m, v = BatchNormalization <training_mode=1> (x, g, beta, mu, var) }",
            batchnorm(4),
        ),
        "training_mode=1",
    ),
    Refusal(
        shared.is_per_channel,
        bn(attributes="<spatial=0>", opset=7, length="4, 5, 6"),
        "spatial=0",
    ),
    Refusal(
        data_channels.type_and_rank_are_known,
        parse(
            "g (float[N, 4] a, int64[K] s, float[4] g) => (float[] y)"
            " { x = Reshape(a, s) [bn] y = BatchNormalization(x, g, beta, mu, var) }",
            batchnorm(4),
        ),
        "type or rank of the data of bn is not known",
    ),
    Refusal(rule.parameters_fit, bn(length="5"), "gamma has 5 values, but the data of bn has 4 channels"),
    Refusal(rule.parameters_fit, bn(length="1, 4"), "gamma has shape [1, 4], not one axis"),
    Refusal(rule.known_parameters_are_finite, bn(("gamma",), beta=SPOILT), "beta (bias) is not finite in channel 1 (nan)"),
    Refusal(rule.known_parameters_are_finite, bn(("gamma",), var=NEGATIVE), "is not positive in channel 2"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(bn()).model)
    assert twice.outcome.changes == []
    assert twice.outcome.rejections == ()
