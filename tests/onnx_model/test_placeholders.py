"""Names of dimensions that name nothing tie no two dimensions together."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models import batchnorm, parse, random, saved
from trtnorm_cli.cli import run
from trtnorm_cli.onnx_model.placeholders import names_nothing, without_placeholders
from trtnorm_cli.onnx_model.shapes import model_inputs
from trtnorm_cli.rewrite.prepare import OpenedModel, prepare


@pytest.mark.parametrize("name", ["", "?", "*", " ? ", "-1", "None", "none", "unk", "unk__616", "Unknown", "__"])
def test_words_for_unknown(name):
    assert names_nothing(name)


@pytest.mark.parametrize(
    "name", ["N", "batch", "p2o.DynamicDimension.0", "x_dynamic_axes_1", "s0", "unk_tokens", "nonempty", "_h"]
)
def test_names(name):
    assert not names_nothing(name)


def test_they_leave_inputs_outputs_and_inner_tensors_at_every_level():
    branch = "then_branch = g1 () => (float[M, N] t) <float[M, N] u> { u = Relu(x) t = Identity(u) }"
    other = "else_branch = g2 () => (float[M, N] e) { e = Identity(x) }"
    model = parse(f"g (float[M, N] x, bool c) => (float[M, N] y) {{ y = If(c) <{branch}, {other}> }}")
    text = model.SerializeToString().replace(b"\x12\x01M", b"\x12\x01?")
    model.ParseFromString(text)
    assert b"\x12\x01?" not in without_placeholders(model).SerializeToString()
    assert without_placeholders(model).SerializeToString().count(b"\x12\x01N") == text.count(b"\x12\x01N")
    assert model.SerializeToString() == text
    assert model_inputs(model)["x"].shape == (None, "N")


@pytest.fixture
def classifier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """As Paddle2ONNX writes a model: every unknown size is ``?``."""
    monkeypatch.chdir(tmp_path)
    weights = {"w": random(4, 3, 3, 3), **batchnorm(4)}
    body = "a = Conv(x, w) b = BatchNormalization(a, gamma, beta, mu, var) y = GlobalAveragePool(b)"
    model = parse(f"g (float[A, 3, B, C] x) => (float[D, 4, 1, 1] y) {{ {body} }}", weights)
    for value in (model.graph.input[0], model.graph.output[0]):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param:
                dim.dim_param = "?"
    return saved(model, Path("cls.onnx"))


@pytest.mark.rtx
@pytest.mark.parametrize(
    "text",
    [
        "optimization_profiles: [{inputs: {x: {min: [1, 3, 48, 192], opt: [2, 3, 48, 192], max: [4, 3, 48, 192]}}}]",
        "dims:\n  x[0]: {min: 1, opt: 2, max: 4}\n  x[2]: {min: 24, opt: 48, max: 48}\n  x[3]: 192",
    ],
)
def test_unknown_sizes_differ_in_the_engine(classifier, text, capsys):
    Path("cfg.yaml").write_text(text)
    assert run(["build", str(classifier), "--profile", "cfg.yaml"]) == 0, capsys.readouterr().err


def test_a_word_for_unknown_that_the_file_has_stands_for_all_its_dimensions(classifier):
    Path("cfg.yaml").write_text('dims: {"?": 48, "x[0]": {min: 1, opt: 2, max: 4}}')
    shapes = prepare(OpenedModel.of_file(classifier, Path("cfg.yaml"))).fitted.profiles[0].shapes["x"]
    assert shapes == ((1, 3, 48, 48), (2, 3, 48, 48), (4, 3, 48, 48))


def test_another_word_for_unknown_is_no_key(classifier, capsys):
    Path("cfg.yaml").write_text("dims: {unk__7: 48}")
    assert run(["rewrite", str(classifier), "--dry-run", "--profile", "cfg.yaml"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "'unk__7' says that a size is unknown and names no dimension; dynamic dimensions: x[0], x[2], x[3]" in said


def test_one_axis_with_two_ranges(classifier, capsys):
    shapes = "[1, 3, 48, 192]"
    Path("cfg.yaml").write_text(f"dims: {{'x[2]': 40}}\noptimization_profiles: [{{inputs: {{x: {shapes}}}}}]")
    assert run(["rewrite", str(classifier), "--dry-run", "--profile", "cfg.yaml"]) == 2
    assert 'x[2] is 48 here but 40 in dims."x[2]"' in " ".join(capsys.readouterr().err.split())


def test_negative_sizes_are_no_sizes():
    """Some exporters declare an output as [-1, 1, -1, -1] in numbers."""
    model = parse("g (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }")
    for dim in (model.graph.output[0].type.tensor_type.shape.dim[0], model.graph.input[0].type.tensor_type.shape.dim[0]):
        dim.dim_value = -1
    mended = without_placeholders(model)
    for value in (*mended.graph.input, *mended.graph.output):
        first, second = value.type.tensor_type.shape.dim
        assert first.WhichOneof("value") is None
        assert second.dim_value == 3
