"""The user's nodes behind a node that TensorRT names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.models import parse
from trtnorm_cli.rewrite.rule import Change, Check
from trtnorm_cli.tensorrt.origin import Subject

SOURCE = parse(
    "g (float[2, 4] x) => (float[] y) { [conv] a = Relu(x) [bn] b = Neg(a) c = Abs(b) [gn] d = Tanh(c) y = Sigmoid(d) }"
)


PASSED = Check(0.0, 0.0, 1e-5, 0.0, 1e-9, 0, {}, "", True)


def change(rule: str, removed: tuple[str, ...], added: tuple[str, ...]) -> Change:
    return Change(rule=rule, node=removed[-1], removed=removed, added=added, because="", check=PASSED)


CHANGES = (
    change("fold", ("conv", "bn"), ("conv",)),
    change("split", ("gn",), ("gn_mean", "gn_scale")),
    change("merge", ("gn_scale", "conv"), ("gn_merged",)),
)
SUBJECT = Subject(Path("m.onnx"), None, SOURCE, CHANGES)


@pytest.mark.parametrize(("name", "origin"), [
    ("conv", "made by fold from conv (Relu), bn (Neg)"), ("gn_mean", "made by split from gn (Tanh)"),
    ("gn_merged", "made by merge from gn (Tanh), conv (Relu)"), ("bn", ""), ("-> c", ""),
])  # fmt: skip
def test_what_a_node_was_made_from(name, origin):
    assert SUBJECT.origin(name, SOURCE) == origin


def test_a_node_that_cleaning_named():
    cleaned = parse("g (float[2, 4] x) => (float[] y) { [node_3] c = Abs(x) [other] y = Neg(c) }")
    assert SUBJECT.origin("node_3", cleaned) == "in the model: -> c (Abs)"
    assert SUBJECT.origin("nobody", cleaned) == ""


def test_the_command_is_quoted():
    subject = Subject(Path("a b.onnx"), Path("c.yaml"))
    assert subject.command("trtnorm build {model}{profile} --isolate") == "trtnorm build 'a b.onnx' -p c.yaml --isolate"
    assert Subject(Path("m.onnx")).command("trtnorm build {model}{profile}") == "trtnorm build m.onnx"
