"""recompose-instance-norm: instance normalization by reductions, as one node or along rows."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, loaded, operators, parse, random
from tests.oracle import worst_relative_error
from tests.rewrite.norms.spellings import AFFINES, KERAS, ROOTS, VARIANCES, layer_norm, model, statements
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from tests.rewritings import rewrite as rewrite_model
from tests.tensorrt.builds import kernels
from trtnorm_cli.profile.rewriting import Implementations, RewriteSettings
from trtnorm_cli.rewrite.norms.blocks import LONGEST_ROW
from trtnorm_cli.rewrite.rules import recompose_instance_norm as rule

NAME = rule.RULE.name
DYNAMIC, SMALL, LARGE = ("N", 4, "H", "W"), ("N", 4, 5, 6), (1, 2, 128, 128)
PINS = {"x": (2, 4, 5, 6)}
ROWS = ["Reshape", "ReduceMean", "Sub", "Mul", "ReduceMean", "Add", "Sqrt", "Div", "Reshape", "Mul", "Add"]


def instance_norm(variance="Mul", root="Sqrt, Div", affine="Mul, Add", **rest) -> onnx.ModelProto:
    rest = {"shape": DYNAMIC, "axes": (2, 3), "parameter_shape": (4, 1, 1), "read_by_conv": True, **rest}
    return layer_norm(variance, root, affine, **rest)


def pieces(made: onnx.ModelProto) -> list[str]:
    """The operators but the convolution that reads the result."""
    names = operators(made)
    assert names[-1] == "Conv"
    return names[:-1]


@pytest.mark.parametrize("variance", [v for v in VARIANCES if v not in ("sums", "ReduceSumSquare", "ReduceL2")])
@pytest.mark.parametrize("opset", [11, 17, 18, 21])
def test_every_variance(rewrite, variance, opset):
    before = instance_norm(variance, opset=opset)
    result = rewrite(before, (rule.RULE,), PINS)
    assert result.rules == [NAME]
    assert pieces(result.model) == ["InstanceNormalization"]
    assert worst_relative_error(before, result.model, PINS) < 1e-6


@pytest.mark.parametrize("variance", VARIANCES)
def test_every_variance_along_rows(rewrite, variance):
    before = instance_norm(variance, shape=SMALL)
    result = rewrite(before, (rule.RULE,), PINS)
    assert pieces(result.model) == ROWS
    assert worst_relative_error(before, result.model, PINS) < 1e-6


@pytest.mark.parametrize("root", ROOTS)
def test_every_root(rewrite, root):
    before = instance_norm(root=root)
    result = rewrite(before, (rule.RULE,), PINS)
    assert pieces(result.model) == ["InstanceNormalization"]
    assert worst_relative_error(before, result.model, PINS) < 1e-6


@pytest.mark.parametrize("affine", AFFINES)
def test_scale_and_shift_become_parameters(rewrite, affine):
    before = instance_norm(affine=affine)
    result = rewrite(before, (rule.RULE,), PINS)
    assert pieces(result.model) == ["InstanceNormalization"]
    assert worst_relative_error(before, result.model, PINS) < 1e-6


def test_large_planes_of_known_size_are_left_to_the_node(rewrite):
    before = instance_norm(shape=LARGE, parameter_shape=(2, 1, 1))
    assert LARGE[2] * LARGE[3] > LONGEST_ROW
    assert pieces(rewrite(before, (rule.RULE,)).model) == ["InstanceNormalization"]


@pytest.mark.parametrize("shape", [("N", 4, "L"), ("N", 4, 3, "H", "W")])
def test_other_ranks(rewrite, shape):
    sizes = {"x": (2, 4, *([3, 5, 6] if len(shape) == 5 else [7]))}
    before = instance_norm(shape=shape, axes=tuple(range(2, len(shape))), parameter_shape=(4,) + (1,) * (len(shape) - 2))
    result = rewrite(before, (rule.RULE,), sizes)
    assert pieces(result.model) == ["InstanceNormalization"]
    assert worst_relative_error(before, result.model, sizes) < 1e-6


def test_the_spelling_of_keras(rewrite):
    before = model(f"{statements('Mul', (2, 3), 17)} {KERAS}", DYNAMIC, (2, 3), (4, 1, 1), read_by_conv=True)
    assert pieces(rewrite(before, (rule.RULE,), PINS).model) == ["InstanceNormalization"]


def test_pooling_instead_of_reductions(rewrite):
    body = "m = GlobalAveragePool(x) c = Sub(x, m) p = Mul(c, c) v = GlobalAveragePool(p) e = Add(v, eps) s = Sqrt(e)"
    before = model(f"{body} z = Div(c, s) a = Mul(z, g) y = Add(a, b)", DYNAMIC, (2, 3), (4, 1, 1), read_by_conv=True)
    result = rewrite(before, (rule.RULE,), PINS)
    assert pieces(result.model) == ["InstanceNormalization"]
    assert worst_relative_error(before, result.model, PINS) < 1e-6


def test_half_precision_along_rows_is_computed_in_float32(rewrite):
    result = rewrite(instance_norm(shape=SMALL, dtype="float16"), (rule.RULE,), PINS)
    assert pieces(result.model) == ["Reshape", "Cast", *ROWS[1:8], "Cast", *ROWS[8:]]


def test_between_transpositions(rewrite):
    inner = statements("Mul", (1, 2), 17).replace("(x", "(t").replace("x)", "t)")
    body = f"t = Transpose <perm=[0, 2, 3, 1]> (x) {inner} e = Add(v, eps) s = Sqrt(e) z = Div(c, s) a = Mul(z, g)"
    before = model(f"{body} k = Add(a, b) y = Transpose <perm=[0, 3, 1, 2]> (k)", SMALL, (1, 2), (4,), read_by_conv=True)
    result = rewrite(before, (rule.RULE,), PINS)
    assert pieces(result.model) == ROWS
    assert worst_relative_error(before, result.model, PINS) < 1e-6


def test_the_adaptive_part_stays_behind(rewrite):
    """SPADE and adaptive instance normalization."""
    before = parse(
        "g (float[N, 4, H, W] x, float[N, 4, H, W] gamma, float[N, 4, 1, 1] beta) => (float[] read)"
        " { m = ReduceMean <axes=[2, 3]> (x) c = Sub(x, m) p = Mul(c, c) v = ReduceMean <axes=[2, 3]> (p) e = Add(v, eps)"
        " s = Sqrt(e) z = Div(c, s) w = Add(gamma, one) k = Mul(z, w) y = Add(k, beta) read = Conv(y, reader) }",
        {"eps": np.float32(1e-5), "one": np.float32(1), "reader": random(4, 4, 1, 1)},
    )
    assert pieces(rewrite(before, (rule.RULE,)).model) == ["InstanceNormalization", "Add", "Mul", "Add"]


def test_the_node_itself_is_left_alone(rewrite):
    before = model("y = InstanceNormalization(x, g, b)", DYNAMIC, (), (4,))
    assert rewrite(before, (rule.RULE,)).outcome.rejections == ()


RESHAPED = "r = Reshape(x, rows) u = InstanceNormalization(r, ones, zeros) z = Reshape(u, back) a = Mul(z, g) y = Add(a, b)"


def reshaped(body=RESHAPED, **changed) -> onnx.ModelProto:
    ones, zeros = np.ones(4, np.float32), np.zeros(4, np.float32)
    known = {"rows": np.array([0, 4, -1]), "back": np.array([0, 4, 5, 6]), "ones": ones, "zeros": zeros, **changed}
    return model(body, SMALL, (), (4, 1, 1), read_by_conv=True, **known)


def test_a_node_over_reshaped_planes(rewrite):
    before = reshaped(ones=random(4), zeros=random(4, seed=1))
    result = rewrite(before, (rule.RULE,), PINS)
    assert pieces(result.model) == ROWS
    assert worst_relative_error(before, result.model, PINS) < 1e-6


def test_a_node_over_transposed_planes(rewrite):
    body = "t = Transpose <perm=[0, 1, 3, 2]> (x) u = InstanceNormalization(t, ones, zeros)"
    before = reshaped(f"{body} y = Transpose <perm=[0, 1, 3, 2]> (u)", ones=random(4), zeros=random(4, seed=1))
    result = rewrite(before, (rule.RULE,), PINS)
    assert pieces(result.model) == ROWS
    assert worst_relative_error(before, result.model, PINS) < 1e-6


def test_rows_are_left_alone(rewrite):
    once = rewrite(instance_norm(shape=SMALL), (rule.RULE,), PINS)
    again = rewrite(once.model, (rule.RULE,), PINS)
    assert again.outcome.changes == []
    assert "it is written along rows" in again.reason(NAME)


def test_what_a_plugin_is_to_do_becomes_a_node(rewrite):
    settings = RewriteSettings(instance_norm=Implementations("plugin"))
    assert pieces(rewrite(instance_norm(shape=SMALL), (rule.RULE,), PINS, settings=settings).model) == ["InstanceNormalization"]


STATISTICS = statements("Mul", (2, 3), 17)
REFUSALS = [
    Refusal(
        rule.is_the_formula,
        model(f"{STATISTICS} s = Sqrt(v) e = Add(s, eps) y = Div(c, e)", DYNAMIC, (2, 3), (4, 1, 1), read_by_conv=True),
        "added to the root, not under it",
    ),
    Refusal(
        rule.is_the_formula,
        model(
            f"{STATISTICS} w = Mul(v, n) u = Div(w, n_less_1) s = Sqrt(u) y = Div(c, s)",
            SMALL,
            (2, 3),
            (4, 1, 1),
            read_by_conv=True,
        ),
        "divided by n − 1 = 29",
    ),
    Refusal(rule.type_is_known, instance_norm(dtype="double"), "x is of type double"),
    Refusal(
        rule.channels_come_first, instance_norm(shape=("N", "H", "W", 4), axes=(1, 2), parameter_shape=(4,)), "not on axis 1"
    ),
    Refusal(
        rule.channels_come_first, instance_norm(shape=("N", "C", "H", "W"), parameter_shape=(1,)), "x [N, C, H, W] are not on"
    ),
    Refusal(rule.planes_have_several_values, instance_norm(shape=("N", 4, 1, 1)), "a plane of x is one value"),
    Refusal(rule.a_convolution_is_near, instance_norm(read_by_conv=False), "no convolution is next to it"),
    Refusal(rule.a_convolution_is_near, instance_norm(read_by_conv=False, after="o = Relu(y)"), "no convolution is next to it"),
    Refusal(
        rule.inner_parameters_are_along_channels,
        reshaped(
            "r = Reshape(x, four) u = LayerNormalization <axis=2> (r, long) y = Reshape(u, back)",
            four=np.array([0, 4, 30]),
            long=random(30),
        ),
        "long, a parameter of LayerNormalization -> u, is not 1 everywhere",
    ),
    Refusal(
        rule.scale_and_shift_are_constants,
        parse(
            f"g (float[N, 4, H, W] x, float[N, 4, 1, 1] g, float[N, 4, 1, 1] b) => (float[] y) {{ {STATISTICS} {KERAS} }}",
            {"eps": np.float32(1e-5)},
        ),
        "is computed at run time",
    ),
    Refusal(
        rule.scale_and_shift_are_per_channel,
        instance_norm(shape=("N", 4, 5, 6), parameter_shape=(5, 6)),
        "the scale has shape [5, 6]",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


def test_an_inner_tensor_that_is_used_elsewhere(rewrite):
    body = f"{STATISTICS} e = Add(v, eps) s = Sqrt(e) z = Div(c, s) y = Add(z, m)"
    result = rewrite(model(body, DYNAMIC, (2, 3), (4, 1, 1), read_by_conv=True), (rule.RULE,))
    assert result.outcome.changes == []
    assert "m is also used by" in result.reason(NAME)


def test_a_residual_connection_keeps_the_data(rewrite):
    before = instance_norm(after="o = Add(y, x)")
    assert pieces(rewrite(before, (rule.RULE,), PINS).model) == ["InstanceNormalization", "Add"]


def test_can_be_left_out(rewrite):
    result = rewrite(instance_norm(), (rule.RULE,), settings=RewriteSettings(optimize="never"))
    assert result.outcome.changes == []


@pytest.mark.parametrize("shape", [DYNAMIC, SMALL])
def test_a_second_pass_changes_nothing(rewrite, shape):
    once = rewrite(instance_norm(shape=shape), pins=PINS)
    assert once.rules[0] == NAME
    assert rewrite(once.model, pins=PINS).outcome.changes == []


@pytest.mark.rtx
@pytest.mark.parametrize(("size", "wanted"), [(28, (9, 5)), (256, (11, 9))])
def test_kernels(tmp_path, size, wanted):
    """Between convolutions; a plane of 28×28 is a row for one kernel, one of 256×256 is not."""
    before = instance_norm(
        shape=(2, 64, size, size),
        parameter_shape=(64, 1, 1),
        before="x = Conv <pads=[1, 1, 1, 1]> (i, w)",
        after="k = Relu(y) o = Conv <pads=[1, 1, 1, 1]> (k, w)",
        read_by_conv=False,
        w=random(64, 64, 3, 3),
    )
    rewritten = rewrite_model(loaded(before, tmp_path)).model
    assert (kernels(before, tmp_path), kernels(rewritten, tmp_path)) == wanted


# As torch.nn.functional.instance_norm was exported: samples and channels on one axis, and the batch's statistics.
FOLDED = (
    "g (float[2, 4, 5, 6] x) => (float[] z) {{ r = Reshape(x, one_sample) {norm} y = Reshape(n, samples)"
    " z = Conv <kernel_shape=[1, 1]> (y, w) }}"
)
BATCHNORM = "n, m, v = BatchNormalization <training_mode=1> (r, gamma, beta, mu, var)"
INSTANCENORM = "n = InstanceNormalization(r, gamma, beta)"
SIZES = {"one_sample": np.array([1, 8, 5, 6]), "samples": np.array([2, 4, 5, 6]), "w": random(3, 4, 1, 1)}


def folded(norm: str, per_sample: bool) -> onnx.ModelProto:
    """``per_sample`` gives each sample parameters of its own; otherwise they repeat those of the first."""
    values = {name: value if per_sample else np.tile(value[:4], 2) for name, value in batchnorm(8).items()}
    used = {name: value for name, value in values.items() if name in norm}
    return parse(FOLDED.format(norm=norm), {**SIZES, **used})


@pytest.mark.parametrize("norm", [BATCHNORM, INSTANCENORM])
@pytest.mark.parametrize("per_sample", [True, False])
def test_samples_that_were_folded_into_the_channels(tmp_path, norm, per_sample):
    """Parameters of each sample's own are no parameters of an InstanceNorm. In a batch of one, a BatchNormalization is one."""
    result = rewrite_model(loaded(folded(norm, per_sample), tmp_path))
    result.require_all_checks_passed()
    assert result.undone == ()
    assert worst_relative_error(folded(INSTANCENORM, per_sample), result.model) < 1e-6
    reasons = [rejection.reason for rejection in result.rejections if rejection.rule == NAME]
    assert any("it does not vary along the channels only" in reason for reason in reasons) == per_sample


@pytest.mark.parametrize("shape", [(2, 4, 5, 6), ("N", 4, 5, 6), ("N", 4, "H", "W")])
@pytest.mark.parametrize("into", [(0, 4, -1), (0, 0, -1)])
def test_scale_and_shift_in_rows_are_those_of_the_channels(rewrite, shape, into):
    """They are applied before the shape is restored, where the channels are the last axis but one."""
    dims = ", ".join(map(str, shape))
    before = parse(
        f"g (float[{dims}] x) => (float[] z) {{ s = Shape(x) r = Reshape(x, rows) m = ReduceMean <axes=[2]> (r) d = Sub(r, m)"
        " q = Mul(d, d) v = ReduceMean <axes=[2]> (q) e = Add(v, eps) t = Sqrt(e) n = Div(d, t) a = Mul(n, gamma)"
        " b = Add(a, beta) y = Reshape(b, s) z = Conv <kernel_shape=[1, 1]> (y, w) }",
        {
            "rows": np.array(into), "eps": np.float32(1e-5).reshape(()), "w": random(3, 4, 1, 1),
            "gamma": random(4, 1, seed=5), "beta": random(4, 1, seed=6),
        },
    )  # fmt: skip
    result = rewrite(before, (rule.RULE,), PINS, settings=RewriteSettings(instance_norm=Implementations("plugin")))
    assert result.rules == [NAME]
    assert operators(result.model) == ["InstanceNormalization", "Conv"]
    assert worst_relative_error(before, result.model, PINS) < 1e-6
