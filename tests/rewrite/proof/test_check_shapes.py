"""The shapes at which changes are proved, where ONNX infers less than the file says."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import parse
from trtnorm_cli.rewrite.proof import check_shapes
from trtnorm_cli.rewrite.proof.check_shapes import check_types, completed, size_of


@pytest.mark.parametrize(("stated", "size"), [
    ("s0", 7), (5, 5), (None, None), ("2*s0", 14), ("((s0//2))*((s1//2))", 12), ("s0 + s1 - 1", 15), ("s1 % 3", 0),
    ("s2", None), ("s0//0", None), ("max(s0, s1)", 9), ("s0 ** 99", None), ("unk 0", None), ("-s0", None), ("2.5*s0", None),
])  # fmt: skip
def test_sizes_are_arithmetic_of_symbols(stated, size):
    assert size_of(stated, {"s0": 7, "s1": 9}) == size


def test_what_inference_leaves_open_is_taken_from_the_file():
    model = parse(
        "g (float[N, 4, H, W] x, int64[3] s) => (float[N, 4, P] y) <float[N, 4, L] r> { r = Reshape(x, s) y = Relu(r) }"
    )
    model.graph.output[0].type.tensor_type.shape.dim[2].dim_param = "H*W"
    types = check_types(model, {"x": (2, 4, 3, 5), "s": (3,)})
    assert types["y"].shape == (2, 4, 15)
    assert types["r"].shape is not None
    assert not isinstance(types["r"].shape[2], int)


def test_types_that_inference_leaves_open_are_worked_out_when_they_are_asked_for(monkeypatch):
    """As in MobileBERT: heads split by sizes that are sliced from a shape."""
    model = parse(
        "g (float[N, S, 8] x) => (float[A, B, C] y) { s = Shape(x) k = Slice(s, zero, one) q = Squeeze(k)"
        "a = Reshape(q, minus) b = Slice(s, one, two)"
        "c = Concat<axis = 0>(a, b, heads) h = Reshape(x, c) t = Transpose<perm = [0, 2, 1, 3]>(h)"
        "u = Shape(t) v = Slice(u, two, three) d = Concat<axis = 0>(minus, v, four) y = Reshape(t, d) }",
        {
            **{name: np.array([value]) for name, value in (("zero", 0), ("one", 1), ("two", 2), ("three", 3))},
            **{"heads": np.array([2, 4]), "minus": np.array([-1]), "four": np.array([4])},
        },
    )
    open_ones = check_types(model, {"x": (1, 3, 8)})
    assert not open_ones["y"].is_static
    calls = []
    monkeypatch.setattr(check_shapes, "completed", lambda *given: calls.append(1) or completed(*given))
    types = check_shapes.CompletedTypes(model, open_ones)
    assert types["x"].shape == (1, 3, 8)
    assert types.get("nothing") is None
    assert not calls
    assert (types["y"].shape, types["h"].shape) == ((2, 3, 4), (1, 3, 2, 4))
    assert calls == [1]
    assert set(types) >= {"x", "y", "h"}


def test_types_of_which_inference_says_nothing_are_worked_out_too():
    model = parse("g (float[2, 3] x) => (float[A, B] y) { a = Relu(x) y = Exp(a) }")
    known = {name: kind for name, kind in check_types(model, None).items() if name == "x"}
    assert check_shapes.CompletedTypes(model, known)["a"].shape == (2, 3)


def test_types_that_stay_open_are_worked_out_once(monkeypatch):
    model = parse("g (float[N, 4] x, int64[2] s) => (float[A, B] y) { y = Reshape(x, s) }")
    calls = []
    monkeypatch.setattr(check_shapes, "completed", lambda *given: calls.append(1) or completed(*given))
    types = check_shapes.CompletedTypes(model, check_types(model, {"x": (6, 4), "s": (2,)}))
    assert [types["y"].is_static, types["y"].is_static] == [False, False]
    assert calls == [1]
