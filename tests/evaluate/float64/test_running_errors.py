"""What was computed from constants alone is known by a constant in its place, as far as float32 explains the difference."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tests.models import parse, random
from trtnorm_cli.evaluate.float64 import Known, evaluate_float64

# Each computes t [6, 8] from constants, as exporters write tables of positions and scales.
TABLES = {
    "a grid from -1 to 1": "i = Range(zero, six, one) k = Reshape(i, column) m = Mul(k, two) d = Div(m, five)"
    " t0 = Sub(d, one) t = Expand(t0, shape)",
    "sines of positions": "i = Range(zero, six, one) k = Reshape(i, column) e = Mul(row, step) f = Exp(e) p = Mul(k, f)"
    " t = Sin(p)",
    "frequencies": "e = Div(row, eight) f = Pow(base, e) g = Reciprocal(f) k = Reshape(row, column8) s = Slice(k, n0, n6)"
    " t = Mul(s, g)",
    "a scale of an attention": "h = Cast<to = 1>(whole) q = Sqrt(h) r = Div(one, q) u = Sqrt(r) t = Mul(u, table)",
    "a product of tables": "t = MatMul(left, right)",
    "functions": "l = Log(positive) n = Neg(l) m = Abs(n) b = Tanh(m) c = Sigmoid(b) t = Max(c, table)",
    "moved and chosen": "d = Div(table, five) x0 = Transpose(d) x1 = Transpose(x0) c = Concat<axis = 0>(x1, table)"
    " g = Gather(c, places) m = Greater(table, zero) t = Where(m, g, d)",
    "a layer of constants": "c = Conv<kernel_shape = [3]>(signal, kernel) r = Relu(c) d = Div(r, five) t = Reshape(d, shape)",
}
NUMBERS = {"zero": 0, "one": 1, "two": 2, "five": 5, "six": 6, "eight": 8, "base": 10000, "step": -0.3}
CONSTANTS = {
    **{name: np.array(value, np.float32) for name, value in NUMBERS.items()},
    "whole": np.array(96),
    "row": np.arange(8, dtype=np.float32),
    "column": np.array([-1, 1]),
    "column8": np.array([8, 1]),
    "shape": np.array([6, 8]),
    "n0": np.array([0]),
    "n6": np.array([6]),
    "table": random(6, 8, seed=3),
    "left": random(6, 50, seed=4),
    "right": random(50, 8, seed=5),
    "positive": np.abs(random(6, 8, seed=6)),
    "places": np.array([3, 9, 0, 11, 5, 2]),
    "signal": random(1, 4, 10, seed=7),
    "kernel": random(6, 4, 3, seed=8),
}


def read_by(text: str, constants: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    words = re.findall(r"\w+", text)
    return {name: value for name, value in constants.items() if name in words}


def network(body: str, **constants: np.ndarray) -> onnx.ModelProto:
    text = f"g (float[6, 8] x) => (float[6, 8] y) {{ {body} a = Add(x, t) y = Softmax(a) }}"
    return parse(text, read_by(text, constants))


def in_float32(body: str) -> np.ndarray:
    """The table as a runtime in float32 computes it."""
    model = network(body, **CONSTANTS)
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info("t", onnx.TensorProto.FLOAT, None))
    (table,) = ReferenceEvaluator(model).run(None, {"x": np.zeros((6, 8), np.float32)})
    return np.asarray(table, np.float32)


def evaluated_y(model: onnx.ModelProto, known: Known | None) -> np.ndarray:
    return evaluate_float64(model, {"x": random(6, 8)}, known=known, kept={"a", "y"}).outputs["y"]


def folded(table: np.ndarray) -> onnx.ModelProto:
    return network("", t=table)


@pytest.mark.parametrize("body", TABLES.values(), ids=TABLES)
def test_a_table_that_was_folded_in_float32_is_that_of_the_model(evaluated, body):
    known = Known(takes_folds=True)
    first = evaluated_y(network(body, **CONSTANTS), known)
    evaluated.clear()
    np.testing.assert_array_equal(evaluated_y(folded(in_float32(body)), known), first)
    assert not evaluated


@pytest.mark.parametrize("body", TABLES.values(), ids=TABLES)
def test_one_number_that_is_off_by_more_is_evaluated(evaluated, body):
    known, table = Known(takes_folds=True), in_float32(body)
    first = evaluated_y(network(body, **CONSTANTS), known)
    table[4, 5] += np.float32(1e-4) * np.abs(table[4, 5]) + np.float32(1e-5)
    evaluated.clear()
    second = evaluated_y(folded(table), known)
    assert evaluated == {"Add": 1, "Softmax": 1}
    assert not np.array_equal(first, second)


def test_the_same_table_under_another_name_is_that_of_the_model_once_one_is(evaluated):
    """So are the constants in TensorRT's network, which have names of their own."""
    body = TABLES["a grid from -1 to 1"]
    known, table = Known(takes_folds=True), np.tile(in_float32(body), (2, 1))
    twice = f"{body} w = Concat<axis = 0>(t, t)"
    head = "g (float[12, 8] x) => (float[12, 8] y) {{ {body} y = Add(x, {name}) }}"
    feeds = {"x": random(12, 8)}

    def run(model: onnx.ModelProto) -> np.ndarray:
        return evaluate_float64(model, feeds, known=known, kept={"y"}).outputs["y"]

    read = {
        name: value for name, value in CONSTANTS.items() if name in ("zero", "one", "two", "five", "six", "column", "shape")
    }
    first = run(parse(head.format(body=twice, name="w"), read))
    other = parse(head.format(body="", name="v"), {"v": table})
    evaluated.clear()
    assert not np.array_equal(run(other), first), "nobody has said yet what it is"
    np.testing.assert_array_equal(run(parse(head.format(body="", name="w"), {"w": table})), first)
    other = parse(head.format(body="", name="u"), {"u": table})
    np.testing.assert_array_equal(run(other), first)


@pytest.mark.parametrize("table", [np.zeros((6, 8), np.float32), np.full((6, 8), np.nan, np.float32), np.zeros((6, 8))])
def test_other_tables_are_evaluated(evaluated, table):
    known = Known(takes_folds=True)
    evaluated_y(network(TABLES["a product of tables"], **CONSTANTS), known)
    evaluated.clear()
    evaluated_y(folded(table.astype(np.float32)), known)
    assert evaluated == {"Add": 1, "Softmax": 1}


def test_what_is_rounded_to_whole_numbers_is_not_followed(evaluated):
    """Next to a tie, float32 decides otherwise."""
    known = Known(takes_folds=True)
    body = "d = Div(table, five) f = Floor(d) t = Div(f, five)"
    evaluated_y(network(body, **CONSTANTS), known)
    evaluated.clear()
    evaluated_y(folded(in_float32(body)), known)
    assert evaluated == {"Add": 1, "Softmax": 1}


def test_whole_tables_are_known_by_their_elements(evaluated):
    known = Known(takes_folds=True)
    head = "g (float[99] x) => (float[70] y) {{ {body} y = Gather(x, i) }}"
    feeds = {"x": random(99)}
    first = evaluate_float64(
        parse(head.format(body="i = Range(a, b, c)"), {"a": np.array(2), "b": np.array(72), "c": np.array(1)}),
        feeds, known=known, kept={"y"},
    ).outputs["y"]  # fmt: skip
    evaluated.clear()
    model = parse(head.format(body=""), {"i": np.arange(2, 72)})
    np.testing.assert_array_equal(evaluate_float64(model, feeds, known=known, kept={"y"}).outputs["y"], first)
    assert not evaluated
    model = parse(head.format(body=""), {"i": np.arange(3, 73)})
    evaluate_float64(model, feeds, known=known, kept={"y"})
    assert evaluated == {"Gather": 1}


def test_a_comparison_that_measures_evaluates_both(evaluated):
    known, body = Known(), TABLES["sines of positions"]
    first = evaluated_y(network(body, **CONSTANTS), known)
    evaluated.clear()
    second = evaluated_y(folded(in_float32(body)), known)
    assert evaluated == {"Add": 1, "Softmax": 1}
    assert 0 < np.abs(second - first).max() < 1e-6


def test_a_constant_of_the_model_is_what_it_is():
    """Only what was computed has an error."""
    known, table = Known(takes_folds=True), in_float32(TABLES["a product of tables"])
    first = evaluated_y(folded(table), known)
    table[0, 0] = np.nextafter(table[0, 0], np.float32(9))
    assert not np.array_equal(evaluated_y(folded(table), known), first)
