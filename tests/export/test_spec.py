"""What names a PyTorch model, and what does not."""

from __future__ import annotations

import pytest

from trtnorm_cli.errors import ModelError, UsageProblem
from trtnorm_cli.target import defined_names, is_model_spec, parse_model_spec


@pytest.mark.parametrize(("text", "is_one"), [
    ("model.py:build", True), ("a/b.py:Net.make", True), ("package.module:build", True), ("timm:create", True),
    ("program.pt2", True), ("model.py", True), ("model.onnx", False), ("network:model.onnx", False), ("out.engine", False),
    ("weights.pt", False), ("C", False), ("a:b.onnx", False), ("1a:b", False),
])  # fmt: skip
def test_a_spec_is_told_by_its_form(text, is_one):
    assert is_model_spec(text) is is_one


def test_a_file_a_module_and_a_program(tmp_path):
    (tmp_path / "m.py").write_text("")
    (tmp_path / "p.pt2").write_text("")
    spec = parse_model_spec(f"{tmp_path}/m.py:Net.make")
    assert (spec.kind, spec.attribute, spec.stem) == ("file", "Net.make", "make")
    assert parse_model_spec("torch.nn:Identity").kind == "module"
    assert parse_model_spec(f"{tmp_path}/p.pt2").stem == "p"


def test_a_missing_file_is_named_with_the_nearest_one(tmp_path):
    (tmp_path / "network.py").write_text("")
    with pytest.raises(ModelError, match=r"there is no such file; did you mean 'network.py'\?"):
        parse_model_spec(f"{tmp_path}/netwrok.py:build")


def test_a_file_without_a_callable_lists_what_it_has(tmp_path):
    (tmp_path / "m.py").write_text("import os\ndef build(): pass\nclass Net: pass\nnet = Net()\n_x = 1\n")
    with pytest.raises(UsageProblem) as caught:
        parse_model_spec(f"{tmp_path}/m.py")
    assert "one of build, Net, net" in (caught.value.hint or "")


@pytest.mark.parametrize("attribute", ["", "1x", "a-b"])
def test_a_callable_is_a_name(tmp_path, attribute):
    (tmp_path / "m.py").write_text("")
    with pytest.raises(UsageProblem):
        parse_model_spec(f"{tmp_path}/m.py:{attribute}")


def test_a_file_that_does_not_compile_defines_nothing():
    assert defined_names("def (") == []


def test_files_below_the_current_folder_are_named_from_there(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    from trtnorm_cli.export.child.source import shown

    monkeypatch.chdir(tmp_path)
    assert shown(str(tmp_path / "models" / "net.py")) == "models/net.py"
    assert shown("/elsewhere/net.py") == "/elsewhere/net.py"
