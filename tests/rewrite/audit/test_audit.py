"""What TensorRT refuses or gets wrong does not pass: each known form, its reason, and a way out."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from tests.models import batchnorm, parse, random
from trtnorm_cli.onnx_model.surgery import open_model
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite.ambiguities import tolerant_types
from trtnorm_cli.rewrite.audit.audit import FORMS, Refusal, audit


def bn(
    attributes: str = "",
    outputs: str = "y",
    graph_outputs: str = "float[] y",
    opset: int = 17,
    kind: str = "float",
    shape: str = "N, 4, 5, 6",
    inputs: str = "x, gamma, beta, mu, var",
    **weights: np.ndarray,
) -> onnx.ModelProto:
    graph = f"g ({kind}[{shape}] x) => ({graph_outputs}) {{ [bn] {outputs} = BatchNormalization {attributes}({inputs}) }}"
    return parse(graph, {**batchnorm(4), **weights}, opset=opset)


EMPTY = {name: np.zeros(0, np.float32) for name in ("gamma", "beta", "mu", "var")}


def scalar() -> onnx.ModelProto:
    """Data of rank 0, for which ONNX's text form has no word."""
    model = bn(shape="1", **{name: np.ones(1, np.float32) for name in EMPTY})
    del model.graph.input[0].type.tensor_type.shape.dim[:]
    return model


def refusals(model: onnx.ModelProto, settings: RewriteSettings | None = None) -> list[Refusal]:
    return audit(open_model(model, None), tolerant_types(model, None)[0], settings or RewriteSettings())


def spoilt(value: float, at: int = 2) -> np.ndarray:
    values = np.ones(4, np.float32)
    values[at] = value
    return values


PER_ELEMENT = {name: np.ones((4, 5, 6), np.float32) for name in ("gamma", "beta", "mu", "var")}
SAVED = {"outputs": "y, m, v, sm, sv", "graph_outputs": "float[] y, float[4] sv", "opset": 9}
GROUPS = "g (float[N, 4, 5, 6] x) => (float[] y) {{ [gn] y = GroupNormalization <num_groups={}> (x, gamma, beta) }}"


def other(node: str, shape: str = "N, 4, 5, 6", **weights: np.ndarray) -> onnx.ModelProto:
    known = {**batchnorm(4), **weights}
    return parse(f"g (float[{shape}] x) => (float[] y) {{ [norm] y = {node} }}", {n: v for n, v in known.items() if n in node})


def fused(node: str) -> onnx.ModelProto:
    model = other(node)
    model.graph.node[0].domain = "com.microsoft"
    model.opset_import.add(domain="com.microsoft", version=1)
    return model


CASES = {
    "epsilon as an integer": (bn("<epsilon=1>"), "its attribute epsilon is 1, not a float"),
    "epsilon as a text": (bn('<epsilon="1e-5">'), "its attribute epsilon is '1e-5', not a float"),
    "a sixth input": (bn(inputs="x, gamma, beta, mu, var, var"), "it has 6 inputs where"),
    "an input left out": (bn(inputs='x, "", beta, mu, var'), "it has 4 inputs where"),
    "one number": (scalar(), "its data x are one number: there is no batch and no channel"),
    "a vector": (bn(shape="4"), "scale, bias, mean and variance hold 4 values, but x [4] is a batch of one channel"),
    "no values": (bn(**EMPTY), "no values in its scale, bias, mean and variance; TensorRT would silently build an identity"),
    "another length": (bn(mu=np.zeros(2, np.float32)), "mean holds 2 values, but axis 1 of x [N, 4, 5, 6] has 4"),
    "another length in training": (
        bn("<training_mode=1>", "y, m, v", gamma=np.zeros(2, np.float32)),
        "scale holds 2 values, but axis 1",
    ),
    "a value for each element": (bn("<spatial=0>", opset=7, **PER_ELEMENT), "it has spatial=0"),
    "parameters that are no vectors": (
        bn(gamma=np.ones((1, 4), np.float32)),
        "its parameters are not vectors, which TensorRT wants: scale [1, 4]",
    ),
    "NaN": (bn(gamma=spoilt(np.nan)), "its scale is not finite in channel 2 (nan)"),
    "infinity": (bn(mu=spoilt(-np.inf, 0)), "its mean is not finite in channel 0 (-inf)"),
    "a negative variance": (bn(var=spoilt(-1)), "its variance + epsilon is not above zero in channel 2 (-0.99999)"),
    "a negative epsilon": (bn("<epsilon=-2.0>", var=spoilt(1)), "channel 0 (-1), 1 (-1), 2 (-1), 3 (-1)"),
    "a NaN in another normalization": (
        parse(
            "g (float[N, 4, 5, 6] x) => (float[] y) { y = InstanceNormalization(x, gamma, beta) }",
            {**batchnorm(4), "gamma": spoilt(np.nan)},
        ),
        "its scale is not finite in channel 2 (nan)",
    ),
    "training mode": (bn("<training_mode=1>", "y, m, v"), "it is in training mode, which TensorRT does not have"),
    "an input that is left out": (
        bn(inputs='x, gamma, "", mu, var'),
        "it has 4 inputs where data, scale, bias, mean and variance are wanted",
    ),
    "training mode of opset 9": (bn(outputs="y, m, v, sm, sv", opset=9), "it is in training mode"),
    "training mode of opset 6": (bn(opset=6), "opset 6 without is_test=1 means training mode"),
    "the saved variance": (bn(**SAVED), "its output saved_var, sv, is used"),
    "further outputs in inference": (
        bn(outputs="y, m, v", graph_outputs="float[] y, float[4] m"),
        "its further output m is used, and has no meaning outside of training",
    ),
    "a scale that overflows": (
        bn(gamma=spoilt(3e38), var=spoilt(1e-9)),
        "its scale over deviation is more than float32 holds in channel 2",
    ),
    "a variance beyond float16": (
        bn(kind="float16", var=spoilt(1e6)),
        "its variance is more than float16 holds in channel 2 (1e+06); TensorRT would compute with infinity",
    ),
    "one group": (parse(GROUPS.format(1), batchnorm(4), opset=21), "it has one group"),
    "no groups": (parse(GROUPS.format(0), batchnorm(4), opset=21), "it has num_groups=0"),
    "groups that do not divide": (
        parse(GROUPS.format(3), batchnorm(4), opset=21),
        "its 3 groups do not divide the 4 channels of [N, 4, 5, 6]",
    ),
    "an instance without positions": (
        other("InstanceNormalization(x, gamma, beta)", "N, 4"),
        "its data are [N, 4]; TensorRT normalizes data of three axes at least",
    ),
    "parameters of an instance that are no vectors": (
        other("InstanceNormalization(x, gamma, beta)", gamma=np.ones((2, 2), np.float32)),
        "its parameters are not vectors: scale [2, 2]",
    ),
    "an operator that is too new": (
        other("RMSNormalization(x, gamma)", "N, 5, 4"),
        "the operator exists since opset 23, and the model is of opset 17",
    ),
    "an axis that the data does not have": (
        other("LayerNormalization <axis=3> (x, gamma)", "N, 5, 4"),
        "its axis is 3, and its data [N, 5, 4] have 3 axes",
    ),
    "a scale that does not broadcast": (
        other("LayerNormalization(x, gamma)", "N, 5, 6"),
        "its scale [4] cannot be broadcast to its data [N, 5, 6]",
    ),
    "a scale of more axes than the data": (
        other("LayerNormalization(x, gamma)", "N, 4", gamma=np.ones((1, 1, 4), np.float32)),
        "its scale [1, 1, 4] cannot be broadcast",
    ),
    "a norm of the third order": (
        other("LpNormalization <p=3> (x)"),
        "it has p=3; ONNX, ONNX Runtime and TensorRT know 1 and 2",
    ),
    "a window without channels": (other("LRN <size=0> (x)"), "its window has size=0"),
    "a fused operator": (
        fused("GroupNorm <groups=2> (x, gamma, beta)"),
        "it is an operator of ONNX Runtime that TensorRT does not know",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_known_form_is_refused(case):
    model, reason = CASES[case]
    (refusal,) = refusals(model)
    assert reason in refusal.reason
    assert refusal.way_out


@pytest.mark.parametrize(
    "model",
    [
        parse(GROUPS.format(1).replace("4, 5", "1, 5"), batchnorm(1), opset=21),
        parse(GROUPS.format(2), batchnorm(4), opset=21),
        other("LayerNormalization <axis=-2> (x, gamma)", "N, 5, 4"),
        other("LayerNormalization(x, gamma)", "N, 5, T"),
        other("LRN <size=4> (x)"),
        parse("g (float[N, 5, 4] x) => (float[] y) { y = LayerNormalization(x, gamma) }", {"gamma": random(4)}, opset=13),
    ],
    ids=[
        "one group of one channel",
        "two groups",
        "a negative axis",
        "a last axis that is not known",
        "an even window",
        "a layer of an old opset",
    ],
)
def test_what_tensorrt_takes_or_a_rule_does_is_not_refused(model):
    assert refusals(model) == []


def test_every_form_has_a_case():
    """The reason of each case comes from another form at least once."""
    raised = {form.__name__ for form in FORMS for model, _ in CASES.values() if _applies(form, model)}
    assert raised == {form.__name__ for form in FORMS}


def _applies(form, model: onnx.ModelProto) -> bool:
    import trtnorm_cli.rewrite.audit.audit as module

    original = module.FORMS
    module.FORMS = (form,)
    try:
        return bool(refusals(model))
    finally:
        module.FORMS = original


def in_another_domain(model: onnx.ModelProto) -> onnx.ModelProto:
    model.graph.node[0].domain = "somewhere.else"
    model.opset_import.add(domain="somewhere.else", version=1)
    return model


FINE = {
    "a plain one": bn(),
    "is_test": bn("<is_test=1>", opset=6),
    "a zero epsilon": bn("<epsilon=0.0>"),
    "unused outputs": bn(outputs="y, m, v"),
    "float64 parameters": bn(**batchnorm(4, np.float64)),
    "half data within range": bn(kind="float16"),
    "bfloat16 has the range of float32": bn(kind="bfloat16", var=spoilt(1e6), gamma=batchnorm(4, ml_dtypes.bfloat16)["gamma"]),
    "a vector": bn(shape="N", **batchnorm(1)),
    "several groups": parse(GROUPS.format(2), batchnorm(4), opset=21),
    "parameters of run time": parse(
        "g (float[N, 4, 5, 6] x, float[4] s) => (float[] y) { y = BatchNormalization(x, s, beta, mu, var) }", batchnorm(4)
    ),
    "another domain": in_another_domain(bn(gamma=spoilt(np.nan))),
    "a layer normalization": parse(
        "g (float[2, 3, 4] x) => (float[] y) { y = LayerNormalization(x, gamma, beta) }", batchnorm(4)
    ),
    "a layer normalization of ONNX Runtime in an old opset": parse(
        "g (float[2, 3, 4] x) => (float[] y) { y = LayerNormalization(x, gamma, beta) }", batchnorm(4), opset=13
    ),
}


@pytest.mark.parametrize("case", FINE)
def test_what_tensorrt_takes_is_not_refused(case):
    assert refusals(FINE[case]) == []


def test_training_mode_that_the_profile_refuses():
    (refusal,) = refusals(bn("<training_mode=1>", "y, m, v"), RewriteSettings(training_mode="refuse"))
    assert refusal.reason == "it is in training mode, which the build profile refuses"
    assert "model.eval()" in refusal.way_out
    assert "training_mode: eval " in refusal.way_out


@pytest.mark.parametrize("node", ["Reshape", "mine.Unknown"])
def test_training_mode_of_data_without_a_rank(node):
    model = parse(
        f"g (float[N, 4] a, int64[K] s) => (float[] y) {{ x = {node}(a, s)"
        " [bn] y, m, v = BatchNormalization <training_mode=1> (x, gamma, beta, mu, var) }",
        batchnorm(4),
    )
    model.opset_import.add(domain="mine", version=1)
    (refusal,) = refusals(model)
    assert refusal.reason.endswith("the rank of its data is not known")


def test_a_mismatch_lists_the_readings_and_the_line_that_selects_one():
    model = parse(
        "g (float[N, 3, 8, 8] a) => (float[] y) { [conv] x = Conv(a, w) [bn] y = BatchNormalization(x, gamma, beta, mu, var) }",
        {"w": random(64, 3, 1, 1), **batchnorm(16)},
    )
    (refusal,) = refusals(model)
    assert refusal.reason == "scale, bias, mean and variance hold 16 values, but axis 1 of x [N, 64, 8, 8] has 64"
    assert list(refusal.details) == [
        "the 64 come from Conv conv, whose weight w is [64, 3, 1, 1]",
        "no axis of x has 16",
        "it could be meant as repeat-per-group: each value stands for 4 neighbouring channels",
        "it could be meant as tile: the values repeat from the start after every 16 channels",
    ]
    assert "mismatch: {bn: repeat-per-group}" in refusal.way_out.splitlines()
    assert "--weights" in refusal.way_out


def test_a_mismatch_without_a_reading():
    (refusal,) = refusals(bn(shape="N, 64, 8, 8", **batchnorm(15)))
    assert refusal.way_out.endswith("or give them with --weights model.safetensors")


def test_a_mismatch_of_run_time_parameters():
    model = parse(
        "g (float[N, 8, 5, 5] x, float[4] s) => (float[] y) { [bn] y = BatchNormalization(x, s, beta, mu, var) }", batchnorm(8)
    )
    (refusal,) = refusals(model)
    assert refusal.reason.startswith("scale holds 4 values")
    assert "--weights" not in refusal.way_out


def test_a_mismatch_of_another_normalization_has_the_same_readings():
    parameters = {name: value for name, value in batchnorm(4).items() if name in ("gamma", "beta")}
    graph = "g (float[N, 8, 5, 6] x) => (float[] y) { [norm] y = InstanceNormalization(x, gamma, beta) }"
    (refusal,) = refusals(parse(graph, parameters))
    assert refusal.reason == "scale and bias hold 4 values, but axis 1 of x [N, 8, 5, 6] has 8"
    assert "mismatch: {norm: repeat-per-group}" in refusal.way_out
    assert [line for line in refusal.details if "it could be meant as tile" in line]


def test_every_node_is_audited_and_named():
    model = parse(
        "g (float[N, 4, 5, 5] x, bool t) => (float[] r) { [outer] a = BatchNormalization(x, bad, beta, mu, var) r = If (t) <"
        "then_branch = b1 () => (float[N, 4, 5, 5] y) { y = BatchNormalization(a, bad, beta, mu, var) },"
        "else_branch = b2 () => (float[N, 4, 5, 5] e) { e = Neg(a) }> }",
        {**batchnorm(4), "bad": spoilt(np.nan)},
    )
    assert [(r.node, r.title) for r in refusals(model)] == [
        ("outer", "BatchNormalization outer"),
        ("BatchNormalization -> y", "BatchNormalization -> y"),
    ]
