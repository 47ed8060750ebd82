"""What users are shown of normalizations in pieces: by inspect, rewrite --explain, and the manifest."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from tests.models import loaded, saved
from tests.rewrite.norms.spellings import layer_norm, model, statements
from tests.rewritings import rewrite
from trtnorm_cli.cli import cli
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.report.composite_norms import counts_line
from trtnorm_cli.rewrite.describe import norm_counts, of_rewriting

CHANNELS_FIRST = layer_norm(shape=("N", 8, "H", "W"), axes=(1,), parameter_shape=(8, 1, 1), read_by_conv=True)
LOOK_ALIKE = model(f"{statements('Mul', (2,), 17)} s = Sqrt(v) e = Add(s, eps) y = Div(c, e)", (2, 3, 8), (2,), (8,))
GROUPS = model(
    "r = Reshape(x, rows) z0 = InstanceNormalization(r, ones, zeros) z = Reshape(z0, back) a = Mul(z, g) y = Add(a, b)",
    (2, 4, 5, 6),
    (),
    (4, 1, 1),
    rows=np.array([0, 2, -1]),
    back=np.array([2, 4, 5, 6]),
    ones=np.ones(2, np.float32),
    zeros=np.zeros(2, np.float32),
)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(cli, [*arguments], terminal_width=200)
    assert result.exit_code == 0, result.output
    return result.output


def test_inspect_shows_what_build_would_do(tmp_path):
    path = saved(CHANNELS_FIRST, tmp_path / "m.onnx")
    text = " ".join(run("inspect", str(path)).split())
    assert "Normalizations in pieces LayerNorm (axis 1), " in text
    assert ": rewritten: normalize over the channels of data with the channels first by transposing them to the end (" in text
    assert "(layer-norm-channels-first)" in text
    assert "1e-05" in run("inspect", str(path), "--all")


def test_inspect_as_json(tmp_path):
    described = json.loads(run("inspect", str(saved(CHANNELS_FIRST, tmp_path / "m.onnx")), "--json"))
    (norm,) = described["composite_normalizations"]
    assert norm["kind"] == "LayerNorm"
    assert norm["shape"] == ["N", 8, "H", "W"]
    assert norm["axes"] == [1]
    assert norm["groups"] is None
    assert norm["spelled"] == "ReduceMean Sub Mul ReduceMean Add Sqrt Div Mul Add"
    assert norm["outcome"] == ["layer-norm-channels-first"]


@pytest.mark.parametrize(
    ("source", "outcome"),
    [
        (CHANNELS_FIRST, "layer-norm-channels-first"),
        (layer_norm(), "left as it is: over the last axis it takes TensorRT as few kernels in every spelling"),
        (LOOK_ALIKE, "left as it is: epsilon (1e-05) is added to the root, not under it: x/(√σ² + ε) is no LayerNorm"),
        (layer_norm(shape=("N", "C", "H", "W"), axes=(0, 2, 3), parameter_shape=(1,)), "left as it is: no other form is known"),
        (GROUPS, "recompose-group-norm"),
    ],
)
def test_every_one_has_an_outcome(tmp_path, source, outcome):
    rewriting = rewrite(loaded(source, tmp_path))
    (norm,) = of_rewriting(rewriting)
    assert norm.outcome[0].startswith(outcome)


def test_one_that_is_left_out_says_why(tmp_path):
    rewriting = rewrite(loaded(CHANNELS_FIRST, tmp_path), settings=RewriteSettings(optimize="never"))
    (norm,) = of_rewriting(rewriting)
    assert norm.outcome == (
        "layer-norm-channels-first: TensorRT takes it as it is, and the build profile says optimize: never",
    )


def test_explain(tmp_path):
    text = " ".join(run("rewrite", str(saved(LOOK_ALIKE, tmp_path / "m.onnx")), "--dry-run", "--explain").split())
    assert "no LayerNorm" in text
    assert "added to the root" in text


def test_counts_by_kind(tmp_path):
    """The node inside a GroupNorm is one of its pieces."""
    counts = {}
    for name, source in {"groups": GROUPS, "layer": layer_norm(), "look-alike": LOOK_ALIKE}.items():
        rewriting = rewrite(loaded(source, tmp_path))
        counts[name] = norm_counts(rewriting.cleaned, rewriting.composites)
    assert counts == {
        "groups": {"nodes": {}, "pieces": {"GroupNorm": 1}},
        "layer": {"nodes": {}, "pieces": {"LayerNorm": 1}},
        "look-alike": {"nodes": {}, "pieces": {}},
    }
    assert counts_line(**counts["groups"]) == "in pieces: 1 GroupNorm"
    assert counts_line(**counts["look-alike"]) == "none"


@pytest.mark.rtx
def test_the_manifest_counts_them(tmp_path):
    run("build", str(saved(GROUPS, tmp_path / "m.onnx")), "-o", str(tmp_path / "m.engine"), "--no-compare")
    manifest = json.loads((tmp_path / "m.engine.json").read_text())
    assert manifest["normalizations"]["pieces"] == {"GroupNorm": 1}
    assert manifest["normalizations"]["composite"][0]["outcome"] == ["recompose-group-norm"]
