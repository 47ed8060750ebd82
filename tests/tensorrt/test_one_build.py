"""Networks whose first engine tells that it is the best one, and others, with TensorRT for RTX."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, parse, random
from trtnorm_cli.cli import run
from trtnorm_cli.tensorrt.part_search import WORTH

pytestmark = pytest.mark.rtx


def network(shortcut: str, tail: str) -> onnx.ModelProto:
    """A residual network of folds, with two blocks of 64 channels."""
    weights: dict[str, np.ndarray] = {"stem": random(64, 3, 3, 3), "fc": random(64, 10), "w": random(64, 64, 3, 3)}
    weights |= {"one": random(64, 64, 1, 1)}
    names = ["0", "1", "2", "3", "4", "5"]
    for seed, name in enumerate(names):
        weights |= batchnorm(64, suffix=name, seed=seed)

    def norm(tensor: str, name: str) -> str:
        return f"n{name} = BatchNormalization({tensor}, gamma{name}, beta{name}, mu{name}, var{name})"

    conv = "Conv <pads=[1,1,1,1]>"
    text = f"""c0 = {conv} (x, stem) {norm("c0", "0")} h = Relu(n0)
      c1 = {conv} (h, w) {norm("c1", "1")} r1 = Relu(n1) c2 = {conv} (r1, w) {norm("c2", "2")} {shortcut}
      c4 = {conv} (b, w) {norm("c4", "4")} r4 = Relu(n4) c5 = {conv} (r4, w) {norm("c5", "5")} {tail}"""
    text = text.replace("NORM3", norm("c3", "3"))
    return parse(f"g (float[1,3,32,32] x) => (float[1,10] y) {{ {text} }}", weights)


SHORTCUT = "c3 = Conv(h, one) NORM3 t = Add(n2, n3) b = Relu(t)"
HEAD = "p = MaxPool <kernel_shape=[32,32]> (u) f = Flatten(p) y = MatMul(f, fc)"


def optimized(model: onnx.ModelProto, name: str, *arguments: str) -> Any:
    onnx.save(model, f"{name}.onnx")
    assert run(["build", f"{name}.onnx", "-o", f"{name}.engine", "--json", "--no-compare", *arguments]) == 0
    return json.loads(Path(f"{name}.engine.json").read_text())


def test_a_residual_network_takes_one_build(tmp_path, monkeypatch, capsys):
    """And the engine takes no longer than the one without changes, as a build that was made to know that shows."""
    monkeypatch.chdir(tmp_path)
    residual = network(SHORTCUT, f"v = Add(n5, b) u = Relu(v) {HEAD}")
    made = optimized(residual, "auto")
    chosen = made["optimize"]["chosen"]
    assert (chosen["builds"], chosen["no change"], chosen["left_out"]) == (1, None, [])
    assert made["optimize"]["before"] is None
    assert [change["rule"] for change in made["changes"]] == ["fold-batchnorm-conv"] * 6
    Path("never.yaml").write_text("optimize: never\n")
    never = optimized(residual, "never", "-p", "never.yaml")
    assert not never["changes"]
    assert chosen["chosen"]["us"] <= (1 + WORTH) * never["cost"]["total"]["us"]
    capsys.readouterr()
    assert run(["build", "auto.onnx", "-o", "again.engine", "--no-compare"]) == 0
    assert "which leaves nothing to gain without them; 0 sites left out, 1 build" in " ".join(capsys.readouterr().out.split())


def test_a_network_of_optical_flow_takes_one_build(tmp_path, monkeypatch, capsys):
    """Its instance norms of two samples are in two kernels or one, and its upsampling weights are scaled before a softmax."""
    monkeypatch.chdir(tmp_path)
    norm = "InstanceNormalization <epsilon=1e-5>"
    text = f"""g (float[2,3,64,64] x) => (float[2,1,9,4,4,32,32] y) {{
      c0 = Conv <pads=[3,3,3,3], strides=[2,2]> (x, stem) n0 = {norm} (c0, g, b) r0 = Relu(n0)
      c1 = Conv <pads=[1,1,1,1]> (r0, w) n1 = {norm} (c1, g, b) r1 = Relu(n1)
      c2 = Conv <pads=[1,1,1,1]> (r1, w) n2 = {norm} (c2, g, b) r2 = Relu(n2) a = Add(r0, r2) r = Relu(a)
      m = Conv(r, mask) s = Mul(quarter, m) v = Reshape(s, spread) y = Softmax <axis=2> (v) }}"""
    weights = {"stem": random(32, 3, 7, 7), "w": random(32, 32, 3, 3), "mask": random(144, 32, 1, 1), "g": random(32) + 2}
    weights |= {"b": random(32), "quarter": np.array(0.25, np.float32), "spread": np.array([2, 1, 9, 4, 4, 32, 32])}
    made = optimized(parse(text, weights), "flow")
    chosen = made["optimize"]["chosen"]
    assert (chosen["builds"], chosen["no change"], chosen["not_tried"]) == (1, None, ["s"])
    assert {change["rule"] for change in made["changes"]} <= {"normalization-in-rows", "normalization-to-scale-shift"}
    Path("never.yaml").write_text("optimize: never\n")
    never = optimized(parse(text, weights), "never", "-p", "never.yaml")
    assert chosen["chosen"]["us"] < 0.9 * never["cost"]["total"]["us"]
    Path("always.yaml").write_text("optimize: always\n")
    always = optimized(parse(text, weights), "always", "-p", "always.yaml")
    assert chosen["chosen"]["us"] < 0.9 * always["cost"]["total"]["us"]


def test_a_squeeze_behind_a_fold_takes_a_second_build(tmp_path, monkeypatch, capsys):
    """Folded, the squeeze gets a transposition of its own."""
    monkeypatch.chdir(tmp_path)
    squeeze = "z = ReduceMean <axes=[2,3]> (b5) g = Conv(z, one) q = Sigmoid(g) u = Mul(b5, q)"
    made = optimized(network(SHORTCUT, f"b5 = Relu(n5) {squeeze} {HEAD}"), "squeezed")
    chosen = made["optimize"]["chosen"]
    assert chosen["builds"] >= 2
    assert chosen["no change"] is not None
    assert chosen["chosen"]["us"] <= min(chosen["every change"]["us"], chosen["no change"]["us"])


def test_a_trained_block_of_a_transformer_takes_one_build(tmp_path, monkeypatch, capsys):
    """With the scale of its attention and of its branch folded, the engine takes as long as without, but for a rounding."""
    monkeypatch.chdir(tmp_path)
    text = """g (float[N, 16, 64] x) => (float[N, 16, 64] y) {
      a = LayerNormalization(x, g0, g1) q = MatMul(a, wq) qb = Add(q, bq) qs = Mul(qb, scale) k = MatMul(a, wk)
      kt = Transpose <perm=[0, 2, 1]> (k) d = MatMul(qs, kt) p = Softmax(d) v = MatMul(a, wv) o = MatMul(p, v)
      h = MatMul(o, wo) hb = Add(h, bo) ls = Mul(hb, gamma) r = Add(ls, x) y = LayerNormalization(r, g0, g1) }"""
    weights = {name: random(64, 64, seed=at) for at, name in enumerate(("wq", "wk", "wv", "wo"))}
    weights |= {name: random(64, seed=at) for at, name in enumerate(("g0", "g1", "bq", "bo", "gamma"))}
    block = parse(text, {**weights, "scale": np.float32(0.125)})
    Path("sizes.yaml").write_text("dims: {N: {min: 1, opt: 2, max: 4}}\n")
    made = optimized(block, "block", "-p", "sizes.yaml")
    assert [change["rule"] for change in made["changes"]] == ["fold-scale-shift-upstream"] * 2
    assert (made["optimize"]["chosen"]["builds"], made["optimize"]["chosen"]["no change"]) == (1, None)
    Path("never.yaml").write_text("dims: {N: {min: 1, opt: 2, max: 4}}\noptimize: never\n")
    never = optimized(block, "never", "-p", "never.yaml")
    assert made["cost"]["total"]["us"] <= 1.001 * never["cost"]["total"]["us"]
