"""What a build profile leaves no choice about goes into the model before it is cleaned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, operators, parse, random, saved
from trtnorm_cli.cli import run
from trtnorm_cli.rewrite.prepare import OpenedModel, prepare

# The longer filter of a higher rate: two branches whose results have other sizes.
RATES = """
g (float[N, 1, L] x, int64 rate) => (float[] y) {
  k = Constant<value = int64 {16000}>()
  is_high = Equal(rate, k)
  y = If(is_high) <
    then_branch = high () => (float[?, ?, ?] t) { t = Conv(x, long) },
    else_branch = low () => (float[?, ?, ?] e) { e = Conv<strides = [2]>(x, short) }>
}
"""
WEIGHTS = {"long": random(4, 1, 8), "short": random(4, 1, 4)}


@pytest.fixture
def rates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return saved(parse(RATES, WEIGHTS), Path("rates.onnx"))


def rewritten(model: Path, text: str) -> onnx.ModelProto:
    Path("cfg.yaml").write_text(text)
    return prepare(OpenedModel.of_file(model, Path("cfg.yaml"))).rewrite().model


@pytest.mark.parametrize(("rate", "kernel"), [(16000, 8), (8000, 4)])
def test_a_value_decides_a_branch_and_the_input_stays(rates, rate, kernel):
    model = rewritten(rates, f"dims: {{N: {{min: 1, opt: 2, max: 4}}, L: 32}}\nvalues: {{rate: {rate}}}")
    assert operators(model) == ["Conv"]
    assert [t.dims[2] for t in model.graph.initializer] == [kernel]
    assert [value.name for value in model.graph.input] == ["x", "rate"]


def test_only_what_all_optimization_profiles_fix_is_a_fact(rates):
    one = "{dims: {N: 1, L: 32}, values: {rate: 16000}}"
    model = rewritten(rates, f"optimization_profiles: [{one}, {{dims: {{N: 1, L: 40}}, values: {{rate: 8000}}}}]")
    assert "If" in operators(model)
    dims = model.graph.input[0].type.tensor_type.shape.dim
    assert (dims[0].dim_value, dims[2].HasField("dim_value")) == (1, False)


@pytest.mark.rtx
def test_such_a_model_builds_and_is_compared_with_the_source(rates, capsys):
    Path("cfg.yaml").write_text("dims: {N: 2, L: 32}\nvalues: {rate: 16000}")
    assert run(["build", str(rates), "--profile", "cfg.yaml"]) == 0, capsys.readouterr().err
    said = " ".join(capsys.readouterr().err.split())
    assert "note: rate is always 16000 in the build profile: it stays an input, but what is fed to it is not read" in said
    assert run(["compare", str(rates), "--profile", "cfg.yaml"]) == 0


def test_a_size_decides_a_branch(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = """
    g (float[N, 4] x) => (float[?, ?] y) {
      s = Shape(x) one = Constant<value = int64 {1}>() zero = Constant<value = int64 {0}>()
      n = Gather(s, zero) single = Equal(n, one)
      y = If(single) <
        then_branch = a () => (float[?, ?] t) { t = Relu(x) },
        else_branch = b () => (float[?, ?] e) { e = Softmax(x) }>
    }
    """
    model = saved(parse(text), Path("m.onnx"))
    assert operators(rewritten(model, "dims: {N: 1}")) == ["Relu"]
    assert operators(rewritten(model, "dims: {N: 3}")) == ["Softmax"]
    assert "If" in operators(rewritten(model, "dims: {N: {min: 1, opt: 1, max: 2}}"))


@pytest.mark.parametrize(("flag", "left"), [("true", "Relu"), ("[false]", "Neg"), ("1", "Relu")])
def test_a_flag(tmp_path, monkeypatch, flag, left):
    monkeypatch.chdir(tmp_path)
    branches = "then_branch = a () => (float[4] t) { t = Relu(x) }, else_branch = b () => (float[4] e) { e = Neg(x) }"
    model = parse(f"g (float[4] x, bool[1] c) => (float[4] y) {{ y = If(c) <{branches}> }}", ir=3)
    assert operators(rewritten(saved(model, Path("m.onnx")), f"values: {{c: {flag}}}")) == [left]


def test_a_flag_is_no_number(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    saved(parse("g (float[4] x, bool[1] c) => (float[4] y) { y = Where(c, x, x) }"), Path("m.onnx"))
    Path("cfg.yaml").write_text("values: {c: 2}")
    assert run(["rewrite", "m.onnx", "--dry-run", "--profile", "cfg.yaml"]) == 2
    assert "a bool input takes one value, true or false" in " ".join(capsys.readouterr().err.split())


def test_an_input_that_is_an_output_as_well_and_one_read_in_a_loop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    step = "more = Identity(go) f = Cast<to=1>(k) w = Add(v, f)"
    body = f"body = b (int64 i, bool go, float[4] v) => (bool more, float[4] w) {{ {step} }}"
    text = f"g (float[4] x, int64 k) => (float[4] y, int64 k) {{ n = Cast<to=7>(k) y = Loop(n, , x) <{body}> }}"
    model = rewritten(saved(parse(text), Path("m.onnx")), "values: {k: 3}")
    assert [value.name for value in model.graph.output] == ["y", "k"]
    assert all("k" not in node.input for node in model.graph.node)


@pytest.fixture
def rankless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    body = "a = Conv(x, w) y = BatchNormalization(a, gamma, beta, mu, var)"
    model = parse(f"g (float[N, 3, H, W] x) => (float[] y) {{ {body} }}", {"w": random(64, 3, 3, 3), **batchnorm(64)})
    model.graph.input[0].type.tensor_type.ClearField("shape")
    return saved(model, Path("rankless.onnx"))


@pytest.mark.rtx
@pytest.mark.parametrize("shapes", ["[2, 3, 16, 16]", "{min: [1, 3, 16, 16], opt: [2, 3, 16, 16], max: [2, 3, 24, 16]}"])
def test_an_input_of_unknown_rank_has_that_of_its_entry(rankless, shapes, capsys):
    Path("cfg.yaml").write_text(f"optimization_profiles: [{{inputs: {{x: {shapes}}}}}]")
    assert run(["build", str(rankless), "--profile", "cfg.yaml"]) == 0, capsys.readouterr().err
    assert run(["compare", str(rankless), "--profile", "cfg.yaml"]) == 0


def test_entries_of_an_unknown_rank_agree(rankless, capsys):
    profiles = "optimization_profiles: [{inputs: {x: [2, 3, 16, 16]}}, {inputs: {x: [3, 16, 16]}}]"
    Path("cfg.yaml").write_text(profiles)
    assert run(["rewrite", str(rankless), "--dry-run", "--profile", "cfg.yaml"]) == 2
    assert "[3, 16, 16] has 3 dimensions but the model's input has 4" in " ".join(capsys.readouterr().err.split())


def test_the_source_is_fed_the_fixed_values_where_it_was_raised_to_a_later_opset(tmp_path, monkeypatch):
    """The model that stands for the source declares its inputs as the file does."""
    monkeypatch.chdir(tmp_path)
    model = parse("g (float[N, 4, L] x) => (float[N, 4, L] y) { y = Relu(x) }", opset=6)
    Path("cfg.yaml").write_text("dims: {N: 1, L: {min: 2, opt: 4, max: 8}}")
    meant = prepare(OpenedModel.of_file(saved(model, Path("m.onnx")), Path("cfg.yaml"))).rewrite().meant
    assert meant is not None
    assert meant.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    assert np.array_equal([d.dim_param for d in meant.graph.input[0].type.tensor_type.shape.dim], ["N", "", "L"])
