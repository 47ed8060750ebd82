"""Random inputs: seeded, of the right type, and as the build profile asks."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from trtnorm_cli.evaluate.data.drawing import draw, feeds_at
from trtnorm_cli.evaluate.data.shape_points import ShapePoint, shape_points
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.profile.fit import ModelInput, fit
from trtnorm_cli.profile.load import parse_profile
from trtnorm_cli.profile.model import Constant, Integers, Normal, Ones, Uniform
from trtnorm_cli.profile.prove import Proof

TYPE = onnx.TensorProto
SHAPE = (50, 40)


def drawn(data_type: int, data=None, seed: int = 0) -> np.ndarray:
    return draw(TensorType(data_type, SHAPE), SHAPE, data, np.random.default_rng(seed))


@pytest.mark.parametrize(("data_type", "name"), [
    (TYPE.FLOAT, "float32"), (TYPE.DOUBLE, "float64"), (TYPE.FLOAT16, "float16"), (TYPE.BFLOAT16, "bfloat16"),
])  # fmt: skip
def test_floating_types_are_standard_normal(data_type, name):
    values = drawn(data_type)
    assert (values.dtype.name, values.shape) == (name, SHAPE)
    assert abs(values.astype(np.float64).mean()) < 0.1
    assert 0.9 < values.astype(np.float64).std() < 1.1


@pytest.mark.parametrize("data_type", [TYPE.INT64, TYPE.INT32, TYPE.UINT8, TYPE.INT8])
def test_integers_are_small(data_type):
    values = drawn(data_type)
    assert values.dtype == onnx.helper.tensor_dtype_to_np_dtype(data_type)
    assert set(np.unique(values)) == {0, 1, 2, 3}


def test_booleans_are_coin_tosses():
    values = drawn(TYPE.BOOL)
    assert values.dtype == np.bool_
    assert 0.4 < values.mean() < 0.6


@pytest.mark.parametrize(("data", "low", "high", "mean"), [
    (Normal(distribution="normal", mean=5, std=0.1), 4, 6, 5), (Uniform(distribution="uniform", low=-2, high=-1), -2, -1, -1.5),
    (Ones(distribution="ones"), 1, 1, 1), (Constant(distribution="constant", value=0.25), 0.25, 0.25, 0.25),
    (Integers(distribution="integers", low=10, below=12), 10, 11, 10.5),
])  # fmt: skip
def test_as_the_profile_asks(data, low, high, mean):
    values = drawn(TYPE.FLOAT, data)
    assert values.dtype == np.float32
    assert low <= values.min() <= values.max() <= high
    assert abs(values.mean() - mean) < 0.05


def test_token_ids():
    values = drawn(TYPE.INT64, Integers(distribution="integers", low=0, below=30000))
    assert values.dtype == np.int64
    assert 20000 < values.max() < 30000


def test_unsigned_integers_up_to_the_limit():
    values = drawn(TYPE.UINT64, Integers(distribution="integers", low=2**63, below=2**64))
    assert values.dtype == np.uint64
    assert values.min() >= 2**63


INPUTS = {"a": TensorType(TYPE.FLOAT, ("N", 3)), "b": TensorType(TYPE.FLOAT, ("N", 3))}


def test_the_same_seed_gives_the_same_values_whatever_else_is_fed():
    both = feeds_at(ShapePoint("p", {"a": (4, 3), "b": (4, 3)}), INPUTS, {}, 7)
    alone = feeds_at(ShapePoint("q", {"b": (4, 3)}), INPUTS, {}, 7)
    np.testing.assert_array_equal(both["b"], alone["b"])
    assert not np.array_equal(both["a"], both["b"])
    other = feeds_at(ShapePoint("p", {"a": (4, 3), "b": (4, 3)}), INPUTS, {}, 8)
    assert not np.array_equal(both["a"], other["a"])


def fitted(text: str):
    return fit(parse_profile(text, "cfg.yaml"), [ModelInput("a", "float32", ("N", 3)), ModelInput("b", "float32", ("N", 3))])


def test_the_corners_of_every_profile_once():
    profiles = fitted(
        "optimization_profiles:\n"
        "  - {name: p, dims: {N: {min: 1, opt: 2, max: 4}}}\n"
        "  - {name: q, dims: {N: {min: 4, opt: 4, max: 8}}}\n"
    )
    points = shape_points(Proof(None, profiles), INPUTS, 0, np.random.default_rng(0))
    assert [(p.label, p.shapes["a"]) for p in points] == [
        ("p min", (1, 3)), ("p opt", (2, 3)), ("p max", (4, 3)), ("q max", (8, 3))
    ]  # fmt: skip
    assert points[0].elements == 6


def test_a_size_of_zero_is_raised_to_one():
    points = shape_points(Proof(None, fitted("dims: {N: {min: 0, opt: 1, max: 2}}")), INPUTS, 0, np.random.default_rng(0))
    assert [p.shapes["a"][0] for p in points] == [1, 2]


def test_shapes_in_between_keep_names_and_multiples():
    profiles = fitted("dims: {N: {min: 8, opt: 16, max: 64, multiple_of: 8}}")
    points = shape_points(Proof(None, profiles), INPUTS, 20, np.random.default_rng(0))
    sizes = [p.shapes["a"][0] for p in points]
    assert all(p.shapes["a"] == p.shapes["b"] for p in points)
    assert all(size % 8 == 0 and 8 <= size <= 64 for size in sizes)
    assert len(set(sizes)) == len(sizes) > 3


@pytest.mark.parametrize("data_type", [TYPE.FLOAT, TYPE.INT64, TYPE.BOOL])
def test_a_scalar_is_an_array(data_type):
    values = draw(TensorType(data_type, ()), (), None, np.random.default_rng(0))
    assert isinstance(values, np.ndarray)
    assert values.shape == ()
