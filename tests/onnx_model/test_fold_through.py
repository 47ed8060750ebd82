"""Small values behind large ones: evaluated, while the large ones are not stored."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import operators, parse, random
from tests.onnx_model.running import initializers
from trtnorm_cli.onnx_model import fold_through
from trtnorm_cli.onnx_model.clean import Cleaning, clean
from trtnorm_cli.onnx_model.fold import run_here

WEIGHT = random(520, 512)
STATISTICS = """
    mean = ReduceMean<axes = [1], keepdims = 1>(w) apart = Sub(w, mean) square = Mul(apart, apart)
    variance = ReduceMean<axes = [1], keepdims = 0>(square)
"""


def cleaned(body: str, **weights: np.ndarray) -> Cleaning:
    return clean(parse(f"g (float[N, 512] x) => (float[N, 520] y) {{ {body} }}", {"w": WEIGHT, **weights}, opset=17))


def test_the_variance_of_a_large_weight_is_a_constant():
    """As PyTorch writes the statistics of a standardised weight, which the normalization reads as well."""
    result = cleaned(f"{STATISTICS} t = Transpose<perm = [1, 0]>(w) p = MatMul(x, t) y = Mul(p, variance)")
    assert operators(result.model) == ["MatMul", "Mul"]
    values = initializers(result.model)
    assert set(values) == {"t", "variance"}
    np.testing.assert_allclose(values["variance"], WEIGHT.astype(np.float64).var(axis=1), rtol=1e-5)
    assert result.notes == ()


def test_a_large_value_that_others_read_stays():
    body = f"{STATISTICS} u = Mul(x, variance) q = MatMul(u, apart) r = MatMul(x, w) y = Add(q, r)"
    model = parse(f"g (float[N, 520] x) => (float[N, 512] y) {{ {body} }}", {"w": WEIGHT}, opset=17)
    result = clean(model)
    assert operators(result.model) == ["Sub", "Mul", "MatMul", "MatMul", "Add"]
    assert set(initializers(result.model)) == {"w", "mean", "variance"}
    assert result.notes == ("Sub apart: constant, but its value is too large to be stored",)


@pytest.mark.parametrize("first", ["r = RandomNormalLike<seed = 1.0>(w)", "r = Expand(x, size)"])
def test_what_is_no_constant_is_not_evaluated(first):
    body = f"{first} a = Add(r, w) m = ReduceMean<axes = [0, 1]>(a) t = Transpose(w) p = MatMul(x, t) y = Mul(p, m)"
    result = cleaned(body, size=np.array([520, 512]))
    assert "ReduceMean" in operators(result.model)


def test_a_value_beyond_the_limit_is_not_evaluated(monkeypatch):
    monkeypatch.setattr(fold_through, "_MOST_BYTES", WEIGHT.nbytes - 1)
    result = cleaned(f"{STATISTICS} t = Transpose<perm = [1, 0]>(w) p = MatMul(x, t) y = Mul(p, variance)")
    assert operators(result.model) == ["Sub", "Mul", "ReduceMean", "Transpose", "MatMul", "Mul"]


def test_values_on_the_way_are_evaluated_once_for_several_readers():
    runs: list[str] = []

    def counted(model, feeds):
        runs.extend(node.op_type for node in model.graph.node)
        return run_here(model, feeds)

    readers = " ".join(f"m{i} = ReduceMax<axes = [{i}], keepdims = 0>(square)" for i in range(2))
    used = "t = Transpose(w) p = MatMul(x, t) q = Add(x, m0) s = Mul(p, m1) y = Mul(s, variance)"
    body = f"{STATISTICS} {readers} {used}"
    model = parse(f"g (float[N, 512] x) => (float[N, 520] y, float[N, 512] q) {{ {body} }}", {"w": WEIGHT}, opset=17)
    result = clean(model, run=counted)
    assert set(initializers(result.model)) == {"t", "variance", "m0", "m1"}
    assert (runs.count("Sub"), runs.count("Mul")) == (1, 1)


def test_a_large_value_that_one_node_reads_stays_with_onnxruntime():
    given: list[str] = []

    def counted(model, feeds):
        given.extend(result.name for result in model.graph.output)
        return run_here(model, feeds)

    body = f"{STATISTICS} t = Transpose<perm = [1, 0]>(w) p = MatMul(x, t) y = Mul(p, variance)"
    result = clean(parse(f"g (float[N, 512] x) => (float[N, 520] y) {{ {body} }}", {"w": WEIGHT}, opset=17), run=counted)
    assert set(initializers(result.model)) == {"t", "variance"}
    assert not {"apart", "square"} & set(given)


def test_the_node_that_cannot_be_evaluated_is_told():
    def failing(model, feeds):
        if "Mul" in [node.op_type for node in model.graph.node]:
            raise RuntimeError("no kernel")
        return run_here(model, feeds)

    body = f"{STATISTICS} t = Transpose<perm = [1, 0]>(w) p = MatMul(x, t) y = Mul(p, variance)"
    result = clean(parse(f"g (float[N, 512] x) => (float[N, 520] y) {{ {body} }}", {"w": WEIGHT}, opset=17), run=failing)
    assert "Mul square: constant, but ONNX Runtime cannot evaluate it" in result.notes
    assert operators(result.model)[:3] == ["Sub", "Mul", "ReduceMean"]


def test_what_fails_is_tried_once_for_all_that_is_behind_it():
    rows: list[list[str]] = []

    def failing(model, feeds):
        rows.append([node.op_type for node in model.graph.node])
        if "Mul" in rows[-1]:
            raise RuntimeError("no kernel")
        return run_here(model, feeds)

    readers = " ".join(f"m{i} = ReduceMax<axes = [{i}], keepdims = 0>(square)" for i in range(2))
    body = f"{STATISTICS} {readers} t = Transpose(w) p = MatMul(x, t) q = Add(x, m0) s = Mul(p, m1) y = Mul(s, variance)"
    model = parse(f"g (float[N, 512] x) => (float[N, 520] y, float[N, 512] q) {{ {body} }}", {"w": WEIGHT}, opset=17)
    clean(model, run=failing)
    assert sum("Mul" in row for row in rows) == 2, "in a row, and by itself"


def test_what_only_the_row_reads_stays_with_onnxruntime():
    given: list[str] = []

    def counted(model, feeds):
        given.extend(result.name for result in model.graph.output)
        return run_here(model, feeds)

    body = """e = Exp(w) a = Neg(e) b = Sqrt(e) s = Add(a, b) m = ReduceMean<axes = [1], keepdims = 0>(s)
      t = Transpose<perm = [1, 0]>(w) p = MatMul(x, t) y = Mul(p, m)"""
    result = clean(parse(f"g (float[N, 512] x) => (float[N, 520] y) {{ {body} }}", {"w": WEIGHT}, opset=17), run=counted)
    assert "m" in initializers(result.model)
    assert not {"e", "a", "b", "s"} & set(given)
