"""Nodes picked by patterns, and patterns for nodes that are alike."""

from __future__ import annotations

import pytest

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.node_names import EVERY_NODE, NodePatterns, common_pattern

NAMES = [f"/encoder/layer.{number}/{part}/LayerNorm" for number in range(12) for part in ("attention/output", "output")]


@pytest.mark.parametrize(("pattern", "fitting"), [
    ("/encoder/layer.1/output/LayerNorm", 1), ("*layer.1/*", 2), ("*layer.1?/*", 4), ("*/attention/*", 12), ("*norm", 0),
    ("…/layer.3/…/LayerNorm", 2),
])  # fmt: skip
def test_a_pattern_knows_stars_and_what_names_are_shortened_with(pattern, fitting):
    assert sum(NodePatterns((pattern,)).fits(name) for name in NAMES) == fitting


def test_brackets_are_part_of_a_name():
    assert NodePatterns(("x[0]*",)).fits("x[0]/norm")
    assert not NodePatterns(("x[0]",)).fits("x0")


def test_a_node_fits_by_any_of_its_names_and_any_pattern():
    wanted = NodePatterns(("a*", "b*"))
    assert wanted.fits("x", "b1")
    assert not wanted.fits("x", "")
    assert EVERY_NODE.fits("x")


@pytest.mark.parametrize(("pattern", "hint"), [
    ("/encoder/layer.1/output/LayerNrom", "the nearest is /encoder/layer.1/output/LayerNorm;"),
    ("*attention/outputs*", "the nearest is /encoder/layer.0/attention/output/LayerNorm;"),
    ("*layernorm", "the nearest is /encoder/layer.0/attention/output/LayerNorm;"),
    ("zzz", "names are such as /encoder/layer.0/attention/output/LayerNorm;"),
])  # fmt: skip
def test_a_pattern_that_fits_nothing_names_the_nearest_node(pattern, hint):
    with pytest.raises(UsageProblem) as caught:
        NodePatterns(("*output*", pattern)).require(NAMES, "m.onnx")
    assert caught.value.summary == f"no node fits --nodes {pattern}"
    assert (caught.value.hint or "").startswith(hint)
    NodePatterns(("*output*",)).require(NAMES, "m.onnx")


@pytest.mark.parametrize(("names", "pattern"), [
    (["/encoder/layer.0/norm", "/encoder/layer.11/norm"], "/encoder/layer.*/norm"),
    (["node_layer_norm", "node_layer_norm_1", "node_layer_norm_12"], "node_layer_norm*"),
    (["/m/norm0/BatchNormalization", "/m/block1/layer1/norm2/BatchNormalization"], "/m/*norm*/BatchNormalization"),
    (["/m/f.1/f.1.0/attn/Div_3", "/m/f.1/f.1.1/attn/Div_4", "/m/f.5/f.5.1/attn/Div_4"], "/m/f.*/attn/Div_*"),
    (["features.0.1", "features.1.block.0.1", "features.16.1"], "features.*"),
    (["layer4.0.bn1", "layer4.2.bn3"], "layer4.*.bn*"),
    (["x[0].norm", "x[1].norm"], "x[*].norm"),
    (["first", "second"], None), (["1", "2"], None),
])  # fmt: skip
def test_names_that_are_alike_have_a_pattern_that_they_fit(names, pattern):
    assert common_pattern(names) == pattern
    if pattern is not None:
        NodePatterns((pattern,)).require(names, "m.onnx")
        assert all(NodePatterns((pattern,)).fits(name) for name in names)
