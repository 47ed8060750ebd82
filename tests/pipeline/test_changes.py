"""The rewriting inside a build and in ``trtnorm rewrite``: changes that fail their checks, and what is written."""

from __future__ import annotations

import json

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, operators, parse, random, saved
from tests.pipeline.runs import GRAPH, PROFILE, build, left_in_temp, manifest_of
from trtnorm_cli.cli import run
from trtnorm_cli.onnx_model.surgery import Surgery
from trtnorm_cli.rewrite.rules import fold_batchnorm_conv

rtx = pytest.mark.rtx


def wrong_folding(monkeypatch) -> None:
    right = fold_batchnorm_conv.fold
    monkeypatch.setattr(fold_batchnorm_conv, "fold", lambda m: (right(m)[0], -right(m)[1]))


def test_a_change_that_is_needed_and_fails_its_check_stops_the_build(work, capsys, monkeypatch):
    """TensorRT would compute half-precision data in another way, so the model cannot be left as it is."""
    wrong_folding(monkeypatch)
    half = parse(GRAPH.format(last="Conv(r, v)").replace("float[", "float16["), {
        "w": random(4, 2, 3, 3, dtype=np.float16), "v": random(4, 4, 3, 3, dtype=np.float16), **batchnorm(4, np.float16)
    })  # fmt: skip
    saved(half, work / "good.onnx")
    (work / "cfg.yaml").write_text(PROFILE + "rules: {skip: [batchnorm-to-scale-shift, fold-batchnorm-upstream]}\n")
    assert build("good.onnx") == 4
    shown = capsys.readouterr().err
    assert "fold-batchnorm-conv at bn1: in float64 the outputs differ by" in shown
    assert "skip: [fold-batchnorm-conv]" in shown
    assert run(["rewrite", "good.onnx", "-o", "fixed.onnx", "--profile", "cfg.yaml"]) == 4
    assert sorted(p.name for p in work.iterdir()) == ["cfg.yaml", "good.onnx", "odd.onnx"]
    assert left_in_temp(work) == []


@rtx
@pytest.mark.parametrize("breaks", ["check", "precondition"])
def test_an_optional_change_that_fails_is_undone_and_the_build_goes_on(work, capsys, monkeypatch, breaks):
    if breaks == "check":
        wrong_folding(monkeypatch)
    else:
        monkeypatch.setattr(fold_batchnorm_conv, "fold", lambda m: [][0])
    assert build("good.onnx") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("please report this") == 1
    wanted = {
        "check": "fold-batchnorm-conv at bn1: in float64 the outputs differ by",
        "precondition": "fold-batchnorm-conv at bn1: IndexError",
    }
    assert wanted[breaks] in shown
    manifest = manifest_of(work / "good.engine")
    assert [(undone["rule"], undone["node"]) for undone in manifest["undone"]] == [("fold-batchnorm-conv", "bn1")]
    assert [change["rule"] for change in manifest["changes"]] == ["fold-batchnorm-upstream"]


@rtx
def test_rewrite_and_compare_undo_as_a_build_does(work, capsys, monkeypatch):
    wrong_folding(monkeypatch)
    assert run(["rewrite", "good.onnx", "-o", "fixed.onnx", "--json"]) == 0
    shown = capsys.readouterr()
    assert [undone["rule"] for undone in json.loads(shown.out)["undone"]] == ["fold-batchnorm-conv"]
    assert "please report this" in shown.err
    assert run(["compare", "good.onnx", "--profile", "cfg.yaml"]) == 0


def test_an_invalid_result_is_not_written(work, capsys, monkeypatch):
    """The numbers are right, and the ONNX checker is asked all the same."""
    close = Surgery.close

    def spoilt(self):
        result = close(self)
        result.graph.node[0].attribute.add(name="nonsense", type=2, i=1)
        return result

    monkeypatch.setattr(Surgery, "close", spoilt)
    assert run(["rewrite", "good.onnx", "-o", "fixed.onnx"]) == 4
    assert "the rewritten model is not valid ONNX, so nothing was written" in capsys.readouterr().err
    assert not (work / "fixed.onnx").exists()


def test_rewriting_alone(work, capsys):
    assert run(["rewrite", "good.onnx", "-o", "fixed.onnx", "--explain"]) == 0
    assert operators(onnx.load("fixed.onnx")) == ["Conv", "Relu", "Conv"]
    shown = capsys.readouterr().out
    assert "fold-batchnorm-conv" in shown
    assert "wrote fixed.onnx" in shown
    assert left_in_temp(work) == []
    assert run(["rewrite", "fixed.onnx", "-o", "again.onnx"]) == 0
    assert "no rule was applied" in capsys.readouterr().out
    assert (work / "again.onnx").read_bytes() == (work / "fixed.onnx").read_bytes()


def test_a_dry_run_writes_nothing(work, capsys):
    before = sorted(p.name for p in work.iterdir())
    assert run(["rewrite", "good.onnx", "--dry-run", "-o", "fixed.onnx", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [change["rule"] for change in record["changes"]] == ["fold-batchnorm-conv"]
    assert record["written"] == []
    assert sorted(p.name for p in work.iterdir()) == before
