"""Names of models: which kind each one is, and what is said of a name that is wrong."""

from __future__ import annotations

import pytest

from trtnorm_cli.errors import ModelError, UsageProblem
from trtnorm_cli.target import Target, defined_names, is_pytorch, parse_model, parse_pytorch, parse_target


@pytest.mark.parametrize(("text", "is_one"), [
    ("model.py:build", True), ("a/b.py:Net.make", True), ("package.module:build", True), ("timm:create", True),
    ("program.pt2", True), ("model.py", True), ("model.onnx", False), ("network:model.onnx", False), ("out.engine", False),
    ("weights.pt", False), ("C", False), ("a:b.onnx", False), ("1a:b", False),
])  # fmt: skip
def test_a_spec_is_told_by_its_form(text, is_one):
    assert is_pytorch(text) is is_one


def test_a_file_a_module_and_a_program(tmp_path):
    (tmp_path / "m.py").write_text("")
    (tmp_path / "p.pt2").write_text("")
    spec = parse_pytorch(f"{tmp_path}/m.py:Net.make")
    assert (spec.kind, spec.attribute, spec.stem) == ("file", "Net.make", "make")
    assert parse_pytorch("torch.nn:Identity").kind == "module"
    assert parse_pytorch(f"{tmp_path}/p.pt2").stem == "p"


def test_a_missing_file_is_named_with_the_nearest_one(tmp_path):
    (tmp_path / "network.py").write_text("")
    with pytest.raises(ModelError, match=r"there is no such file; did you mean 'network.py'\?"):
        parse_pytorch(f"{tmp_path}/netwrok.py:build")


def test_a_file_without_a_callable_lists_what_it_has(tmp_path):
    (tmp_path / "m.py").write_text("import os\ndef build(): pass\nclass Net: pass\nnet = Net()\n_x = 1\n")
    with pytest.raises(UsageProblem) as caught:
        parse_pytorch(f"{tmp_path}/m.py")
    assert "one of build, Net, net" in (caught.value.hint or "")


@pytest.mark.parametrize("attribute", ["", "1x", "a-b"])
def test_a_callable_is_a_name(tmp_path, attribute):
    (tmp_path / "m.py").write_text("")
    with pytest.raises(UsageProblem):
        parse_pytorch(f"{tmp_path}/m.py:{attribute}")


def test_a_file_that_does_not_compile_defines_nothing():
    assert defined_names("def (") == []


def test_files_below_the_current_folder_are_named_from_there(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from trtnorm_cli.export.child.source import shown

    monkeypatch.chdir(tmp_path)
    assert shown(str(tmp_path / "models" / "net.py")) == "models/net.py"
    assert shown("/elsewhere/net.py") == "/elsewhere/net.py"


@pytest.mark.parametrize("text", ["model.onnx", "network:a/model.onnx", "model.engine", "torch.nn:Identity"])
def test_a_target_is_shown_as_it_was_written(text):
    assert parse_target(text).text == text


def test_a_model_to_build_is_an_onnx_file_whatever_it_is_called():
    assert parse_model("network:model.onnx") == Target("onnx", "network:model.onnx")
    assert parse_model("model.engine") == Target("onnx", "model.engine")
    assert parse_model("torch.nn:Identity").is_pytorch


def test_a_name_that_no_file_can_have_is_left_to_the_reader_to_refuse():
    assert parse_target("a" * 300).kind == "onnx"
