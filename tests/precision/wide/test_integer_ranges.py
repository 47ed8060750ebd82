"""Ranges of integers over all sizes of a profile: proved, never guessed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import parse
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.precision.wide.integer_ranges import IntegerRanges

LARGEST = {"N": 4, "S": 32}


def ranges(model, largest=None):
    model = onnx.shape_inference.infer_shapes(model)
    types = {name: kind.dtype for name, kind in declared_types(model).items()}
    types |= {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    return IntegerRanges(model, None, LARGEST if largest is None else largest, types)


def of(body, weights=None, inputs="int64[N, S] x", output="int64[] y", largest=None):
    return ranges(parse(f"g ({inputs}) => ({output}) {{ {body} }}", weights), largest).of("y")


TABLE = {"table": np.zeros((100, 2), np.float32), "two": np.array(2), "minus": np.array(-5), "zero": np.array(0)}


@pytest.mark.parametrize(("body", "known"), [
    ("y = Identity(x)", None),
    ("y = Mod(x, two)", (-1, 1)),
    ("y = Add(x, two)", None),
    ("y = Clip(x, minus, two)", (-5, 2)),
    ("y = Sign(x)", (-1, 1)),
    ("m = Mod(x, two) y = Neg(m)", (-1, 1)),
    ("m = Clip(x, minus, two) y = Abs(m)", (0, 5)),
    ("m = Clip(x, minus, two) y = Mul(m, m)", (-10, 25)),
    ("m = Clip(x, minus, two) y = Div(m, two)", (-5, 2)),
    ("m = Clip(x, minus, two) y = Div(m, zero)", None),
    ("m = Clip(x, minus, two) y = Sub(m, two)", (-7, 0)),
    ("m = Clip(x, minus, two) y = CumSum(m, zero)", (-5 * 128, 2 * 128)),
    ("m = Clip(x, minus, two) y = ReduceSum(m)", (-5 * 128, 2 * 128)),
    ("b = Equal(x, two) y = Cast <to = 7> (b)", (0, 1)),
    ("f = Cast <to = 1> (x) y = Cast <to = 7> (f)", None),
    ("y = ArgMax <axis = 1> (x)", (0, 31)),
    ("y = Shape(x)", (4, 32)),
    ("b = Equal(x, two) y = Where(b, two, minus)", (-5, 2)),
    ("i = Cast <to = 6> (x) y = Cast <to = 7> (i)", (-(2**31), 2**31 - 1)),
])  # fmt: skip
def test_what_each_operator_makes_of_ranges(body, known):
    found = of(body, TABLE)
    if known is None or found is None:
        assert found == known
    else:
        assert found[0] <= known[0]
        assert known[1] <= found[1]
        assert found[1] - found[0] <= 4 * (known[1] - known[0]) + 256


def test_an_index_is_within_what_it_is_looked_up_in():
    model = parse(
        "g (int64[N, S] x) => (float[N, S, 2] e, int64[N, S] y) { u = Identity(x) e = Gather(table, u) y = Add(x, two) }", TABLE
    )
    assert ranges(model).of("x") == (-100, 99)
    assert ranges(model).of("y") == (-98, 101)


def test_sizes_without_a_largest_are_not_known():
    """An input of few integers could hold anything."""
    body = "y = Add(x, two)"
    assert of(body, TABLE, "int64[2] x", "int64[2] y", {}) is None
    assert of(body, TABLE, "int64[2] x", "int64[2] y", {"x.values[0]": 7, "x.values[1]": 9}) == (-7, 11)
    assert of("y = Shape(x)", None, largest={}) is None


def test_what_fractions_make_of_sizes_is_not_bounded_by_the_sizes():
    body = "s = Shape(x) f = Cast <to = 1> (s) d = Div(f, tenth) y = Cast <to = 7> (d)"
    assert of(body, {"tenth": np.array(0.1, np.float32)}) is None


def test_numbers_that_wrap_around_are_not_known():
    weights = {"huge": np.array(2**62), "two": np.array(2)}
    assert of("m = Mul(huge, two) y = Add(m, x)", weights) is None
    assert of("a = Add(huge, huge) y = Identity(a)", weights) is None


def test_updates_that_are_added_up_are_not_known():
    body = 'm = Mod(x, two) s = Mod(x, two) y = ScatterElements <reduction = "add"> (m, i, s)'
    assert of(body, {**TABLE, "i": np.zeros((4, 32), np.int64)}, "int64[4, 32] x") is None


def test_every_number_of_a_run_is_within_its_range(tmp_path):
    model = parse(
        "g (int64[N, S] x) => (float[N, S, 2] e) { b = Equal(x, two) n = Not(b) m = Cast <to = 7> (n) c = CumSum(m, zero) "
        "p = Mul(c, m) q = Add(p, two) r = Sub(two, q) t = Mod(r, minus) v = Max(t, q) w = Div(v, two) "
        "k = ReduceMax <axes = [1]> (w) z = Concat <axis = 1> (k, w) e = Gather(table, x) a = ArgMin <axis = 1> (z) }",
        TABLE,
    )  # fmt: skip
    known = ranges(model)
    names = [name for node in model.graph.node for name in node.output if name not in ("b", "n", "e")]
    feeds = {"x": np.random.default_rng(0).integers(-100, 100, (4, 32))}
    with OrtRunner() as runner:
        for name, value in runner.run(model, feeds, names).items():
            low, high = known.of(name)
            assert low <= value.min(), name
            assert value.max() <= high, name
