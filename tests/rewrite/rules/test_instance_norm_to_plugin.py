"""instance-norm-to-plugin: only on request, with the plugin's own attributes, and runnable everywhere."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.models import operators, parse, random
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.onnx_model.clean import clean
from trtnorm_cli.onnx_model.plugin_nodes import DOMAIN, for_builder
from trtnorm_cli.profile.rewriting import Implementations, RewriteSettings
from trtnorm_cli.rewrite.rules import instance_norm_to_plugin as rule

NAME = rule.RULE.name
PLUGIN = RewriteSettings(instance_norm=Implementations("plugin"))
DTYPES = {"float": np.float32, "float16": np.float16, "bfloat16": np.float32, "double": np.float64}


def norm(
    kind: str = "float",
    shape: str = "N, 3, H, W",
    attributes: str = "<epsilon=1e-3>",
    behind: str = "",
    opset: int = 17,
    **weights: np.ndarray,
) -> onnx.ModelProto:
    """An InstanceNormalization of three channels, with a node ``behind`` it that reads ``n`` and writes ``y``."""
    made = "n" if behind else "y"
    values = {name: random(3, seed=seed).astype(DTYPES[kind]) for seed, name in enumerate(("s", "b"))}
    graph = f"g ({kind}[{shape}] x) => ({kind}[] y) {{ [in0] {made} = InstanceNormalization {attributes} (x, s, b) {behind} }}"
    model = parse(graph, opset=opset)
    tensors = {**values, **weights}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in tensors.items())
    return model


def attributes_of(model: onnx.ModelProto) -> dict[str, object]:
    (node,) = (node for node in model.graph.node if node.domain == DOMAIN)
    return {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}


def run(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": x})[0]


def expected(x: np.ndarray, epsilon: float = 1e-3, slope: float = 1.0) -> np.ndarray:
    """By the formula, with two passes in float64."""
    along = (3, *[1] * (x.ndim - 2))
    scale, bias = (random(3, seed=seed).astype(x.dtype).astype(np.float64).reshape(along) for seed in (0, 1))
    data, axes = x.astype(np.float64), tuple(range(2, x.ndim))
    centred = data - data.mean(axes, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axes, keepdims=True) + float(np.float32(epsilon)))
    y = centred / deviation * scale + bias
    return np.where(y < 0, y * float(np.float32(slope)), y)


@pytest.mark.parametrize("opset", [7, 9, 11, 12, 14, 15, 17, 18, 20, 21, 22])
@pytest.mark.parametrize(("shape", "sizes"), [("N, 3, H, W", (2, 3, 5, 7)), ("2, 3, 4, 5, 6", (2, 3, 4, 5, 6))])
def test_the_plugin_has_the_attributes_of_version_3(rewrite, opset, shape, sizes):
    result = rewrite(norm(shape=shape, opset=opset), (rule.RULE,), {"x": sizes}, settings=PLUGIN)
    assert result.rules == [NAME]
    (node,) = result.model.graph.node
    assert (node.op_type, node.domain, node.name) == ("InstanceNormalization_TRT", DOMAIN, "in0")
    assert (list(node.input), list(node.output)) == (["x"] if opset >= 15 else ["x", "s", "b"], ["y"])
    given = attributes_of(result.model)
    assert list(given) == ["epsilon", "scales", "bias", "relu", "alpha", "plugin_version", "plugin_namespace"]
    assert given["epsilon"] == np.float32(1e-3)
    np.testing.assert_array_equal(np.float32(given["scales"]), random(3, seed=0))
    np.testing.assert_array_equal(np.float32(given["bias"]), random(3, seed=1))
    assert (given["relu"], given["alpha"]) == (0, 0.0 if opset >= 15 else 1.0)
    assert (given["plugin_version"], given["plugin_namespace"]) == (b"3", b"")


@pytest.mark.parametrize("opset", [7, 11, 14, 17, 22])
def test_the_file_is_valid_and_runs_as_before(rewrite, opset):
    model = norm(opset=opset)
    result = rewrite(model, (rule.RULE,), settings=PLUGIN)
    onnx.checker.check_model(result.model, full_check=True)
    x = random(2, 3, 5, 7)
    np.testing.assert_array_equal(run(result.model, x), run(model, x))
    got = evaluate_float64(result.model, {"x": x}).outputs["y"]
    assert np.max(np.abs(got - expected(x))) < 1e-12


@pytest.mark.parametrize(
    ("behind", "slope"),
    [
        ("[a] y = Relu(n)", 0.0),
        ("[a] y = LeakyRelu(n)", 0.01),
        ("[a] y = LeakyRelu <alpha=0.2> (n)", 0.2),
        ("[a] y = LeakyRelu <alpha=-1.5> (n)", -1.5),
    ],
)
@pytest.mark.parametrize("opset", [9, 13, 17])
def test_an_activation_goes_into_the_node(rewrite, behind, slope, opset):
    result = rewrite(norm(behind=behind, opset=opset), (rule.RULE,), settings=PLUGIN)
    assert operators(result.model) == ["InstanceNormalization_TRT"]
    assert result.outcome.changes[0].removed == ("in0", "a")
    given = attributes_of(result.model)
    assert (given["relu"], np.float32(given["alpha"])) == (1, np.float32(slope))
    onnx.checker.check_model(result.model, full_check=True)
    x = random(2, 3, 5, 7)
    np.testing.assert_allclose(run(result.model, x), expected(x, slope=slope), rtol=1e-4, atol=1e-5)
    got = evaluate_float64(result.model, {"x": x}).outputs["y"]
    assert np.max(np.abs(got - expected(x, slope=slope))) < 1e-12


@pytest.mark.parametrize(
    ("inside", "outputs"),
    [
        ("[in0] n = InstanceNormalization(x, s, b) [a] y = Relu(n) z = Neg(n)", "float[] y, float[] z"),
        ("[in0] n = InstanceNormalization(x, s, b) [a] y = Relu(n)", "float[] y, float[N, 3, H, W] n"),
        ("[in0] n = InstanceNormalization(x, s, b) [a] y = Elu(n)", "float[] y"),
        ("[in0] n = InstanceNormalization(x, s, b) [a] y = PRelu(n, s)", "float[] y"),
    ],
    ids=["residual", "graph output", "another activation", "a slope for each channel"],
)
def test_an_activation_stays_where_it_is_not_alone(rewrite, inside, outputs):
    shape = {"s": random(3), "b": random(3)}
    model = parse(f"g (float[N, 3, H, W] x) => ({outputs}) {{ {inside} }}", shape)
    if "PRelu" in inside:
        model = parse(f"g (float[N, 3, H, 3] x) => ({outputs}) {{ {inside} }}", shape)
    result = rewrite(model, (rule.RULE,), settings=PLUGIN)
    assert operators(result.model)[:2] == ["InstanceNormalization_TRT", operators(model)[1]]
    assert attributes_of(result.model)["relu"] == 0


def test_an_activation_in_a_branch_stays_there(rewrite):
    model = parse(
        "g (float[N, 3, H, W] x, bool c) => (float[] y) { [in0] n = InstanceNormalization(x, s, b)"
        " y = If (c) <then_branch = t () => (float[N, 3, H, W] a) { a = Relu(n) },"
        " else_branch = e () => (float[N, 3, H, W] d) { d = Neg(x) }> }",
        {"s": random(3), "b": random(3)},
    )
    result = rewrite(model, (rule.RULE,), settings=PLUGIN)
    assert operators(result.model) == ["InstanceNormalization_TRT", "If"]
    assert attributes_of(result.model)["relu"] == 0


def test_a_norm_in_a_branch(rewrite):
    model = parse(
        "g (float[N, 3, H, W] x, bool c) => (float[N, 3, H, W] y) {"
        " y = If (c) <then_branch = t () => (float[N, 3, H, W] a) { [in0] n = InstanceNormalization(x, s, b) a = Relu(n) },"
        " else_branch = e () => (float[N, 3, H, W] d) { d = Neg(x) }> }",
        {"s": random(3), "b": random(3)},
    )
    result = rewrite(model, (rule.RULE,), settings=PLUGIN)
    branch = result.model.graph.node[0].attribute[0].g
    assert [(node.op_type, node.domain) for node in branch.node] == [("InstanceNormalization_TRT", DOMAIN)]
    onnx.checker.check_model(result.model)


@pytest.mark.parametrize("opset", [9, 14, 17])
def test_half_data(rewrite, opset):
    result = rewrite(norm("float16", behind="[a] y = Relu(n)", opset=opset), (rule.RULE,), settings=PLUGIN)
    assert result.rules == [NAME]
    onnx.checker.check_model(result.model, full_check=True)
    x = random(2, 3, 5, 7, dtype=np.float16)
    got = run(result.model, x)
    assert got.dtype == np.float16
    np.testing.assert_allclose(got, expected(x, slope=0.0), rtol=2e-3, atol=2e-3)
    exact = evaluate_float64(result.model, {"x": x}).outputs["y"]
    assert np.max(np.abs(exact - expected(x, slope=0.0))) < 1e-12


def test_parameters_of_another_type(rewrite):
    """The plugin computes in float32 anyway: no casts around it, and no rounding of the parameters."""
    result = rewrite(norm("float16", s=random(3), b=random(3, seed=1)), settings=PLUGIN)
    assert result.rules == [NAME]
    given = attributes_of(result.model)
    np.testing.assert_array_equal(np.float32(given["scales"]), random(3))
    onnx.checker.check_model(result.model, full_check=True)


def test_parameters_of_another_type_in_an_old_opset(rewrite):
    """There the model is repaired first."""
    result = rewrite(norm("float16", opset=14, s=random(3), b=random(3, seed=1)), settings=PLUGIN)
    assert result.rules == ["normalization-parameter-types", NAME]
    onnx.checker.check_model(result.model, full_check=True)


@pytest.mark.parametrize("opset", [11, 17])
def test_the_builder_gets_the_inputs_of_the_plugin(rewrite, opset):
    result = rewrite(norm(opset=opset), (rule.RULE,), settings=PLUGIN)
    assert [list(node.input) for node in for_builder(result.model).graph.node] == [["x"]]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    opset=st.integers(7, 22),
    kind=st.sampled_from(["float", "float16"]),
    sizes=st.lists(st.integers(1, 4), min_size=3, max_size=4),
    epsilon=st.floats(1e-8, 1.0),
    slope=st.none() | st.floats(-2.0, 2.0),
    scale=st.floats(-100, 100),
    seed=st.integers(0, 1000),
)
def test_no_plugin_changes_what_the_model_computes(rewrite, opset, kind, sizes, epsilon, slope, scale, seed):
    """In exact arithmetic, of whatever the plugin is made from, and read back as well."""
    shape = (sizes[0], 3, *sizes[1:])
    behind = "" if slope is None else f"[a] y = LeakyRelu <alpha={slope:.9f}> (n)"
    values = {"s": np.array([scale, 0, -1.5], DTYPES[kind]), "b": random(3, seed=seed, dtype=DTYPES[kind])}
    model = norm(kind, ", ".join(map(str, shape)), f"<epsilon={epsilon:.12f}>", behind, opset, **values)
    result = rewrite(model, (rule.RULE,), settings=PLUGIN)
    assert result.rules == [NAME]
    x = 10 * random(*shape, seed=seed, dtype=DTYPES[kind])
    wanted = evaluate_float64(model, {"x": x}).outputs["y"]
    for candidate in (result.model, clean(result.model).model):
        got = evaluate_float64(candidate, {"x": x}).outputs["y"]
        assert np.max(np.abs(got - wanted)) <= 1e-12 * max(1.0, np.max(np.abs(wanted)))


def test_several_nodes_share_one_function(rewrite):
    model = parse(
        "g (float[N, 3, H, W] x) => (float[] y) { a = InstanceNormalization(x, s, b) r = Relu(a)"
        " c = InstanceNormalization(r, s, b) y = Add(c, x) }",
        {"s": random(3), "b": random(3)},
    )
    result = rewrite(model, (rule.RULE,), settings=PLUGIN)
    assert result.rules == [NAME, NAME]
    assert len(result.model.functions) == 1
    assert [entry.domain for entry in result.model.opset_import] == ["", DOMAIN]
    x = random(2, 3, 5, 7)
    np.testing.assert_array_equal(run(result.model, x), run(model, x))


def test_only_the_nodes_that_are_named(rewrite):
    model = parse(
        "g (float[N, 3, H, W] x) => (float[] y) { [one] a = InstanceNormalization(x, s, b)"
        " [two] y = InstanceNormalization(a, s, b) }",
        {"s": random(3), "b": random(3)},
    )
    for choice in (Implementations("native", {"two": "plugin"}), Implementations("plugin", {"one": "native"})):
        result = rewrite(model, (rule.RULE,), settings=RewriteSettings(instance_norm=choice))
        assert operators(result.model) == ["InstanceNormalization", "InstanceNormalization_TRT"]


RUNTIME = parse(
    "g (float[N, 3, H, W] x, float[3] s) => (float[] y) { [in0] y = InstanceNormalization(x, s, b) }", {"b": random(3)}
)
UNKNOWN_RANK = parse(
    "g (float[N, 4] a, int64[K] t) => (float[] y) { x = Reshape(a, t) [in0] y = InstanceNormalization(x, s, b) }",
    {"s": random(3), "b": random(3)},
)
WRONG_EPSILON = norm(attributes="<epsilon=1>")

REFUSALS = [
    Refusal(rule.the_profile_asks_for_it, norm(), "no plugin is asked for (instance_norm: native)"),
    Refusal(rule.the_data_suits_the_plugin, norm(shape="N, 3, L"), "x has rank 3, the plugin takes rank 4 and 5", PLUGIN),
    Refusal(rule.the_data_suits_the_plugin, norm(shape="N, 3, 2, 2, 2, 2"), "x has rank 6", PLUGIN),
    Refusal(rule.the_data_suits_the_plugin, norm("double"), "x is double, the plugin takes float32 and float16", PLUGIN),
    Refusal(rule.the_data_suits_the_plugin, UNKNOWN_RANK, "type or rank of x, the data of in0, is not known", PLUGIN),
    Refusal(rule.parameters_are_constants, RUNTIME, "s, the scale of in0, is computed at run time", PLUGIN),
    Refusal(rule.parameters_fit_the_channels, norm(shape="N, C, H, W"), "x has C channels, the plugin wants a fix", PLUGIN),
    Refusal(rule.parameters_fit_the_channels, norm(s=np.ones(4, np.float32)), "s has the shape [4], x has 3 channels", PLUGIN),
    Refusal(
        rule.parameters_fit_the_channels,
        norm(b=np.array([0, np.inf, 1], np.float32)),
        "b has values that a list of float32 does not hold",
        PLUGIN,
    ),
    Refusal(
        rule.the_definition_takes_the_parameters,
        norm("float16", opset=14, s=random(3)),
        "s is float and x is float16, in opset 14",
        PLUGIN,
    ),
    Refusal(rule.epsilon_is_a_float, WRONG_EPSILON, "epsilon of in0 is 1, not a float", PLUGIN),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE, tolerant=True)


def test_a_second_pass_changes_nothing(rewrite):
    once = rewrite(norm(behind="[a] y = Relu(n)"), settings=PLUGIN)
    assert once.rules == [NAME]
    assert rewrite(once.model, settings=PLUGIN).outcome.changes == []
