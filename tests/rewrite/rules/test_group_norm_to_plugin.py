"""group-norm-to-plugin: only on request, per channel whatever the opset, and runnable everywhere."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import parse, random
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from tests.rewrite.rules.test_instance_norm_to_plugin import attributes_of, run
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.onnx_model.plugin_nodes import DOMAIN
from trtnorm_cli.profile.rewriting import Implementations, RewriteSettings
from trtnorm_cli.rewrite.rules import group_norm_to_plugin as rule

NAME = rule.RULE.name
PLUGIN = RewriteSettings(group_norm=Implementations("plugin"))
SHAPE = (2, 6, 5, 7)


def norm(
    shape: str = "2, 6, 5, 7",
    attributes: str = "<epsilon=1e-3, num_groups=3>",
    opset: int = 21,
    kind: str = "float",
    **weights: np.ndarray,
) -> onnx.ModelProto:
    """A GroupNormalization of six channels in three groups."""
    dtype = {"float": np.float32, "float16": np.float16}[kind]
    count = 6 if opset >= 21 else 3
    graph = f"g ({kind}[{shape}] x) => ({kind}[{shape}] y) {{ [gn0] y = GroupNormalization {attributes} (x, s, b) }}"
    values = {"s": random(count).astype(dtype), "b": random(count, seed=1).astype(dtype), **weights}
    return parse(graph, values, opset=opset)


def expected(x: np.ndarray, opset: int) -> np.ndarray:
    count = 6 if opset >= 21 else 3
    scale, bias = (np.repeat(random(count, seed=seed), 6 // count).reshape(6, 1, 1).astype(np.float64) for seed in (0, 1))
    grouped = x.astype(np.float64).reshape(2, 3, -1)
    centred = grouped - grouped.mean(2, keepdims=True)
    normalized = centred / np.sqrt((centred**2).mean(2, keepdims=True) + float(np.float32(1e-3)))
    return normalized.reshape(x.shape) * scale + bias


@pytest.mark.parametrize("opset", [18, 20, 21, 23])
def test_the_plugin_has_a_scale_and_a_bias_for_each_channel(rewrite, opset):
    result = rewrite(norm(opset=opset), (rule.RULE,), settings=PLUGIN)
    assert result.rules == [NAME]
    (node,) = result.model.graph.node
    assert (node.op_type, node.domain, node.name) == ("GroupNormalizationPlugin", DOMAIN, "gn0")
    assert attributes_of(result.model) == {
        "eps": np.float32(1e-3),
        "num_groups": 3,
        "plugin_version": b"1",
        "plugin_namespace": b"",
    }
    shapes = {tensor.name: list(tensor.dims) for tensor in result.model.graph.initializer}
    assert [shapes[name] for name in node.input[1:]] == [[6], [6]]
    onnx.checker.check_model(result.model, full_check=True)
    x = random(*SHAPE)
    np.testing.assert_allclose(run(result.model, x), expected(x, opset), rtol=1e-4, atol=1e-5)
    exact = evaluate_float64(result.model, {"x": x}).outputs["y"]
    assert np.max(np.abs(exact - expected(x, opset))) < 1e-12


def test_one_group(rewrite):
    """TensorRT's parser is wrong about it, the plugin is not."""
    result = rewrite(norm(attributes="<num_groups=1>"), settings=PLUGIN)
    assert result.rules == [NAME]
    assert attributes_of(result.model)["num_groups"] == 1


RUNTIME = parse(
    "g (float[2, 6, 5, 7] x, float[6] s) => (float[] y) { [gn0] y = GroupNormalization <num_groups=3> (x, s, b) }",
    {"b": random(6)},
    opset=21,
)
UNKNOWN_RANK = parse(
    "g (float[N, 4] a, int64[K] t) => (float[] y) { x = Reshape(a, t) [gn0] y = GroupNormalization <num_groups=3> (x, s, b) }",
    {"s": random(6), "b": random(6)},
    opset=21,
)
REFUSALS = [
    Refusal(rule.the_profile_asks_for_it, norm(), "no plugin is asked for (group_norm: native)"),
    Refusal(rule.the_data_suits_the_plugin, UNKNOWN_RANK, "type or rank of x, the data of gn0, is not known", PLUGIN),
    Refusal(rule.the_data_suits_the_plugin, norm(kind="float16"), "x is float16, the plugin takes float32 only", PLUGIN),
    Refusal(rule.the_data_suits_the_plugin, norm("2, 6, 5"), "x has rank 3, the plugin takes rank 4", PLUGIN),
    Refusal(rule.the_data_suits_the_plugin, norm("N, 6, 5, 7"), "the batch of x is N, the plugin wants it fixed", PLUGIN),
    Refusal(rule.the_data_suits_the_plugin, norm("2, C, 5, 7"), "the number of channels of x is C, the plug", PLUGIN),
    Refusal(rule.parameters_fit_the_channels, RUNTIME, "s, the scale of gn0, is computed at run time", PLUGIN),
    Refusal(
        rule.parameters_fit_the_channels, norm(b=random(3)), "b is float32 of shape [3], 6 channels want one float32", PLUGIN
    ),
    Refusal(rule.parameters_fit_the_channels, norm("2, 4, 5, 7"), "4 channels do not make 3 groups", PLUGIN),
    Refusal(rule.epsilon_is_a_float, norm(attributes="<epsilon=1, num_groups=3>"), "epsilon of gn0 is 1, not a", PLUGIN),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_below_opset_18_there_is_none(rewrite):
    result = rewrite(norm(opset=17), (rule.RULE,), settings=PLUGIN)
    assert result.reason(NAME) == "the model is of opset 17, the rule starts at 18"


def test_a_second_pass_changes_nothing(rewrite):
    once = rewrite(norm(), settings=PLUGIN)
    assert once.rules == [NAME]
    assert rewrite(once.model, settings=PLUGIN).outcome.changes == []
