"""What looks nearly like a normalization: which terms, exponents and numbers make one, and which do not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import parse, random
from tests.rewrite.norms.test_compositions import COUNT, found

CENTRED = "m = ReduceMean <axes=[2]> (x) c = Sub(x, m) p = Mul(c, c) v = ReduceMean <axes=[2]> (p) e = Add(v, eps) s = Sqrt(e)"
PARTS = f"{CENTRED} r = Reciprocal(s) k = Mul(x, r) mr = Mul(m, r)"
SQUARES = "p = Mul(x, x) v = ReduceMean <axes=[2]> (p)"
NUMBERS = {
    "eps": 1e-5,
    "two": 2,
    "minus_two": -2,
    "minus_1": -1,
    "one": 1,
    "half": 0.5,
    "third": 0.3,
    "tenth": 0.1,
    "three": 3,
    "big": 1e4,
}


def of_y(body: str, x: str = "2, 3, 8", **further: np.ndarray) -> list[tuple[str, str]]:
    """Kind and misgiving of what makes y of x."""
    names = {word.strip("(),") for word in body.split()}
    weights = {name: np.float32(value) for name, value in NUMBERS.items() if name in names} | further
    norms = found(parse(f"g (float[{x}] x) => (float[] y) {{ {body} }}", weights))
    return [(one.kind, one.misgiving) for one in norms if (one.data.name, one.output.name) == ("x", "y")]


TAKEN = {
    "factored out": (f"{PARTS} y = Sub(k, mr)", "LayerNorm"),
    "with a shift": (f"{PARTS} h = Sub(g, mr) y = Add(k, h)", "LayerNorm"),
    "nearly the same factor of the mean": (
        f"{PARTS} k1 = Mul(k, third) m1 = Mul(mr, tenth) m3 = Mul(m1, three) y = Sub(k1, m3)",
        "LayerNorm",
    ),
    "a large factor, nearly the same": (
        f"{PARTS} k1 = Mul(k, third) m1 = Mul(mr, tenth) m3 = Mul(m1, three) d = Sub(k1, m3) y = Mul(d, big)",
        "LayerNorm",
    ),
    "negative": (f"{CENTRED} d = Sub(m, x) y = Div(d, s)", "LayerNorm"),
    "squares under a root": (f"{SQUARES} e = Add(v, eps) s = Sqrt(e) y = Div(x, s)", "RMSNorm"),
    "squares without an epsilon": (f"{SQUARES} s = Sqrt(v) y = Div(x, s)", "RMSNorm"),
}


@pytest.mark.parametrize(("body", "kind"), TAKEN.values(), ids=TAKEN)
def test_these_are_normalizations(body, kind):
    further = {
        name: value for name, value in (("g", random(8)), ("big", np.float32(1e4))) if f" {name}" in body.replace("(", " ")
    }
    assert of_y(body, **further) == [(kind, "")]


LEFT = {
    "the variance is added": f"{PARTS} h = Sub(v, mr) y = Add(k, h)",
    "the deviation is added": f"{PARTS} h = Sub(s, mr) y = Add(k, h)",
    "a bounded variance is added": f"{PARTS} w = Max(v, eps) h = Sub(w, mr) y = Add(k, h)",
    "the mean is added": f"{PARTS} y = Add(k, m)",
    "the mean is added as well": f"{PARTS} h = Sub(m, mr) y = Add(k, h)",
    "twice the mean is subtracted": f"{PARTS} m2 = Mul(mr, two) y = Sub(k, m2)",
    "the mean is not divided": f"{PARTS} y = Sub(k, m)",
    "two powers of the data": f"{PARTS} k2 = Mul(k, x) y = Sub(k2, mr)",
    "squared data": f"{PARTS} k2 = Mul(x, x) y = Mul(k2, r)",
    "data and their squares": f"{PARTS} d = Sub(k, mr) x2 = Mul(x, x) y = Add(d, x2)",
    "divided by the variance": f"{CENTRED} y = Div(c, e)",
    "divided twice": f"{CENTRED} d = Div(c, s) t = Add(v, two) u = Sqrt(t) f = Mul(r, u) y = Mul(c, f)".replace(
        "d = Div(c, s)", "r = Reciprocal(s)"
    ),
    "multiplied by the deviation": f"{CENTRED} y = Mul(c, s)",
    "data that are not centred": f"{CENTRED} y = Div(x, s)",
    "centred data and squares": f"{SQUARES} m = ReduceMean <axes=[2]> (x) c = Sub(x, m) s = Sqrt(v) y = Div(c, s)",
    "a negative mean of squares": f"{SQUARES} w = Mul(v, minus_1) e = Add(w, two) s = Sqrt(e) y = Div(x, s)",
    "squares and half the squared mean": f"{SQUARES} m = ReduceMean <axes=[2]> (x) mm = Mul(m, m) h = Mul(mm, half)"
    " w = Sub(v, h) c = Sub(x, m) e = Add(w, eps) s = Sqrt(e) y = Div(c, s)",
    "squares and the mean": f"{SQUARES} m = ReduceMean <axes=[2]> (x) w = Add(v, m) c = Sub(x, m) e = Add(w, eps) s = Sqrt(e)"
    " y = Div(c, s)",
    "the fourth root": f"{SQUARES} s = Sqrt(v) t = Sqrt(s) y = Div(x, t)",
    "the square of a magnitude": "l = ReduceL1 <axes=[2]> (x) q = Mul(l, l) y = Div(x, q)",
    "the root of a magnitude": "l = ReduceL1 <axes=[2]> (x) q = Sqrt(l) y = Div(x, q)",
    "a negative sum of roots": "l = ReduceL2 <axes=[2]> (x) q = Mul(l, minus_two) w = Max(q, eps) y = Div(x, w)",
    "a bounded mean": f"{CENTRED} w = Max(m, eps) y = Div(c, w)",
    "the root of a bounded mean": f"{CENTRED} w = Max(m, eps) t = Sqrt(w) y = Div(c, t)",
    "a bounded root of the mean": f"{CENTRED} w = Sqrt(m) t = Max(w, eps) y = Div(c, t)",
    "the root of a bounded variance, squared": f"{CENTRED} w = Max(v, eps) t = Mul(w, w) y = Div(c, t)",
    "a constant beside the root of a sum": f"{CENTRED} w = Add(v, m) t = Sqrt(w) u = Add(t, eps) y = Div(c, u)",
    "how many there are is in the scale": f"{CENTRED} {COUNT} d = Div(c, s) y = Mul(d, k)",
}


@pytest.mark.parametrize("case", LEFT)
def test_these_are_none(case):
    further = {"at": np.array([2])} if "at)" in LEFT[case] else {}
    assert [kind for kind, misgiving in of_y(LEFT[case], "N, 3, L" if further else "2, 3, 8", **further) if not misgiving] == []


BOUNDED = {
    "under the root": f"{CENTRED} w = Max(v, eps) t = Sqrt(w) y = Div(c, t)",
    "of the root": f"{CENTRED} q = Sqrt(v) w = Max(q, eps) y = Div(c, w)",
}


@pytest.mark.parametrize("case", BOUNDED)
def test_a_divisor_that_is_bounded_is_said(case):
    ((kind, misgiving),) = of_y(BOUNDED[case])
    assert kind == "LayerNorm"
    assert "at least" in misgiving
