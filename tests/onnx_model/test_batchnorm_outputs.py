"""BatchNormalizations that leave further outputs out, name unused ones, or use them: every combination, by opset."""

from __future__ import annotations

from itertools import product

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper

from tests.models import batchnorm, loaded, parse, random
from tests.onnx_model.running import run
from tests.oracle import evaluate
from tests.rewritings import rewrite
from trtnorm_cli.errors import ModelError, RewriteError
from trtnorm_cli.onnx_model.batchnorm_outputs import settle_batchnorm_outputs
from trtnorm_cli.onnx_model.clean import clean
from trtnorm_cli.rewrite.rewriting import Rewriting, require_valid

LEFT_OUT, UNUSED, USED = "e", "n", "u"
NAMES = ("running_mean", "running_variance", "saved_mean", "saved_variance")
X = random(2, 4, 3, 5)
PARAMETERS = batchnorm(4)


def model(opset: int, further: str, **attributes) -> onnx.ModelProto:
    """``further`` has one letter for each output after the data."""
    used = [name for name, how in zip(NAMES, further, strict=False) if how == USED]
    outputs = ", ".join(["float[2,4,3,5] y", *(f"float[4] {name}" for name in used)])
    made = parse(f"g (float[2,4,3,5] x) => ({outputs}) {{ }}", PARAMETERS, opset=opset)
    given = ["" if how == LEFT_OUT else name for name, how in zip(NAMES, further, strict=False)]
    inputs = ["x", "gamma", "beta", "mu", "var"]
    made.graph.node.append(helper.make_node("BatchNormalization", inputs, ["y", *given], name="bn0", **attributes))
    return made


def expected(training: bool) -> dict[str, np.ndarray]:
    p, x = {name: value.astype(np.float64) for name, value in PARAMETERS.items()}, X.astype(np.float64)
    axes = (0, 2, 3)
    batch = (x.mean(axes), x.var(axes))
    mean, variance = batch if training else (p["mu"], p["var"])
    column = (1, 4, 1, 1)
    y = (x - mean.reshape(column)) / np.sqrt(variance.reshape(column) + 1e-5) * p["gamma"].reshape(column)
    running = {n: 0.9 * p[given] + 0.1 * own for n, given, own in zip(NAMES[:2], ("mu", "var"), batch, strict=True)}
    return {"y": y + p["beta"].reshape(column), **running, "saved_mean": batch[0], "saved_variance": batch[1]}


def assert_computes(rewriting: Rewriting, training: bool) -> None:
    got, wanted = evaluate(rewriting.model, {"x": X}), expected(training)
    for name, value in got.items():
        np.testing.assert_allclose(value, wanted[name], rtol=1e-5, atol=1e-5, err_msg=name)


def rewritten(made: onnx.ModelProto, tmp_path) -> Rewriting:
    rewriting = rewrite(loaded(made, tmp_path))
    rewriting.require_all_checks_passed()
    return rewriting


@pytest.mark.parametrize("opset", [7, 9, 13])
@pytest.mark.parametrize("count", [1, 4])
def test_outputs_that_are_all_left_out_are_inference(opset, count, tmp_path):
    made = model(opset, LEFT_OUT * count)
    read = loaded(made, tmp_path)
    assert list(read.proto.graph.node[0].output) == ["y"]
    assert len(read.warnings) == 1
    assert_computes(rewritten(made, tmp_path), training=False)


def test_onnx_runtime_agrees_where_it_does_not_die_of_it():
    """It folds the node into a convolution, and takes the running statistics to do so."""
    made = model(9, LEFT_OUT * 4)
    made.graph.node.insert(0, helper.make_node("Conv", ["x", "w"], ["c"]))
    made.graph.node[1].input[0] = "c"
    made.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32).reshape(4, 4, 1, 1), "w"))
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(session.run(None, {"x": X})[0], expected(training=False)["y"], rtol=1e-4, atol=1e-4)


def some_always(combinations: list[str], always: tuple[str, ...]) -> list[object]:
    return [c if c in always else pytest.param(c, marks=pytest.mark.slow) for c in combinations]


@pytest.mark.parametrize("further", some_always(["".join(p) for p in product("enu", repeat=3)], ("eee", "nen", "euu", "uee")))
def test_one_further_output_is_training(further, tmp_path):
    """The saved variance is left out or not used here: its own test is below."""
    if further == LEFT_OUT * 3:
        further += UNUSED
    made = model(9, further.ljust(4, LEFT_OUT))
    assert_computes(rewritten(made, tmp_path), training=True)
    ran = run(loaded(made, tmp_path).proto, {"x": X})  # as it was mended, ONNX Runtime does not die of it
    np.testing.assert_allclose(ran["y"], expected(training=True)["y"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("opset", [6, 9])
@pytest.mark.parametrize("further", ["eeeu", "nnnu", "uuuu"])
def test_the_saved_variance_is_refused(opset, further, tmp_path):
    with pytest.raises(RewriteError, match="1 normalization") as refused:
        rewritten(model(opset, further), tmp_path)
    assert "saved_var" in refused.value.where


@pytest.mark.parametrize("opset", [1, 6])
@pytest.mark.parametrize("further", ["", "eeee", "eeue", "euen", "uuun"])
def test_old_opsets_keep_each_output_in_its_place(opset, further, tmp_path):
    attributes = {"consumed_inputs": [0, 0, 0, 1, 1]} if opset == 1 else {}
    assert_computes(rewritten(model(opset, further, **attributes), tmp_path), training=True)


@pytest.mark.parametrize("further", ["", "eeee", "nnnn", "neen"])
def test_is_test_says_inference(further, tmp_path):
    assert_computes(rewritten(model(6, further, is_test=1), tmp_path), training=False)


def test_statistics_of_a_batch_do_not_exist_in_inference(tmp_path):
    with pytest.raises(RewriteError):
        rewritten(model(6, "eeue", is_test=1), tmp_path)


@pytest.mark.parametrize("opset", [14, 15])
@pytest.mark.parametrize("further", some_always(["", "e", "n", "ee", "en", "ne", "nn"], ("", "ne", "nn")))
@pytest.mark.parametrize("mode", [0, 1])
def test_the_attribute_decides_since_opset_14(opset, further, mode, tmp_path):
    made = model(opset, further, training_mode=mode)
    assert_computes(rewritten(made, tmp_path), training=bool(mode))
    ran = run(loaded(made, tmp_path).proto, {"x": X})
    np.testing.assert_allclose(ran["y"], expected(bool(mode))["y"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("further", ["u", "eu", "un", "ue"])
def test_used_statistics_since_opset_14(further, tmp_path):
    assert_computes(rewritten(model(15, further, training_mode=1), tmp_path), training=True)
    with pytest.raises(RewriteError) as refused:
        rewritten(model(15, further), tmp_path)
    assert "no meaning outside of training" in refused.value.where


@pytest.mark.parametrize(("opset", "further"), [(9, "n"), (9, "uu"), (9, "enu"), (15, "nnn"), (15, "nnnn"), (6, "u")])
def test_other_numbers_of_outputs_are_not_valid(opset, further, tmp_path):
    with pytest.raises(ModelError, match="output size"):
        loaded(model(opset, further), tmp_path)


def test_functions_and_subgraphs_have_outputs_of_their_own():
    made = onnx.parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 13, "f" : 1]>
        g (float[2,4,3,5] x, bool b, float[4] p) => (float[2,4,3,5] y) {
            z = If (b) <then_branch = t () => (float[2,4,3,5] a) { a, m, v, sm, sv = BatchNormalization (x, p, p, p, p) },
                        else_branch = e () => (float[2,4,3,5] c) { c = f.normalize (x, p) }>
            y = Relu (z)
        }
        <domain: "f", opset_import: ["" : 15]>
        normalize (x, p) => (y) { y, m, v = BatchNormalization (x, p, p, p, p) }"""
    )
    inner = made.graph.node[0].attribute[0].g.node[0]
    inner.output[1:] = [""] * 4
    assert len(settle_batchnorm_outputs(made)) == 2
    assert [list(branch.g.node[0].output) for branch in made.graph.node[0].attribute] == [["a"], ["c"]]
    assert list(made.functions[0].node[0].output) == ["y"]


def test_cleaning_gives_no_names_to_outputs_that_are_left_out():
    made = parse("g (float[2,4,6] x) => (float[2,4,3] y) { y = MaxPool<kernel_shape=[2], strides=[2]>(x) }")
    made.graph.node[0].output.append("")
    assert list(clean(made).model.graph.node[0].output) == ["y"]
    made.graph.node[0].CopyFrom(helper.make_node("LayerNormalization", ["x", "s"], ["y", "", "inverse"]))
    made.graph.input.append(helper.make_tensor_value_info("s", 1, [6]))
    made.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", 1, [2, 4, 6]))
    made.graph.output.append(helper.make_tensor_value_info("inverse", 1, [2, 4, 1]))
    assert list(clean(made).model.graph.node[0].output) == ["y", "", "inverse"]


@pytest.mark.parametrize("where", ["output", "value_info"])
def test_what_a_file_states_wrongly_of_statistics_is_taken_back(where, tmp_path):
    """BatchNormalization-9 has no inference for them, so that nothing contradicts the file until it is rewritten."""
    made = model(9, "nnun")
    wrong = helper.make_tensor_value_info("saved_mean", 1, [2, 4, 3, 5])
    if where == "output":
        made.graph.output[1].CopyFrom(wrong)
    else:
        made.graph.node.append(helper.make_node("Relu", ["saved_mean"], ["positive"]))
        made.graph.output[1].CopyFrom(helper.make_tensor_value_info("positive", 1, [4]))
        made.graph.value_info.append(wrong)
    read = loaded(made, tmp_path)
    rewriting = rewritten(made, tmp_path)
    target = tmp_path / "result.onnx"
    onnx.save(rewriting.model, target)
    require_valid(read, target)
    notes = [note for note in rewriting.notes if "saved_mean" in note]
    assert notes == (["the file says that saved_mean is [2, 4, 3, 5], and it is [4]"] if where == "output" else [])
