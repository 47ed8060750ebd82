"""Data that are reshaped or transposed before they are normalized, and back: into which blocks, and when not."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest

from tests.models import parse, random
from tests.rewrite.norms.test_compositions import found

INSTANCES = "InstanceNormalization(r, two, two)"
LAYER = "LayerNormalization<axis=-1>(r, long)"
WEIGHTS = {
    "two": random(2),
    "four": random(4),
    "long": random(60),
    "all": random(120),
    "eight": random(8),
    "six": random(6),
    "rows": np.array([0, 2, -1]),
    "any_rows": np.array([-1, 2, 60]),
    "flat": np.array([-1, 60]),
    "odd": np.array([3, 8]),
    "back": np.array([2, 4, 5, 6]),
    "any_back": np.array([-1, 4, 5, 6]),
    "merged": np.array([4, 6]),
    "at": np.array([2]),
    "five": np.array([0, 2, 2, 5, 6]),
    "middle": np.array([0, 60, 2]),
    "one_more": np.array([2, 4, 5, 6, 1]),
    "plane": np.array([0, 4, -1]),
    "uneven": np.array([-1, 8]),
    "through": np.array([1, 2, -1]),
}


def views(x: str, body: str, outputs: str = "y") -> list[tuple[int | None, tuple[int, ...], str]]:
    """Groups, axes, and the name of the result, of what is found in a view."""
    used = {name: value for name, value in WEIGHTS.items() if re.search(rf"\b{name}\b", body)}
    declared = ", ".join(f"float[] {name}" for name in outputs.split())
    made = found(parse(f"g (float[{x}] x) => ({declared}) {{ {body} }}", used))
    return [(one.groups, one.axes if one.groups is None else (), one.output.name) for one in made if one.view is not None]


FULL, OPEN = "2, 4, 5, 6", "N, 4, 5, 6"
BLOCKS = {
    "rows": (FULL, f"r = Reshape(x, rows) z = {INSTANCES} y = Reshape(z, back)", 2),
    "rows of an open batch": (OPEN, f"r = Reshape(x, rows) z = {INSTANCES} y = Reshape(z, any_back)", 2),
    "rows of a batch that follows": (OPEN, f"r = Reshape(x, any_rows) z = {INSTANCES} y = Reshape(z, any_back)", 2),
    "rows of an open plane": ("N, 4, H, W", f"r = Reshape(x, rows) z = {INSTANCES} s = Shape(x) y = Reshape(z, s)", 2),
    "the batch among the rows": (FULL, f"r = Reshape(x, flat) z = {LAYER} y = Reshape(z, back)", 2),
    "an open batch among the rows": (OPEN, f"r = Reshape(x, flat) z = {LAYER} y = Reshape(z, any_back)", 2),
    "flattened": (FULL, "r = Flatten(x) z = LayerNormalization<axis=-1>(r, all) y = Reshape(z, back)", 1),
    "flattened, of an open batch": (OPEN, "r = Flatten(x) z = LayerNormalization<axis=-1>(r, all) y = Reshape(z, any_back)", 1),
    "squeezed": (
        "2, 4, 1, 6",
        "r = Squeeze(x, at) z = InstanceNormalization(r, four, four) y = Unsqueeze(z, at)",
        4,
    ),
    "unsqueezed": ("2, 4, 6", "r = Unsqueeze(x, at) z = InstanceNormalization(r, four, four) y = Squeeze(z, at)", 4),
    "more axes": (FULL, f"r = Reshape(x, five) z = {INSTANCES} y = Reshape(z, back)", 2),
    "a plane of one axis": (OPEN, "r = Reshape(x, plane) z = InstanceNormalization(r, four, four) y = Reshape(z, any_back)", 4),
    "an Identity and a Cast between": (
        FULL,
        f"i = Reshape(x, rows) r = Identity(i) o = {INSTANCES} z = Cast<to=1>(o) y = Reshape(z, back)",
        2,
    ),
    "others read the rows": (FULL, f"r = Reshape(x, rows) z = {INSTANCES} y = Reshape(z, back) u = Relu(r)", 2),
    "others read the data": (FULL, f"r = Reshape(x, rows) z = {INSTANCES} y = Reshape(z, back) u = Relu(x)", 2),
}


@pytest.mark.parametrize(("x", "body", "groups"), BLOCKS.values(), ids=BLOCKS)
def test_the_blocks_of_a_sample(x, body, groups):
    assert views(x, body, "y u" if "u =" in body else "y") == [(groups, (), "y")]


TURNED = {
    "channels last": (
        "N, 8, H, W",
        "t = Transpose<perm=[0, 2, 3, 1]>(x) z = LayerNormalization<axis=-1>(t, eight) y = Transpose<perm=[0, 3, 1, 2]>(z)",
        (1,),
    ),
    "tokens": (
        "N, 8, L",
        "t = Transpose<perm=[0, 2, 1]>(x) z = LayerNormalization(t, eight) y = Transpose<perm=[0, 2, 1]>(z)",
        (1,),
    ),
    "all but the first": (
        "2, 8, 5",
        "t = Transpose<perm=[0, 2, 1]>(x) z = LayerNormalization<axis=1>(t, eight) y = Transpose<perm=[0, 2, 1]>(z)",
        (1, 2),
    ),
    "the second turned around": (
        "2, 8, 5, 6",
        "t = Transpose<perm=[0, 3, 1, 2]>(x) z = LayerNormalization<axis=2>(t)".replace("(t)", "(t, five8)")
        + " y = Transpose<perm=[0, 2, 3, 1]>(z)",
        (1, 2),
    ),
}
WEIGHTS["five8"] = random(8, 5)


@pytest.mark.parametrize(("x", "body", "axes"), TURNED.values(), ids=TURNED)
def test_the_axes_of_what_is_turned(x, body, axes):
    assert views(x, body) == [(None, axes, "y")]


NONE = {
    "the rows do not fit the samples": (
        "4, 6",
        "r = Reshape(x, odd) z = LayerNormalization<axis=-1>(r, eight) y = Reshape(z, merged)",
    ),
    "blocks that go through open samples": (
        "N, 4, 3",
        "r = Reshape(x, uneven) z = LayerNormalization<axis=-1>(r, eight) y = Reshape(z, any_back2)",
    ),
    "blocks that go through the batch": (OPEN, f"r = Reshape(x, through) z = {INSTANCES} s = Shape(x) y = Reshape(z, s)"),
    "axes in the middle": (
        FULL,
        "r = Reshape(x, middle) m = ReduceMean<axes=[1]>(r) c = Sub(r, m) p = Mul(c, c) v = ReduceMean<axes=[1]>(p)"
        " q = Sqrt(v) z = Div(c, q) y = Reshape(z, back)",
    ),
    "another rank behind": (FULL, f"r = Reshape(x, rows) z = {INSTANCES} y = Reshape(z, one_more)"),
    "two sizes that are not known to be the same": (
        "N, 4, H, 6",
        f"r = Reshape(x, rows) z = {INSTANCES} y = Reshape(z, any_back)",
    ),
    "the result is an output": (FULL, f"r = Reshape(x, rows) z = {INSTANCES} y = Reshape(z, back)", "y z"),
    "others read the result": (FULL, f"r = Reshape(x, rows) z = {INSTANCES} y = Reshape(z, back) u = Relu(z)", "y u"),
    "others read what is between": (
        FULL,
        f"i = Reshape(x, rows) r = Identity(i) z = {INSTANCES} y = Reshape(z, back) u = Relu(r)",
        "y u",
    ),
    "what is between is an output": (
        FULL,
        f"r = Reshape(x, rows) o = {INSTANCES} z = Identity(o) y = Reshape(z, back)",
        "y o",
    ),
    "nothing behind": (FULL, f"r = Reshape(x, rows) y = {INSTANCES}"),
    "something else behind": (FULL, f"r = Reshape(x, rows) o = {INSTANCES} z = Relu(o) y = Reshape(z, back)"),
    "something else before": (FULL, f"i = Reshape(x, rows) r = Relu(i) z = {INSTANCES} y = Reshape(z, back)"),
    "turned and reshaped back": (
        "2, 8, 6",
        "t = Transpose<perm=[0, 2, 1]>(x) z = LayerNormalization(t, eight) y = Reshape(z, swapped)",
    ),
    "reshaped and turned back": (
        "2, 8, 6",
        "t = Reshape(x, swapped2) z = LayerNormalization(t, eight) y = Transpose<perm=[0, 2, 1]>(z)",
    ),
    "turned otherwise": (
        "2, 6, 8, 6",
        "t = Transpose<perm=[0, 3, 1, 2]>(x) z = LayerNormalization(t, eight) y = Transpose<perm=[0, 1, 3, 2]>(z)",
    ),
}
WEIGHTS |= {"any_back2": np.array([-1, 4, 3]), "swapped": np.array([2, 8, 6]), "swapped2": np.array([2, 6, 8])}


NONE |= {
    "turned without saying how": (
        "2, 3, 4, 8",
        "r = Transpose(x) z = LayerNormalization<axis=-1>(r, two) y = Transpose<perm=[3, 2, 1, 0]>(z)",
    ),
    "turned back without saying how": (
        "2, 3, 4, 8",
        "r = Transpose<perm=[3, 2, 1, 0]>(x) z = LayerNormalization<axis=-1>(r, two) y = Transpose(z)",
    ),
}


@pytest.mark.parametrize("case", NONE.values(), ids=NONE)
def test_it_is_no_view(case):
    assert views(*case) == []


def test_data_of_unknown_rank_have_no_blocks():
    body = f"u = Reshape(x, k) r = Reshape(u, stated) z = {INSTANCES} y = Reshape(z, back)"
    weights = {"stated": np.array([2, 2, 60]), "two": WEIGHTS["two"], "back": WEIGHTS["back"]}
    assert [one for one in found(parse(f"g (float[240] x, int64[K] k) => (float[] y) {{ {body} }}", weights)) if one.view] == []


def test_what_is_between_belongs_to_the_normalization():
    _, body, _ = BLOCKS["an Identity and a Cast between"]
    (one,) = found(parse(f"g (float[{FULL}] x) => (float[] y) {{ {body} }}", {n: WEIGHTS[n] for n in ("rows", "two", "back")}))
    assert one.spelled == "Reshape Identity InstanceNormalization Cast Reshape"


@pytest.mark.parametrize("operator", ["Reshape", "Identity", "Cast"])
def test_an_operator_of_another_domain_makes_no_view(operator):
    body = f"i = Reshape(x, rows) r = Identity(i) o = {INSTANCES} z = Cast<to=1>(o) y = Reshape(z, back)"
    source = parse(f"g (float[2, 4, 5, 6] x) => (float[] y) {{ {body} }}", {n: WEIGHTS[n] for n in ("rows", "two", "back")})
    source = onnx.shape_inference.infer_shapes(source)
    source.opset_import.add(domain="elsewhere", version=1)
    for number in [number for number, node in enumerate(source.graph.node) if node.op_type == operator]:
        changed = onnx.ModelProto()
        changed.CopyFrom(source)
        changed.graph.node[number].domain = "elsewhere"
        assert [one for one in found(changed) if one.view is not None] == []


TURN, BACK = "r = Transpose<perm=[0, 2, 3, 1]>(x)", "y = Transpose<perm=[0, 3, 1, 2]>(z)"
NATIVE = {
    "LayerNormalization": ("z = LayerNormalization<axis=-1>(r, g, b)", "LayerNorm", (1,), 1e-5, ("g",)),
    "LayerNormalization of its own epsilon": (
        "z = LayerNormalization<axis=3, epsilon=0.25>(r, g)",
        "LayerNorm",
        (1,),
        0.25,
        ("g",),
    ),
    "LayerNormalization of two axes": ("z = LayerNormalization<axis=2>(r, long)", "LayerNorm", (1, 3), 1e-5, ("long",)),
    "RMSNormalization": ("z = RMSNormalization(r, g)", "RMSNorm", (1,), 1e-5, ("g",)),
    "InstanceNormalization": ("z = InstanceNormalization(r, w, w)", None, (1, 3), 1e-5, ("w",)),
    "MeanVarianceNormalization": ("z = MeanVarianceNormalization(r)", None, (0, 1, 3), 0.0, ()),
    "MeanVarianceNormalization of its own axes": ("z = MeanVarianceNormalization<axes=[-1]>(r)", None, (1,), 0.0, ()),
}


@pytest.mark.parametrize(("middle", "kind", "axes", "epsilon", "scale"), NATIVE.values(), ids=NATIVE)
def test_a_node_that_normalizes_says_how(middle, kind, axes, epsilon, scale):
    weights = {"g": random(8), "b": random(8), "long": random(6, 8), "w": random(5)}
    used = {name: value for name, value in weights.items() if re.search(rf"\b{name}\b", middle.partition("(")[2])}
    (one,) = found(parse(f"g (float[2, 8, 5, 6] x) => (float[] y) {{ {TURN} {middle} {BACK} }}", used, opset=23, ir=11))
    assert (one.axes, one.output.name, kind in (None, one.kind)) == (axes, "y", True)
    assert one.epsilon == pytest.approx(epsilon)
    assert one.formula.scale == tuple((name, 1.0) for name in scale)
    assert (one.formula.centred, one.formula.spread) == ((False, "square") if kind == "RMSNorm" else (True, "variance"))
    assert (one.formula.factor, one.formula.weight) == (1.0, 1.0)
    assert (one.formula.outside > 0) == middle.startswith("z = Mean")
