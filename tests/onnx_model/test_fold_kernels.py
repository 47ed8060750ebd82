"""The kernels that folding uses give what ``onnx.reference`` gives, to the bit and to the type, but for sums of floats."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference.ops import load_op

from trtnorm_cli.onnx_model.fold_kernels import value_of

OPSET = 18
RNG = np.random.default_rng(0)
KINDS = [np.float32, np.float64, np.float16, np.int64, np.int32]


def numbers(kind: type, *shape: int) -> np.ndarray:
    """Numbers of both signs, with zeros among them."""
    return (RNG.integers(-40, 40, shape) / (1 if np.dtype(kind).kind == "i" else 8)).astype(kind)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def same(operator: str, inputs: list[np.ndarray | None], attributes: dict | None = None, opset: int = OPSET) -> None:
    with np.errstate(all="ignore"):
        expected = load_op("", operator, opset).eval(*inputs, **(attributes or {}))
    found = value_of(operator, opset, inputs, attributes or {})
    assert found is not None
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operator", ["Add", "Sub", "Mul", "Div", "Mod", "Equal", "MatMul"])
def test_arithmetic(operator, kind):
    b = numbers(kind, 5, 5)
    b = b + (b == 0) if operator in ("Div", "Mod") and b.dtype.kind == "i" else b
    same(operator, [numbers(kind, 2, 5, 5), b.astype(kind)], {"fmod": 0} if operator == "Mod" else None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operator", ["Less", "Greater", "Max", "Min", "Pow"])
def test_what_else_takes_two(operator, kind):
    a, b = numbers(kind, 2, 5, 5), numbers(kind, 5, 5)
    same(operator, [a, np.abs(b) % 4 if operator == "Pow" and b.dtype.kind == "i" else b])
    if np.dtype(kind).kind == "f" and operator != "Pow":
        same(operator, [np.array([np.nan, 1, np.inf], kind), np.array([0, np.nan, -np.inf], kind)])


def test_a_power_has_the_type_of_its_base():
    for a in KINDS:
        for b in KINDS:
            same("Pow", [np.array([1, 2, 3], a), np.array([2], b)])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("operator", ["Abs", "Ceil", "Cos", "Exp", "Floor", "Neg", "Sin"])
def test_one_number_after_the_other(operator, kind):
    same(operator, [numbers(kind, 3, 50)])
    same(operator, [np.array(-2.5, kind)])
    if operator in ("Abs", "Neg"):
        same(operator, [numbers(np.int64, 9)])


@pytest.mark.parametrize("operator", ["And", "Or"])
def test_truths(operator):
    same(operator, [numbers(np.float32, 4, 9) > 0, numbers(np.float32, 9) > 0])


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, np.int32])
def test_ranges(kind):
    for start, end, step in ((0, 5, 1), (2, 9, 3), (5, 0, -2), (0, 0, 1), (3, 1, 1)):
        same("Range", [np.array(start, kind), np.array(end, kind), np.array(step, kind)])


@pytest.mark.parametrize("kind", [np.float32, np.int64])
def test_scattered_updates(kind):
    data = numbers(kind, 4, 5)
    same("ScatterND", [data, np.array([[1], [-1]]), numbers(kind, 2, 5)])
    same("ScatterND", [data, np.array([[[1, 2], [0, 4]], [[3, 0], [2, -1]]]), numbers(kind, 2, 2)])
    same("ScatterND", [data[0], np.array([[0], [2], [0]]), np.array([1, 2, 3], kind)], {"reduction": "none"})


@pytest.mark.parametrize("kind", KINDS)
def test_division_by_zero_and_by_the_other_sign(kind):
    if np.dtype(kind).kind == "f":
        same("Div", [np.array([1, -1, 0], kind), np.zeros(3, kind)])
    same("Div", [np.array([7, -7, 7, -7], kind), np.array([2, 2, -2, -2], kind)])
    same("Mod", [np.array([7, -7, 7, -7], kind), np.array([2, 2, -2, -2], kind)], {"fmod": 1})


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, np.int32, np.bool_])
@pytest.mark.parametrize("target", ["FLOAT", "DOUBLE", "INT64", "INT32", "BOOL"])
def test_casts(kind, target):
    same("Cast", [numbers(np.float32, 6).astype(kind)], {"to": onnx.TensorProto.DataType.Value(target)}, 13)


@pytest.mark.parametrize("kind", [*KINDS, np.bool_])
def test_what_only_moves_values(kind):
    data = numbers(np.float32, 2, 3, 4).astype(kind)
    same("Transpose", [data], {"perm": [2, 0, 1]})
    same("Transpose", [data])
    same("Concat", [data, data], {"axis": -1})
    same("Unsqueeze", [data, ints(0, -1)])
    same("Unsqueeze", [data], {"axes": [0, 2]}, 11)
    same("Squeeze", [data[:1, :, :1], ints(0, -1)])
    same("Squeeze", [data[:1, :, :1]])
    same("Tile", [data, ints(2, 1, 3)])
    same("Reshape", [data, ints(0, -1, 2)], {"allowzero": 0})
    same("Reshape", [data[:, :0], ints(0, 4)], {"allowzero": 1})
    same("Gather", [data, ints(2, -1)], {"axis": 1})
    same("Gather", [data, np.array(1, np.int64)], {})
    same("Expand", [data[:1], ints(2, 1, 3, 1)])
    same("Where", [data > 0, data, np.flip(data)])
    same("Slice", [data, ints(1), ints(1000)])
    same("Slice", [data, ints(-1, 0), ints(-100, 2), ints(2, 0), ints(-2, 1)])
    same("Slice", [data, ints(1), ints(3), None, ints(1)])


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64])
def test_bounds(kind):
    data, one = numbers(kind, 3, 4), np.array(1, kind)
    same("Relu", [data], opset=14)
    for bounds in ([], [one], [-one, one], [None, one], [one, -one], [np.array([1], kind), np.array([2], kind)]):
        same("Clip", [data, *bounds])


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("operator", ["ReduceL1", "ReduceL2", "ReduceMean", "ReduceSum"])
def test_reductions(operator, kind):
    whole = np.sqrt(numbers(kind, 2, 3, 4) ** 2)  # sums of these are exact in any order
    since = 13 if operator == "ReduceSum" else 18
    for axes in ([0], [1, 2], [-1, 0], [0, 1, 2]):
        for keep in (0, 1):
            _alike(operator, [whole, ints(*axes)], {"keepdims": keep}, OPSET)
            _alike(operator, [whole], {"axes": axes, "keepdims": keep}, since - 2)
    _alike(operator, [whole], {}, OPSET)
    _alike(operator, [whole, None], {"keepdims": 0}, OPSET)


def _alike(operator: str, inputs: list, attributes: dict, opset: int) -> None:
    """Like ``same``, but for the last bit of what was rounded once."""
    expected = load_op("", operator, opset).eval(*inputs, **attributes)
    found = value_of(operator, opset, inputs, attributes)
    assert (found.dtype, found.shape) == (expected.dtype, np.shape(expected))
    np.testing.assert_array_max_ulp(found, np.asarray(expected), 2)


@pytest.mark.parametrize("operator", ["ReduceL1", "ReduceL2", "ReduceMean", "ReduceSum"])
def test_sums_along_the_first_axes_are_as_good_as_a_float32_can_be(operator):
    weight = np.random.default_rng(1).standard_normal((96, 48, 8)).astype(np.float32)
    if operator in ("ReduceMean", "ReduceSum"):
        weight = np.abs(weight)
    best = {"ReduceL1": np.abs, "ReduceL2": np.square}.get(operator, np.positive)(weight.astype(np.float64)).sum((0, 1))
    best = {"ReduceL2": np.sqrt, "ReduceMean": lambda total: total / (96 * 48)}.get(operator, np.positive)(best)
    found = value_of(operator, OPSET, [weight, ints(0, 1)], {"keepdims": 0})
    assert found.tobytes() == best.astype(np.float32).tobytes()
    theirs = load_op("", operator, OPSET).eval(weight, ints(0, 1), keepdims=0)
    assert np.abs(theirs / best - 1).max() > 5e-7  # or there is no need for sums of our own


PRODUCTS = [
    ("MatMul", (9, 3000), (3000, 7), {}),
    ("MatMul", (2, 9, 3000), (3000, 7), {}),
    ("Gemm", (9, 3000), (3000, 7), {}),
    ("Gemm", (3000, 9), (7, 3000), {"transA": 1, "transB": 1, "alpha": 0.5}),
    ("Einsum", (2, 9, 3000), (2, 3000, 7), {"equation": "bij,bjk->bik"}),
]


@pytest.mark.parametrize(("operator", "first", "second", "attributes"), PRODUCTS)
def test_products_are_as_good_as_a_float32_can_be(operator, first, second, attributes):
    """MarkupLM folds two in a row, of 1,600 and 3,072 terms, which its comparison then found to be 5e-6 off."""
    a, b = (np.random.default_rng(seed).random(shape).astype(np.float32) for seed, shape in enumerate((first, second)))
    found = value_of(operator, OPSET, [a, b], attributes)
    double = [a.astype(np.float64), b.astype(np.float64)]
    best = load_op("", operator, OPSET).eval(*double, **attributes)
    assert (found.dtype, found.shape) == (np.float32, best.shape)
    np.testing.assert_array_max_ulp(found, best.astype(np.float32), 1)


def test_a_gemm_adds_its_bias():
    a, b, c = numbers(np.float32, 3, 5), numbers(np.float32, 5, 4), numbers(np.float32, 4)
    same("Gemm", [a, b, c])
    same("Gemm", [a, b, c], {"alpha": 2.0, "beta": 0.5})


@pytest.mark.parametrize(
    ("operator", "inputs", "attributes"),
    [
        ("Gemm", [ints(1, 2).reshape(1, 2), ints(1, 2).reshape(2, 1)], {}),
        ("Gemm", [numbers(np.float32, 1, 2), numbers(np.float64, 2, 1)], {}),
        ("Einsum", [ints(1, 2)], {"equation": "i->"}),
    ],
)
def test_products_of_other_types_are_left(operator, inputs, attributes):
    assert value_of(operator, OPSET, inputs, attributes) is None


def test_the_rest():
    same("Sqrt", [numbers(np.float32, 9)])
    same("Not", [numbers(np.float32, 9) > 0])
    same("ConstantOfShape", [ints(2, 0, 3)], {})
    for value in (np.array([7], np.int64), np.array([True]), np.array([0.5], np.float16)):
        same("ConstantOfShape", [ints(2, 3)], {"value": onnx.numpy_helper.from_array(value)})


@pytest.mark.parametrize(
    ("operator", "opset", "inputs", "attributes"),
    [
        ("Unsqueeze", 11, [ints(1)], {"axes": [1, 0]}),
        ("Unsqueeze", 11, [ints(1)], {"axes": [-1]}),
        ("Unsqueeze", 11, [ints(1)], {}),
        ("Clip", 6, [ints(1)], {"min": 0.0}),
        ("Clip", 18, [ints(1), np.array(0.5, np.float32)], {}),
        ("Add", 18, [ints(1), numbers(np.float32, 1)], {}),
        ("Add", 6, [ints(1), ints(1)], {"broadcast": 1}),
        ("Concat", 18, [ints(1), numbers(np.float32, 1)], {"axis": 0}),
        ("Concat", 18, [np.array(1), np.array(2)], {"axis": 0}),
        ("Cast", 18, [ints(1)], {"to": onnx.TensorProto.BFLOAT16}),
        ("Add", 18, [np.array(["a"]), np.array(["b"])], {}),
        ("Gather", 18, [ints(1), ints(4)], {"axis": 0}),
        ("Transpose", 18, [ints(1)], {"perm": []}),
        ("Erf", 18, [numbers(np.float32, 1)], {}),
        ("Max", 18, [ints(1)], {}),
        ("Less", 18, [ints(1), numbers(np.float32, 1)], {}),
        ("Range", 18, [np.array(0), np.array(4), np.array(0)], {}),
        ("ScatterND", 18, [ints(1), np.array([[0]]), ints(2)], {"reduction": "add"}),
        ("ScatterND", 18, [ints(1), np.array([[1]]), ints(2)], {}),
        ("Squeeze", 18, [ints(1, 2), ints(0)], {}),
        ("ReduceSum", 18, [ints(1, 2), ints(0)], {}),
        ("ReduceL2", 18, [np.ones((2, 2), np.float32), ints(2)], {}),
        ("ReduceL2", 18, [np.ones((2, 2), np.float32), ints(-3)], {}),
        ("ReduceL2", 18, [np.ones((2, 2), np.float32), ints(0, 0)], {}),
        ("ReduceMean", 18, [np.ones((2, 2), np.float32), ints(-3)], {}),
        ("ReduceMean", 18, [np.ones((2, 2), np.float32)], {"noop_with_empty_axes": 1}),
        ("Squeeze", 11, [np.zeros((1, 1), np.float32)], {"axes": [0]}),
    ],
)
def test_what_it_does_not_know_it_leaves_alone(operator, opset, inputs, attributes):
    assert value_of(operator, opset, inputs, attributes) is None
