"""A BatchNormalization that was folded is told by its constants, and only where these are its own but for rounding."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.models import batchnorm, parse, random
from trtnorm_cli.evaluate.float64 import Known, ReferenceUnavailable, evaluate_float64
from trtnorm_cli.onnx_model.save import MAPPED_FROM, save_model

Outputs = tuple[np.ndarray, np.ndarray]
UNIT = 2.0**-24
SHAPES = {1: "2, 6, 9", 2: "2, 6, 9, 7", 3: "2, 6, 5, 6, 4"}


def scale_and_shift(parameters: dict[str, np.ndarray], epsilon: float = 1e-5) -> tuple[np.ndarray, np.ndarray]:
    gamma, beta, mu, var = (parameters[name].astype(np.float64) for name in ("gamma", "beta", "mu", "var"))
    scale = gamma / np.sqrt(var + np.float32(epsilon))
    return scale, beta - mu * scale


def network(body: str, shape: str, **weights: np.ndarray) -> onnx.ModelProto:
    return parse(f"g (float[{shape}] x) => (float[] y) {{ {body} z = Relu(n) y = Sigmoid(z) }}", weights)


def evaluated_y(model: onnx.ModelProto, shape: str, known: Known | None = None) -> np.ndarray:
    feeds = {"x": random(*map(int, shape.split(", ")), seed=5)}
    return evaluate_float64(model, feeds, known=known, kept={"n", "z", "y"}).outputs["y"]


def one_after_the_other(source: onnx.ModelProto, candidate: onnx.ModelProto, shape: str, evaluated: Counter[str]) -> Outputs:
    """What both give where a build compares them; ``evaluated`` counts what ran for the candidate."""
    known = Known(takes_folds=True)
    first = evaluated_y(source, shape, known)
    evaluated.clear()
    return first, evaluated_y(candidate, shape, known)


def convolved(
    rank: int = 2, group: int = 1, bias: bool = True, **changed: np.ndarray
) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A convolution and its BatchNormalization, and the convolution with both in its weights; ``changed`` are other ones."""
    parameters, w = batchnorm(8), random(8, 6 // group, *[3] * rank, seed=3)
    given = {"b": random(8, seed=4)} if bias else {}
    scale, shift = scale_and_shift(parameters)
    folded_w = (w * scale.reshape(-1, *[1] * (rank + 1))).astype(np.float32)
    folded_b = (shift + scale * given.get("b", np.zeros(8, np.float32))).astype(np.float32)
    attributes = f"<group = {group}, strides = {[2] * rank}>"
    source = f"c = Conv{attributes}(x, w{', b' if bias else ''}) n = BatchNormalization(c, gamma, beta, mu, var)"
    made = {"w": folded_w, "b": folded_b, **changed}
    return (
        network(source, SHAPES[rank], w=w, **given, **parameters),
        network(f"n = Conv{attributes}(x, w, b)", SHAPES[rank], **made),
    )


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_a_folded_convolution_is_known_by_its_weights(evaluated, rank, group, bias):
    source, folded = convolved(rank, group, bias)
    first, second = one_after_the_other(source, folded, SHAPES[rank], evaluated)
    np.testing.assert_array_equal(second, first)
    assert not evaluated, "nothing behind it is evaluated either"


def off_by(units: float, name: str) -> dict[str, np.ndarray]:
    """The folded weights with one number that is off by so many units in the last place."""
    _, folded = convolved()
    values = next(numpy_helper.to_array(tensor).copy() for tensor in folded.graph.initializer if tensor.name == name)
    values.reshape(-1)[3] *= np.float32(1 + units * 2 * UNIT)
    return {name: values}


@pytest.mark.parametrize("name", ["w", "b"])
def test_one_weight_that_is_off_by_more_than_rounding_is_evaluated(evaluated, name):
    source, folded = convolved(**off_by(40, name))
    first, second = one_after_the_other(source, folded, SHAPES[2], evaluated)
    assert evaluated["Conv"] == 1
    np.testing.assert_array_equal(second, evaluated_y(folded, SHAPES[2]))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    "other",
    [
        {"w": np.zeros((8, 6, 3, 3), np.float32)},
        {"w": np.full((8, 6, 3, 3), np.nan, np.float32)},
        {"w": random(8, 6, 3, 1)},
        {"w": random(8, 6, 9, 1)},
        {"b": random(8, seed=9)},
    ],
    ids=["zeros", "not a number", "a smaller kernel", "another kernel", "another bias"],
)
def test_other_weights_are_evaluated(evaluated, other):
    source, folded = convolved(**other)
    one_after_the_other(source, folded, SHAPES[2], evaluated)
    assert evaluated["Conv"] == 1


def test_the_same_numbers_in_a_kernel_of_another_shape_are_evaluated(evaluated):
    _, folded = convolved()
    w = next(numpy_helper.to_array(tensor) for tensor in folded.graph.initializer if tensor.name == "w")
    source, turned = convolved(w=w.reshape(8, 6, 9, 1))
    one_after_the_other(source, turned, SHAPES[2], evaluated)
    assert evaluated["Conv"] == 1


def test_other_attributes_are_evaluated(evaluated):
    source, folded = convolved()
    (convolution,) = (node for node in folded.graph.node if node.op_type == "Conv")
    convolution.attribute.append(helper.make_attribute("pads", [1, 1, 1, 1]))
    one_after_the_other(source, folded, SHAPES[2], evaluated)
    assert evaluated["Conv"] == 1


def test_a_comparison_that_measures_evaluates_both(evaluated):
    source, folded = convolved()
    known = Known()
    first = evaluated_y(source, SHAPES[2], known)
    evaluated.clear()
    second = evaluated_y(folded, SHAPES[2], known)
    assert evaluated["Conv"] == 1
    assert 0 < np.abs(second - first).max() < 1e-6


def scaled(shape: str, scale_off: float = 0.0, shift_off: float = 0.0, swapped: bool = False) -> tuple[onnx.ModelProto, ...]:
    parameters, rank = batchnorm(6), len(shape.split(", "))
    scale, shift = (values.astype(np.float32).reshape(-1, *[1] * (rank - 2)) for values in scale_and_shift(parameters))
    scale.reshape(-1)[2] *= np.float32(1 + scale_off * 2 * UNIT)
    shift.reshape(-1)[2] *= np.float32(1 + shift_off * 2 * UNIT)
    body = "m = Mul(s, x) n = Add(t, m)" if swapped else "m = Mul(x, s) n = Add(m, t)"
    return (
        network("n = BatchNormalization(x, gamma, beta, mu, var)", shape, **parameters),
        network(body, shape, s=scale, t=shift),
    )


@pytest.mark.parametrize("shape", ["9, 6", *SHAPES.values()])
@pytest.mark.parametrize("swapped", [False, True])
def test_a_scale_and_a_shift_are_known_by_their_numbers(evaluated, shape, swapped):
    source, made = scaled(shape, swapped=swapped)
    first, second = one_after_the_other(source, made, shape, evaluated)
    np.testing.assert_array_equal(second, first)
    assert evaluated == {"Mul": 1}


@pytest.mark.parametrize("off", [{"scale_off": 8}, {"shift_off": 100}])
def test_a_scale_or_a_shift_that_is_off_is_evaluated(evaluated, off):
    source, made = scaled(SHAPES[2], **off)
    first, second = one_after_the_other(source, made, SHAPES[2], evaluated)
    assert evaluated["Add"] == evaluated["Relu"] == 1
    assert not np.array_equal(first, second)


def test_a_batchnorm_in_training_mode_is_no_scale_and_shift(evaluated):
    source, made = scaled(SHAPES[2])
    (norm,) = (node for node in source.graph.node if node.op_type == "BatchNormalization")
    norm.attribute.append(helper.make_attribute("training_mode", 1))
    norm.output.extend(["running_mean", "running_variance"])
    one_after_the_other(source, made, SHAPES[2], evaluated)
    assert evaluated["Add"] == 1


@pytest.mark.parametrize("body", ["c = Conv(x, w) n = BatchNormalization<epsilon = 0.0>(c, gamma, beta, mu, var)",
                                  "n = BatchNormalization<epsilon = 0.0>(x, gamma, beta, mu, var)"])  # fmt: skip
def test_an_infinite_scale_is_that_of_no_weights(evaluated, body):
    parameters = batchnorm(6)
    parameters["var"][2] = 0
    w, ones = random(6, 6, 3, 3, seed=1), np.ones((6, 1, 1), np.float32)
    candidate = "n = Conv(x, w, b)" if "Conv" in body else "m = Mul(x, s) n = Add(m, t)"
    known, shape = Known(takes_folds=True), SHAPES[2]
    evaluated_y(network(body, shape, **({"w": w} if "Conv" in body else {}), **parameters), shape, known)
    evaluated.clear()
    constants = {"w": w, "b": random(6, seed=2)} if "Conv" in body else {"s": ones, "t": ones}
    evaluated_y(network(candidate, shape, **constants), shape, known)
    assert evaluated["Relu"] == 1


def test_a_shift_whose_terms_cancel_is_evaluated(evaluated):
    """Float32 leaves it open by percents."""
    known, shape, ones = Known(takes_folds=True), SHAPES[2], np.ones(6, np.float32)
    parameters = {"gamma": ones, "beta": 1e4 * ones, "mu": 1e4 * ones, "var": ones}
    scale, shift = (values.astype(np.float32).reshape(6, 1, 1) for values in scale_and_shift(parameters))
    source = network("n = BatchNormalization(x, gamma, beta, mu, var)", shape, **parameters)
    first = evaluated_y(source, shape, known)
    made = network("m = Mul(x, s) n = Add(m, t)", shape, s=scale, t=shift * np.float32(1.05))
    assert not np.array_equal(evaluated_y(made, shape, known), first)


def large() -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """As ``convolved``, with weights that are stored in a file."""
    parameters, w = batchnorm(512), random(512, 256, 3, 3, seed=3)
    scale, shift = scale_and_shift(parameters)
    source = "c = Conv(x, w) n = BatchNormalization(c, gamma, beta, mu, var)"
    folded_w = (w * scale.reshape(-1, 1, 1, 1)).astype(np.float32)
    return (
        network(source, "1, 256, 4, 4", w=w, **parameters),
        network("n = Conv(x, w, b)", "1, 256, 4, 4", w=folded_w, b=shift.astype(np.float32)),
    )


def test_a_large_image_is_known_again(evaluated):
    """Where large constants are lent, inputs are kept all the same: the first convolution reads them."""
    shape = "1, 6, 160, 160"
    source, folded = convolved()
    for model in (source, folded):
        for size, value in zip(model.graph.input[0].type.tensor_type.shape.dim, (1, 6, 160, 160), strict=True):
            size.dim_value = value
    known = Known(takes_folds=True)
    known.lend([])
    first = evaluated_y(source, shape, known)
    evaluated.clear()
    np.testing.assert_array_equal(evaluated_y(folded, shape, known), first)
    assert not evaluated


def test_large_weights_are_read_again_and_not_kept(evaluated, tmp_path):
    for name, model in zip(("source", "folded"), large(), strict=True):
        save_model(model, tmp_path / f"{name}.onnx", None, MAPPED_FROM)
    feeds, known = {"x": random(1, 256, 4, 4)}, Known(takes_folds=True)
    known.lend([])
    first = evaluate_float64(tmp_path / "source.onnx", feeds, known=known).outputs["y"]
    (made,) = (made for key, (found, _) in known._found.items() if key is not None and key[0] == "folded" for made in found)
    assert not isinstance(made.weight, np.ndarray)
    evaluated.clear()
    np.testing.assert_array_equal(evaluate_float64(tmp_path / "folded.onnx", feeds, known=known).outputs["y"], first)
    assert not evaluated


def test_a_file_that_is_cut_short_meanwhile_is_told(tmp_path):
    for name, model in zip(("source", "folded"), large(), strict=True):
        save_model(model, tmp_path / f"{name}.onnx", None, MAPPED_FROM)
    feeds, known = {"x": random(1, 256, 4, 4)}, Known(takes_folds=True)
    known.lend([])
    evaluate_float64(tmp_path / "source.onnx", feeds, known=known)
    (made,) = (made for key, (found, _) in known._found.items() if key is not None and key[0] == "folded" for made in found)
    assert made.weight.file.parent == tmp_path
    with made.weight.file.open("r+b") as stream:
        stream.truncate(1000)
    with pytest.raises(ReferenceUnavailable, match="cannot be evaluated"):
        evaluate_float64(tmp_path / "folded.onnx", feeds, known=known)
