"""``optimize: never`` and ``optimize: kernels``."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser

from tests.models import batchnorm, parse, random
from trtnorm_cli import variant_choice
from trtnorm_cli.cli import run
from trtnorm_cli.onnx_model.load import load_model
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.report.build import _optimize_rows, summary_rows
from trtnorm_cli.rewrite.kernels import Cost, choose, fewest_kernels
from trtnorm_cli.rewrite.rewriting import Rewriting, RewritingSession
from trtnorm_cli.tensorrt import part_search
from trtnorm_cli.tensorrt.manifest import Choice, Manifest, Optimization

CHAIN = """
<ir_version: 10, opset_import: ["" : 18]>
g (float[N, 2, 8, 8] x) => (float[N, 2, 1, 1] y)
<float[2, 2, 1, 1] w = {1, 2, 3, 4}, float[2] s = {1, 2}, float[2] b = {0, 1}, float[2] m = {0.5, 0}, float[2] v = {1, 2},
 int64[2] axes = {2, 3}>
{
  [c1] c1 = Conv(x, w)
  [b1] n1 = BatchNormalization(c1, s, b, m, v)
  [r1] a1 = Relu(n1)
  [c2] c2 = Conv(a1, w)
  [b2] n2 = BatchNormalization(c2, s, b, m, v)
  [r2] a2 = Relu(n2)
  [mean] y = ReduceMean<keepdims = 1>(a2, axes)
}
"""


@pytest.fixture
def session(tmp_path: Path) -> RewritingSession:
    path = tmp_path / "m.onnx"
    onnx.save(parser.parse_model(CHAIN), path)
    return RewritingSession(load_model(path), {"x": (2, 2, 8, 8)}, RewriteSettings())


def batchnorms(rewriting: Rewriting) -> list[str]:
    return [node.name for node in rewriting.model.graph.node if node.op_type == "BatchNormalization"]


def test_never_leaves_what_tensorrt_takes_and_says_so(session: RewritingSession) -> None:
    rewriting = session.rewrite("never")
    assert rewriting.changes == ()
    assert batchnorms(rewriting) == ["b1", "b2"]
    assert any("optimize: never" in rejection.reason for rejection in rewriting.rejections)
    rewriting.require_all_checks_passed()


def test_never_still_repairs_what_tensorrt_computes_wrongly(tmp_path: Path) -> None:
    text = CHAIN.replace("float[N", "float16[N").replace("float[2, 2, 1, 1] w", "float16[2, 2, 1, 1] w")
    path = tmp_path / "half.onnx"
    onnx.save(parser.parse_model(text), path)
    rewriting = RewritingSession(load_model(path), {"x": (2, 2, 8, 8)}, RewriteSettings(optimize="never")).rewrite()
    assert batchnorms(rewriting) == []


def test_kernels_leaves_out_the_site_that_costs_a_launch(session: RewritingSession) -> None:
    def measure(rewriting: Rewriting) -> Cost:
        folded_last = any(change.node == "b2" and change.rule == "fold-batchnorm-conv" for change in rewriting.changes)
        unfolded = 2 - sum(change.rule == "fold-batchnorm-conv" for change in rewriting.changes)
        return Cost(5 + folded_last, 1000 + unfolded)

    chosen = fewest_kernels(session, measure)
    assert chosen.left_out == ("n2",)
    assert chosen.best.launches == 5
    assert [change.node for change in chosen.rewriting.changes if change.rule == "fold-batchnorm-conv"] == ["b1"]


def test_a_site_is_proved_once(session: RewritingSession) -> None:
    first = session.rewrite("always")
    proofs = len(session.proofs)
    second = session.rewrite("always")
    assert len(session.proofs) == proofs
    assert [change.check for change in second.changes] == [change.check for change in first.changes]


# A frozen BatchNormalization behind each convolution, and a mean over the plane at the end.
FROZEN = (
    "g (float[N, 64, 14, 14] x) => (float[N, 64] y) { c = Conv(x, w) d = Mul(c, s) e = Add(d, t) f = Relu(e)"
    " h = Conv(f, w) i = Mul(h, s) j = Add(i, t) k = Relu(j) y = ReduceMean <axes=[2, 3], keepdims=0> (k) }"
)


def manifest_with(policy: str, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    Path("p.yaml").write_text(f"dims: {{N: {{min: 1, opt: 2, max: 4}}}}\noptimize: {policy}\n")
    assert run(["build", "m.onnx", "-p", "p.yaml", "--json", "--force", "--check-reproducible"]) == 0
    manifest: dict[str, Any] = json.loads(capsys.readouterr().out)
    return manifest


def launches(kernels: dict[str, Any]) -> int:
    return sum(kernels["kernels_by_type"].values())


@pytest.mark.rtx
def test_changes_that_take_kernels_are_taken_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    weights = {"w": random(64, 64, 1, 1), "s": random(64, 1, 1), "t": random(64, 1, 1)}
    onnx.save(parse(FROZEN, weights, opset=17), "m.onnx")
    always, auto = manifest_with("always", capsys), manifest_with("auto", capsys)
    before = launches(auto["optimize"]["before"])
    assert launches(always["network"]) > before, "or the test shows nothing"
    assert launches(auto["network"]) <= before
    assert auto["optimize"]["more"] is None
    assert "optimize: always makes every change" in always["optimize"]["more"]
    assert auto["optimize"]["chosen"]["every change"]["launches"] == launches(always["network"])
    assert always["optimize"]["chosen"] is None
    assert auto["optimize"]["chosen"]["builds"] <= 4, (
        "the first, the one without changes, and two without one of the two of a part"
    )
    assert auto["cost"]["total"]["us"] <= min(auto["optimize"]["before"]["cost"]["us"], always["cost"]["total"]["us"])


def save_with_a_last_pooling() -> None:
    """Two convolutions, each with BatchNormalization and Relu, and the mean over the plane."""
    links = [
        f"c{i} = Conv({x}, w) [bn{i}] n{i} = BatchNormalization(c{i}, gamma, beta, mu, var) a{i} = Relu(n{i})"
        for i, x in enumerate(("x", "a0"))
    ]
    links.append("y = ReduceMean <axes=[2, 3], keepdims=0> (a1)")
    text = f"g (float[N, 64, 14, 14] x) => (float[N, 64] y) {{ {' '.join(links)} }}"
    onnx.save(parse(text, {"w": random(64, 64, 1, 1), **batchnorm(64)}, opset=17), "m.onnx")


def save_with_group_norms() -> None:
    """A GroupNorm of 524 thousand values and one of 33 thousand, each between convolutions."""
    links = []
    for i, x in enumerate(("x", "a0")):
        links.append(f"c{i} = Conv <strides=[{[1, 4][i]}, {[1, 4][i]}]> ({x}, w) r{i} = Reshape(c{i}, groups)")
        links.append(f"[norm{i}] i{i} = InstanceNormalization(r{i}, ones, zeros) u{i} = Reshape(i{i}, back{i})")
        links.append(f"m{i} = Mul(u{i}, scale) n{i} = Add(m{i}, shift) a{i} = Relu(n{i})")
    text = f"g (float[N,64,64,64] x) => (float[N,64,16,16] y) {{ {' '.join(links)} y = Conv(a1, w) }}"
    values = {"w": random(64, 64, 1, 1), "scale": random(64, 1, 1), "shift": random(64, 1, 1, seed=1)}
    values |= {"ones": np.ones(32, np.float32), "zeros": np.zeros(32, np.float32), "groups": np.array((0, 32, -1))}
    values |= {f"back{i}": np.array((-1, 64, size, size)) for i, size in enumerate((64, 16))}
    onnx.save(parse(text, values), "m.onnx")


@dataclass(frozen=True)
class LeftOut:
    """A model in which a change is left out from the start: who knows of it, its tensors, and the change that is made."""

    save: Callable[[], None]
    known_by: str
    tensors: list[str]
    made: str
    refused: tuple[str, str]


@pytest.mark.rtx
@pytest.mark.parametrize(
    "case",
    [
        LeftOut(save_with_a_last_pooling, "batchnorms_before_means", ["n1"], "n0", ("bn1", "fold-batchnorm-conv")),
        LeftOut(save_with_group_norms, "known_to_cost", ["i0", "n0"], "n1", ("norm0", "normalization-in-rows")),
    ],
    ids=["a fold that is likely to cost a kernel", "a large GroupNorm that is known to cost time"],
)
def test_what_costs_time_is_left_out_without_a_third_engine(
    case: LeftOut, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It comes to what the search of three engines comes to."""
    monkeypatch.chdir(tmp_path)
    case.save()
    manifest = manifest_with("auto", capsys)
    chosen = manifest["optimize"]["chosen"]
    assert (chosen["not_tried"], chosen["left_out"]) == (case.tensors, case.tensors)
    assert (chosen["builds"], chosen["no change"]) == (1, None)
    assert chosen["chosen"] == chosen["every change"], "of every other change"
    assert [change["tensor"] for change in manifest["changes"]] == [case.made]
    (refused,) = (one for one in manifest["refused"] if (one["node"], one["rule"]) == case.refused)
    assert "without the change" in refused["reason"]
    assert dict(summary_rows(Manifest.load(Path("m.engine.json"))))["  optimize"].startswith("every other change ")
    monkeypatch.setattr(variant_choice, case.known_by, lambda known: frozenset())
    monkeypatch.setattr(part_search, "WORTH", 0.0)
    searched = manifest_with("auto", capsys)
    assert searched["optimize"]["chosen"]["builds"] == 3
    assert searched["network"]["kernels_by_type"] == manifest["network"]["kernels_by_type"]
    assert searched["engine"]["sha256"] == manifest["engine"]["sha256"]


@pytest.mark.rtx
def test_a_fold_that_costs_time_is_left_out_and_one_that_does_not_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Behind a convolution that a BatchNormalization was folded into, a mean over the plane takes a kernel more."""
    monkeypatch.chdir(tmp_path)
    save_with_a_last_pooling()
    monkeypatch.setattr(variant_choice, "batchnorms_before_means", lambda model: frozenset())
    manifest = manifest_with("auto", capsys)
    chosen = manifest["optimize"]["chosen"]
    assert chosen["every change"]["us"] > chosen["no change"]["us"], "or the test shows nothing"
    assert chosen["chosen"]["us"] <= chosen["no change"]["us"]
    assert launches(manifest["network"]) <= launches(manifest["optimize"]["before"])
    assert "n1" in chosen["left_out"]
    assert dict(summary_rows(Manifest.load(Path("m.engine.json"))))["  optimize"].startswith("every change ")
    counted = manifest_with("kernels", capsys)
    assert launches(counted["network"]) <= launches(manifest["network"])
    assert counted["optimize"]["chosen"]["builds"] <= 3, "the parts of the engine leave nothing to search"


@pytest.mark.rtx
def test_kernels_is_never_worse_than_all_or_nothing_on_the_real_builder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(parser.parse_model(CHAIN), "m.onnx")
    Path("p.yaml").write_text("dims: {N: {min: 1, opt: 2, max: 4}}\noptimize: kernels\n")
    assert run(["build", "m.onnx", "-p", "p.yaml", "--json"]) == 0
    manifest = json.loads(capsys.readouterr().out)
    chosen = manifest["optimize"]["chosen"]
    launches = sum(manifest["network"]["kernels_by_type"].values())
    assert launches == chosen["chosen"]["launches"]
    assert launches <= min(chosen["every change"]["launches"], chosen["no change"]["launches"])


@pytest.mark.parametrize("likely", ["b", "abc"])
def test_what_was_suggested_does_not_lead_the_search_astray(likely: str) -> None:
    """Halves find from the start that ``b`` and ``c`` are best left out, and from what was suggested they need not."""
    costs = {"": 9, "a": 9, "abc": 7, "bc": 5, "b": 6, "c": 6}

    def measure(left_out: frozenset[str]) -> Cost:
        return Cost(costs.get("".join(sorted(left_out)), 9), 0)

    search = choose([["a"], ["b", "c"]], measure, suggest=lambda search: not search.consider(frozenset(likely)) and False)
    assert (search.left_out, search.best.launches) == (frozenset("bc"), 5)


def test_the_summary_counts_one_and_several() -> None:
    choice = Choice(Cost(2, 9, 4.0), Cost(1, 9, 2.0), Cost(1, 9, 2.0), ("y",), 2)
    ((_, text),) = _optimize_rows(Optimization("auto", choice, None, None), lowered=False)
    costs = "every change 4 µs with 2 kernels, no change 2 µs with 1 kernel, chosen 2 µs with 1 kernel"
    assert text == f"{costs}; 1 site left out, 2 builds"
