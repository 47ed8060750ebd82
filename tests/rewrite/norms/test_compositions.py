"""Normalizations in pieces are recognised in every spelling, and look-alikes are not taken for them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import parse, random
from tests.rewrite.norms.spellings import AFFINES, KERAS, ROOTS, VARIANCES, call, layer_norm, model, statements
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.onnx_model.surgery import open_model
from trtnorm_cli.rewrite.norms.composition import Composition, compositions


def found(model: onnx.ModelProto) -> list[Composition]:
    typed = onnx.shape_inference.infer_shapes(model, data_prop=True)
    return compositions(open_model(typed, None), declared_types(typed))


def the_one(model: onnx.ModelProto) -> Composition:
    (composition,) = found(model)
    return composition


@pytest.mark.parametrize("opset", [11, 13, 17, 18, 21])
@pytest.mark.parametrize("variance", VARIANCES)
@pytest.mark.parametrize("root", ROOTS)
def test_variance_and_root_in_every_spelling(variance, root, opset):
    composition = the_one(layer_norm(variance, root, opset=opset))
    assert (composition.kind, composition.axes, composition.misgiving) == ("LayerNorm", (2,), "")
    assert composition.epsilon == pytest.approx(0 if root == "no epsilon" else 1e-5)
    assert composition.data.name == "x"
    assert composition.output.name == "y"
    assert len(composition.nodes) == len(composition.core.nodes)


@pytest.mark.parametrize("bounded", [
    "k = Mul(mm, two) w = Sub(e2, k) v = Relu(w)", "k = Mul(e2, half) w = Sub(k, mm) v = Max(w, zero)",
    "w = Sub(e2, mm) v = Clip(w, zero, one)", "w = Sub(e2, mm) i = Cast<to=7>(w) v = Cast<to=1>(i)",
    "w = Sub(e2, mm) k = Pow(w, x) v = ReduceMean<axes=[2]>(k)",
    "w = Sub(mm, e2) v = Relu(w)", "u = Sub(e2, mm) w = Sub(u, eps) v = Clip(w, zero)",
])  # fmt: skip
def test_a_bound_that_changes_the_result_is_no_normalization(bounded):
    """None of these is a variance: they are negative of some data."""
    body = (f"m = {call('ReduceMean', 'x', (2,), 17)} s2 = Mul(x, x) e2 = {call('ReduceMean', 's2', (2,), 17)} mm = Mul(m, m) "
            f"{bounded} c = Sub(x, m) e = Add(v, eps) s = Sqrt(e) y = Div(c, s)")  # fmt: skip
    assert found(model(body, (2, 3, 8), (2,), (8,))) == []


FOREIGN = {
    **{f"variance: {one}": layer_norm(one, next(iter(ROOTS))) for one in VARIANCES},
    **{f"root: {one}": layer_norm(next(iter(VARIANCES)), one) for one in ROOTS},
    **{f"affine: {one}": layer_norm(affine=one) for one in AFFINES},
}


COUNT = "d = Shape(x) f = Gather(d, at) r = ReduceProd<keepdims=0>(f) k = Cast<to=1>(r)"
COUNTED = f"m = {{}} c = Sub(x, m) p = Mul(c, c) q = {{}} {COUNT} t = Mul(q, k) w = Cast<to=1>(k) v = Div(t, w)"
COUNTED = (
    COUNTED.format(*(call("ReduceMean", name, (2,), 17) for name in "xp")) + " " + ROOTS["Sqrt, Div"].replace("z =", "y =")
)
FOREIGN["a count of run time"] = model(COUNTED, ("N", 3, "L"), (2,), (8,), at=np.array([2]))


@pytest.mark.parametrize("source", FOREIGN.values(), ids=FOREIGN)
def test_an_operator_of_another_domain_is_part_of_none(source):
    """It may do what it wants, however it is called."""
    typed = onnx.shape_inference.infer_shapes(source)
    for index in range(len(source.graph.node)):
        model = onnx.ModelProto()
        model.CopyFrom(typed)
        model.graph.node[index].domain = "elsewhere"
        model.opset_import.add(domain="elsewhere", version=1)
        (output,) = model.graph.node[index].output
        normalizations = found(model)
        assert output not in {tensor.name for one in normalizations for node in one.nodes for tensor in node.outputs}
        assert ("x", "y") not in {(one.data.name, one.output.name) for one in normalizations}


@pytest.mark.parametrize("affine", AFFINES)
def test_scale_and_shift_in_every_spelling(affine):
    composition = the_one(layer_norm(affine=affine))
    assert composition.output.name == "y"
    scaled = [name for name, _ in composition.formula.scale]
    assert ("g" in scaled) == (affine not in ("none", "shift alone"))


@pytest.mark.parametrize("variance", VARIANCES)
def test_the_spelling_of_keras(variance):
    body = f"{statements(variance, (2,), 17)} {KERAS}"
    composition = the_one(model(body, (2, 3, 8), (2,), (8,)))
    assert (composition.kind, composition.output.name, composition.misgiving) == ("LayerNorm", "y", "")
    assert composition.formula.scale == (("g", 1.0),)
    assert composition.formula.shift_tensors == ("b",)


@pytest.mark.parametrize(
    ("shape", "axes", "parameters", "kind"),
    [
        (("N", "S", 8), (2,), (8,), "LayerNorm"),
        (("N", 3, 8), (1, 2), (3, 8), "LayerNorm"),
        (("N", 4, 5, 6), (1, 2, 3), (4, 5, 6), "LayerNorm"),
        (("N", 4, 5, 6), (1, 2, 3), (4, 1, 1), "GroupNorm"),
        (("N", 4, "H", "W"), (1,), (4, 1, 1), "LayerNorm"),
        (("N", 4, "L"), (1,), (4, 1), "LayerNorm"),
        (("N", 4, "H", "W"), (2, 3), (4, 1, 1), "InstanceNorm"),
        (("N", 4, "H", "W"), (2, 3), (1, 4, 1, 1), "InstanceNorm"),
        (("N", 4, "L"), (2,), (4, 1), "InstanceNorm"),
        (("N", 4, 3, 5, 6), (2, 3, 4), (4, 1, 1, 1), "InstanceNorm"),
        (("N", "H", "W", 4), (1, 2), (4,), "InstanceNorm"),
        (("N", 4, 5, 6), (0, 2, 3), (4, 1, 1), "batch statistics"),
        (("N", 8), (1,), (8,), "LayerNorm"),
    ],
)
def test_kinds_by_axes_and_parameters(shape, axes, parameters, kind):
    composition = the_one(layer_norm(shape=shape, axes=axes, parameter_shape=parameters))
    assert (composition.kind, composition.axes, composition.misgiving) == (kind, axes, "")


RMS = {
    "Pow": "p = Pow(x, two) v = {mean_p} e = Add(v, eps) s = Sqrt(e) z = Div(x, s) y = Mul(z, g)",
    "Mul, Reciprocal": "p = Mul(x, x) v = {mean_p} e = Add(v, eps) s = Sqrt(e) r = Reciprocal(s) z = Mul(x, r) y = Mul(g, z)",
    "ReduceL2": "l = {l2_x} l2 = Mul(l, l) v = Div(l2, n) e = Add(v, eps) s = Sqrt(e) z = Div(x, s) y = Mul(z, g)",
    "scale first": "p = Mul(x, x) v = {mean_p} e = Add(v, eps) s = Sqrt(e) k = Mul(x, g) y = Div(k, s)",
}


@pytest.mark.parametrize("spelling", RMS)
def test_rms_norm(spelling):
    body = RMS[spelling].format(mean_p=call("ReduceMean", "p", (2,), 17), l2_x=call("ReduceL2", "x", (2,), 17))
    composition = the_one(model(body, (2, 3, 8), (2,), (8,)))
    assert (composition.kind, composition.axes, composition.misgiving) == ("RMSNorm", (2,), "")
    assert composition.output.name == "y"


def test_a_float32_island_in_half_precision():
    composition = the_one(
        parse(
            "g (float16[N, 3, 8] x) => (float16[] y) { f = Cast <to=1> (x) p = Pow(f, two)"
            " v = ReduceMean <axes=[2]> (p) e = Add(v, eps) s = Sqrt(e) r = Reciprocal(s) z = Mul(f, r)"
            " h = Cast <to=10> (z) y = Mul(g, h) }",
            {"two": np.float32(2), "eps": np.float32(1e-6), "g": random(8, dtype=np.float16)},
        )
    )
    assert composition.kind == "RMSNorm"
    assert composition.data.name == "x"
    assert composition.output.name == "y"
    assert (composition.dtype, composition.computed_in) == (onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT)


LP = {
    "F.normalize": "l = {l2_x} c = Clip(l, eps) s = Shape(x) d = Expand(c, s) y = Div(x, d)",
    "Max": "l = {l2_x} c = Max(l, eps) y = Div(x, c)",
    "no floor": "l = {l2_x} y = Div(x, l)",
    "magnitudes": "a = Abs(x) q = {sum_a} y = Div(x, q)",
    "sum of squares": "p = Mul(x, x) q = {sum_p} l = Sqrt(q) y = Div(x, l)",
    "p = 1": "l = {l1_x} c = Clip(l, eps) y = Div(x, c)",
}


@pytest.mark.parametrize("spelling", LP)
def test_lp_normalize(spelling):
    calls = {"l2_x": ("ReduceL2", "x"), "l1_x": ("ReduceL1", "x"), "sum_p": ("ReduceSum", "p"), "sum_a": ("ReduceSum", "a")}
    body = LP[spelling].format(**{name: call(*arguments, (1,), 17) for name, arguments in calls.items()})
    composition = the_one(model(body, ("N", 8, "H"), (1,), (8,)))
    assert (composition.kind, composition.axes, composition.misgiving) == ("LpNorm", (1,), "")


def test_pooling_over_the_plane_is_a_mean():
    composition = the_one(
        model(
            "m = GlobalAveragePool(x) c = Sub(x, m) p = Mul(c, c) v = AveragePool <kernel_shape=[5, 6]> (p)"
            " e = Add(v, eps) s = Sqrt(e) z = Div(c, s) y = Mul(z, g)",
            ("N", 4, 5, 6),
            (2, 3),
            (4, 1, 1),
        )
    )
    assert (composition.kind, composition.axes) == ("InstanceNorm", (2, 3))


def test_statistics_without_their_axes_are_unsqueezed_first():
    composition = the_one(
        model(
            "m0 = ReduceMean <axes=[2], keepdims=0> (x) m = Unsqueeze(m0, last) c = Sub(x, m) p = Mul(c, c)"
            " v0 = ReduceMean <axes=[2], keepdims=0> (p) v = Unsqueeze(v0, last) e = Add(v, eps) s = Sqrt(e) y = Div(c, s)",
            (2, 3, 8),
            (2,),
            (8,),
            last=np.array([2]),
        )
    )
    assert composition.kind == "LayerNorm"


def test_statistics_without_their_axes_do_not_broadcast_along_them():
    """[8, 8, 8] less [8, 8]: the mean over the last axis is subtracted along the first."""
    body = "m = ReduceMean <axes=[2], keepdims=0> (x) c = Sub(x, m) p = Mul(c, c) v = ReduceMean <axes=[2]> (p)"
    composition = the_one(model(f"{body} e = Add(v, eps) s = Sqrt(e) y = Div(c, s)", (8, 8, 8), (2,), (8,)))
    assert composition.kind == "RMSNorm", "what is left divides by the root mean square of the difference"


GROUPED = {
    "InstanceNormalization": "r = Reshape(x, rows) z0 = InstanceNormalization(r, ones, zeros) z = Reshape(z0, back)",
    "reductions over rows": "r = Reshape(x, rows) m = ReduceMean <axes=[2]> (r) c = Sub(r, m) p = Mul(c, c)"
    " v = ReduceMean <axes=[2]> (p) e = Add(v, eps) s = Sqrt(e) z0 = Div(c, s) z = Reshape(z0, back)",
    "reductions over rank 5": "r = Reshape(x, five) m = ReduceMean <axes=[2, 3, 4]> (r) c = Sub(r, m) p = Mul(c, c)"
    " v = ReduceMean <axes=[2, 3, 4]> (p) e = Add(v, eps) s = Sqrt(e) z0 = Div(c, s) z = Reshape(z0, back)",
    "LayerNormalization": "r = Reshape(x, rows) z0 = LayerNormalization <axis=-1> (r, long) z = Reshape(z0, back)",
    "Shape": "r = Reshape(x, rows) z0 = InstanceNormalization(r, ones, zeros) t = Shape(x) z = Reshape(z0, t)",
    "batch in the rows": "r = Reshape(x, flat) z0 = LayerNormalization <axis=-1> (r, long) z = Reshape(z0, back)",
}


def grouped(
    spelling: str, groups: int = 2, affine: str = "a = Mul(z, g) y = Add(a, b)", shape: tuple[int | str, ...] = (2, 4, 5, 6)
) -> onnx.ModelProto:
    return model(
        f"{GROUPED[spelling]} {affine}",
        shape,
        (),
        (4, 1, 1),
        rows=np.array([0, groups, -1]),
        five=np.array([0, groups, 4 // groups, 5, 6]),
        flat=np.array([2 * groups, -1]),
        back=np.array([0 if shape[0] == "N" else 2, 4, 5, 6]),
        ones=np.ones(groups, np.float32),
        zeros=np.zeros(groups, np.float32),
        long=np.ones(120 // groups, np.float32),
    )


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("spelling", GROUPED)
def test_groups_are_reshaped_before_and_after(spelling, groups):
    composition = the_one(grouped(spelling, groups))
    # PyTorch's exporters write every GroupNorm around an InstanceNormalization without parameters of its own.
    instances = groups == 4 and spelling not in ("InstanceNormalization", "Shape")
    assert (composition.kind, composition.groups) == ("InstanceNorm" if instances else "GroupNorm", groups)
    assert (composition.data.name, composition.output.name, composition.misgiving) == ("x", "y", "")


@pytest.mark.parametrize("spelling", ["InstanceNormalization", "reductions over rows", "Shape"])
def test_groups_of_a_batch_known_at_run_time(spelling):
    composition = the_one(grouped(spelling, shape=("N", 4, 5, 6)))
    assert (composition.kind, composition.groups) == ("GroupNorm", 2)


def test_groups_of_sizes_gathered_one_by_one():
    one = "Constant <value = int64[1] {1}> ()"
    graph = (
        "g (float[N, 4, H, W] x) => (float[] y) { s = Shape(x) i0 = Constant <value = int64 {0}> () n = Gather(s, i0)"
        f" a0 = Constant <value = int64[1] {{0}}> () n1 = Unsqueeze(n, a0) two = Constant <value = int64[1] {{2}}> ()"
        f" minus = Constant <value = int64[1] {{-1}}> () one = {one} rows = Concat <axis=0> (n1, two, minus)"
        " r = Reshape(x, rows) z0 = InstanceNormalization(r, ones, zeros) st = Constant <value = int64[1] {1}> ()"
        " en = Constant <value = int64[1] {4}> () rest = Slice(s, st, en) back = Concat <axis=0> (n1, rest)"
        " z = Reshape(z0, back) a = Mul(z, g) y = Add(a, b) }"
    )
    weights = {"ones": np.ones(2, np.float32), "zeros": np.zeros(2, np.float32), "g": random(4, 1, 1), "b": random(4, 1, 1)}
    composition = the_one(parse(graph, weights))
    assert (composition.kind, composition.groups, composition.output.name) == ("GroupNorm", 2, "y")


def test_blocks_that_go_through_the_batch_are_no_groups():
    changed = grouped("Shape", shape=("N", 4, 5, 6))
    rows = next(t for t in changed.graph.initializer if t.name == "rows")
    rows.CopyFrom(onnx.numpy_helper.from_array(np.array([1, 2, -1]), "rows"))
    assert [c for c in found(changed) if c.view is not None] == []


@pytest.mark.parametrize(
    "body",
    [
        "t = Transpose<perm=[0, 2, 3, 1]>(x) u = LayerNormalization(t, g, b) y = Reshape(u, back)",
        "r = Reshape(x, rows) z = InstanceNormalization(r, ones, ones) y = Transpose<perm=[0, 2, 1]>(z)",
        "t = Transpose<perm=[0, 2, 3, 1]>(x) u = LayerNormalization(t, g, b) y = Transpose<perm=[0, 3, 2, 1]>(u)",
        "t = Transpose(x) u = LayerNormalization(t, two, two) y = Transpose(u)",
        "r = Reshape(x, rows) z = InstanceNormalization(r, ones, ones) y = Reshape(z, three)",
        "r = Reshape(x, rows) z = InstanceNormalization(r, ones, ones) y = Reshape(z, swapped)",
        "r = Reshape(x, rows) z = InstanceNormalization(r, ones, ones) y = Relu(z)",
        "t = Relu(x) z = InstanceNormalization(t, g, g) y = Reshape(z, rows)",
        "t = Flatten<axis=2>(x) z = LayerNormalization(t, long) y = Reshape(z, swapped)",
    ],
)
def test_data_that_does_not_come_back_into_its_shape_is_normalized_where_it_is(body):
    weights = {
        "back": np.array([2, 8, 5, 6]), "rows": np.array([0, 2, -1]), "three": np.array([2, 8, -1]), "ones": random(2),
        "swapped": np.array([2, 8, 6, 5]), "g": random(8), "b": random(8, seed=1), "two": random(2), "long": random(30),
    }  # fmt: skip
    used = {key: value for key, value in weights.items() if f", {key}" in body}
    assert [c for c in found(parse(f"g (float[2, 8, 5, 6] x) => (float[] y) {{ {body} }}", used)) if c.view is not None] == []


def test_another_shape_behind_is_no_group_norm():
    changed = grouped("InstanceNormalization")
    back = next(t for t in changed.graph.initializer if t.name == "back")
    back.CopyFrom(onnx.numpy_helper.from_array(np.array([2, 4, 6, 5]), "back"))
    assert [c for c in found(changed) if c.view is not None] == []


def test_a_layer_norm_between_transpositions():
    body = "t = Transpose <perm=[0, 2, 3, 1]> (x) u = LayerNormalization(t, g, b) y = Transpose <perm=[0, 3, 1, 2]> (u)"
    composition = the_one(model(body, ("N", 8, "H", "W"), (), (8,)))
    assert (composition.kind, composition.axes, composition.data.name) == ("LayerNorm", (1,), "x")


ADAPTIVE = {
    "scale and shift": "k = Mul(z, gamma) y = Add(k, beta)",
    "1 + scale": "w = Add(gamma, one) k = Mul(z, w) y = Add(k, beta)",
}


@pytest.mark.parametrize("spelling", ADAPTIVE)
def test_scale_and_shift_of_run_time(spelling):
    graph = (
        "g (float[N, 4, H, W] x, float[N, 4, 1, 1] gamma, float[N, 4, 1, 1] beta) => (float[] y)"
        " { m = ReduceMean <axes=[2, 3]> (x) c = Sub(x, m) p = Mul(c, c) v = ReduceMean <axes=[2, 3]> (p)"
        f" e = Add(v, eps) s = Sqrt(e) z = Div(c, s) {ADAPTIVE[spelling]} }}"
    )
    composition = the_one(parse(graph, {"eps": np.float32(1e-5), "one": np.float32(1)}))
    assert composition.kind == "InstanceNorm"
    assert composition.output.name == "z"
    assert set(composition.runtime) >= {"beta"}


def test_what_a_residual_connection_adds_is_no_shift():
    graph = (
        "g (float[N, 4, 8] x, float[N, 4, 8] h) => (float[] y) { m = ReduceMean <axes=[2]> (x) c = Sub(x, m) p = Mul(c, c)"
        " v = ReduceMean <axes=[2]> (p) e = Add(v, eps) s = Sqrt(e) z = Div(c, s) k = Mul(z, g) y = Add(k, h) }"
    )
    composition = the_one(parse(graph, {"eps": np.float32(1e-5), "g": random(8)}))
    assert (composition.output.name, composition.runtime) == ("k", ())


MISGIVINGS = {
    "epsilon outside": ("s = Sqrt(v) e = Add(s, eps) z = Div(c, e) y = Mul(z, g)", "added to the root, not under it"),
    "n − 1": ("w = Mul(v, n) u = Div(w, n_less_1) e = Add(u, eps) s = Sqrt(e) y = Div(c, s)", "divided by n − 1 = 7"),
    "half of it": ("u = Mul(v, half) e = Add(u, eps) s = Sqrt(e) y = Div(c, s)", "the variance is multiplied by 0.5"),
    "floor": ("e = Max(v, eps) s = Sqrt(e) y = Div(c, s)", "the divisor is at least 1e-05"),
}


@pytest.mark.parametrize("case", MISGIVINGS)
def test_look_alikes_have_a_reason(case):
    body, reason = MISGIVINGS[case]
    composition = the_one(model(f"{statements('Mul', (2,), 17)} {body}", (2, 3, 8), (2,), (8,)))
    assert reason in composition.misgiving


OTHERS = {
    "global response normalization": "l = ReduceL2 <axes=[1, 2]> (x) k = ReduceMean <axes=[3]> (l) e = Add(k, eps)"
    " n0 = Div(l, e) z = Mul(x, n0) a = Mul(z, g) y = Add(a, x)",
    "squeeze and excitation": "m = ReduceMean <axes=[1, 2]> (x) s = Sigmoid(m) y = Mul(x, s)",
    "centring": "m = ReduceMean <axes=[3]> (x) y = Sub(x, m)",
    "softmax": "k = ReduceMax <axes=[3]> (x) c = Sub(x, k) e = Exp(c) s = ReduceSum(e, last) y = Div(e, s)",
    "not centred": "m = ReduceMean <axes=[3]> (x) c = Sub(x, m) p = Mul(c, c) v = ReduceMean <axes=[3]> (p) s = Sqrt(v)"
    " y = Div(x, s)",
    "cubed": "m = ReduceMean <axes=[3]> (x) c = Sub(x, m) p = Pow(c, three) v = ReduceMean <axes=[3]> (p) s = Sqrt(v)"
    " y = Div(c, s)",
    "twice the mean": "m = ReduceMean <axes=[3]> (x) m2 = Mul(m, two) c = Sub(x, m) p = Mul(c, c)"
    " v = ReduceMean <axes=[3]> (p) s = Sqrt(v) d = Sub(x, m2) y = Div(d, s)",
    "other axes": "m = ReduceMean <axes=[2]> (x) c = Sub(x, m) p = Mul(c, x) v = ReduceMean <axes=[3]> (p) s = Sqrt(v)"
    " y = Div(c, s)",
    "magnitudes of what is centred": "m = ReduceMean <axes=[3]> (x) c = Sub(x, m) a = Abs(c) q = ReduceMean <axes=[3]> (a)"
    " y = Div(x, q)",
    "the sum of magnitudes of what is centred": "m = ReduceMean <axes=[3]> (x) c = Sub(x, m) q = ReduceL1 <axes=[3]> (c)"
    " y = Div(x, q)",
    "weighted": "w = Mul(x, g) m = ReduceMean <axes=[3]> (w) c = Sub(x, m) p = Mul(c, c) q = Mul(p, g)"
    " v = ReduceMean <axes=[3]> (q) s = Sqrt(v) y = Div(c, s)",
}


@pytest.mark.parametrize("case", OTHERS)
def test_others_are_not_mistaken(case):
    made = model(OTHERS[case], (2, 5, 6, 8), (3,), (8,), three=np.float32(3), last=np.array([3]))
    assert found(made) == []


def test_weight_standardisation_of_weights_of_run_time():
    graph = (
        "g (float[N, 4, H, W] a, float[6, 4, 3, 3] x) => (float[] y) { m = ReduceMean <axes=[1, 2, 3]> (x) c = Sub(x, m)"
        " p = Mul(c, c) v = ReduceMean <axes=[1, 2, 3]> (p) e = Add(v, eps) s = Sqrt(e) w = Div(c, s) y = Conv(a, w) }"
    )
    assert the_one(parse(graph, {"eps": np.float32(1e-5)})).kind == "weight standardisation"


def test_an_unknown_rank_is_left_alone():
    graph = (
        "g (float[N, 8] a, int64[K] k) => (float[] y) { x = Reshape(a, k) m = ReduceMean <axes=[-1]> (x) c = Sub(x, m)"
        " p = Mul(c, c) v = ReduceMean <axes=[-1]> (p) e = Add(v, eps) s = Sqrt(e) y = Div(c, s) }"
    )
    assert found(parse(graph, {"eps": np.float32(1e-5)})) == []


def test_two_normalizations_of_one_tensor():
    body = f"{statements('Mul', (2,), 17)} e = Add(v, eps) s = Sqrt(e) z = Div(c, s) q = Mul(z, g)"
    second = "p2 = Mul(x, x) v2 = ReduceMean <axes=[2]> (p2) e2 = Add(v2, eps) s2 = Sqrt(e2) z2 = Div(x, s2) y = Add(q, z2)"
    assert [composition.kind for composition in found(model(f"{body} {second}", (2, 3, 8), (2,), (8,)))] == [
        "LayerNorm",
        "RMSNorm",
    ]


@pytest.mark.parametrize(("less", "misgiving"), [("w = Sub(k, one)", "divided by n − 1, not by n"), ("w = Cast<to=1>(k)", "")])
@pytest.mark.parametrize("shape", [("N", 3, "L"), ("N", "C", 8)])
def test_how_many_values_there_are_is_worked_out_at_run_time(less, misgiving, shape):
    m, q = (call("ReduceMean", name, (2,), 17) for name in "xp")
    body = f"m = {m} c = Sub(x, m) p = Mul(c, c) q = {q} {COUNT} t = Mul(q, k) {less} v = Div(t, w) {ROOTS['Sqrt, Div']}"
    composition = the_one(model(body.replace("z =", "y ="), shape, (2,), (8,), at=np.array([2])))
    assert composition.kind == "LayerNorm"
    assert misgiving in composition.misgiving
    assert bool(misgiving) == bool(composition.misgiving)


def test_the_number_of_other_values_is_no_count():
    m, q = call("ReduceMean", "x", (2,), 11), call("ReduceSum", "p", (2,), 11)
    body = f"m = {m} c = Sub(x, m) p = Mul(c, c) q = {q} {COUNT} v = Div(q, k) {ROOTS['Sqrt, Div']}"
    assert found(model(body.replace("z =", "y ="), ("N", "C", "L"), (2,), (8,), opset=11, at=np.array([1]))) == []


@pytest.mark.parametrize("made", ["x = mine.Unknown(i)", "x = Reshape(i, to)"])
def test_data_of_which_nothing_is_known_are_left_alone(made):
    body = f"{statements('Mul', (2,), 17)} {ROOTS['Sqrt, Div']}".replace("z =", "y =")
    source = model(body, (2, 3, 8), (2,), (8,), before=made, to=np.array([2, 3, 8]))
    source.opset_import.add(domain="mine", version=1)
    if "to" in made:
        assert the_one(source).kind == "LayerNorm"
    else:
        assert found(source) == []


def test_an_axis_that_the_data_has_not_is_left_alone():
    assert found(parse("g (float[2, 3, 8] x, float[8] s) => (float[2, 3, 8] y) { y = LayerNormalization<axis=9>(x, s) }")) == []
