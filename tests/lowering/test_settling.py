"""A conversion keeps the error budget as it is written, and on inputs that it was not settled on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.models import parse, random, saved
from trtnorm_cli import api
from trtnorm_cli.compare.result import Trial
from trtnorm_cli.lowering.settling import Unseen
from trtnorm_cli.records.precision import PrecisionRecord

PROFILE = "dims: {N: {min: 1, opt: 2, max: 4}}\n"


def settled(folder: Path, graph: str, weights: dict[str, np.ndarray], profile: str, precision: str = "fp16") -> PrecisionRecord:
    saved(parse(graph, weights, opset=18), folder / "m.onnx")
    (folder / "cfg.yaml").write_text(profile)
    record = api.rewrite(folder / "m.onnx", profile=folder / "cfg.yaml", precision=precision).precision
    assert record is not None
    return record


def at(record: PrecisionRecord) -> set[str]:
    return {error.at for error in record.errors}


def worst(record: PrecisionRecord) -> float:
    return max(error.error for error in record.errors)


# One tanh stands between float32 nodes and joins them, its twin does not: rounding both alike costs nothing, rounding one does.
TWINS = """
g (float[N, 16] x) => (float[N, 16] y, float[N, 16] z) {
    z = MatMul (x, one)
    [first] f = Atan (x)
    [left] a = Tanh (f)
    [second] b = Atan (a)
    [right] c = Tanh (f)
    [product] p = MatMul (c, one)
    [turned] q = Atan (p)
    [difference] d = Sub (b, q)
    [small] s = Mul (x, thousandth)
    y = Add (d, s)
}
"""


def test_nodes_that_join_others_in_float32_are_held_to_the_budget(tmp_path: Path) -> None:
    weights = {"one": np.eye(16, dtype=np.float32), "thousandth": np.float32(1e-3)}
    keep = "precision: {type: fp16, keep_fp32: {nodes: [first, second, turned, difference, small]}}\n"
    record = settled(tmp_path, TWINS, weights, PROFILE + keep)
    assert any(one.cause == "joined" for one in record.kept)
    assert worst(record) <= 1e-2


# r² − r (r + 1) = −r, of which half precision keeps three digits where r is about 1, and one where it is about 127.
IMAGES = """
g (float[1, 3, 8, 8] x) => (float[1, 4, 8, 8] y) {
    a = Relu (x)
    r = Mul (a, half)
    n = Add (r, one)
    [square] s = Mul (r, r)
    [next] t = Mul (r, n)
    [difference] d = Sub (t, s)
    v0 = Neg (d)  BEHIND
    y = Conv <pads = [1, 1, 1, 1]> (LAST, w)
}
"""


def images(layers: int) -> str:
    """With so many layers behind."""
    behind = " ".join(f"v{index + 1} = Neg (v{index})" for index in range(layers))
    return IMAGES.replace("BEHIND", behind).replace("LAST", f"v{layers}")


WEIGHTS = {"one": np.float32(1.0), "half": np.float32(0.5), "w": random(4, 3, 3, 3)}


def test_the_budget_holds_for_images_of_0_to_255(tmp_path: Path) -> None:
    record = settled(tmp_path, images(30), WEIGHTS, "{}")
    assert "default min, images of 0 to 255" in at(record)
    assert worst(record) <= 1e-2
    assert {"square", "next", "difference"} <= {one.node for one in record.kept}
    assert [note for note in record.notes if "nodes are float32 for images of 0 to 255 alone" in note]


def test_images_of_0_to_255_do_not_make_most_of_a_network_float32(tmp_path: Path) -> None:
    record = settled(tmp_path, images(0), WEIGHTS, "{}")
    assert record.kept == ()
    assert "at default min, images of 0 to 255, which nothing was settled on (0.01 allowed)" in record.notes[0]
    assert worst(record) <= 1e-2


def test_the_budget_holds_for_other_images_of_0_to_255_than_the_first(tmp_path: Path) -> None:
    record = settled(tmp_path, images(30), WEIGHTS, "{}")
    assert "default min, seed 3000009, images of 0 to 255" in {error.at for error in record.unseen}


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first inputs that nothing was settled on are a hundred times as large."""

    def drawn(unseen: Unseen, place: int, number: int) -> Trial:
        return Trial(f"default min, number {number}", {"x": random(1, 3, 8, 8) * np.float32(100 if number == 1 else 1)})

    monkeypatch.setattr(Unseen, "random", drawn)


@pytest.mark.usefixtures("large")
def test_the_budget_holds_for_other_inputs_of_the_same_kind(tmp_path: Path) -> None:
    record = settled(tmp_path, images(0), WEIGHTS, "{}")
    assert at(record) >= {"default min", "default min, number 1"}
    assert worst(record) <= 1e-2
    assert {error.at for error in record.unseen} >= {"default min, number 3", "default min, number 4"}


@pytest.mark.usefixtures("large")
def test_where_no_choice_holds_for_other_inputs_that_is_said(tmp_path: Path) -> None:
    graph = """
    g (float[1, 3, 8, 8] x) => (float[1, 3, 8, 8] y) {
        n = Add (x, one)
        s = Mul (x, x)
        t = Mul (x, n)
        y = Sub (t, s)
    }"""
    record = settled(tmp_path, graph, {"one": np.float32(1.0)}, "{}")
    assert at(record) == {"default min"}
    assert "is infinite or NaN at default min, number 1, which nothing was settled on (0.01 allowed)" in record.notes[-1]


def test_inputs_on_which_the_model_does_not_run_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(unseen: Unseen, place: int, number: int) -> Trial:
        return Trial("of another shape", {"x": random(1, 2, 8, 8)})

    monkeypatch.setattr(Unseen, "random", drawn)
    unseen = settled(tmp_path, images(0), WEIGHTS, "{}").unseen
    assert {error.at for error in unseen} == {"default min, images of 0 to 255"}


def test_the_users_own_inputs_are_the_only_ones(tmp_path: Path) -> None:
    np.savez(tmp_path / "inputs.npz", x=random(1, 3, 8, 8))
    record = settled(tmp_path, images(0), WEIGHTS, "precision: {type: fp16, data: inputs.npz}\n")
    assert at(record) == {"inputs.npz[0]"}
    assert record.unseen == ()


def test_an_output_that_no_rounding_moves_is_named(tmp_path: Path) -> None:
    graph = """
    g (float[2, 16] x) => (float[2, 16] y, float[2, 16] z) {
        a = Abs (x)
        l = Add (a, large)
        [saturated] y = Sigmoid (l)
        z = MatMul (x, w)
    }"""
    record = settled(tmp_path, graph, {"large": np.float32(1000.0), "w": random(16, 16)}, "{}")
    assert [note for note in record.notes if note.startswith("no rounding moves y at any of these inputs")]


def test_a_conversion_far_within_the_budget_is_tried_on_one_input_of_each_kind(tmp_path: Path) -> None:
    graph = "g (float[N, 3, 8, 8] x) => (float[N, 4, 8, 8] y) { y = Conv <pads = [1, 1, 1, 1]> (x, w) }"
    calm = settled(tmp_path, graph, WEIGHTS, PROFILE)
    assert worst(calm) < 0.2 * 1e-2
    assert len({error.at for error in calm.unseen}) == 2
    assert sum("images of 0 to 255" in error.at for error in calm.unseen) == 1
    tight = settled(tmp_path, graph, WEIGHTS, PROFILE + f"precision: {{type: fp16, max_error: {2 * worst(calm)}}}\n")
    assert len({error.at for error in tight.unseen}) > 4
