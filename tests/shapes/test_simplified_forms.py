"""The forms that sizes and conditions are simplified to, and the bounds that decide it."""

from __future__ import annotations

import pytest

from trtnorm_cli.shapes.condition import (
    at_most,
    below,
    both,
    broadcast_size,
    choice,
    different,
    either,
    equal,
    is_choice,
    maximum,
    minimum,
    negation,
)
from trtnorm_cli.shapes.expression import (
    apply,
    ceil_divide,
    constant_part,
    divide_exactly,
    floor_divide,
    lower_bound,
    modulo,
    single_atom,
    symbol,
    truncated_divide,
)

H, W = symbol("H"), symbol("W")
NONE_YET, SIGNED, ANY = symbol("Z", low=0), symbol("M", low=-2), apply("anything", "a")
CONDITION, OTHER = equal(H, 7), equal(W, 7)

SAME = {
    "the largest that is there anyway": (maximum(H, 1), H),
    "the largest, the other way round": (maximum(0, H), H),
    "the larger of neighbours": (maximum(H, H + 1, H - 1), H + 1),
    "the largest of one": (maximum(H, H), H),
    "the largest of numbers": (maximum(3, 5, 4), 5),
    "the smallest that is there anyway": (minimum(1, H), 1),
    "the smaller of neighbours": (minimum(H + 1, H, H + 2), H),
    "the smallest of numbers": (minimum(5, 3, 4), 3),
    "broadcast from 1": (broadcast_size(1, H), H),
    "broadcast of 1": (broadcast_size(H, 1), H),
    "broadcast to a number": (broadcast_size(H, 3), 3),
    "broadcast to a number, the other way round": (broadcast_size(3, H), 3),
    "broadcast of equal sizes": (broadcast_size(H, H), H),
    "equal to itself": (equal(H, H), 1),
    "different from itself": (different(H, H), 0),
    "equal to what it never is": (equal(H, 0), 0),
    "different from what it never is": (different(0, H), 1),
    "always at least": (at_most(1, H), 1),
    "never at most": (at_most(H, 0), 0),
    "at most itself": (at_most(H, H), 1),
    "below itself": (below(H, H), 0),
    "always above": (below(0, H), 1),
    "never below": (below(H, 1), 0),
    "numbers that are equal": (equal(3, 3), 1),
    "numbers at most": (at_most(3, 3), 1),
    "numbers below": (below(3, 3), 0),
    "numbers far apart": (at_most(9, 3), 0),
    "equality either way": (equal(H, W), equal(W, H)),
    "equality with a number either way": (equal(7, H), CONDITION),
    "nothing to hold": (both(), 1),
    "one that holds beside another": (both(1, CONDITION), CONDITION),
    "one that does not beside another": (both(CONDITION, 0), 0),
    "the same twice": (both(CONDITION, CONDITION), CONDITION),
    "no alternative": (either(), 0),
    "an alternative that fails": (either(0, CONDITION), CONDITION),
    "an alternative that holds": (either(CONDITION, 1), 1),
    "not 0": (negation(0), 1),
    "not 3": (negation(3), 0),
    "chosen": (choice(1, H, W), H),
    "not chosen": (choice(0, H, W), W),
    "the same either way": (choice(CONDITION, H, H), H),
    "a quotient of numbers": (floor_divide(-7, 2), -4),
    "a quotient by 1": (floor_divide(H, 1), H),
    "an exact quotient": (floor_divide(2 * H, 2), H),
    "a quotient with a constant rest": (floor_divide(2 * H + 1, 2), H),
    "a quotient with a rest below 0": (floor_divide(2 * H - 1, 2), H - 1),
    "a shortened fraction": (floor_divide(6 * H, 4), floor_divide(3 * H, 2)),
    "a shortened fraction with a constant": (floor_divide(4 * H + 3, 6), floor_divide(2 * H + 1, 3)),
    "a quotient of a quotient": (floor_divide(floor_divide(H, 2), 3), floor_divide(H, 6)),
    "a quotient of a quotient and a number": (floor_divide(floor_divide(H, 2) + 1, 3), floor_divide(H + 2, 6)),
    "a quotient by a size": (floor_divide(H * W, W), H),
    "a remainder of numbers": (modulo(-7, 3), 2),
    "no remainder": (modulo(2 * H, 2), 0),
    "a constant remainder": (modulo(2 * H + 1, 2), 1),
    "a smaller coefficient": (modulo(5 * H, 3), modulo(2 * H, 3)),
    "rounded up": (ceil_divide(2 * H, 2), H),
    "a number rounded up": (ceil_divide(7, 2), 4),
    "towards zero as downwards": (truncated_divide(H, 2), floor_divide(H, 2)),
    "numbers towards zero": (truncated_divide(-7, 2), -3),
    "numbers towards zero, by a negative one": (truncated_divide(7, -2), -3),
    "both negative": (truncated_divide(-7, -2), 3),
}


@pytest.mark.parametrize(("made", "simple"), SAME.values(), ids=SAME)
def test_it_is_the_simple_form(made, simple):
    assert made == simple
    assert type(made) is type(simple)


OPEN = {
    "equal to the least": equal(H, 1),
    "different from the least": different(H, 1),
    "at most the least": at_most(H, 1),
    "at least two": at_most(2, H),
    "above the least": below(1, H),
    "below two": below(H, 2),
    "equal to another": equal(H, W),
    "what may be nothing": equal(NONE_YET, 0),
    "what may be below 0": at_most(0, SIGNED),
    "two conditions": both(CONDITION, OTHER),
    "one of two": either(CONDITION, OTHER),
    "not": negation(CONDITION),
}


@pytest.mark.parametrize("condition", OPEN.values(), ids=OPEN)
def test_what_its_bounds_do_not_decide_stays_a_condition(condition):
    assert single_atom(condition) is not None
    assert lower_bound(condition) == 0


BOUNDS = {
    "a size": (H, 1),
    "one that may be nothing": (NONE_YET, 0),
    "one that may be below": (SIGNED, -2),
    "a multiple of that": (3 * SIGNED, -6),
    "a difference": (H - 3, -2),
    "a sum": (2 * H + W + 3, 6),
    "less a size": (W - H, None),
    "a product": (H * W, 1),
    "a product that may be nothing": (H * NONE_YET, 0),
    "a product of unknown sign": (H * SIGNED, None),
    "anything": (ANY, None),
    "anything and a size": (ANY + H, None),
    "a number": (-4, -4),
    "a quotient": (floor_divide(H + 4, 3), 1),
    "a quotient of what may be below": (floor_divide(SIGNED, 2), -1),
    "a quotient of anything": (floor_divide(ANY, 2), None),
    "a remainder": (modulo(H, 5), 0),
    "the largest": (maximum(H + 2, W), 3),
    "the largest of anything and a number": (maximum(ANY, 5), 5),
    "the smallest": (minimum(H + 2, W + 4), 3),
    "the smallest of anything": (minimum(ANY, 5), None),
    "a broadcast": (broadcast_size(H + 1, W), 1),
    "a broadcast of what may be nothing": (broadcast_size(NONE_YET, W + 3), 0),
    "a broadcast of anything": (broadcast_size(ANY, W + 3), 0),
}


@pytest.mark.parametrize(("value", "low"), BOUNDS.values(), ids=BOUNDS)
def test_the_lower_bound(value, low):
    assert lower_bound(value) == low


STAYS = {
    "by nothing": (floor_divide(H, 0), "H//0"),
    "by a negative number": (floor_divide(H, -3), "H//(-3)"),
    "a number by a size": (floor_divide(7, H), "7//H"),
    "a size by a size": (floor_divide(H, W), "H//W"),
    "a remainder by nothing": (modulo(H, 0), "H % 0"),
    "a remainder by a negative number": (modulo(H, -3), "H % (-3)"),
    "a remainder of a number": (modulo(7, H), "7 % H"),
    "numbers by nothing": (floor_divide(7, 0), "7//0"),
    "towards zero of what may be below": (truncated_divide(SIGNED, 2), "truncdiv(M, 2)"),
    "towards zero by nothing": (truncated_divide(7, 0), "truncdiv(7, 0)"),
    "the larger of two": (maximum(H, W), "max(H, W)"),
    "the larger of what may be below 0": (maximum(SIGNED, 0), "max(0, M)"),
    "a choice": (choice(CONDITION, H, W), "where(H == 7, H, W)"),
}


@pytest.mark.parametrize(("value", "text"), STAYS.values(), ids=STAYS)
def test_what_cannot_be_simplified_is_written_as_it_is(value, text):
    assert str(value) == text


QUOTIENTS = [
    (H, H, 1), (6 * H, 3, 2 * H), (6 * H, 4, None), (H * H - 1, H - 1, H + 1), (H * H + 1, H - 1, None), (H, 0, None),
    (0, H, 0), (6, 3, 2), (7, 3, None), (6, 0, None), (H, W, None), (H * W + W, W, H + 1), (2 * H, 2 * H, 1), (H, 1, H),
]  # fmt: skip


@pytest.mark.parametrize(("value", "divisor", "quotient"), QUOTIENTS, ids=[f"{a} by {b}" for a, b, _ in QUOTIENTS])
def test_exact_division(value, divisor, quotient):
    assert divide_exactly(value, divisor) == quotient


def test_the_parts_of_a_size():
    assert constant_part(H + 3) == (3, H)
    assert constant_part(5) == (5, 0)
    assert constant_part(2 * H) == (0, 2 * H)
    assert [single_atom(value) is None for value in (H, 2 * H, H + 1, H * W, 3, 0)] == [False, True, True, True, True, True]
    assert [is_choice(value) for value in (choice(CONDITION, H, W), H, 3, 2 * choice(CONDITION, H, W), maximum(H, W))] == [
        True, False, False, False, False,
    ]  # fmt: skip
