"""recompose-group-norm: group normalization in the pieces that TensorRT compiles best."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import loaded, operators, parse, random
from tests.oracle import worst_relative_error
from tests.rewrite.norms.spellings import layer_norm, model, statements
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from tests.rewritings import rewrite as rewrite_model
from tests.tensorrt.builds import kernels
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite.rules import recompose_group_norm as rule

NAME = rule.RULE.name
PINS = {"x": (2, 4, 5, 6)}
ROWS = ["Reshape", "ReduceMean", "Sub", "Mul", "ReduceMean", "Add", "Sqrt", "Div", "Reshape", "Mul", "Add"]
NODE = ["Reshape", "InstanceNormalization", "Reshape", "Mul", "Add"]
AFFINE = "a = Mul(z, g) y = Add(a, b)"
INSTANCE = "r = Reshape(x, rows) z0 = InstanceNormalization(r, ones, zeros) z = Reshape(z0, back)"


def reduced(axes: tuple[int, ...], opset: int = 17, variance: str = "Mul") -> str:
    inner = statements(variance, axes, opset).replace("(x", "(r").replace("x)", "r)")
    return f"{inner} e = Add(v, eps) s = Sqrt(e) z0 = Div(c, s) z = Reshape(z0, back)"


SPELLINGS = {
    "exporter": INSTANCE,
    "rows of rank 5": f"r = Reshape(x, five) {reduced((2, 3, 4))}",
    "squared by Pow": f"r = Reshape(x, five) {reduced((2, 3, 4), variance='Pow')}",
    "LayerNormalization of rank 4": "r = Reshape(x, four) z0 = LayerNormalization <axis=2> (r, long) z = Reshape(z0, back)",
}


def pieces(made: onnx.ModelProto) -> list[str]:
    """The operators but the convolution that reads the result."""
    names = operators(made)
    assert names[-1] == "Conv"
    return names[:-1]


def group_norm(
    spelling: str = "exporter", affine: str = AFFINE, shape=("N", 4, 5, 6), groups: int = 2, opset: int = 17, **rest
) -> onnx.ModelProto:
    plane = [size if isinstance(size, int) else 1 for size in shape[2:]]
    count = 4 // groups * int(np.prod(plane))
    kind = np.float16 if rest.get("dtype") == "float16" else np.float32
    known = {
        "rows": np.array([0, groups, -1]),
        "five": np.array([0, groups, 4 // groups, *plane]),
        "four": np.array([0, groups, 4 // groups, -1]),
        "flat": np.array([-1, count]),
        "back": np.array([0, *shape[1:]]) if all(isinstance(s, int) for s in shape[1:]) else np.array([0]),
        "ones": np.ones(groups, kind),
        "zeros": np.zeros(groups, kind),
        "long": np.ones((4 // groups, int(np.prod(plane))), kind),
    }
    body = SPELLINGS.get(spelling, spelling)
    rest = {"parameter_shape": (4,) + (1,) * (len(shape) - 2), "read_by_conv": True, **known, **rest}
    axes = (2, 3, 4) if "five" in body else ()
    return model(f"{body} {affine}", shape, axes, opset=opset, **rest)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_small_groups_become_rows(rewrite, spelling, groups):
    before = group_norm(spelling, groups=groups)
    result = rewrite(before, (rule.RULE,), PINS)
    assert result.rules == [NAME]
    assert pieces(result.model) == ROWS
    assert worst_relative_error(before, result.model, PINS) < 2e-6


@pytest.mark.parametrize("opset", [11, 18, 21])
def test_every_opset(rewrite, opset):
    spelling = f"r = Reshape(x, five) {reduced((2, 3, 4), opset)}"
    result = rewrite(group_norm(spelling, opset=opset), (rule.RULE,), PINS)
    assert pieces(result.model) == ROWS


def test_large_groups_become_instances(rewrite):
    shape = (1, 4, 128, 128)
    before = group_norm("rows of rank 5", shape=shape)
    result = rewrite(before, (rule.RULE,))
    assert pieces(result.model) == NODE
    assert worst_relative_error(before, result.model, {"x": shape}) < 2e-6


def test_sizes_known_at_run_time(tmp_path):
    """The shape is worked out size by size, and all of that goes."""
    body = (
        "s0 = Shape(x) i0 = Constant <value = int64[1] {0}> () i2 = Constant <value = int64[1] {2}> ()"
        " i3 = Constant <value = int64[1] {3}> () n0 = Gather(s0, i0) h0 = Gather(s0, i2) w0 = Gather(s0, i3)"
        " two_ = Constant <value = int64[1] {2}> () five = Concat <axis=0> (n0, two_, two_, h0, w0)"
        " back = Concat <axis=0> (n0, four_, h0, w0)"
    )
    spelling = f"{body} r = Reshape(x, five) {reduced((2, 3, 4))}"
    before = group_norm(spelling, shape=("N", 4, "H", "W"), four_=np.array([4]))
    kept = [t for t in before.graph.initializer if t.name not in ("five", "back")]
    del before.graph.initializer[:]
    before.graph.initializer.extend(kept)
    result = rewrite_model(loaded(before, tmp_path))
    assert [change.rule for change in result.changes] == [NAME]
    assert pieces(result.model) == [*ROWS[:8], "Shape", *ROWS[8:]]
    assert worst_relative_error(before, result.model, PINS) < 2e-6


@pytest.mark.parametrize("affine", [AFFINE, "a = Mul(g, z) y = Add(b, a)", "y = Mul(z, g)", "y = Relu(z)"])
def test_scale_and_shift(rewrite, affine):
    before = group_norm(affine=affine)
    result = rewrite(before, (rule.RULE,), PINS)
    assert result.rules == [NAME]
    assert worst_relative_error(before, result.model, PINS) < 2e-6


def test_one_group_by_reductions_with_a_scale_per_channel(rewrite):
    before = layer_norm(shape=("N", 4, 5, 6), axes=(1, 2, 3), parameter_shape=(4, 1, 1), read_by_conv=True)
    result = rewrite(before, (rule.RULE,), PINS)
    assert pieces(result.model) == ROWS
    assert worst_relative_error(before, result.model, PINS) < 2e-6


@pytest.mark.parametrize("shape", [("N", 4, 10), ("N", 4, 3, 2, 5)])
def test_other_ranks(rewrite, shape):
    sizes = {"x": (2, *shape[1:])}
    before = group_norm(shape=shape)
    result = rewrite(before, (rule.RULE,), sizes)
    assert pieces(result.model) == ROWS
    assert worst_relative_error(before, result.model, sizes) < 2e-6


def test_half_precision_is_computed_in_float32(rewrite):
    result = rewrite(group_norm(dtype="float16"), (rule.RULE,), PINS)
    assert pieces(result.model) == ["Reshape", "Cast", *ROWS[1:8], "Cast", *ROWS[8:]]


def test_large_groups_around_a_node_are_left_alone(rewrite):
    result = rewrite(group_norm(shape=(1, 4, 96, 96)), (rule.RULE,))
    assert result.outcome.changes == []
    assert "an InstanceNormalization is in its middle" in result.reason(NAME)


def test_groups_of_unknown_size_around_a_node_are_left_alone(rewrite):
    body = "r = Reshape(x, rows) z0 = InstanceNormalization(r, ones, zeros) t = Shape(x) z = Reshape(z0, t)"
    result = rewrite(group_norm(body, shape=("N", 4, "H", "W")), (rule.RULE,))
    assert result.outcome.changes == []
    assert "an InstanceNormalization is in its middle" in result.reason(NAME)


def test_rows_are_left_alone(rewrite):
    once = rewrite(group_norm(), (rule.RULE,), PINS)
    again = rewrite(once.model, (rule.RULE,), PINS)
    assert again.outcome.changes == []
    assert "it is written along rows" in again.reason(NAME)


REFUSALS = [
    Refusal(
        rule.is_the_formula,
        group_norm(
            "r = Reshape(x, rows) m = ReduceMean <axes=[2]> (r) c = Sub(r, m) p = Mul(c, c) v = ReduceMean <axes=[2]> (p)"
            " s = Sqrt(v) e = Add(s, eps) z0 = Div(c, e) z = Reshape(z0, back)"
        ),
        "added to the root, not under it",
    ),
    Refusal(rule.type_is_known, group_norm("rows of rank 5", dtype="double"), "x is of type double"),
    Refusal(
        rule.groups_are_whole,
        group_norm(rows=np.array([0, 3, -1]), ones=np.ones(3, np.float32), zeros=np.zeros(3, np.float32)),
        "4 channels of x are not known to divide into 3 groups",
    ),
    Refusal(
        rule.groups_have_no_parameters,
        group_norm(ones=np.array([1, 2], np.float32)),
        "ones, a parameter of InstanceNormalization -> z0, is not 1 everywhere",
    ),
    Refusal(
        rule.groups_have_no_parameters,
        group_norm(zeros=np.array([0, 2], np.float32)),
        "zeros, a parameter of InstanceNormalization -> z0, is not 0 everywhere",
    ),
    Refusal(
        rule.groups_have_no_parameters,
        group_norm(
            "r = Reshape(x, rows) m = ReduceMean <axes=[2]> (r) c = Sub(r, m) p = Mul(c, c) v = ReduceMean <axes=[2]> (p)"
            " e = Add(v, eps) s = Sqrt(e) z1 = Div(c, s) z0 = Mul(z1, gg) z = Reshape(z0, back)",
            gg=random(2, 1),
        ),
        "the scale of the groups has shape [2, 1]",
    ),
    Refusal(
        rule.is_the_formula,
        group_norm("r = Reshape(x, rows) z0 = MeanVarianceNormalization <axes=[2]> (r) z = Reshape(z0, back)"),
        "epsilon (1e-09) is added to the root",
    ),
    Refusal(rule.a_convolution_is_near, group_norm("rows of rank 5", read_by_conv=False), "no convolution is next to it"),
    Refusal(
        rule.scale_and_shift_are_constants,
        parse(
            "g (float[N, 4, 5, 6] x, float[N, 4, 1, 1] g, float[N, 4, 1, 1] b) => (float[] y) {"
            f" {statements('Mul', (1, 2, 3), 17)} e = Add(v, eps) s = Sqrt(e) r = Reciprocal(s) f = Mul(r, g) k = Mul(x, f)"
            " l = Mul(m, f) h = Sub(b, l) y = Add(k, h) }",
            {"eps": np.float32(1e-5)},
        ),
        "is computed at run time",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


def test_an_inner_tensor_that_is_used_elsewhere(rewrite):
    result = rewrite(
        group_norm(affine="a = Mul(z, g) k = Add(a, b) t = ReduceSum <keepdims=0> (r) y = Add(k, t)"), (rule.RULE,)
    )
    assert result.outcome.changes == []
    assert "r is also used by" in result.reason(NAME)


def test_can_be_left_out(rewrite):
    result = rewrite(group_norm(), (rule.RULE,), settings=RewriteSettings(optimize="never"))
    assert result.outcome.changes == []


@pytest.mark.parametrize("shape", [("N", 4, 5, 6), (1, 4, 128, 128)])
def test_a_second_pass_changes_nothing(rewrite, shape):
    once = rewrite(group_norm("rows of rank 5", shape=shape))
    assert once.rules == [NAME]
    assert rewrite(once.model).outcome.changes == []


@pytest.mark.rtx
def test_kernels(tmp_path):
    """GroupNorm and SiLU between convolutions, as in a diffusion model."""
    before = model(
        f"{INSTANCE} {AFFINE}",
        (2, 64, 16, 16),
        (),
        (64, 1, 1),
        before="x = Conv <pads=[1, 1, 1, 1]> (i, w)",
        after="k = Sigmoid(y) l = Mul(k, y) o = Conv <pads=[1, 1, 1, 1]> (l, w)",
        rows=np.array([0, 32, -1]),
        back=np.array([0, 64, 16, 16]),
        ones=np.ones(32, np.float32),
        zeros=np.zeros(32, np.float32),
        w=random(64, 64, 3, 3),
    )
    rewritten = rewrite_model(loaded(before, tmp_path)).model
    assert (kernels(before, tmp_path), kernels(rewritten, tmp_path)) == (6, 5)


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_parameters_before_a_cast_keep_their_type(rewrite, kind):
    """Half-precision data between casts, scaled and shifted in float32: the type of the result would round the parameters."""
    model = parse(
        f"g ({kind}[2, 4, 5, 6] a) => ({kind}[2, 4, 5, 6] y) {{ x = Cast <to=1> (a) r = Reshape(x, flat)"
        " n = InstanceNormalization(r, one, zero) q = Reshape(n, whole) s = Mul(q, scale) t = Add(s, shift)"
        f" y = Cast <to={10 if kind == 'float16' else 16}> (t) }}",
        {
            "flat": np.array([0, 1, -1]), "whole": np.array([0, 4, 5, 6]), "one": np.ones(1, np.float32),
            "zero": np.zeros(1, np.float32), "scale": random(4, 1, 1), "shift": random(4, 1, 1, seed=1),
        },
        opset=21,
    )  # fmt: skip
    result = rewrite(model)
    assert result.rules == ["recompose-group-norm"]
    assert operators(result.model)[-3:] == ["Mul", "Add", "Cast"]
