"""Spellings of normalizations as ONNX text: statements that make ``y`` from ``x``."""

from __future__ import annotations

import math

import numpy as np
import onnx

from tests.models import parse, random

EPSILON = 1e-5


def reduction(op: str, axes: tuple[int, ...], opset: int, keepdims: int = 1) -> str:
    """The name of a reduction with its attributes; from opset 18 (13 for sums) on the axes are the input ``axes``."""
    if opset >= 18 or (op == "ReduceSum" and opset >= 13):
        return f"{op} <keepdims={keepdims}>"
    return f"{op} <axes=[{', '.join(map(str, axes))}], keepdims={keepdims}>"


def call(op: str, data: str, axes: tuple[int, ...], opset: int, keepdims: int = 1) -> str:
    second = ", axes" if opset >= 18 or (op == "ReduceSum" and opset >= 13) else ""
    return f"{reduction(op, axes, opset, keepdims)} ({data}{second})"


# Statements that make v, the variance, from x, m its mean and c the difference. ``{M:t}`` is the mean of t over the axes.
VARIANCES = {
    "Pow": "m = {mean_x} c = Sub(x, m) p = Pow(c, two) v = {mean_p}",
    "Mul": "m = {mean_x} c = Sub(x, m) p = Mul(c, c) v = {mean_p}",
    "negative mean": "m = {mean_x} mm = Neg(m) c = Add(mm, x) p = Mul(c, c) v = {mean_p}",
    "mean less data": "m = {mean_x} d = Sub(m, x) p = Mul(d, d) v = {mean_p} c = Neg(d)",
    "E[x²] − μ²": "m = {mean_x} s2 = Mul(x, x) e2 = {mean_s2} mm = Mul(m, m) v = Sub(e2, mm) c = Sub(x, m)",
    "at least 0": "m = {mean_x} s2 = Mul(x, x) e2 = {mean_s2} mm = Mul(m, m) w = Sub(e2, mm) v = Max(zero, w) c = Sub(x, m)",
    "Clip": "m = {mean_x} s2 = Mul(x, x) e2 = {mean_s2} mm = Mul(m, m) w = Sub(e2, mm) v = Clip(w, zero) c = Sub(x, m)",
    "Clip to a range": "m = {mean_x} s2 = Mul(x, x) e2 = {mean_s2} mm = Mul(m, m) w = Sub(e2, mm) v = Clip(w, zero, most)"
    " c = Sub(x, m)",
    "Relu": "m = {mean_x} s2 = Mul(x, x) e2 = {mean_s2} mm = Mul(m, m) w = Sub(e2, mm) v = Relu(w) c = Sub(x, m)",
    "sums": "s1 = {sum_x} m = Div(s1, n) c = Sub(x, m) p = Mul(c, c) s2 = {sum_p} v = Mul(s2, one_nth)",
    "ReduceSumSquare": "m = {mean_x} c = Sub(x, m) s2 = {square_c} v = Div(s2, n)",
    "ReduceL2": "m = {mean_x} c = Sub(x, m) l = {l2_c} l2 = Mul(l, l) v = Div(l2, n)",
}
# Statements that make z, the normalized data, from c and v.
ROOTS = {
    "Sqrt, Div": "e = Add(v, eps) s = Sqrt(e) z = Div(c, s)",
    "epsilon first": "e = Add(eps, v) s = Sqrt(e) z = Div(c, s)",
    "epsilon [1]": "e = Add(v, eps1) s = Sqrt(e) z = Div(c, s)",
    "Reciprocal(Sqrt)": "e = Add(v, eps) s = Sqrt(e) r = Reciprocal(s) z = Mul(c, r)",
    "Sqrt(Reciprocal)": "e = Add(v, eps) s = Reciprocal(e) r = Sqrt(s) z = Mul(r, c)",
    "1 ÷ Sqrt": "e = Add(v, eps) s = Sqrt(e) r = Div(one, s) z = Mul(c, r)",
    "Sum": "e = Sum(v, eps) s = Sqrt(e) z = Div(c, s)",
    "Pow 0.5": "e = Add(v, eps) s = Pow(e, half) z = Div(c, s)",
    "Pow -0.5": "e = Add(v, eps) r = Pow(e, minus_half) z = Mul(c, r)",
    "Sub of negative": "e = Sub(v, minus_eps) s = Sqrt(e) z = Div(c, s)",
    "no epsilon": "s = Sqrt(v) z = Div(c, s)",
}
# Statements that make y from z with g and b.
AFFINES = {
    "Mul, Add": "a = Mul(z, g) y = Add(a, b)",
    "operands swapped": "a = Mul(g, z) y = Add(b, a)",
    "Sub of negative": "a = Mul(z, g) y = Sub(a, minus_b)",
    "scale alone": "y = Mul(z, g)",
    "shift alone": "y = Add(z, b)",
    "none": "y = Identity(z)",
    "twice": "a = Mul(z, g) k = Add(a, b) k2 = Mul(k, two) y = Add(k2, b)",
}
# TensorFlow and Keras: x·(γ/√) + (β − μ·γ/√), from x, m, v.
KERAS = "e = Add(v, eps) s = Sqrt(e) r = Reciprocal(s) f = Mul(r, g) k = Mul(x, f) mf = Mul(m, f) h = Sub(b, mf) y = Add(k, h)"


def statements(variance: str, axes: tuple[int, ...], opset: int) -> str:
    """The statements of ``VARIANCES[variance]`` over ``axes``."""
    calls = {f"mean_{t}": call("ReduceMean", t, axes, opset) for t in ("x", "p", "s2")}
    calls |= {f"sum_{t}": call("ReduceSum", t, axes, opset) for t in ("x", "p")}
    calls |= {"square_c": call("ReduceSumSquare", "c", axes, opset), "l2_c": call("ReduceL2", "c", axes, opset)}
    return VARIANCES[variance].format(**calls)


def model(
    body: str,
    shape: tuple[int | str, ...],
    axes: tuple[int, ...],
    parameter_shape: tuple[int, ...],
    opset: int = 17,
    dtype: str = "float",
    before: str = "",
    after: str = "",
    read_by_conv: bool = False,
    **further: np.ndarray,
) -> onnx.ModelProto:
    """A model whose ``body`` makes y from x of ``shape``; ``before`` makes x from i, ``after`` makes o from y.

    With ``read_by_conv``, a convolution with a kernel of one element reads the result.
    """
    kind = {"float": np.float32, "float16": np.float16, "double": np.float64}[dtype]
    sizes = [shape[axis] for axis in axes if axis < len(shape)]
    count = math.prod(size for size in sizes if isinstance(size, int))
    numbers = {
        "zero": 0, "two": 2, "half": 0.5, "minus_half": -0.5, "one": 1, "eps": EPSILON, "minus_eps": -EPSILON, "n": count,
        "one_nth": 1 / count, "most": 1e30, "n_less_1": max(count - 1, 1),
        "one_n1th": 1 / max(count - 1, 1),
    }  # fmt: skip
    weights = {name: np.array(value, kind) for name, value in numbers.items()}
    scale, shift = random(*parameter_shape, dtype=kind, seed=1), random(*parameter_shape, dtype=kind, seed=2)
    weights |= {"eps1": np.array([EPSILON], kind), "g": scale, "b": shift, "minus_b": -shift, "axes": np.array(axes), **further}
    source, result = ("i" if before else "x"), ("o" if after else "y")
    if read_by_conv:
        channels = int(shape[1]) if isinstance(shape[1], int) else 4
        weights["reader"] = random(channels, channels, *[1] * (len(shape) - 2), dtype=kind, seed=3)
        after, result = f"{after} read = Conv({result}, reader)", "read"
    dims = ", ".join(map(str, shape))
    graph = f"g ({dtype}[{dims}] {source}) => ({dtype}[] {result}) {{ {before} {body} {after} }}"
    made = parse(graph, {}, opset=opset)
    used = {name for node in made.graph.node for name in node.input}
    return parse(graph, {name: value for name, value in weights.items() if name in used}, opset=opset)


def layer_norm(
    variance: str = "Mul",
    root: str = "Sqrt, Div",
    affine: str = "Mul, Add",
    shape: tuple[int | str, ...] = (2, 3, 8),
    axes: tuple[int, ...] = (2,),
    parameter_shape: tuple[int, ...] = (8,),
    opset: int = 17,
    **rest: object,
) -> onnx.ModelProto:
    """A normalization over ``axes``, centred, in the given spelling."""
    body = f"{statements(variance, axes, opset)} {ROOTS[root]} {AFFINES[affine]}"
    return model(body, shape, axes, parameter_shape, opset, **rest)  # type: ignore[arg-type]
