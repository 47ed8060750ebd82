"""Large regions are proved at short shapes, and every planted defect shows there, too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.models import batchnorm, parse, random
from trtnorm_cli.rewrite.parts import batchnorm as batchnorm_parts
from trtnorm_cli.rewrite.pattern import Const, Var, op
from trtnorm_cli.rewrite.proof import check as check_module
from trtnorm_cli.rewrite.proof.short_shapes import Short
from trtnorm_cli.rewrite.rule import NewConstant, NewNode, Rule
from trtnorm_cli.rewrite.rules import fold_batchnorm_conv, fold_batchnorm_conv_transpose, fold_batchnorm_gemm

FOLD = replace(fold_batchnorm_conv.RULE, optional=None)
FOLD_TRANSPOSED = replace(fold_batchnorm_conv_transpose.RULE, optional=None)
FOLD_GEMM = replace(fold_batchnorm_gemm.RULE, optional=None)


def conv_bn(attributes: str = "pads=[1, 1, 1, 1]", weight=(24, 16, 3, 3), x: str = "8, 16, 62, 64", operator: str = "Conv"):
    group = 2 if "group=2" in attributes else 1
    maps = weight[1] * group if operator == "ConvTranspose" else weight[0]
    graph = (
        f"g (float[{x}] x) => (float[] y) {{ c = {operator} <{attributes}> (x, w, b)"
        " y = BatchNormalization(c, gamma, beta, mu, var) }"
    )
    return parse(graph, {"w": random(*weight), "b": random(maps), **batchnorm(maps)})


def spoilt(weight=lambda w: w, bias=lambda b: b, rule=FOLD, **attributes) -> Rule:
    """The rule with its folded weight and bias spoilt, or with further attributes."""

    def replacement(m) -> NewNode:
        made = rule.replacement(m)
        x, w, b = made.inputs
        w, b = replace(w, value=np.ascontiguousarray(weight(w.value))), replace(b, value=bias(b.value))
        return replace(made, inputs=(x, w, b), attrs={**made.attrs, **attributes})

    return replace(rule, replacement=replacement)


def times(index, factor: float):
    def apply(values):
        changed = values.copy()
        changed[index] *= np.float32(factor)
        return changed

    return apply


SOUND = {
    "padded": (conv_bn(), FOLD),
    "strided": (conv_bn("strides=[2, 2], pads=[1, 1, 1, 1]"), FOLD),
    "dilated": (conv_bn("dilations=[3, 2], pads=[3, 2, 3, 2]"), FOLD),
    "in groups": (conv_bn("group=2, pads=[1, 1, 1, 1]", (24, 8, 3, 3)), FOLD),
    "patches": (conv_bn("strides=[4, 4]", (24, 16, 4, 4)), FOLD),
    "padded by itself": (conv_bn('auto_pad="SAME_UPPER", strides=[2, 2]'), FOLD),
    "volumes": (conv_bn("pads=[1, 1, 1, 1, 1, 1]", (24, 16, 3, 3, 3), "2, 16, 17, 18, 19"), FOLD),
    "transposed": (conv_bn("strides=[2, 2], pads=[1, 1, 1, 1]", (16, 24, 4, 4), operator="ConvTranspose"), FOLD_TRANSPOSED),
    "transposed, in groups": (
        conv_bn("group=2, strides=[2, 2], output_padding=[1, 1]", (16, 12, 3, 3), operator="ConvTranspose"),
        FOLD_TRANSPOSED,
    ),
    "rows": (
        parse(
            "g (float[4096, 64] x) => (float[] y) { c = Gemm(x, w, b) y = BatchNormalization(c, gamma, beta, mu, var) }",
            {"w": random(64, 48), "b": random(48), **batchnorm(48)},
        ),
        FOLD_GEMM,
    ),
}


@pytest.mark.parametrize(("model", "rule"), SOUND.values(), ids=SOUND)
def test_what_is_right_passes_at_short_shapes(rewrite, model, rule):
    (change,) = rewrite(model, rules=(rule,)).outcome.changes
    (shape,) = change.check.shapes.values()
    stated = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    assert len(shape) == len(stated)
    assert int(np.prod(shape)) * 20 < int(np.prod(stated))
    assert shape[1] == stated[1]
    assert change.check.evaluated_with == "ONNX Runtime and float64"


PADDED, STRIDED, DILATED, IN_GROUPS = (SOUND[name][0] for name in ("padded", "strided", "dilated", "in groups"))
DEFECTS = {
    "one channel of the weight": (PADDED, spoilt(weight=times(17, 1.001))),
    "one channel of the bias": (PADDED, spoilt(bias=times(23, 1.001))),
    "one weight at a corner of the kernel": (PADDED, spoilt(weight=times((5, 11, 2, 2), 1.001))),
    "one weight at the other corner": (STRIDED, spoilt(weight=times((5, 11, 0, 0), 1.001))),
    "one weight of a kernel with holes": (DILATED, spoilt(weight=times((0, 3, 2, 0), 1.001))),
    "one weight of a volume": (SOUND["volumes"][0], spoilt(weight=times((3, 5, 2, 2, 2), 1.001))),
    "one weight of a patch": (SOUND["patches"][0], spoilt(weight=times((3, 5, 3, 3), 1.001))),
    "kernel turned": (PADDED, spoilt(weight=lambda w: w.swapaxes(2, 3))),
    "channels swapped": (PADDED, spoilt(weight=lambda w: w[:, ::-1])),
    "the border at the other side": (PADDED, spoilt(pads=[2, 1, 0, 1])),
    "the border of a stride at the other side": (STRIDED, spoilt(pads=[2, 2, 0, 0])),
    "no border": (PADDED, spoilt(pads=[0, 0, 0, 0])),
    "dilated, at the same size": (PADDED, spoilt(dilations=[2, 2], pads=[2, 2, 2, 2])),
    "dilations swapped": (DILATED, spoilt(dilations=[2, 3], pads=[2, 3, 2, 3])),
    "strides": (STRIDED, spoilt(strides=[1, 2])),
    "groups swapped": (IN_GROUPS, spoilt(weight=lambda w: np.roll(w, 12, axis=0))),
    "padding of its own at the other side": (SOUND["padded by itself"][0], spoilt(auto_pad="SAME_LOWER")),
    "transposed: one weight": (SOUND["transposed"][0], spoilt(weight=times((7, 5, 3, 3), 1.001), rule=FOLD_TRANSPOSED)),
    "transposed: border": (SOUND["transposed"][0], spoilt(rule=FOLD_TRANSPOSED, pads=[0, 2, 2, 0])),
    "transposed: groups": (
        SOUND["transposed, in groups"][0],
        spoilt(weight=lambda w: np.roll(w, 8, axis=0), rule=FOLD_TRANSPOSED),
    ),
    "one weight of rows": (SOUND["rows"][0], spoilt(weight=times((63, 47), 1.001), rule=FOLD_GEMM)),
}


@pytest.mark.parametrize(("model", "rule"), DEFECTS.values(), ids=DEFECTS)
def test_a_planted_defect_fails(rewrite, model, rule):
    result = rewrite(model, rules=(rule,))
    assert result.outcome.changes == []
    (failed,) = result.outcome.failed
    assert failed.check.reason


def test_a_shift_that_is_carried_over_a_padded_border_fails(rewrite):
    """Inside, Conv(s·x + t) is a convolution with a bias; where the border is zero, it is not."""
    pattern = op(
        "Conv", op("BatchNormalization", Var("x"), *batchnorm_parts.PARAMETERS, name="batchnorm"), Const("weight"), name="conv"
    )

    def folded(m) -> NewNode:
        scale, shift = batchnorm_parts.scale_and_shift(m)
        weight = m.value("weight").astype(np.float64)
        constants = weight * scale[:, None, None], np.einsum("oikl,i->o", weight, shift)
        made = (NewConstant(role, value.astype(np.float32)) for role, value in zip("wb", constants, strict=True))
        return NewNode("Conv", (m.tensor("x"), *made), dict(m.node("conv").attrs), name="conv")

    rule = Rule("fold-over-border", pattern, (), folded, "test")
    graph = (
        "g (float[8, 16, 62, 64] x) => (float[] y) {{ n = BatchNormalization(x, gamma, beta, mu, var) y = Conv <{}> (n, w) }}"
    )
    weights = {"w": random(24, 16, 3, 3), **batchnorm(16)}
    (change,) = rewrite(parse(graph.format("strides=[1, 1]"), weights), rules=(rule,)).outcome.changes
    assert change.check.shapes["x"][2:] < [62, 64]
    for border in ("pads=[1, 0, 0, 0]", "pads=[0, 1, 0, 0]", "pads=[0, 0, 1, 0]", "pads=[0, 0, 0, 1]"):
        assert len(rewrite(parse(graph.format(border), weights), rules=(rule,)).outcome.failed) == 1, border


def test_axes_that_are_reduced_keep_their_length(rewrite):
    """A mean over a plane as a sum times 1/n is right for n places only."""
    mean = op("ReduceMean", Var("x"), name="mean")

    def summed(m, places: int) -> NewNode:
        summed = NewNode("ReduceSum", (m.tensor("x"), NewConstant("axes", np.array([2, 3]))), {"keepdims": 1}, role="sum")
        return NewNode("Mul", (summed, NewConstant("share", np.array(1 / places, np.float32))), role="mean")

    model = parse("g (float[64, 16, 20, 25] x) => (float[] y) { y = ReduceMean <axes=[2, 3], keepdims=1> (x) }")
    (change,) = rewrite(model, rules=(Rule("mean", mean, (), lambda m: summed(m, 500), "test"),)).outcome.changes
    shape = change.check.shapes["x"]
    assert shape[2:] == [20, 25]
    assert shape[0] * shape[1] < 64
    assert len(rewrite(model, rules=(Rule("mean", mean, (), lambda m: summed(m, 501), "test"),)).outcome.failed) == 1


def test_what_fails_at_short_shapes_is_proved_at_those_of_the_file(rewrite, monkeypatch):
    """Nobody knows every operator: the file's shapes have the last word."""
    monkeypatch.setattr(check_module, "short_shapes", lambda before, after, real: Short(((1, 16, 2, 2),), {}, {}))
    (change,) = rewrite(conv_bn("strides=[1, 1]"), rules=(FOLD,)).outcome.changes
    assert change.check.shapes == {"x": [8, 16, 62, 64]}


def swapped(heads: tuple[int, ...] = (), order: tuple[int, ...] = (0, 2, 1, 3)) -> Rule:
    """Scales the queries of an attention before its heads are taken apart, into ``heads`` where others are stated."""
    moved = op("Transpose", op("Reshape", Var("x"), Const("shape"), name="reshape"), name="transpose")

    def before(m) -> NewNode:
        shape = NewConstant("shape", np.array(heads)) if heads else m.tensor("shape")
        scaled = NewNode("Mul", (m.tensor("x"), m.tensor("scale")), role="m")
        return NewNode("Transpose", (NewNode("Reshape", (scaled, shape), role="r"),), {"perm": list(order)}, role="t")

    return Rule("swap", op("Mul", moved, Const("scale"), name="mul"), (), before, "test")


HEADS = "g (float[2, 577, 384] x) => (float[] y) {{ r = Reshape(x, s) t = Transpose<perm=[0, 2, 1, 3]>(r) y = Mul(t, f) }}"


@pytest.mark.parametrize("shape", [[2, 577, 6, 64], [0, 577, 6, -1], [2, -1, 6, 64], [0, 0, 6, 64]], ids=str)
def test_heads_are_taken_apart_at_short_shapes(rewrite, shape):
    """Positions go on as they are, whether a constant states how many there are or not; heads keep their length."""
    model = parse(HEADS.format(), {"s": np.array(shape), "f": np.array(0.125, np.float32)})
    result = rewrite(model, rules=(swapped(),))
    (change,) = result.outcome.changes
    assert change.check.shapes["x"][1] < 100
    assert change.check.shapes["x"][2] == 384
    # Another number of heads and another order are still found.
    assert len(rewrite(model, rules=(swapped((2, 577, 64, 6)),)).outcome.failed) == 1
    assert len(rewrite(model, rules=(swapped((2, 577, 12, 32)),)).outcome.failed) == 1
    assert len(rewrite(model, rules=(swapped(order=(0, 1, 2, 3)),)).outcome.failed) == 1


@pytest.mark.parametrize(
    ("given", "split", "order", "joined", "instead", "other_order"),
    [
        ([64, 196, 768], [64, 196, 12, 64], [0, 1, 3, 2], [64, 196, 768], [64, 196, 96, 2, 4], [0, 1, 3, 4, 2]),
        ([1, 4096, 768], [1, 4096, 12, 64], [0, 1, 3, 2], [1, 4096, 768], [1, 4096, 32, 2, 12], [0, 1, 3, 4, 2]),
        ([64, 196, 768], [64, 196, 8, 96], [0, 1, 3, 2], [64, 196, 768], [64, 196, 64, 3, 4], [0, 1, 3, 4, 2]),
        ([64, 196, 768], [64, 196, 12, 64], [0, 1, 3, 2], [64, 196, 768], [64, 196, 64, 12], [0, 1, 3, 2]),
    ],
    ids=str,
)
def test_elements_that_are_grouped_otherwise_are_not_the_same_at_short_shapes(
    rewrite, given, split, order, joined, instead, other_order
):
    """12 x 64 channels that are turned are 96 x 2 x 4 in another order where 64 has become 8, and nowhere else."""
    first = op("Reshape", Var("x"), Const("split"), name="first")
    turned = op("Transpose", first, name="turned")
    last = op("Reshape", turned, Const("joined"), name="last")

    def other(m) -> NewNode:
        scaled = NewNode("Mul", (m.tensor("x"), m.tensor("scale")), role="m")
        parts = NewNode("Reshape", (scaled, NewConstant("parts", np.array(instead))), role="p")
        moved = NewNode("Transpose", (parts,), {"perm": other_order}, role="t")
        return NewNode("Reshape", (moved, m.tensor("joined")), role="j")

    text = f"""g (float{given} x) => (float[] y) {{
        r = Reshape(x, split) t = Transpose<perm={order}>(r) j = Reshape(t, joined) y = Mul(j, f)
    }}"""
    model = parse(text, {"split": np.array(split), "joined": np.array(joined), "f": np.array(0.125, np.float32)})
    rule = Rule("wrong", op("Mul", last, Const("scale"), name="mul"), (), other, "test")
    assert len(rewrite(model, rules=(rule,)).outcome.failed) == 1


def test_windows_are_taken_apart_at_short_shapes(rewrite):
    """An image in windows, and their positions in a row: as in front of an attention, whose scale goes to its product."""
    parts = op("Reshape", op("MatMul", Var("x"), Const("weight"), name="product"), Const("rows"), name="first")
    heads = op("Reshape", op("Transpose", parts, name="order"), Const("joined"), name="last")

    def folded(factor: float):
        def before(m) -> NewNode:
            weight = m.value("weight") * m.value("scale")
            weight[7, 40] *= np.float32(factor)
            product = NewNode("MatMul", (m.tensor("x"), NewConstant("w", weight)), role="p")
            first = NewNode("Reshape", (product, m.tensor("rows")), role="r")
            order = NewNode("Transpose", (first,), {"perm": [0, 2, 1, 3]}, role="t")
            return NewNode("Reshape", (order, m.tensor("joined")), role="j")

        return Rule("fold", op("Mul", heads, Const("scale"), name="mul"), (), before, "test")

    graph = """g (float[25, 14, 14, 48] x) => (float[] y) {
        p = MatMul(x, w) r = Reshape(p, rows) t = Transpose<perm=[0, 2, 1, 3]>(r) j = Reshape(t, joined) y = Mul(j, f)
    }"""
    shapes = {"rows": np.array([25, 196, 3, 16]), "joined": np.array([75, 196, 16])}
    model = parse(graph, {"w": random(48, 48), **shapes, "f": np.array(0.125, np.float32)})
    (change,) = rewrite(model, rules=(folded(1.0),)).outcome.changes
    batch, height, width, channels = change.check.shapes["x"]
    assert batch * height * width < 25 * 14 * 14 / 4
    assert (batch < 25, channels) == (True, 48)
    assert len(rewrite(model, rules=(folded(1.001),)).outcome.failed) == 1


@pytest.mark.parametrize("place", [(0, 0), (63, 95), (31, 64)], ids=str)
def test_one_weight_of_a_product_before_heads_is_found_at_short_shapes(rewrite, place):
    """The scale of an attention, taken by the product that makes the queries."""
    heads = op("Reshape", op("MatMul", Var("x"), Const("weight"), name="product"), Const("shape"), name="reshape")

    def folded(m, factor: float) -> NewNode:
        weight = m.value("weight") * m.value("scale")
        weight[place] *= np.float32(factor)
        product = NewNode("MatMul", (m.tensor("x"), NewConstant("w", weight)), role="p")
        return NewNode("Reshape", (product, m.tensor("shape")), role="r")

    def rule(factor: float) -> Rule:
        return Rule("fold", op("Mul", heads, Const("scale"), name="mul"), (), lambda m: folded(m, factor), "test")

    graph = "g (float[2, 577, 64] x) => (float[] y) { p = MatMul(x, w) r = Reshape(p, s) y = Mul(r, f) }"
    weights = {"w": random(64, 96), "s": np.array([2, 577, 3, 4, 8]), "f": np.array(0.125, np.float32)}
    (change,) = rewrite(parse(graph, weights), rules=(rule(1.0),)).outcome.changes
    assert change.check.shapes["x"][1] < 100
    assert len(rewrite(parse(graph, weights), rules=(rule(1.001),)).outcome.failed) == 1


def test_a_reshape_that_regroups_axes_keeps_their_lengths(rewrite):
    pattern = op("Neg", op("Reshape", Var("x"), Const("shape"), name="reshape"), name="neg")
    rule = Rule("swap", pattern, (), lambda m: NewNode(
        "Reshape", (NewNode("Neg", (m.tensor("x"),), role="n"), m.tensor("shape")), role="r"), "test")  # fmt: skip
    model = parse("g (float[64, 64, 64] x) => (float[] y) { r = Reshape(x, s) y = Neg(r) }", {"s": np.array([64, -1, 32])})
    (change,) = rewrite(model, rules=(rule,)).outcome.changes
    assert change.check.shapes["x"][0] < 64
    assert change.check.shapes["x"][1:] == [64, 64]


def test_equal_regions_share_their_sessions(rewrite, runner, monkeypatch):
    """Twenty Conv and BatchNormalization, each with weights of its own: one session for the originals, one for what comes."""
    evaluated = []
    real = check_module.evaluate_float64
    monkeypatch.setattr(check_module, "evaluate_float64", lambda model, feeds: evaluated.append(1) or real(model, feeds))
    nodes, weights, last = [], {}, "x"
    for number in range(20):
        weights |= {f"{name}{number}": value for name, value in {"w": random(8, 8, 3, 3), **batchnorm(8, seed=number)}.items()}
        nodes.append(f'c{number} = Conv <pads=[1, 1, 1, 1], auto_pad="NOTSET"> ({last}, w{number})')
        parameters = ", ".join(f"{name}{number}" for name in ("gamma", "beta", "mu", "var"))
        nodes.append(f"n{number} = BatchNormalization(c{number}, {parameters})")
        last = f"n{number}"
    model = parse(f"g (float[2, 8, 50, 60] x) => (float[] {last}) {{ {' '.join(nodes)} }}", weights)
    before = runner.sessions
    result = rewrite(model, rules=(FOLD,))
    assert len(result.outcome.changes) == 20
    assert runner.sessions - before <= 2
    assert len(evaluated) == 40
