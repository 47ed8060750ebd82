"""The check: it passes what is right, and catches every planted defect."""

from __future__ import annotations

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest

from tests.models import batchnorm, parse, random
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.rewrite.proof import check as check_module
from trtnorm_cli.rewrite.proof.sampling import draw, fitting_domains, sample_shapes
from trtnorm_cli.rewrite.rule import NewConstant, NewNode, Unprovable
from trtnorm_cli.rewrite.rules import (
    batchnorm_to_scale_shift,
    fold_batchnorm_conv,
    fold_batchnorm_conv_transpose,
    groupnorm_of_vectors,
    groupnorm_one_group,
)

# As if TensorRT did not take the original: of a change that it can do without, only the reason is kept.
FOLD = replace(fold_batchnorm_conv.RULE, optional=None)
FLOAT, INT64, BOOL, BFLOAT16 = 1, 7, 9, 16


def conv_bn(x: str = "N, 2, 7, 7", dtype: str = "float", numpy_type=np.float32, conv: str = "Conv(x, w, b)"):
    weights = {"w": random(4, 2, 3, 3, dtype=numpy_type), "b": random(4, dtype=numpy_type), **batchnorm(4, numpy_type)}
    graph = f"g ({dtype}[{x}] x) => ({dtype}[] y) {{ c = {conv} y = BatchNormalization(c, gamma, beta, mu, var) }}"
    return parse(graph, weights, opset=22)


def replacement_with(weight=lambda w: w, bias=lambda b: b, rule=FOLD, **attributes):
    """The rule with its folded weight and bias spoilt, or with further attributes."""

    def spoilt(m) -> NewNode:
        made = rule.replacement(m)
        x, w, b = made.inputs
        w, b = replace(w, value=weight(w.value)), replace(b, value=bias(b.value))
        return replace(made, inputs=(x, w, b), attrs={**made.attrs, **attributes})

    return replace(rule, replacement=spoilt, optional=None)


def spoil(index, factor):
    def apply(values):
        changed = values.copy()
        changed[index] = changed[index] * np.asarray(factor, values.dtype)
        return changed

    return apply


DEFECTS = {
    "one weight of 72 wrong by a thousandth": replacement_with(weight=spoil((0, 0, 0, 0), 1.001)),
    "weights wrong by ten units in the last place": replacement_with(weight=lambda w: w * np.float32(1 + 10 * 2**-23)),
    "weight not folded": replacement_with(weight=lambda w: random(4, 2, 3, 3)),
    "bias sign": replacement_with(bias=lambda b: -b),
    "bias left out": replacement_with(bias=lambda b: b * 0),
    "bias of the neighbour": replacement_with(bias=lambda b: np.roll(b, 1)),
    "output channels reversed": replacement_with(weight=lambda w: w[::-1].copy()),
    "kernel flipped": replacement_with(weight=lambda w: w[..., ::-1].copy()),
    "pads changed": replacement_with(pads=[1, 1, 1, 1]),
    "dilated": replacement_with(dilations=[2, 2]),
    "NaN": replacement_with(bias=spoil(0, np.nan)),
    "infinite": replacement_with(bias=spoil(0, np.inf)),
}


@pytest.mark.parametrize("rule", DEFECTS.values(), ids=DEFECTS)
def test_a_planted_defect_fails(rewrite, rule):
    result = rewrite(conv_bn(), rules=(rule,))
    assert result.outcome.changes == []
    (failed,) = result.outcome.failed
    assert not failed.check.passed
    assert failed.check.reason
    assert result.model.graph == result.surgery.source.graph


def test_a_wrong_epsilon_fails_even_where_the_variance_is_large(rewrite, monkeypatch):
    """ε = 1e-5 against σ² around 1 is a relative difference of 5e-6: below what float32 in ONNX Runtime shows."""
    monkeypatch.setattr(fold_batchnorm_conv.batchnorm, "epsilon", lambda m: 0.0)
    result = rewrite(conv_bn(), rules=(FOLD,))
    (failed,) = result.outcome.failed
    assert failed.check.reason.startswith("in float64 the outputs differ by")


def test_a_wrong_group_layout_of_a_transposed_convolution_fails(rewrite):
    weights = {"w": random(4, 3, 3, 3), **batchnorm(6)}
    model = parse(
        "g (float[N, 4, 5, 5] x) => (float[] y)"
        "{ c = ConvTranspose <group=2>(x, w) y = BatchNormalization(c, gamma, beta, mu, var) }",
        weights,
    )
    rule = replacement_with(weight=lambda w: np.roll(w, 2, axis=0), rule=fold_batchnorm_conv_transpose.RULE)
    assert len(rewrite(model, rules=(rule,)).outcome.failed) == 1


def test_a_replacement_that_cannot_run_fails(rewrite):
    rule = replacement_with(weight=lambda w: w[:, :1].copy())
    (failed,) = rewrite(conv_bn(), rules=(rule,)).outcome.failed
    assert failed.check.reason.startswith("the replacement cannot be evaluated in float64: ")


def test_a_replacement_that_onnx_runtime_refuses_fails(rewrite, runner, monkeypatch):
    """float64 evaluation is generous with types; ONNX Runtime is not."""
    rule = replacement_with(bias=lambda b: b.astype(np.float64))
    (failed,) = rewrite(conv_bn(), rules=(rule,)).outcome.failed
    assert "ONNX Runtime does not run the replacement" in failed.check.evaluated_with
    assert failed.check.reason.startswith("in ONNX Runtime the outputs differ by inf")


def test_the_record_of_a_check_that_passes(rewrite):
    (change,) = rewrite(conv_bn(), rules=(FOLD,)).outcome.changes
    check = change.check
    assert check.passed
    assert check.reason == ""
    assert check.shapes == {"x": [2, 2, 7, 7]}
    assert check.evaluated_with == "ONNX Runtime and float64"
    assert 0 < check.max_rel < check.tolerance == 1e-5
    assert 0 < check.float64_rel < check.float64_tolerance < 1e-6
    assert 0 < check.max_abs < 1e-4


@pytest.mark.parametrize(("dtype", "numpy_type"), [("double", np.float64), ("bfloat16", ml_dtypes.bfloat16)])
def test_where_onnx_runtime_has_no_kernel_float64_decides(rewrite, dtype, numpy_type):
    (change,) = rewrite(conv_bn(dtype=dtype, numpy_type=numpy_type), rules=(FOLD,)).outcome.changes
    assert change.check.evaluated_with.startswith("float64 only; ONNX Runtime does not run the original: ")
    assert change.check.float64_rel <= change.check.float64_tolerance
    (failed,) = rewrite(conv_bn(dtype=dtype, numpy_type=numpy_type), rules=(DEFECTS["bias sign"],)).outcome.failed
    assert not failed.check.passed


@pytest.mark.parametrize("seed", [47, 50, 51])
def test_an_output_of_one_value_passes_although_it_may_be_close_to_zero(rewrite, seed):
    """With a single draw the terms of the sum cancel now and then, and rounding looks like an error."""
    rng = np.random.default_rng(seed)
    weights = {"w": rng.standard_normal((1, 2, 1, 1)), **batchnorm(1, np.float64, seed=seed)}
    graph = "g (double[1, 2, 1, 1] x) => (double[] y) { c = Conv(x, w) y = BatchNormalization(c, gamma, beta, mu, var) }"
    assert len(rewrite(parse(graph, weights), rules=(FOLD,)).outcome.changes) == 1


UNPROVABLE = {
    "the original does not run": (conv_bn("N, 3, 7, 7"), "the original cannot be evaluated in float64"),
    "smaller than the kernel": (conv_bn("N, 2, 2, 2"), "the original cannot be evaluated in float64"),
    "an axis of length zero": (conv_bn("N, 2, 0, 7"), "x has no elements: its shape is [2, 2, 0, 7]"),
}


@pytest.mark.parametrize(("model", "reason"), UNPROVABLE.values(), ids=UNPROVABLE)
def test_nothing_is_claimed_where_nothing_can_be_compared(rewrite, model, reason):
    result = rewrite(model, rules=(FOLD,))
    assert result.outcome.changes == result.outcome.failed == []
    assert result.reason(FOLD.name).startswith(f"the change cannot be proved: {reason}")
    assert result.operators == ["Conv", "BatchNormalization"]


def test_an_operator_without_reference_before_the_region_does_not_matter(rewrite):
    """Only the region is run; its input has a shape because the file states it."""
    model = parse(
        "g (float[N, 3] a) => (float[] y) { x = Odd(a) c = Conv(x, w) y = BatchNormalization(c, gamma, beta, mu, var) }",
        {"w": random(4, 2, 3, 3), **batchnorm(4)},
    )
    model.graph.node[0].domain = "somewhere.else"
    model.opset_import.add(domain="somewhere.else", version=1)
    value = model.graph.value_info.add(name="x")
    value.type.tensor_type.elem_type = 1
    for size in (2, 2, 9, 9):
        value.type.tensor_type.shape.dim.add(dim_value=size)
    result = rewrite(model, rules=(FOLD,))
    assert [change.check.shapes for change in result.outcome.changes] == [{"x": [2, 2, 9, 9]}]


def test_an_axis_whose_length_depends_on_data(rewrite):
    model = parse(
        "g (float[3, 4, 6] a) => (float[] y) { n = NonZero(a) f = Cast <to=1>(n) t = Transpose <perm=[1, 0]>(f)"
        " y = BatchNormalization(t, gamma, beta, mu, var) }",
        batchnorm(3),
    )
    result = rewrite(model, rules=(batchnorm_to_scale_shift.RULE,))
    assert [change.check.shapes for change in result.outcome.changes] == [{"t": [2, 3]}]


def test_a_constant_region_is_compared_without_inputs(rewrite):
    model = parse(
        "g (float[N, 4, 5, 5] x) => (float[] z) { k = Constant <value = float[1, 4, 1, 1] {1, 2, 3, 4}>()"
        " y = BatchNormalization(k, gamma, beta, mu, var) z = Add(x, y) }",
        batchnorm(4),
    )
    (change,) = rewrite(model).outcome.changes
    assert change.check.shapes == {}
    assert change.check.float64_rel < 1e-7


def test_an_original_that_exceeds_the_time_is_not_a_failure(rewrite, monkeypatch):
    def slow(model, feeds):
        raise check_module.BudgetExceeded("it takes too long")

    monkeypatch.setattr(check_module, "evaluate_float64", slow)
    result = rewrite(conv_bn(), rules=(FOLD,))
    assert result.outcome.failed == []
    assert "it takes too long" in result.reason(FOLD.name)


def shapes_of(*kinds: TensorType) -> list[list[tuple[int, ...]]]:
    return [list(s.values()) for s in sample_shapes({f"t{i}": kind for i, kind in enumerate(kinds)})]


def test_static_shapes_are_taken_as_they_are():
    assert shapes_of(TensorType(FLOAT, (2, 3, 8, 8)), TensorType(FLOAT, ())) == [[(2, 3, 8, 8), ()]]


def test_open_axes_get_a_small_length_and_an_open_batch_is_tried_alone_too():
    assert shapes_of(TensorType(FLOAT, (None, 3, "H", None))) == [[(2, 3, 16, 16)], [(1, 3, 16, 16)]]


def test_large_inputs_are_tried_smaller_first():
    assert shapes_of(TensorType(FLOAT, (2, 16, 1080, 1920))) == [[(1, 16, 270, 240)], [(2, 16, 1080, 1920)]]


def test_what_is_too_large_is_only_tried_smaller():
    assert shapes_of(TensorType(FLOAT, (1, 2, 2**40, 7))) == [[(1, 2, 65536, 7)]]


def test_channels_are_not_halved():
    assert shapes_of(TensorType(FLOAT, (4, 1 << 21, 2, 2))) == [[(1, 1 << 21, 2, 2)], [(4, 1 << 21, 2, 2)]]


def test_the_second_shape_is_used_where_the_smaller_one_does_not_fit(rewrite, monkeypatch):
    """A reshape to a constant shape takes one size only."""
    tried = []
    real = check_module.evaluate_float64

    def only_real_sizes(model, feeds):
        tried.append(feeds["x"].shape)
        if feeds["x"].shape != (3, 2, 40, 40):
            raise check_module.ReferenceUnavailable("cannot reshape")
        return real(model, feeds)

    monkeypatch.setattr("trtnorm_cli.rewrite.proof.sampling._LARGE", 2000)
    monkeypatch.setattr(check_module, "evaluate_float64", only_real_sizes)
    (change,) = rewrite(conv_bn("3, 2, 40, 40"), rules=(FOLD,)).outcome.changes
    assert tried[0] == (1, 2, 20, 40)
    assert change.check.shapes == {"x": [3, 2, 40, 40]}


@pytest.mark.parametrize(("data_type", "dtype"), [(FLOAT, "float32"), (INT64, "int64"), (BOOL, "bool"), (BFLOAT16, "bfloat16")])
def test_values_have_the_type_of_the_input(data_type, dtype):
    kinds = {"x": TensorType(data_type, (50,))}
    values = draw(np.random.default_rng(0), kinds, {"x": (50,)})["x"]
    assert values.dtype.name == dtype
    assert len(np.unique(values.astype(np.float64))) >= 2


def test_the_seed_decides_the_values(rewrite):
    first, second = (rewrite(conv_bn()).outcome.changes[0].check for _ in range(2))
    assert first == second
    assert first.seed == 0


def test_unprovable_is_not_an_error_of_the_user():
    assert not hasattr(Unprovable("x"), "exit_code")


def test_new_constants_keep_their_type(rewrite):
    """A scalar array stays an array."""
    rule = replace(
        batchnorm_to_scale_shift.RULE,
        replacement=lambda m: NewNode("Mul", (m.tensor("x"), NewConstant("one", np.array(1, np.float32)))),
    )
    parameters = {"gamma": 1, "beta": 0, "mu": 0, "var": 1}
    weights = {name: np.full(4, value, np.float32) for name, value in parameters.items()}
    weights["var"] -= np.float32(1e-5)
    model = parse("g (float[N, 4, 5, 5] x) => (float[] y) { y = BatchNormalization(x, gamma, beta, mu, var) }", weights)
    result = rewrite(model, rules=(rule,))
    assert [tuple(t.dims) for t in result.model.graph.initializer] == [()]


def test_rounding_of_the_original_is_allowed_for_and_no_more(rewrite):
    """ONNX Runtime's variance of a group is a difference of two means; what is as far off but wrong does not pass."""
    graph = "g (float[2, 8] x) => (float[] y) { y = GroupNormalization <num_groups=4> (x, s, b) }"
    model = parse(graph, {"s": random(8), "b": random(8, seed=1)}, opset=21)
    rule = groupnorm_of_vectors.RULE
    (change,) = rewrite(model, (rule,)).outcome.changes
    assert 1e-5 < change.check.tolerance <= 1e-3

    def spoilt(m):
        made = rule.replacement(m)
        return replace(made, inputs=(made.inputs[0], NewConstant("b", m.value("shift") * np.float32(1.001))))

    (failed,) = rewrite(model, (replace(rule, replacement=spoilt),)).outcome.failed
    assert "in float64" in failed.check.reason


def test_a_type_in_which_the_original_computes_is_allowed_for(rewrite):
    graph = "g (float[2, 4, 5] x) => (float[] y) { y = GroupNormalization <num_groups=1, stash_type=10> (x, s, b) }"
    model = parse(graph, {"s": random(4), "b": random(4, seed=1)}, opset=21)
    (change,) = rewrite(model, (groupnorm_one_group.RULE,)).outcome.changes
    assert change.check.tolerance > 5e-3


def test_indices_of_a_region_fit_what_they_index():
    """With integers from 0 to 3 neither a table of two rows nor one of many is tested as it is used."""
    body = "e = Gather(words, i) a = Relu(x) f = Gather <axis = 1> (a, k) y = Add(e, s) z = Identity(f)"
    weights = {"words": random(2, 4), "s": random(4)}
    region = parse(f"g (int64[] i, float[] x, int64[] k) => (float[] y, float[] z) {{ {body} }}", weights)
    for value in region.graph.input:
        value.type.tensor_type.ClearField("shape")
    kinds = {"i": TensorType(INT64, (50,)), "x": TensorType(FLOAT, (3, 100)), "k": TensorType(INT64, (500,))}
    shapes = {name: kind.shape for name, kind in kinds.items()}
    values = draw(np.random.default_rng(0), kinds, shapes, domains=fitting_domains(region, kinds, shapes))
    assert set(values["i"]) == {0, 1}
    assert 90 < values["k"].max() < 100
