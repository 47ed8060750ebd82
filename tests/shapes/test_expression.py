"""The algebra of sizes: whatever it simplifies, the value stays what Python computes from the text."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trtnorm_cli.shapes import floating
from trtnorm_cli.shapes.condition import broadcast_size, equal, maximum, minimum
from trtnorm_cli.shapes.evaluate import Undefined, bound_of, broken_somewhere, holds_over, value_at, values_together
from trtnorm_cli.shapes.expression import Expr, divide_exactly, product_of, symbol, truncated_divide
from trtnorm_cli.shapes.parse import NotAnExpression, parse_expression

H, W = symbol("H"), symbol("W")
BINARY = ("({} + {})", "({} - {})", "({} * {})", "({} // {})", "({} % {})", "max({}, {})", "min({}, {})")
COMPARED = ("({} == {})", "({} <= {})", "({} < {})", "({} != {})", "(({} >= {}) and (H > 2))", "not ({} > {})")


def texts(depth: int = 4) -> st.SearchStrategy[str]:
    leaves = st.one_of(st.sampled_from(["H", "W"]), st.integers(0, 9).map(str))
    return st.recursive(leaves, lambda inner: st.builds(str.format, st.sampled_from(BINARY), inner, inner), max_leaves=depth)


@settings(max_examples=400, deadline=None)
@given(texts(8), st.integers(1, 60), st.integers(1, 60))
def test_simplified_expressions_keep_their_value(text, h, w):
    try:
        expected = eval(text, {"H": h, "W": w})
    except ZeroDivisionError:
        return
    expression = parse_expression(text)
    assert value_at(expression, {"H": h, "W": w}) in (expected, None)  # None: a division by zero that Python did not reach
    shown = parse_expression(str(expression))
    assert value_at(shown, {"H": h, "W": w}) == value_at(expression, {"H": h, "W": w})


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(COMPARED), texts(4), texts(4), st.integers(1, 40), st.integers(1, 40))
def test_conditions_keep_their_value(pattern, left, right, h, w):
    text = pattern.format(left, right)
    try:
        expected = eval(text, {"H": h, "W": w})
    except ZeroDivisionError:
        return
    assert value_at(parse_expression(text), {"H": h, "W": w}) in (int(expected), None)


@settings(max_examples=100, deadline=None)
@given(texts(6), st.integers(1, 40))
def test_many_sizes_at_once_are_the_same_as_one_by_one(text, w):
    expression = parse_expression(text)
    sizes = np.arange(1, 60)
    one_by_one = [value_at(expression, {"H": int(h), "W": w}) for h in sizes]
    try:
        at_once = list(values_together(expression, {"H": sizes, "W": np.full(59, w)}))
    except Undefined:
        at_once = None
    assert at_once == (None if None in one_by_one else one_by_one)


@pytest.mark.parametrize(("text", "simple"), [
    ("((H - 1)//2 + 1 - 1)//2 + 1", "(H - 1)//4 + 1"), ("(H + 2 - 3)//2 + 1", "(H - 1)//2 + 1"), ("(8*H + 8)//8", "H + 1"),
    ("(4*H + 6)//8", "(2*H + 3)//4"), ("H//2//2//2", "H//8"), ("(H + 1)*(W + 1)//(W + 1)", "H + 1"),
    ("max(H, H + 3)", "H + 3"), ("min(H, H)", "H"), ("(8*H) % 8", "0"), ("(9*H) % 8", "H % 8"), ("H + W - H", "W"),
    ("H >= 1", "1"), ("H < 1", "0"), ("H == H + 1", "0"), ("H*W - W*H", "0"), ("2**3*H", "8*H"),
])  # fmt: skip
def test_what_is_simplified(text, simple):
    assert str(parse_expression(text)) == str(parse_expression(simple))
    assert parse_expression(text) == parse_expression(simple)


def test_a_symbol_that_can_be_zero():
    assert parse_expression("N >= 1") == 1
    assert isinstance(parse_expression("N >= 1", {"N": symbol("N", low=0)}), Expr)


def test_division_with_remainder_zero():
    assert divide_exactly((H + 1) * (W + 3), W + 3) == H + 1
    assert divide_exactly(H * W, 2) is None
    assert divide_exactly(H + 1, 1) == H + 1
    assert divide_exactly(H + 1, H) is None


def test_division_towards_zero():
    assert value_at(truncated_divide(-H, 2), {"H": 3}) == -1
    assert truncated_divide(H, 2) == H // 2
    assert list(values_together(truncated_divide(3 - H, 2), {"H": np.arange(1, 8)})) == [1, 0, 0, 0, -1, -1, -2]


def test_broadcasting():
    size = broadcast_size(H, W)
    assert [value_at(size, {"H": h, "W": w}) for h, w in ((1, 5), (5, 1), (4, 4))] == [5, 5, 4]
    assert broadcast_size(H, 1) == H
    assert broadcast_size(H, 7) == 7


def test_huge_sizes_do_not_overflow():
    volume = product_of([H, H, H, H])
    assert value_at(volume, {"H": 2**31 - 1}) == (2**31 - 1) ** 4
    assert list(values_together(volume, {"H": np.array([1, 2**31 - 1])})) == [1, (2**31 - 1) ** 4]


def test_a_symbol_without_a_value():
    assert value_at(H + W, {"H": 3}) is None
    assert value_at(maximum(H, W), {"H": 3}) is None
    assert value_at(minimum(7, 9), {}) == 7


def test_sizes_computed_with_fractions_at_many_sizes_at_once():
    third = floating.to_size(floating.multiply(floating.from_size(H, "float32"), 0.3, "float32"))
    conditions = [equal(third, 2), equal(third, 3)]
    assert list(broken_somewhere(conditions, {"H": np.array([7, 8, 9])})) == [False, True]
    assert list(broken_somewhere(conditions, {"H": np.array([9, 10])})) == [True, True]


def test_a_condition_is_no_truth_value():
    with pytest.raises(TypeError, match="depends on H"):
        bool(equal(H, 3))


@pytest.mark.parametrize(
    "text",
    ["H / 2", "H +", "f(H)", "H[0]", "'a'", "1.5*H", "H**99", "lambda: H", "floor(H, 2)", "ceiling()", "(" * 5000, "H" * 20000],
)
def test_what_is_no_expression(text):
    with pytest.raises(NotAnExpression):
        parse_expression(text)


@pytest.mark.parametrize(("text", "expected"), [
    ("Eq(Mod(((H - 1)//4) - 1, 2), 0)", 1), ("Ne(Mod(((H-1)//2),2),0)", 0), ("floor(H/2) + ceiling(H/2)", 37),
    ("CeilDiv(H, 8)", 5), ("FloorDiv(H, 8)", 4), ("And(Ge(H, 3), Not(Lt(H, 3)))", 1), ("3 <= H < 38", 1),
    ("H % 8 == 0 or H % 8 == 5", 1), ("floor(H) + ceiling(H) + FloorToInt(H)", 111), ("H % 8 == 0 and H % 8 == 5", 0),
    ("Or(Eq(H, 3), Ne(H, 3))", 1), ("-H + 2*H", 37), ("not(H <= 36)", 1), ("+H", 37), ("Min(H, 40) - Max(H, 40)", -3),
])  # fmt: skip
def test_guards_as_torch_writes_them(text, expected):
    assert value_at(parse_expression(text), {"H": 37}) == expected


@pytest.mark.parametrize("text", ["H // (H == 3)", "H % (H == 3)", "H // (H - 4)", "W // (W - W)"])
def test_a_quotient_by_zero_has_no_value(text):
    assert value_at(parse_expression(text), {"H": 4, "W": 4}) is None


@pytest.mark.parametrize("text", ["H*W - 3*H", "H // 3 - W", "-H*H", "max(H, W) % 7", "H - W", "H == W"])
def test_no_value_is_beyond_its_bound(text):
    value = parse_expression(text)
    bound = bound_of(value, {"H": 9, "W": 5})
    assert bound is not None
    assert all(abs(value_at(value, {"H": h, "W": w})) <= bound for h in range(1, 10) for w in range(1, 6))
    assert bound_of(value, {"H": 9}) is None or "W" not in text


def test_the_bound_of_a_number_and_of_what_has_none():
    assert bound_of(-4, {}) == 4
    assert bound_of(floating.to_size(floating.from_size(H, "float32")), {"H": 3}) in (3, None)
    more = floating.multiply(floating.from_size(H, "float32"), 1.7, "float32")
    assert bound_of(floating.to_size(floating.floor(more)), {"H": 3}) is None


def test_a_condition_without_a_symbol_holds_everywhere_or_nowhere():
    sizes = np.array([1, 2, 3])
    assert holds_over(1, "H", sizes).tolist() == [True] * 3
    assert holds_over(0, "H", sizes).tolist() == [False] * 3
    assert holds_over(W, "H", sizes).tolist() == [True] * 3, "what cannot be told is not broken"
