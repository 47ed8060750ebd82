"""layer-norm-channels-first: LayerNorm2d as ConvNeXt writes it, transposed to where TensorRT compiles it best."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import loaded, operators, parse, random
from tests.oracle import worst_relative_error
from tests.rewrite.norms.spellings import AFFINES, KERAS, ROOTS, VARIANCES, layer_norm, model, statements
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from tests.rewritings import rewrite as rewrite_model
from tests.tensorrt.builds import kernels
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite.rules import layer_norm_channels_first as rule

NAME = rule.RULE.name
PINS = {"x": (2, 8, 5, 6)}
SHAPE = ("N", 8, "H", "W")
NATIVE = ["Transpose", "LayerNormalization", "Transpose"]
READ = "read = Conv(y, reader)"


def ln2d(variance="Mul", root="Sqrt, Div", affine="Mul, Add", **rest) -> onnx.ModelProto:
    rest = {"shape": SHAPE, "axes": (1,), "parameter_shape": (8, 1, 1), "read_by_conv": True, **rest}
    return layer_norm(variance, root, affine, **rest)


def pieces(made: onnx.ModelProto) -> list[str]:
    """The operators but the convolution that reads the result."""
    names = operators(made)
    assert names[-1] == "Conv"
    return names[:-1]


@pytest.mark.parametrize("opset", [17, 18, 21])
@pytest.mark.parametrize("variance", VARIANCES)
def test_every_variance(rewrite, variance, opset):
    before = ln2d(variance, opset=opset)
    result = rewrite(before, (rule.RULE,), PINS)
    assert result.rules == [NAME]
    assert pieces(result.model) == NATIVE
    assert worst_relative_error(before, result.model, PINS) < 1e-6


@pytest.mark.parametrize("root", ROOTS)
def test_every_root(rewrite, root):
    before = ln2d(root=root)
    result = rewrite(before, (rule.RULE,), PINS)
    assert result.rules == [NAME]
    assert (pieces(result.model) == NATIVE) == (root != "no epsilon")
    assert worst_relative_error(before, result.model, PINS) < 1e-6


@pytest.mark.parametrize("affine", AFFINES)
def test_scale_and_shift_become_parameters(rewrite, affine):
    before = ln2d(affine=affine)
    result = rewrite(before, (rule.RULE,), PINS)
    assert pieces(result.model) == NATIVE
    assert worst_relative_error(before, result.model, PINS) < 1e-6


@pytest.mark.parametrize("parameter_shape", [(8, 1, 1), (1, 8, 1, 1), (1,), ()])
def test_parameters_in_every_broadcast_shape(rewrite, parameter_shape):
    before = ln2d(parameter_shape=parameter_shape)
    result = rewrite(before, (rule.RULE,), PINS)
    assert pieces(result.model) == NATIVE
    assert worst_relative_error(before, result.model, PINS) < 1e-6


@pytest.mark.parametrize("opset", [11, 13, 16])
def test_before_there_was_the_operator(rewrite, opset):
    before = ln2d("Pow", opset=opset)
    result = rewrite(before, (rule.RULE,), PINS)
    wanted = ["Transpose", "ReduceMean", "Sub", "Mul", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add", "Transpose"]
    assert pieces(result.model) == wanted
    assert worst_relative_error(before, result.model, PINS) < 1e-12


def test_the_spelling_of_keras(rewrite):
    before = model(f"{statements('Mul', (1,), 17)} {KERAS}", SHAPE, (1,), (8, 1, 1), read_by_conv=True)
    result = rewrite(before, (rule.RULE,), PINS)
    assert pieces(result.model) == NATIVE
    assert worst_relative_error(before, result.model, PINS) < 1e-6


@pytest.mark.parametrize("shape", [("N", 8, "L"), ("N", 8, 3, "H", "W")])
def test_other_ranks(rewrite, shape):
    sizes = {"x": (2, 8, *([3, 5, 6] if len(shape) == 5 else [7]))}
    before = ln2d(shape=shape, parameter_shape=(8,) + (1,) * (len(shape) - 2))
    result = rewrite(before, (rule.RULE,), sizes)
    assert pieces(result.model) == NATIVE
    assert worst_relative_error(before, result.model, sizes) < 1e-6


def test_half_precision_and_its_float32_island(rewrite):
    plain = ln2d(dtype="float16")
    assert pieces(rewrite(plain, (rule.RULE,), PINS).model) == NATIVE
    island = parse(
        "g (float16[N, 8, H, W] h) => (float16[] read) { x = Cast <to=1> (h) m = ReduceMean <axes=[1]> (x) c = Sub(x, m)"
        " p = Mul(c, c) v = ReduceMean <axes=[1]> (p) e = Add(v, eps) s = Sqrt(e) z = Div(c, s) k = Cast <to=10> (z)"
        f" a = Mul(k, g) y = Add(a, b) {READ} }}",
        {
            "eps": np.float32(1e-5),
            "g": random(8, 1, 1, dtype=np.float16),
            "b": random(8, 1, 1, dtype=np.float16, seed=1),
            "reader": random(8, 8, 1, 1, dtype=np.float16),
        },
    )
    result = rewrite(island, (rule.RULE,), {"h": (2, 8, 5, 6)})
    assert pieces(result.model) == ["Cast", *NATIVE, "Cast"]


def test_the_adaptive_part_stays_behind(rewrite):
    before = parse(
        "g (float[N, 4, H, W] x, float[N, 4, 1, 1] gamma, float[N, 4, 1, 1] beta) => (float[] read)"
        " { m = ReduceMean <axes=[1]> (x) c = Sub(x, m) p = Mul(c, c) v = ReduceMean <axes=[1]> (p) e = Add(v, eps)"
        f" s = Sqrt(e) z = Div(c, s) k = Mul(z, gamma) y = Add(k, beta) {READ} }}",
        {"eps": np.float32(1e-5), "reader": random(4, 4, 1, 1)},
    )
    result = rewrite(before, (rule.RULE,))
    assert pieces(result.model) == [*NATIVE, "Mul", "Add"]


def test_already_transposed_is_left_alone(rewrite):
    body = "t = Transpose <perm=[0, 2, 3, 1]> (x) u = LayerNormalization(t, g, b) y = Transpose <perm=[0, 3, 1, 2]> (u)"
    result = rewrite(model(body, SHAPE, (), (8,), read_by_conv=True), (rule.RULE,))
    assert (result.outcome.changes, result.outcome.rejections) == ([], ())


def test_a_normalization_over_the_last_axis_is_left_alone(rewrite):
    """TensorRT compiles it to one kernel in every spelling."""
    assert rewrite(layer_norm(), (rule.RULE,)).outcome.rejections == ()


RUNTIME_KERAS = (
    "g (float[N, 4, H, W] x, float[N, 4, 1, 1] g, float[N, 4, 1, 1] b) => (float[] y)"
    f" {{ {statements('Mul', (1,), 17)} {KERAS} }}"
)
BETWEEN = {"before": "x = Relu(i)", "after": "o = Sigmoid(y)"}


def test_a_transposition_behind_it_goes(rewrite):
    """A block of ConvNeXt with the channels first."""
    before = ln2d(before="x = Conv(i, w)", after=BEHIND, read_by_conv=False, w=random(8, 8, 1, 1), mm=random(8, 8))
    result = rewrite(before, (rule.RULE,), {"i": (2, 8, 5, 6)})
    assert operators(result.model) == ["Conv", *NATIVE, "Transpose", "MatMul"]


BEHIND = "t2 = Transpose <perm=[0, 2, 3, 1]> (y) o = MatMul(t2, mm)"
REFUSALS = [
    Refusal(
        rule.is_the_formula,
        model(f"{statements('Mul', (1,), 17)} s = Sqrt(v) e = Add(s, eps) y = Div(c, e)", SHAPE, (1,), (8, 1, 1)),
        "epsilon (1e-05) is added to the root, not under it",
    ),
    Refusal(
        rule.is_the_formula,
        model(
            f"{statements('Mul', (1,), 17)} w = Mul(v, n) u = Div(w, n_less_1) e = Add(u, eps) s = Sqrt(e) y = Div(c, s)",
            SHAPE,
            (1,),
            (8, 1, 1),
        ),
        "divided by n − 1 = 7, not by n = 8",
    ),
    Refusal(rule.type_is_known, ln2d(dtype="double"), "x is of type double"),
    Refusal(
        rule.scale_and_shift_are_constants,
        parse(RUNTIME_KERAS, {"eps": np.float32(1e-5)}),
        "b, with which the result is scaled or shifted, is computed at run time",
    ),
    Refusal(
        rule.scale_and_shift_are_per_channel,
        ln2d(shape=("N", 8, 5, 6), parameter_shape=(5, 6)),
        "the scale has shape [5, 6]: it does not vary along the channels only",
    ),
    Refusal(
        rule.another_layout_is_wanted,
        ln2d(before="x = Conv(i, w)", w=random(8, 8, 1, 1)),
        "a convolution makes the data",
    ),
    Refusal(rule.another_layout_is_wanted, ln2d(**BETWEEN, read_by_conv=False), "only elementwise operators are around it"),
    Refusal(rule.another_layout_is_wanted, ln2d(before="x = Relu(i)"), "only elementwise operators are around it"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


def test_an_inner_tensor_that_is_used_elsewhere(rewrite):
    body = f"{statements('Mul', (1,), 17)} {ROOTS['Sqrt, Div']} a = Mul(z, g) k = Add(a, b) y = Add(k, c)"
    result = rewrite(model(body, SHAPE, (1,), (8, 1, 1), read_by_conv=True), (rule.RULE,))
    assert result.outcome.changes == []
    assert "c is also used by" in result.reason(NAME)


def test_a_residual_connection_keeps_the_data(rewrite):
    before = ln2d(after="o = Add(y, x)")
    result = rewrite(before, (rule.RULE,), PINS)
    assert pieces(result.model) == [*NATIVE, "Add"]
    assert worst_relative_error(before, result.model, PINS) < 1e-6


def test_who_asks_for_the_shape_of_an_inner_tensor_gets_that_of_the_data(rewrite):
    before = ln2d(after="q = Shape(z) w = Cast <to=1> (q) t = ReduceMax <axes=[0], keepdims=0> (w) o = Mul(y, t)")
    result = rewrite(before, (rule.RULE,), PINS)
    assert result.rules == [NAME]
    assert worst_relative_error(before, result.model, PINS) < 1e-6


def test_can_be_left_out(rewrite):
    result = rewrite(ln2d(), (rule.RULE,), settings=RewriteSettings(optimize="never"))
    assert result.outcome.changes == []


def test_a_second_pass_changes_nothing(rewrite):
    once = rewrite(ln2d(), pins=PINS)
    assert once.rules == [NAME]
    assert rewrite(once.model, pins=PINS).outcome.changes == []


@pytest.mark.rtx
@pytest.mark.parametrize("opset", [11, 17])
def test_kernels(tmp_path, opset):
    """LayerNorm2d and a strided convolution: ConvNeXt's way into a stage."""
    before = ln2d(
        "Pow",
        shape=(2, 64, 28, 28),
        parameter_shape=(64, 1, 1),
        opset=opset,
        after="o = Conv <strides=[2, 2]> (y, w2)",
        read_by_conv=False,
        w2=random(64, 64, 2, 2),
    )
    rewritten = rewrite_model(loaded(before, tmp_path)).model
    assert (kernels(before, tmp_path), kernels(rewritten, tmp_path)) == (7, 4)
