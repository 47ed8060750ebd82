"""Functions that are written for another opset than the model: as ONNX Runtime takes them, or converted where it takes none."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.inliner
import onnx.parser
import pytest

from tests.models import loaded, random
from tests.onnx_model.running import run
from trtnorm_cli.errors import ModelError
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.onnx_model.clean import clean
from trtnorm_cli.onnx_model.load import LoadedModel

X = random(2, 3, 4)


def model(opset: int, function_opset: int, body: str, graph: str = "y = f.s(x)", more: str = "") -> onnx.ModelProto:
    """A graph over one tensor that calls the function ``s``."""
    return onnx.parser.parse_model(
        f"""<ir_version: 10, opset_import: ["" : {opset}, "f" : 1, "h" : 1]>
        g (float[2,3,4] x) => (float[a,b,c] y) {{ {graph} }}
        <domain: "f", opset_import: ["" : {function_opset}, "h" : 1]> s (x) => (y) {{ {body} }} {more}"""
    )


def inlined(made: onnx.ModelProto, tmp_path) -> tuple[LoadedModel, np.ndarray]:
    read = loaded(made, tmp_path)
    result = clean(read.proto).model
    assert not result.functions
    onnx.checker.check_model(result, full_check=True)
    return read, run(result, {"x": X})["y"]


# (opset of the function, of the model, body): ONNX Runtime runs these.
RUNS = {
    "Softmax-11 of the last axis": (11, 17, "y = Softmax<axis = -1>(x)"),
    "Softmax-11": (11, 17, "y = Softmax(x)"),
    "Softmax-13 in 11": (13, 11, "y = Softmax(x)"),
    "Hardmax-11": (11, 18, "y = Hardmax<axis = 1>(x)"),
    "Relu-6": (6, 17, "y = Relu(x)"),
    "Add-17 in 11": (17, 11, "y = Add(x, x)"),
    "Dropout-7": (7, 17, "y, mask = Dropout(x)"),
    "ReduceMean-11 of all": (11, 18, "m = ReduceMean(x) y = Sub(x, m)"),
    "BatchNormalization-9": (9, 15, "p = Constant<value = float[3] {1.0, 2.0, 3.0}>() y = BatchNormalization(x, p, p, p, p)"),
    "a branch": (
        11,
        17,
        "c = Constant<value = bool {1}>() "
        "y = If(c)<then_branch = t () => (a) {a = Softmax(x)}, else_branch = e () => (b) {b = Neg(x)}>",
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_the_result_is_that_of_onnx_runtime(name, tmp_path):
    own, opset, body = RUNS[name]
    made = model(opset, own, body)
    read, got = inlined(made, tmp_path)
    np.testing.assert_allclose(got, run(made, {"x": X})["y"], rtol=1e-6, atol=1e-6)
    assert read.runs_unmended
    assert any("import another opset" in note for note in read.warnings)


TOLD = {"Softmax-11": True, "Softmax-13 in 11": True, "Softmax-11 of the last axis": False}


@pytest.mark.parametrize(("name", "told"), TOLD.items())
def test_an_operator_with_another_meaning_is_told(name, told, tmp_path):
    own, opset, body = RUNS[name]
    notes = loaded(model(opset, own, body), tmp_path).warnings
    assert any(f"s/Softmax of opset {own} in {opset}" in note for note in notes) == told


# ONNX Runtime refuses these: the operator of the model's opset has no such attribute or too few inputs.
CONVERTED = {
    "Unsqueeze and Squeeze": (11, 17, "z = Unsqueeze<axes = [0]>(x) y = Squeeze<axes = [0]>(z)", X),
    "ReduceSum": (11, 17, "m = ReduceSum<axes = [1]>(x) y = Sub(x, m)", X - X.sum(axis=1, keepdims=True)),
    "ReduceMean": (17, 18, "m = ReduceMean<axes = [2]>(x) y = Sub(x, m)", X - X.mean(axis=2, keepdims=True)),
    "Slice": (9, 17, "y = Slice<starts = [1], ends = [3], axes = [1]>(x)", X[:, 1:3]),
    "Clip": (6, 17, "y = Clip<min = 0.0, max = 1.0>(x)", np.clip(X, 0, 1)),
    "Upsample": (9, 17, "s = Constant<value = float[3] {1.0, 2.0, 2.0}>() y = Upsample(x, s)", X.repeat(2, 1).repeat(2, 2)),
    "Dropout": (7, 17, "y, mask = Dropout<ratio = 0.3>(x)", X),
    "Pad": (2, 17, "y = Pad<pads = [0, 0, 0, 0, 0, 1]>(x)", np.pad(X, [(0, 0), (0, 0), (0, 1)])),
    "Split": (11, 17, "a, b = Split<axis = 2, split = [1, 3]>(x) y = Identity(b)", X[..., 1:]),
    "TopK": (9, 17, "y, i = TopK<k = 4>(x)", -np.sort(-X, axis=-1)),
    "in a branch": (
        11,
        17,
        "c = Constant<value = bool {1}>() y = If(c)<then_branch = t () => (a) {m = ReduceSum<axes = [1]>(x) a = Sub(x, m)}, "
        "else_branch = e () => (b) {b = Neg(x)}>",
        X - X.sum(axis=1, keepdims=True),
    ),
}


@pytest.mark.parametrize("name", CONVERTED)
def test_what_exists_only_in_the_functions_opset_is_converted(name, tmp_path):
    own, opset, body, wanted = CONVERTED[name]
    made = model(opset, own, body)
    with pytest.raises(Exception, match="INVALID_GRAPH"):
        run(made, {"x": X})
    read, got = inlined(made, tmp_path)
    np.testing.assert_allclose(got, wanted, rtol=1e-6, atol=1e-6)
    assert not read.runs_unmended
    assert any("were converted" in note for note in read.warnings)


@pytest.mark.parametrize(
    ("own", "opset", "body", "reason"),
    [
        (20, 17, "y = Gelu(x)", "which has no such Gelu"),
        (
            17,
            11,
            "a = Constant<value_ints = [0]>() z = Unsqueeze(x, a) y = Squeeze(z, a)",
            "the model for opset 11",
        ),
    ],
)
def test_what_cannot_be_converted_is_named_with_both_opsets(own, opset, body, reason, tmp_path):
    with pytest.raises(ModelError, match=reason) as caught:
        loaded(model(opset, own, body), tmp_path)
    assert caught.value.exit_code == 3
    assert "function s, node" in caught.value.where


def test_functions_that_call_functions_of_further_opsets(tmp_path):
    made = model(
        17, 13, "z = h.t(x) y = Relu(z)", more='<domain: "h", opset_import: ["" : 11]> t (x) => (y) { y = LogSoftmax(x) }'
    )
    _, got = inlined(made, tmp_path)
    np.testing.assert_allclose(got, run(made, {"x": X})["y"], rtol=1e-6, atol=1e-6)


def test_a_function_with_default_attribute_values(tmp_path):
    """TensorRT's parser ignores the default; inlined, the value stands in the node."""
    made = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 17, "f" : 1]>
        g (float[2,3,4] x, bool b) => (float[2,3,4] y) {
            one = f.leak (x)
            other = f.leak <alpha = 0.5> (one)
            y = If (b) <then_branch = t () => (p) { p = f.twice (other) },
                        else_branch = e () => (q) { q = f.twice <alpha = 2.0> (other) }>
        }
        <domain: "f", opset_import: ["" : 11]> leak <alpha: float = 0.25> (x) => (y) {
            y = LeakyRelu <alpha: float = @alpha> (x)
        }
        <domain: "f", opset_import: ["" : 17, "f" : 1]> twice <alpha: float = 0.75> (x) => (y) {
            z = f.leak <alpha: float = @alpha> (x)
            y = f.leak (z)
        }"""
    )
    result = clean(loaded(made, tmp_path).proto).model
    for branch in (True, False):
        feeds = {"x": X, "b": np.array(branch)}
        np.testing.assert_array_equal(run(result, feeds)["y"], run(made, feeds)["y"])
    wanted = np.where(X < 0, X * 0.25 * 0.5 * 0.75 * 0.25, X)
    np.testing.assert_allclose(run(result, {"x": X, "b": np.array(True)})["y"], wanted, rtol=1e-6)


def test_default_attribute_values_are_seen_by_those_who_ignore_defaults(tmp_path):
    """The evaluation in float64 inlines with onnx.inliner, and blamed TensorRT for what that left out."""
    made = onnx.parser.parse_model(
        """<ir_version: 9, opset_import: ["" : 17, "f" : 1]> g (float[2,3,4] x) => (float[2,3,4] y) { y = f.leak (x) }
        <domain: "f", opset_import: ["" : 17]> leak <alpha: float = 0.25> (x) => (y) {
            y = LeakyRelu <alpha: float = @alpha> (x)
        }"""
    )
    read = loaded(made, tmp_path)
    assert read.runs_unmended
    inliner_says = run(onnx.inliner.inline_local_functions(read.proto), {"x": X})["y"]
    np.testing.assert_array_equal(inliner_says, run(made, {"x": X})["y"])
    in_float64 = evaluate_float64(tmp_path / "model.onnx", {"x": X}).outputs["y"]
    np.testing.assert_allclose(in_float64, np.where(X < 0, X * 0.25, X), rtol=1e-6)


def test_overloads_have_opsets_of_their_own(tmp_path):
    made = model(
        17,
        11,
        "y = Neg(x)",
        graph="a = f.s(x) y = f.s(a)",
        more='<domain: "f", opset_import: ["" : 9]> s (x) => (y) { y = Exp(x) }',
    )
    made.functions[1].overload = made.graph.node[1].overload = "second"
    _, got = inlined(made, tmp_path)
    np.testing.assert_allclose(got, np.exp(-X), rtol=1e-6)


def test_a_model_of_function_calls_alone_has_the_opset_of_its_functions(tmp_path):
    made = model(17, 13, "y = Softmax(x)")
    del made.opset_import[0]
    read, got = inlined(made, tmp_path)
    assert next(entry.version for entry in read.proto.opset_import if not entry.domain) == 13
    np.testing.assert_allclose(got, np.exp(X) / np.exp(X).sum(axis=-1, keepdims=True), rtol=1e-5)


def test_the_domain_may_be_called_by_its_other_name(tmp_path):
    made = model(17, 11, "y = Relu(x)")
    for imports in (made.opset_import, made.functions[0].opset_import):
        next(entry for entry in imports if not entry.domain).domain = "ai.onnx"
    np.testing.assert_array_equal(inlined(made, tmp_path)[1], np.maximum(X, 0))
