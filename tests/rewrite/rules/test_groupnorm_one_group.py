"""groupnorm-one-group: every opset, rank, type and placement; proved on the network that TensorRT parses."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.models import batchnorm, operators, parse, random
from tests.numerics import relative_error
from tests.oracle import evaluate
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.norms import affine, difference, norm, standardized, unknown_rank
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.compare.session import run_session
from trtnorm_cli.compare.settings import Settings
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.parts import data_channels, group_parameters
from trtnorm_cli.rewrite.rules import groupnorm_one_group as rule
from trtnorm_cli.target import Target

NAME = rule.RULE.name
AS_IT_IS = ["Reshape", "InstanceNormalization", "Reshape", "Mul", "Add"]


def gn(groups: int = 1, length: int | None = None, opset: int = 21, attributes: str = "", **more) -> onnx.ModelProto:
    count = length or (groups if opset < 21 else 4)
    node = f"y = GroupNormalization <num_groups={groups}{attributes}> (x, s, b)"
    return norm(node, more.pop("weights", affine(count, dtype=more.pop("dtype", np.float32))), opset=opset, **more)


def by_definition(x: np.ndarray, scale: np.ndarray, bias: np.ndarray, epsilon: float = float(np.float32(1e-5))) -> np.ndarray:
    along = (-1, *[1] * (x.ndim - 2))
    y = standardized(x.astype(np.float64), tuple(range(1, x.ndim)), epsilon)
    return y * scale.astype(np.float64).reshape(along) + bias.astype(np.float64).reshape(along)


@pytest.mark.parametrize("opset", [18, 20, 21, 23])
@pytest.mark.parametrize("shape", ["N, 4, 7", "N, 4, H, W", "2, 4, 3, 5, 2", "2, 4, 3, 2, 2, 3"])
def test_every_opset_and_rank(rewrite, opset, shape):
    model = gn(opset=opset, shape=shape)
    sizes = tuple(int(s) if s.isdigit() else 3 for s in shape.split(", "))
    result = rewrite(model, (rule.RULE,), pins={"x": sizes})
    assert result.rules == [NAME]
    unknown = shape == "N, 4, H, W"
    assert operators(result.model) == [*AS_IT_IS[:2], *(["Shape"] if unknown else []), *AS_IT_IS[2:]]
    x, weights = random(*sizes), affine(1 if opset < 21 else 4)
    wanted = by_definition(x, weights["s"], weights["b"])
    assert relative_error(wanted, evaluate(result.model, {"x": x})["y"]) < 1e-12


def test_one_unknown_size_needs_no_shape(rewrite):
    assert operators(rewrite(gn(shape="N, 4, 5, W"), rules=(rule.RULE,), pins={"x": (2, 4, 5, 6)}).model) == AS_IT_IS


def test_a_channel_count_that_is_not_known(rewrite):
    model = gn(shape="2, C, 5, 6")
    result = rewrite(model, (rule.RULE,), pins={"x": (2, 4, 5, 6)})
    assert result.rules == [NAME]
    assert difference(model, result.model, {"x": (2, 4, 5, 6)}) < 1e-6  # onnx.reference stashes in float32


@pytest.mark.parametrize("epsilon", [0.0, 1e-12, 1e-3, 2.0])
def test_epsilon_is_kept(rewrite, epsilon):
    result = rewrite(gn(attributes=f", epsilon={epsilon:.12f}", shape="2, 4, 5, 6"), rules=(rule.RULE,))
    x, weights = random(2, 4, 5, 6), affine(4)
    wanted = by_definition(x, weights["s"], weights["b"], float(np.float32(epsilon)))
    assert relative_error(wanted, evaluate(result.model, {"x": x})["y"]) < 1e-12


@pytest.mark.parametrize(("kind", "dtype"), [("float16", np.float16), ("bfloat16", ml_dtypes.bfloat16)])
@pytest.mark.parametrize("parameters", ["own", "float32"])
def test_half_precision_is_normalized_in_float32(rewrite, kind, dtype, parameters):
    model = gn(kind=kind, dtype=dtype if parameters == "own" else np.float32)
    result = rewrite(model, (rule.RULE,), pins={"x": (2, 4, 5, 6)})
    assert result.rules == [NAME]
    assert operators(result.model) == ["Cast", *AS_IT_IS, "Cast"]
    kinds = onnx.shape_inference.infer_shapes(result.model, check_type=True, strict_mode=True)
    assert kinds.graph.output[0].type.tensor_type.elem_type == model.graph.input[0].type.tensor_type.elem_type


def test_float64_has_no_instance_normalization_in_onnxruntime(rewrite):
    model = gn(kind="double", dtype=np.float64)
    result = rewrite(model, (rule.RULE,), pins={"x": (2, 4, 5, 6)})
    assert result.rules == [NAME]
    assert "InstanceNormalization" not in operators(result.model)
    assert difference(model, result.model, {"x": (2, 4, 5, 6)}) < 1e-6  # onnx.reference stashes in float32


def test_a_stash_type_of_half_precision_rounds_the_original_only(rewrite):
    result = rewrite(gn(attributes=", stash_type=10", shape="2, 4, 5, 6"), (rule.RULE,))
    assert result.rules == [NAME]
    assert result.outcome.changes[0].check.max_rel > 1e-5


@pytest.mark.parametrize("opset", [18, 21])
def test_parameters_of_run_time(rewrite, opset):
    count = 1 if opset < 21 else 4
    model = gn(opset=opset, shape="2, 4, 5, 6", inputs=f", float[{count}] s, float[{count}] b")
    result = rewrite(model, (rule.RULE,))
    assert result.rules == [NAME]
    feeds = {"x": random(2, 4, 5, 6), **affine(count)}
    wanted = by_definition(feeds["x"], feeds["s"], feeds["b"])
    assert relative_error(wanted, evaluate(result.model, feeds)["y"]) < 1e-12


def test_inside_a_branch_and_beside_a_residual(rewrite):
    model = parse(
        "g (float[N, 4, 5, 6] x, bool t) => (float[] z) { r = If (t) <"
        "then_branch = a () => (float[N, 4, 5, 6] p) { n = GroupNormalization <num_groups=1> (x, s, b) p = Add(n, x) },"
        "else_branch = o () => (float[N, 4, 5, 6] q) { q = Neg(x) }> z = Add(r, x) }",
        affine(4),
        opset=21,
    )
    result = rewrite(model, (rule.RULE,))
    assert result.rules == [NAME]
    feeds = {"x": random(2, 4, 5, 6), "t": np.array(True)}
    assert relative_error(evaluate(model, feeds)["z"], evaluate(result.model, feeds)["z"]) < 1e-6


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(1, 5), min_size=1, max_size=3),
    st.integers(1, 3),
    st.integers(2, 6),
    st.floats(-50, 50),
    st.floats(0.01, 100),
    st.integers(0, 2**16),
)
def test_any_data(rewrite_once, positions, batch, channels, offset, spread, seed):
    """Exact also where the mean is far from zero, which cancels in a variance that is a difference of two means."""
    rng = np.random.default_rng(seed)
    shape = (batch, channels, *positions)
    weights = {"s": rng.standard_normal(channels).astype(np.float32), "b": rng.standard_normal(channels).astype(np.float32)}
    model = norm("y = GroupNormalization <num_groups=1> (x, s, b)", weights, ", ".join(map(str, shape)), opset=21)
    result = rewrite_once(model, rule.RULE)
    x = (rng.standard_normal(shape) * spread + offset).astype(np.float32)
    got = evaluate_float64(result, {"x": x}).outputs["y"]
    assert relative_error(by_definition(x, weights["s"], weights["b"]), got) < 1e-10


@pytest.mark.rtx
@pytest.mark.parametrize(("shape", "opset"), [("2, 4, 5, 6", 21), ("2, 4, 5, 6", 18), ("2, 4, 7", 21), ("2, 4, 3, 2, 5", 20)])
def test_the_parsed_network_is_right_now_and_was_wrong(rewrite, tmp_path, shape, opset):
    model = gn(opset=opset, shape=shape)
    before, after = tmp_path / "before.onnx", tmp_path / "after.onnx"
    before.write_bytes(model.SerializeToString())
    after.write_bytes(rewrite(model).model.SerializeToString())
    specs = [Target("network", str(before)), Target("network", str(after))]
    wrong, right = run_session(Target("onnx", str(before)), specs, None, Settings(find_blame=False)).candidates
    assert not wrong.passed
    assert right.passed


VECTORS = affine(4)
REFUSALS = [
    Refusal(
        data_channels.type_and_rank_are_known,
        unknown_rank("y = GroupNormalization <num_groups=1> (x, s, b)", VECTORS, 21),
        "type or rank of the data of norm is not known",
    ),
    Refusal(rule.there_is_one_group, gn(2), "norm has num_groups=2"),
    Refusal(rule.there_is_one_group, gn(weights=affine(1), shape="N, 1, 5, 6"), "norm has one channel"),
    Refusal(group_parameters.parameters_are_vectors, gn(length=3), "s has 3 values, norm wants 4"),
    Refusal(group_parameters.parameters_are_vectors, gn(length=4, opset=18), "s has 4 values, norm wants 1"),
    Refusal(group_parameters.parameters_are_vectors, gn(weights=affine(1, 4)), "s is not known to be a vector"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(gn()).model)
    assert twice.outcome.changes == []


def test_what_follows_goes_into_it_at_sizes_that_are_open(rewrite):
    """The reshape back to the data's shape told nobody the number of channels."""
    model = parse(
        "g (float[N, 4, H, W] x) => (float[N, 4, H, W] y) { r = Relu(x) n = GroupNormalization<num_groups = 1>(r, s, b)"
        " y = BatchNormalization(n, gamma, beta, mu, var) }",
        {"s": random(1), "b": random(1), **batchnorm(4)},
        opset=20,
    )
    assert rewrite(model).rules == [NAME, "fold-batchnorm-upstream"]
