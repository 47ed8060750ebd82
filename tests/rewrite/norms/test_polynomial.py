"""Powers of polynomials: what a normalization in pieces is recognised by."""

from __future__ import annotations

import pytest

from trtnorm_cli.rewrite.norms.polynomial import DATA, MAGNITUDE, MEAN, SQUARE, Base, Polynomial, is_never_negative


def of(atom, exponent=1.0):
    return Polynomial.atom(atom, exponent)


def test_the_root_of_a_square_is_not_what_was_squared():
    squared = of(DATA).power(2)
    assert squared == of(DATA, 2.0)
    assert squared.power(0.5) == Polynomial.atom(Base(squared), 0.5)


@pytest.mark.parametrize("atom", [SQUARE, MAGNITUDE])
def test_the_root_of_what_is_never_negative_is_taken(atom):
    assert of(atom, 2.0).power(0.5) == of(atom, 1.0)


def test_the_root_of_a_small_factor_is_taken():
    assert (of(SQUARE) * Polynomial.constant(0.25)).power(0.5) == of(SQUARE, 0.5) * Polynomial.constant(0.5)


def test_a_sum_to_the_power_of_nothing_is_one():
    assert (of(DATA) + of(MEAN)).power(0) == Polynomial.constant(1.0)


def test_a_whole_power_is_taken_whatever_the_sign_is():
    assert of(DATA).power(-1) == of(DATA, -1.0)
    assert of(DATA, 3.0).power(-2) == of(DATA, -6.0)


def test_the_root_of_a_negative_number_is_not_taken():
    negative = Polynomial.constant(-4.0)
    assert negative.power(0.5) == Polynomial.atom(Base(negative), 0.5)


def times(polynomial, number):
    return polynomial * Polynomial.constant(number)


@pytest.mark.parametrize(
    ("polynomial", "never"),
    [
        (of(DATA), False),
        (of(DATA, 2.0), True),
        (of(DATA, 3.0), False),
        (of(MEAN), False),
        (of(SQUARE), True),
        (times(of(SQUARE), -1.0), False),
        (of(SQUARE) + times(of(MEAN, 2.0), -1.0), True),
        (of(SQUARE) + times(of(MEAN, 2.0), -2.0), False),
        (times(of(SQUARE), 2.0) + times(of(MEAN, 2.0), -1.0), True),
        (of(SQUARE) + of(MEAN, 2.0), True),
        (times(of(MEAN, 2.0), -1.0), False),
        (of(SQUARE) + times(of(MEAN, 2.0), -1.0) + Polynomial.constant(1e-5), True),
        (of(SQUARE) + times(of(MEAN, 2.0), -1.0) + Polynomial.constant(-1e-5), False),
        (of(SQUARE) + times(of(MEAN, 2.0), -1.0) + of(MEAN), False),
    ],
)
def test_what_is_never_negative(polynomial, never):
    assert is_never_negative(polynomial) is never
