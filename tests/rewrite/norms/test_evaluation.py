"""Operands keep the shape of what is normalized, constants are one number, and a count is that of the reduced values."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import parse, random
from tests.rewrite.norms.test_compositions import found
from trtnorm_cli.rewrite.norms import evaluation, formula, polynomial

CENTRED = "m = ReduceMean <axes=[2]> (x) c = Sub(x, m) p = Mul(c, c) v = ReduceMean <axes=[2]> (p)"
EPSILON = np.float32(1e-5)


def full(*shape: int, value: float = 1e-5, kind: type = np.float32) -> np.ndarray:
    return np.full(shape, value, kind)


def recognised(x: str, body: str, **weights: np.ndarray) -> list[str]:
    """The kinds of what is found from x to y, which ``body`` makes, without a misgiving."""
    norms = found(parse(f"g (float[{x}] x) => (float[] y) {{ {body} }}", weights))
    return [one.kind for one in norms if (one.data.name, one.output.name, one.misgiving) == ("x", "y", "")]


ROOT = "e = Add(v, eps) s = Sqrt(e) y = Div(c, s)"
EPSILONS = {
    "a scalar": ("2, 3, 8", full(), True),
    "one axis": ("2, 3, 8", full(1), True),
    "as many axes as the data": ("2, 3, 8", full(1, 1, 1), True),
    "more axes than the data": ("2, 3, 8", full(1, 1, 1, 1), False),
    "one for each row": ("2, 3, 8", full(3, 1), True),
    "one for each sample": ("2, 3, 8", full(2, 1, 1), True),
    "rows of a known batch of one": ("1, 3, 8", full(4, 1, 1), False),
    "rows of a single one": ("2, 1, 8", full(3, 1), False),
    "rows of an open size": ("N, S, 8", full(7, 1), False),
    "rows of an unknown size": ("N, ?, 8", full(7, 1), True),
    "different numbers": ("2, 3, 8", np.array([[1e-5], [1e-5], [1e-3]], np.float32), False),
    "not finite": ("2, 3, 8", full(1, value=np.inf), False),
}


@pytest.mark.parametrize(("x", "epsilon", "is_one"), EPSILONS.values(), ids=EPSILONS)
def test_an_epsilon_is_one_number_that_keeps_the_shape(x, epsilon, is_one):
    assert recognised(x, f"{CENTRED} {ROOT}", eps=epsilon) == (["LayerNorm"] if is_one else [])


def test_an_exponent_may_be_an_integer():
    body = CENTRED.replace("Mul(c, c)", "Pow(c, two)")
    assert recognised("2, 3, 8", f"{body} {ROOT}", two=np.array(2, np.int64), eps=EPSILON) == ["LayerNorm"]


def test_what_else_reads_the_variance_changes_nothing():
    body = f"{CENTRED} {ROOT} u = Add(v, none) w = Add(p, none2)"
    none = {"none": np.zeros((0,), np.float32), "none2": np.zeros((1, 0, 1, 1), np.float32)}
    assert recognised("2, 3, 8", body, eps=EPSILON, **none) == ["LayerNorm"]


SUMMED = "m = ReduceMean <axes=[2]> (x) c = Sub(x, m) p = Mul(c, c) q = ReduceSum <axes=[2]> (p)"
COUNTS = {
    "of the data": ("d = Shape(x) f = Gather(d, at) r = ReduceProd<keepdims=0>(f) k = Cast<to=1>(r)", True),
    "of what was centred": ("d = Shape(c) f = Gather(d, at) r = ReduceProd<keepdims=0>(f) k = Cast<to=1>(r)", True),
    "from the back": ("d = Shape(x) f = Gather(d, last) r = ReduceProd<keepdims=0>(f) k = Cast<to=1>(r)", True),
    "one size alone": ("d = Shape(x) f = Gather(d, two) k = Cast<to=1>(f)", True),
    "cast twice": ("d = Shape(x) f = Gather(d, two) j = Cast<to=6>(f) k = Cast<to=1>(j)", True),
    "of the means": ("d = Shape(m) f = Gather(d, at) r = ReduceProd<keepdims=0>(f) k = Cast<to=1>(r)", False),
    "of other data": ("d = Shape(h) f = Gather(d, at) r = ReduceProd<keepdims=0>(f) k = Cast<to=1>(r)", False),
    "of an axis that is not reduced": ("d = Shape(x) f = Gather(d, one) k = Cast<to=1>(f)", False),
    "of two axes": ("d = Shape(x) f = Gather(d, both) r = ReduceProd<keepdims=0>(f) k = Cast<to=1>(r)", False),
    "of an axis that a run tells": ("d = Shape(x) f = Gather(d, i) r = ReduceProd<keepdims=0>(f) k = Cast<to=1>(r)", False),
    "of all axes": ("d = Shape(x) r = ReduceProd<keepdims=0>(d) k = Cast<to=1>(r)", False),
    "of numbers that are no shape": ("f = Gather(i, at) r = ReduceProd<keepdims=0>(f) k = Cast<to=1>(r)", False),
    "one less": ("d = Shape(x) f = Gather(d, two) j = Cast<to=1>(f) k = Sub(j, e1)", False),
    "less what a run tells": ("d = Shape(x) f = Gather(d, two) j = Cast<to=1>(f) g = Cast<to=1>(f) k = Sub(j, g)", False),
}


@pytest.mark.parametrize(("count", "is_count"), COUNTS.values(), ids=COUNTS)
def test_a_sum_is_a_mean_only_by_the_number_of_its_values(count, is_count):
    indices = {"at": [2], "last": [-1], "both": [1, 2], "two": 2, "one": 1}
    weights = {name: np.array(value, np.int64) for name, value in indices.items() if f", {name})" in count}
    weights |= {"e1": np.float32(1)} if "e1" in count else {}
    body = f"{SUMMED} {count} v = Div(q, k) {ROOT}"
    inputs = ", float[N, 3, L] h, int64[1] i"
    graph = f"g (float[N, 3, L] x{inputs}) => (float[] y) {{ {body} }}"
    norms = [one for one in found(parse(graph, {**weights, "eps": EPSILON}, opset=11)) if one.output.name == "y"]
    assert [one.kind for one in norms if not one.misgiving] == (["LayerNorm"] if is_count else [])


GROWING = {
    "a shift of more samples": ("c0 = Sub(x, m) c = Add(c0, h)", "1, 3, 8", "2, 3, 8"),
    "a scale of more rows": ("c0 = Sub(x, m) c = Mul(c0, h)", "2, 1, 8", "2, 3, 8"),
    "a scale of more axes": ("c0 = Sub(x, m) c = Mul(c0, h)", "2, 3, 8", "1, 1, 3, 8"),
}


@pytest.mark.parametrize(("middle", "x", "h"), GROWING.values(), ids=GROWING)
def test_what_makes_the_data_larger_is_no_part(middle, x, h):
    body = f"m = ReduceMean <axes=[2]> (x) {middle} p = Mul(c, c) v = ReduceMean <axes=[-1]> (p) {ROOT}"
    graph = f"g (float[{x}] x, float[{h}] h) => (float[] y) {{ {body} }}"
    assert [one for one in found(parse(graph, {"eps": EPSILON})) if one.data.name == "x"] == []


KEPT = {
    "kept": ("m = ReduceMean <axes=[2]> (x) c = Sub(x, m)", "8, 8, 8", True),
    "another axis": ("m = ReduceMean <axes=[1]> (x) c = Sub(x, m)", "8, 8, 8", False),
    "reshaped to what it was": (
        "n = ReduceMean <axes=[2], keepdims=0> (x) m = Reshape(n, kept) c = Sub(x, m)",
        "8, 8, 8",
        True,
    ),
    "reshaped to another axis": (
        "n = ReduceMean <axes=[2], keepdims=0> (x) m = Reshape(n, other) c = Sub(x, m)",
        "8, 8, 8",
        False,
    ),
    "of an open size": ("m = ReduceMean <axes=[2]> (x) c = Sub(x, m)", "N, 3, L", True),
    "of a single one": ("m = ReduceMean <axes=[2]> (x) c = Sub(x, m)", "N, 1, L", True),
}


@pytest.mark.parametrize(("centred", "x", "is_centred"), KEPT.values(), ids=KEPT)
def test_means_are_subtracted_along_the_axes_that_they_are_of(centred, x, is_centred):
    shapes = {"kept": np.array([8, 8, 1]), "other": np.array([8, 1, 8])}
    used = {name: value for name, value in shapes.items() if f", {name})" in centred}
    body = f"{centred} p = Mul(c, c) v = ReduceMean <axes=[2]> (p) {ROOT}"
    assert recognised(x, body, eps=EPSILON, **used) == (["LayerNorm"] if is_centred else [])


def residual_blocks(count: int) -> onnx.ModelProto:
    """Each block normalizes what the ones before it added up, with a scale and a shift of its own."""
    lines, x, weights = [], "x", {"eps": EPSILON}
    for block in range(count):
        names = "mcpvesdghra"
        n = {letter: f"{letter}{block}" for letter in names}
        lines += [
            f"{n['m']} = ReduceMean<axes=[2]>({x}) {n['c']} = Sub({x}, {n['m']}) {n['p']} = Mul({n['c']}, {n['c']})",
            f"{n['v']} = ReduceMean<axes=[2]>({n['p']}) {n['e']} = Add({n['v']}, eps) {n['s']} = Sqrt({n['e']})",
            f"{n['d']} = Div({n['c']}, {n['s']}) {n['g']} = Mul({n['d']}, scale{block}) {n['h']} = Add({n['g']}, shift{block})",
            f"{n['r']} = MatMul({n['h']}, w{block}) {n['a']} = Add({x}, {n['r']})",
        ]
        x = n["a"]
        weights |= {f"scale{block}": random(8), f"shift{block}": random(8), f"w{block}": random(8, 8)}
    return parse(f"g (float[2, 3, 8] x) => (float[] y) {{ {' '.join(lines)} y = Relu({x}) }}", weights)


def test_norms_that_are_alike_are_multiplied_out_once():
    """Of 242 LayerNorms in pieces each took 13 ms, as every one has its own names."""
    missed = []
    for count in (2, 12):
        for cached in (polynomial._multiplied, polynomial._powered, formula.formula_of):
            cached.cache_clear()
        assert [one.kind for one in found(residual_blocks(count))] == ["LayerNorm"] * count
        missed.append([polynomial._multiplied.cache_info().misses, formula.formula_of.cache_info().misses])
    assert missed[0] == missed[1]


@pytest.mark.parametrize(("shift", "output"), [("constant", "y"), ("residual", "d")])
def test_a_shift_as_large_as_the_data_is_one_where_it_is_a_constant(shift: str, output: str):
    body = f"{CENTRED} {ROOT.replace('y =', 'd =')} y = Add(d, {shift})"
    text = f"g (float[1, 3, 8] x, float[1, 3, 8] residual) => (float[] y) {{ {body} }}"
    weights = {"eps": EPSILON, "constant": random(1, 3, 8)}
    assert [(one.kind, one.output.name) for one in found(parse(text, weights))] == [("LayerNorm", output)]


def test_a_residual_connection_is_not_followed(monkeypatch):
    """What is normalized behind it is something else."""
    evaluated: list[str] = []

    def evaluate(self, node, evaluate=evaluation.SymbolicEvaluation._evaluate):
        evaluated.append(node.op)
        return evaluate(self, node)

    monkeypatch.setattr(evaluation.SymbolicEvaluation, "_evaluate", evaluate)
    counts = []
    for count in (6, 12):
        evaluated.clear()
        found(residual_blocks(count))
        counts.append(len(evaluated))
    assert counts[1] == 2 * counts[0]
