"""Powers of polynomials: what a normalization in pieces is recognised by."""

from __future__ import annotations

import pytest

from trtnorm_cli.rewrite.norms.polynomial import DATA, MAGNITUDE, SQUARE, Base, Polynomial


def of(atom, exponent=1.0):
    return Polynomial.atom(atom, exponent)


def test_the_root_of_a_square_is_not_what_was_squared():
    squared = of(DATA).power(2)
    assert squared == of(DATA, 2.0)
    assert squared.power(0.5) == Polynomial.atom(Base(squared), 0.5)


@pytest.mark.parametrize("atom", [SQUARE, MAGNITUDE])
def test_the_root_of_what_is_never_negative_is_taken(atom):
    assert of(atom, 2.0).power(0.5) == of(atom, 1.0)


def test_a_whole_power_is_taken_whatever_the_sign_is():
    assert of(DATA).power(-1) == of(DATA, -1.0)
    assert of(DATA, 3.0).power(-2) == of(DATA, -6.0)


def test_the_root_of_a_negative_number_is_not_taken():
    negative = Polynomial.constant(-4.0)
    assert negative.power(0.5) == Polynomial.atom(Base(negative), 0.5)
