"""The order of the convolutions that a residual block adds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest

from tests.models import batchnorm, parse, random
from trtnorm_cli.cli import run
from trtnorm_cli.rewrite.shortcuts_first import shortcuts_first

WEIGHTS = {"b": random(4, 4, 3, 3), "d": random(4, 4, 3, 3), "s": random(4, 4, 1, 1), "wide": random(4, 4, 5, 5)}
BLOCK = "b1 = Conv <pads=[1,1,1,1]> (h, b) r = Relu(b1) b2 = Conv <pads=[1,1,1,1]> (r, d)"


def model(nodes: str, outputs: str = "float[N,4,8,8] y", inputs: str = "float[N,4,8,8] x") -> onnx.ModelProto:
    return parse(f"g ({inputs}) => ({outputs}) {{ h = Relu(x) {nodes} }}", WEIGHTS)


def order(one: onnx.ModelProto) -> list[str]:
    shortcuts_first(one)
    onnx.checker.check_model(one)
    return [node.output[0] for node in one.graph.node]


def test_the_shortcut_stands_in_front_of_the_block() -> None:
    assert order(model(f"{BLOCK} k = Conv(h, s) t = Add(b2, k) y = Relu(t)")) == ["h", "k", "b1", "r", "b2", "t", "y"]


def test_each_of_several_blocks_gets_its_own() -> None:
    second = "c1 = Conv <pads=[1,1,1,1]> (u, b) q = Relu(c1) c2 = Conv <pads=[1,1,1,1]> (q, d) m = Conv(u, s)"
    nodes = f"{BLOCK} k = Conv(h, s) t = Add(b2, k) u = Relu(t) {second} v = Add(m, c2) y = Relu(v)"
    assert order(model(nodes)) == ["h", "k", "b1", "r", "b2", "t", "u", "m", "c1", "q", "c2", "v", "y"]


@pytest.mark.parametrize(
    ("nodes", "outputs", "inputs"),
    [
        ("k = Conv(h, s) " + BLOCK + " t = Add(b2, k) y = Relu(t)", "float[N,4,8,8] y", "float[N,4,8,8] x"),
        (BLOCK + " k = Conv <pads=[2,2,2,2]> (h, wide) y = Add(b2, k)", "float[N,4,8,8] y", "float[N,4,8,8] x"),
        (BLOCK + " k = Conv(h, s) y = Add(b2, k)", "float[N,4,8,8] y, float[N,4,8,8] k", "float[N,4,8,8] x"),
        (BLOCK + " k = Conv(h, s) q = Sigmoid(k) t = Add(b2, k) y = Mul(t, q)", "float[N,4,8,8] y", "float[N,4,8,8] x"),
        (BLOCK + " k = Conv(h, f) y = Add(b2, k)", "float[N,4,8,8] y", "float[N,4,8,8] x, float[4,4,1,1] f"),
        (BLOCK + " p = Sigmoid(h) k = Conv(p, s) y = Add(b2, k)", "float[N,4,8,8] y", "float[N,4,8,8] x"),
        (BLOCK + " k = Conv(h, s) y = Sub(b2, k)", "float[N,4,8,8] y", "float[N,4,8,8] x"),
        ("b1 = Conv <pads=[1,1,1,1]> (h, b) k = Conv(h, s) y = Add(b1, k)", "float[N,4,8,8] y", "float[N,4,8,8] x"),
        (BLOCK + " y = Add(b2, h)", "float[N,4,8,8] y", "float[N,4,8,8] x"),
        (BLOCK + " e = Relu(b2) k = Conv(h, s) y = Add(e, k)", "float[N,4,8,8] y", "float[N,4,8,8] x"),
    ],
    ids=[
        *("there already", "the shortcut computes more", "a result", "read by two", "weights are an input", "no fork"),
        *("no addition", "no block", "nothing convolved", "an activated one"),
    ],
)
def test_others_stay_where_they_are(nodes: str, outputs: str, inputs: str) -> None:
    one = model(nodes, outputs, inputs)
    before = one.SerializeToString()
    shortcuts_first(one)
    assert one.SerializeToString() == before


def test_strides_and_groups_count() -> None:
    """The shortcut has more weights, and a quarter of the multiplications for each number that it reads."""
    weights = {"b": random(8, 8, 1, 1), "d": random(16, 8, 1, 1), "s": random(16, 8, 1, 1)}
    text = "b1 = Conv <strides=[2,2]> (h, b) r = Relu(b1) b2 = Conv(r, d) k = Conv <strides=[2,2]> (h, s) y = Add(k, b2)"
    one = parse(f"g (float[N,8,8,8] x) => (float[N,16,4,4] y) {{ h = Relu(x) {text} }}", weights)
    assert order(one) == ["h", "k", "b1", "r", "b2", "y"]
    grouped = {"b": random(12, 12, 1, 1), "d": random(12, 1, 3, 3), "s": random(12, 12, 1, 1)}
    text = "b1 = Conv(h, b) r = Relu(b1) b2 = Conv <group=12, pads=[1,1,1,1]> (r, d) k = Conv(h, s) y = Add(k, b2)"
    one = parse(f"g (float[N,12,8,8] x) => (float[N,12,8,8] y) {{ h = Relu(x) {text} }}", grouped)
    assert order(one) == ["h", "b1", "r", "b2", "k", "y"], "9 multiplications for 2 numbers, and 12"


def test_a_bias_that_is_computed_is_not_overtaken() -> None:
    text = f"{BLOCK} e = Relu(w0) k = Conv(h, s, e) y = Add(b2, k)"
    one = parse(f"g (float[N,4,8,8] x) => (float[N,4,8,8] y) {{ h = Relu(x) {text} }}", {**WEIGHTS, "w0": random(4)})
    assert order(one) == ["h", "b1", "r", "b2", "e", "k", "y"]


def test_a_rewriting_orders_what_it_changes_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    norms = {**batchnorm(4, suffix="1"), **batchnorm(4, suffix="2", seed=1)}
    block = "b1 = Conv <pads=[1,1,1,1]> (h, b) r = Relu(b1) b2 = Conv <pads=[1,1,1,1]> (r, d)"
    folded = f"{block} n2 = BatchNormalization(b2, gamma1, beta1, mu1, var1) k = Conv(h, s)" + (
        " n = BatchNormalization(k, gamma2, beta2, mu2, var2) y = Add(n2, n)"
    )
    weights = {**WEIGHTS, **norms}
    x = {"x": random(2, 4, 8, 8)}
    found = {}
    for name, nodes in {"folded": folded, "plain": f"{block} k = Conv(h, s) y = Add(b2, k)"}.items():
        onnx.save(parse(f"g (float[N,4,8,8] x) => (float[N,4,8,8] y) {{ h = Relu(x) {nodes} }}", weights), f"{name}.onnx")
        assert run(["rewrite", f"{name}.onnx", "-o", f"{name}.fixed.onnx"]) == 0
        both = [ort.InferenceSession(file).run(None, x)[0] for file in (f"{name}.onnx", f"{name}.fixed.onnx")]
        np.testing.assert_allclose(both[1], both[0], rtol=1e-4, atol=1e-4)
        found[name] = [node.op_type for node in onnx.load(f"{name}.fixed.onnx").graph.node]
    assert found["folded"] == ["Relu", "Conv", "Conv", "Relu", "Conv", "Add"], "the shortcut's comes first"
    assert found["plain"] == ["Relu", "Conv", "Relu", "Conv", "Conv", "Add"], "nothing was changed"
