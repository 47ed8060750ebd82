"""What was computed from constants alone is known by a constant in its place, as far as float32 explains the difference."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from tests.models import parse, random
from trtnorm_cli.evaluate.float64 import Known, evaluate_float64
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.onnx_model.save import MAPPED_FROM, save_model

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


@pytest.fixture(scope="module")
def runner() -> Iterator[OrtRunner]:
    with OrtRunner(threads=1) as running:
        yield running


def read_by(text: str, constants: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    words = re.findall(r"\w+", text)
    return {name: value for name, value in constants.items() if name in words}


def network(body: str, **constants: np.ndarray) -> onnx.ModelProto:
    text = f"g (float[6, 8] x) => (float[6, 8] y) {{ {body} a = Add(x, t) y = Softmax(a) }}"
    return parse(text, read_by(text, constants))


def in_float32(body: str, constants: dict[str, np.ndarray] = CONSTANTS) -> np.ndarray:
    """The table as a runtime in float32 computes it."""
    model = network(body, **constants)
    del model.graph.output[:]
    model.graph.output.append(onnx.helper.make_tensor_value_info("t", onnx.TensorProto.FLOAT, None))
    with np.errstate(over="ignore"):
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


THIRD, FAR = np.full((6, 8), 1 / 3, np.float32), np.full((6, 8), -3e5 + 0.7, np.float32)
GIVEN = {"third": THIRD, "big": FAR}
LARGE = np.arange(480, 528).reshape(6, 8)
OPENED = {**GIVEN, "c": FAR / 3, "q0": np.full((6, 8), -0.01)}
MASKED = {**GIVEN, "c": THIRD**2, "low": np.full((6, 8), -np.inf), "where": np.arange(48).reshape(6, 8) < 40}
# What float32 leaves open, or would if errors were followed where they are large: a table, its constants, and how far an
# element is off.
OPEN = {
    "never the largest": ("p = Mul(third, big) t = Max(p, table)", GIVEN, 1e-2),
    "never the smallest": ("p = Mul(third, big) n = Neg(p) t = Min(n, table)", GIVEN, 1e-2),
    "cut off": ("p = Mul(third, big) t = Relu(p)", GIVEN, 1e-2),
    "saturated": ("p = Mul(third, big) t = Tanh(p)", GIVEN, 1e-2),
    "saturated at 0": ("p = Mul(third, big) t = Sigmoid(p)", GIVEN, 2e-3),
    "a logarithm of nearly 0": ("s = Sigmoid(far) t = Log(s)", {"far": np.linspace(-40, -20, 48).reshape(6, 8)}, 10.0),
    "a quotient of small ones": ("s = Sin(v) t = Div(s, v)", {"v": np.linspace(1e-3, 1, 48).reshape(6, 8)}, 5e-4),
    "a sine of large ones": ("e = Mul(zero, step) f = Exp(e) p = Mul(v, f) t = Sin(p)", {"v": LARGE}, 3e-4),
    "a product that cancels": ("p = Mul(third, big) q = Sub(p, c) t = Add(q, table)", {**GIVEN, "c": FAR / 3}, 1e-2),
    "a difference beside a mask's infinity": ("p = Mul(third, third) q = Sub(p, c) t = Where(where, q, low)", {**MASKED}, 1e-3),
    "an exponential": ("p = Mul(third, big) q = Sub(p, c) e = Sub(q, q0) f = Exp(e) t = Min(f, table)", OPENED, 1e-2),
    "a root of a difference": ("p = Mul(third, third) q = Sub(p, c) r = Abs(q) t = Sqrt(r)", {**GIVEN, "c": THIRD**2}, 1e-3),
}  # fmt: skip


@pytest.mark.parametrize(("body", "constants", "off"), OPEN.values(), ids=OPEN)
def test_a_table_that_float32_leaves_open_is_evaluated(evaluated, body, constants, off):
    typed = {name: value if value.dtype == bool else value.astype(np.float32) for name, value in constants.items()}
    given = {**CONSTANTS, **typed}
    known, table = Known(takes_folds=True), in_float32(body, given)
    table[0, 3] += np.float32(off)
    first = evaluated_y(network(body, **given), known)
    evaluated.clear()
    second = evaluated_y(folded(table), known)
    assert evaluated == {"Add": 1, "Softmax": 1}
    assert not np.array_equal(first, second)


def test_a_sigmoid_of_onnx_runtime_is_that_of_the_model(evaluated, runner):
    """It is right to a few units of 1."""
    known, body = Known(takes_folds=True), "t = Sigmoid(table)"
    model = network(body, **CONSTANTS)
    first = evaluated_y(model, known)
    table = runner.run(model, {"x": np.zeros((6, 8), np.float32)}, outputs=["t"])["t"]
    evaluated.clear()
    np.testing.assert_array_equal(evaluated_y(folded(table), known), first)
    assert not evaluated


def test_the_table_of_the_first_model_stays():
    known, body = Known(takes_folds=True), TABLES["a product of tables"]
    first = evaluated_y(network(body, **CONSTANTS), known)
    other = network(body, **{**CONSTANTS, "left": CONSTANTS["right"].T[:6]})
    assert not np.array_equal(evaluated_y(other, known), first)
    np.testing.assert_array_equal(evaluated_y(folded(in_float32(body)), known), first)


def test_a_zero_of_the_other_sign_is_another_number(evaluated):
    known, head = Known(takes_folds=True), "g (float[6, 8] x) => (float[6, 8] y) {{ {body} q = Div(x, t) y = Tanh(q) }}"
    zeros = np.zeros((6, 8), np.float32)
    feeds = {"x": random(6, 8)}
    first = evaluate_float64(parse(head.format(body="t = Mul(k, k)"), {"k": zeros}), feeds, known=known, kept={"q", "y"})
    second = evaluate_float64(parse(head.format(body=""), {"t": -zeros}), feeds, known=known, kept={"q", "y"})
    assert not np.array_equal(first.outputs["y"], second.outputs["y"])


def test_the_same_bytes_of_another_type_are_another_constant():
    """The type of a zero point decides that of the quantized tensor."""
    steps = " ".join(f"q{t} = QuantizeLinear(x, s, z{t}) d{t} = DequantizeLinear(q{t}, s, z{t})" for t in (2, 3))
    text = f"g (float[8] x) => (float[] y) {{{{ {{body}} {steps} y = Add(d2, d3) }}}}"
    kept, feeds, scale = {"q2", "q3", "d2", "d3", "y"}, {"x": random(8)}, {"s": np.array(0.01, np.float32)}
    source = parse(text.format(body="z2 = Cast<to = 2>(k) z3 = Cast<to = 2>(k)"), {**scale, "k": np.array(0)})
    candidate = parse(text.format(body=""), {**scale, "z2": np.array(0, np.uint8), "z3": np.array(0, np.int8)})
    known = Known(takes_folds=True)
    first, second = (evaluate_float64(one, feeds, known=known, kept=kept).outputs["y"] for one in (source, candidate))
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(second, evaluate_float64(candidate, feeds).outputs["y"])


def test_a_folded_zero_is_no_index():
    head = "g (float[2, 3] x) => (float[] y) {{ {body} a = Add(x, z) y = Gather<axis = 0>(a, i) }}"
    known, feeds, kept, given = Known(takes_folds=True), {"x": random(2, 3)}, {"a", "y"}, {"i": np.array(0)}
    source = parse(head.format(body="z = Sub(one, one)"), {**given, "one": np.array(1, np.float32)})
    candidate = parse(head.format(body=""), {**given, "z": np.array(0, np.float32)})
    first, second = (evaluate_float64(one, feeds, known=known, kept=kept).outputs["y"] for one in (source, candidate))
    np.testing.assert_array_equal(first, second)


def test_a_view_of_a_stored_weight_stays_in_float64(tmp_path):
    """Weights that are stored in float32 are raised by who reads them."""
    w, feeds = random(400, 500, seed=3), {"x": random(500, 400)}
    head = "g (float[500, 400] x) => (float[] y) {{ {body} e = Exp(t) y = Add(x, e) }}"
    models = (
        parse(head.format(body="t = Transpose(w)"), {"w": w}),
        parse(head.format(body=""), {"t": np.ascontiguousarray(w.T)}),
    )
    known = Known(takes_folds=True)
    known.lend([])
    found = []
    for number, model in enumerate(models):
        save_model(model, tmp_path / f"{number}.onnx", None, MAPPED_FROM)
        found.append(evaluate_float64(tmp_path / f"{number}.onnx", feeds, known=known, kept={"e", "y"}).outputs["y"])
    np.testing.assert_array_equal(*found)


def test_tables_are_let_go_with_the_results(evaluated):
    known, body = Known(takes_folds=True), TABLES["a product of tables"]
    evaluated_y(network(body, **CONSTANTS), known)
    known.forget_all_but(())
    assert known.room == Known().room
    evaluated.clear()
    evaluated_y(folded(in_float32(body)), known)
    assert evaluated == {"Add": 1, "Softmax": 1}


def test_strings_are_constants_too():
    names = np.array([str(number) for number in range(70)], object)
    model = parse("g (string[70] s) => (bool[] y) { y = Equal(s, names) }", opset=19)
    model.graph.initializer.append(
        onnx.helper.make_tensor("names", onnx.TensorProto.STRING, [70], [one.encode() for one in names])
    )
    assert evaluate_float64(model, {"s": names}, known=Known()).outputs["y"].all()


def test_a_constant_of_the_model_is_what_it_is():
    """Only what was computed has an error."""
    known, table = Known(takes_folds=True), in_float32(TABLES["a product of tables"])
    first = evaluated_y(folded(table), known)
    table[0, 0] = np.nextafter(table[0, 0], np.float32(9))
    assert not np.array_equal(evaluated_y(folded(table), known), first)
