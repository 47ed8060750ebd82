"""Single dimensions followed through shape arithmetic."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.models import operators, parse
from tests.onnx_model.running import random_feeds, run
from trtnorm_cli.onnx_model.clean import clean

CONSTANTS = {
    "i1": np.array(1),
    "i01": np.array([0, 1]),
    "i11": np.array([1, -3]),
    "zero": np.array([0]),
    "one": np.array([1]),
    "three": np.array([3]),
    "end": np.array([np.iinfo(np.int64).max]),
    "axis0": np.array([0]),
}


def elements(line: str, opset: int = 17) -> np.ndarray | None:
    """The constant that ``k`` becomes when x is [N, 8, H, 4], or None when it stays computed."""
    model = parse(f"g (float[N, 8, H, 4] x) => (int64[M] y) {{ s = Shape(x) {line} y = Abs(k) }}", CONSTANTS, opset=opset)
    cleaned = clean(model).model
    feeds = random_feeds(model)
    for name, value in run(model, feeds).items():
        np.testing.assert_array_equal(run(cleaned, feeds)[name], value)
    if operators(cleaned) != ["Identity"]:
        return None
    return np.asarray(numpy_helper.to_array(cleaned.graph.initializer[0]))


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("k = Gather(s, i1)", 8),
        ("k = Gather(s, i11)", [8, 8]),
        ("k = Gather(s, i01)", None),
        ("k = Slice(s, one, i1s)", None),
        ("k = Slice(s, three, end)", [4]),
        ("k = Slice(s, three, end, axis0, one)", [4]),
        ("k = Slice(s, zero, end)", None),
        ("a = Gather(s, i1) b = Unsqueeze(a, zero) c = Concat<axis = 0>(s, b) d = Slice(c, three, end) k = Add(d, d)", [8, 16]),
        ("a = Shape<start = 1, end = 2>(x) k = Mul(a, a)", [64]),
        ("a = Cast<to = 6>(s) b = Gather(a, i1) k = Cast<to = 7>(b)", 8),
    ],
)
def test_what_is_picked_from_a_partly_known_shape(line, expected):
    found = elements(line.replace("i1s", "three"))
    assert found is None if expected is None else np.array_equal(found, np.abs(expected))


def test_slices_with_attributes_of_old_opsets():
    assert elements("k = Slice<starts = [1], ends = [2], axes = [0]>(s)", opset=9) == [8]
    assert elements("k = Slice<starts = [0], ends = [2]>(s)", opset=9) is None


def shapes(model: onnx.ModelProto) -> dict[str, list[int | str | None]]:
    return {
        value.name: [d.dim_value or d.dim_param or None for d in value.type.tensor_type.shape.dim]
        for value in clean(model).model.graph.value_info
        if value.type.tensor_type.HasField("shape")
    }


def test_shapes_are_known_behind_arithmetic_of_opset_11():
    model = parse(
        """g (float[N, 8, H, W] x) => (float[P, Q, R] y) <int64 zero = {0}, int64 one = {1}> {
        s = Shape(x) n = Gather(s, zero) n1 = Unsqueeze<axes = [0]>(n) c = Gather(s, one) c1 = Unsqueeze<axes = [0]>(c)
        rest = Constant<value = int64[1] {-1}>() t = Concat<axis = 0>(n1, c1, rest)
        r = Reshape(x, t) y = Relu(r) }""",
        opset=11,
    )
    assert shapes(model)["r"] == [None, 8, None]


@pytest.mark.parametrize(
    ("rest", "expected"),
    [([0, -1], [None, 8, None]), ([4, 2, 0], [None, 4, 2, 5]), ([8, 5, 0], [None, 8, 5, 5]), ([-1, 1], [None, None, 1])],
)
def test_reshape_with_zero_and_minus_one(rest, expected):
    model = parse(
        f"""g (float[N, 8, 1, 5] x) => (float[{", ".join("ABCD"[: len(expected)])}] y) <int64 zero = {{0}}> {{
        s = Shape(x) n = Gather(s, zero) n1 = Unsqueeze<axes = [0]>(n) t = Concat<axis = 0>(n1, rest) r = Reshape(x, t)
        y = Relu(r) }}""",
        {"rest": np.array(rest)},
        opset=11,
    )
    assert shapes(model)["r"] == expected


def test_expand_and_constant_of_shape():
    model = parse(
        """g (float[N, 8, 1] x) => (float[P, Q, R] y) <int64 zero = {0}> {
        s = Shape(x) n = Gather(s, zero) n1 = Unsqueeze<axes = [0]>(n)
        t = Concat<axis = 0>(n1, one, five) e = Expand(x, t) f = ConstantOfShape(t) y = Add(e, f) }""",
        {"one": np.array([1]), "five": np.array([5])},
        opset=11,
    )
    found = shapes(model)
    assert found["e"] == [None, 8, 5]
    assert found["f"] == [None, 1, 5]
