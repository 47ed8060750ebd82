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
        " s = Sqrt(e) z = Div(c, s) k = Mul(z, gamma) y = Add(k, beta) q = Conv(z, reader) read = Add(y, q) }",
        {"eps": np.float32(1e-5), "reader": random(4, 4, 1, 1)},
    )
    result = rewrite(before, (rule.RULE,))
    assert operators(result.model) == [*NATIVE, "Mul", "Add", "Conv", "Add"]


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


def test_a_transposition_behind_it_goes(rewrite):
    """A block of ConvNeXt with the channels first."""
    before = ln2d(before="x = Conv(i, w)", after=BEHIND, read_by_conv=False, w=random(8, 8, 1, 1), mm=random(8, 8))
    result = rewrite(before, (rule.RULE,), {"i": (2, 8, 5, 6)})
    assert operators(result.model) == ["Conv", *NATIVE, "Transpose", "MatMul"]


@pytest.mark.parametrize(
    "before",
    ["x = Transpose <perm=[0, 3, 1, 2]> (i)", "t1 = Transpose <perm=[0, 2, 1]> (i) x = Reshape(t1, image)"],
    ids=["positions in an image", "positions in a row"],
)
def test_data_that_were_transposed_before(rewrite, before):
    """A vision transformer brings the channels to the front for a convolution."""
    sizes = (2, 5, 6, 8) if "image" not in before else (2, 30, 8)
    source = ln2d(before=before, shape=(2, 8, 5, 6), image=np.array([2, 8, 5, 6]))
    source.graph.input[0].CopyFrom(onnx.helper.make_tensor_value_info("i", onnx.TensorProto.FLOAT, sizes))
    result = rewrite(source, (rule.RULE,))
    assert result.rules == [NAME]
    assert worst_relative_error(source, result.model, {"i": sizes}) < 1e-6


def test_a_convolution_with_a_pad_of_its_own(rewrite):
    pads = np.array([0, 0, 1, 1, 0, 0, 1, 1])
    before = ln2d(after="q = Pad(y, pads) o = Conv(q, w)", read_by_conv=False, w=random(8, 8, 3, 3), pads=pads)
    result = rewrite(before, (rule.RULE,), PINS)
    assert operators(result.model) == [*NATIVE, "Pad", "Conv"]
    assert worst_relative_error(before, result.model, PINS) < 1e-6


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
    *(
        Refusal(rule.another_layout_is_wanted, ln2d(before=before, w=random(8, 8, 1, 1)), "no transposition makes the data")
        for before in (
            "x = Conv(i, w)",
            "x = Relu(i)",
            "c1 = Conv(i, w) x = Add(i, c1)",
            "t1 = Transpose <perm=[0, 3, 1, 2]> (i) c1 = Conv(i, w) x = Add(t1, c1)",
            # It leaves the channels where they are.
            "x = Transpose <perm=[0, 1, 3, 2]> (i)",
        )
    ),
    Refusal(rule.another_layout_is_wanted, ln2d(read_by_conv=False), "neither a transposition nor a convolution reads"),
    Refusal(rule.another_layout_is_wanted, ln2d(after="o = Relu(y)"), "neither a transposition nor a convolution reads"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


def test_an_inner_tensor_that_is_used_elsewhere(rewrite):
    body = f"{statements('Mul', (1,), 17)} {ROOTS['Sqrt, Div']} a = Mul(z, g) k = Add(a, b) q = Conv(k, w) y = Add(q, c)"
    result = rewrite(model(body, SHAPE, (1,), (8, 1, 1), w=random(8, 8, 1, 1)), (rule.RULE,))
    assert result.outcome.changes == []
    assert "c is also used by" in result.reason(NAME)


def test_a_residual_connection_keeps_the_data(rewrite):
    before = ln2d(after="q = Conv(y, w) o = Add(q, x)", read_by_conv=False, w=random(8, 8, 1, 1))
    result = rewrite(before, (rule.RULE,), PINS)
    assert operators(result.model) == [*NATIVE, "Conv", "Add"]
    assert worst_relative_error(before, result.model, PINS) < 1e-6


def test_who_asks_for_the_shape_of_an_inner_tensor_gets_that_of_the_data(rewrite):
    asks = (
        "q = Shape(z) k = Cast <to=1> (q) t = ReduceMax <axes=[0], keepdims=0> (k) r = Conv(z, w) u = Mul(r, t) o = Add(u, y)"
    )
    before = ln2d(after=asks, read_by_conv=False, w=random(8, 8, 1, 1))
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
