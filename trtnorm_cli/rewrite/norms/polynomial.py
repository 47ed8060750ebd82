"""Sums of products of a tensor, its statistics and parameters, so that every spelling of a formula comes out the same.

The atoms are the data x, μ = E[x], E[x²], |x|, E[|x|], parameters (tensors that do not come from x), and powers of whole
polynomials. A variance is E[x²] − μ², whether it was written as the mean of squared differences or not: multiplying out
(x − μ)² and taking the mean of each product gives just that.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property, lru_cache
from typing import TypeAlias

from trtnorm_cli.light_dataclass import dataclass

_FACTOR_ROUNDING = 1e-6
# Products beyond this are no normalization, and would only grow further.
_MOST_TERMS = 24
# The norms of a model are alike: up to where their parameters come in, each is the same products as the one before.
_PRODUCTS_KEPT = 1024


class TooManyTerms(Exception):
    """The polynomial is too long to be about one normalization."""


@dataclass(frozen=True)
class Symbol:
    """The data or one of its statistics."""

    name: str


@dataclass(frozen=True)
class Parameter:
    """A tensor that does not come from the data."""

    tensor: str


@dataclass(frozen=True)
class Base:
    """A polynomial with several terms, of which a power is taken."""

    of: Polynomial


@dataclass(frozen=True)
class Floor:
    """The larger one of a polynomial and a constant."""

    of: Polynomial
    least: float


Atom: TypeAlias = "Symbol | Parameter | Base | Floor"
Monomial = frozenset[tuple[Atom, float]]

DATA, MEAN, SQUARE = Symbol("x"), Symbol("E[x]"), Symbol("E[x²]")
MAGNITUDE, MEAN_MAGNITUDE = Symbol("|x|"), Symbol("E[|x|]")
# How many values are normalized together, where that is known at run time only.
COUNT = Symbol("n")
STATISTICS = (MEAN, SQUARE, MEAN_MAGNITUDE)
_NEVER_NEGATIVE = (SQUARE, MEAN_MAGNITUDE, MAGNITUDE, COUNT)
_ONE: Monomial = frozenset()


@dataclass(frozen=True)
class Polynomial:
    """``terms`` maps a product of powers of atoms to its coefficient; there is none for a coefficient of zero."""

    terms: frozenset[tuple[Monomial, float]] = field(default_factory=frozenset)

    @classmethod
    def of(cls, terms: Mapping[Monomial, float]) -> Polynomial:
        if len(terms) > _MOST_TERMS:
            raise TooManyTerms
        return cls(frozenset([term for term in terms.items() if term[1] != 0.0]))

    @classmethod
    def atom(cls, atom: Atom, exponent: float = 1.0) -> Polynomial:
        return cls(frozenset({(frozenset({(atom, exponent)}), 1.0)}))

    @classmethod
    def constant(cls, value: float) -> Polynomial:
        return cls.of({_ONE: value})

    def __iter__(self) -> Iterator[tuple[Monomial, float]]:
        return iter(self.terms)

    def __add__(self, other: Polynomial) -> Polynomial:
        total = dict(self.terms)
        _add(total, other.terms)
        return Polynomial(frozenset(total.items()))

    def __neg__(self) -> Polynomial:
        return Polynomial(frozenset((monomial, -value) for monomial, value in self))

    def __sub__(self, other: Polynomial) -> Polynomial:
        return self + (-other)

    def __mul__(self, other: Polynomial) -> Polynomial:
        product = _multiplied(self, other)
        if product is None:
            raise TooManyTerms
        return product

    def power(self, exponent: float) -> Polynomial | None:
        """``self`` to a power; None where the result cannot be expressed."""
        return _powered(self, exponent)

    def _power(self, exponent: float) -> Polynomial | None:
        if exponent == int(exponent) and 0 <= exponent <= 3:
            return math.prod([self] * int(exponent), start=Polynomial.constant(1.0))
        if len(self.terms) != 1:
            return Polynomial.atom(Base(self), exponent) if self.terms else None
        monomial, value = next(iter(self.terms))
        fractional = exponent != int(exponent)
        if value == 0 or (fractional and (value < 0 or not all(_is_never_negative(atom, e) for atom, e in monomial))):
            return Polynomial.atom(Base(self), exponent)
        powered = frozenset((atom, e * exponent) for atom, e in monomial)
        return _expanded(powered, value**exponent)

    def constant_value(self) -> float | None:
        """The number that this is; None when there are atoms in it."""
        if not self.terms:
            return 0.0
        if len(self.terms) != 1:
            return None
        monomial, value = next(iter(self.terms))
        return None if monomial else value

    def atoms(self) -> frozenset[Atom]:
        """All atoms, also those inside powers."""
        return self._atoms

    @cached_property
    def _atoms(self) -> frozenset[Atom]:
        found: set[Atom] = set()
        for monomial, _ in self:
            for atom, _ in monomial:
                found.add(atom)
                if isinstance(atom, Base | Floor):
                    found |= atom.of.atoms()
        return frozenset(found)

    def has(self, *atoms: Atom) -> bool:
        return not self.atoms().isdisjoint(atoms)

    def renamed(self, names: Mapping[str, str]) -> Polynomial:
        """The same of other parameters: ``names`` has the new name of each."""
        if not any(isinstance(atom, Parameter) for atom in self.atoms()):
            return self
        return Polynomial(
            frozenset(
                (frozenset((_renamed(atom, names), exponent) for atom, exponent in monomial), value) for monomial, value in self
            )
        )


@lru_cache(maxsize=_PRODUCTS_KEPT)
def _multiplied(one: Polynomial, other: Polynomial) -> Polynomial | None:
    """The product; None for too many terms."""
    total: dict[Monomial, float] = {}
    try:
        for left, a in one.terms:
            for right, b in other.terms:
                _add(total, _product(left, right, a * b))
    except TooManyTerms:
        return None
    return Polynomial(frozenset(total.items()))


@lru_cache(maxsize=_PRODUCTS_KEPT)
def _powered(base: Polynomial, exponent: float) -> Polynomial | None:
    return base._power(exponent)


def _add(total: dict[Monomial, float], terms: Iterable[tuple[Monomial, float]]) -> None:
    """Add ``terms`` in place; none of ``total`` is zero, before and after."""
    vanished = []
    for monomial, value in terms:
        old = total.get(monomial, 0.0)
        total[monomial] = _without_rounding(old + value, max(abs(old), abs(value)))
        if total[monomial] == 0.0:
            vanished.append(monomial)
    if len(total) > _MOST_TERMS:
        raise TooManyTerms
    for monomial in vanished:
        del total[monomial]


def _renamed(atom: Atom, names: Mapping[str, str]) -> Atom:
    if isinstance(atom, Parameter):
        return Parameter(names[atom.tensor])
    if isinstance(atom, Base | Floor):
        return replace(atom, of=atom.of.renamed(names))
    return atom


def _without_rounding(value: float, scale: float) -> float:
    """Zero where only the rounding of constants to float32 is left of a difference."""
    return 0.0 if abs(value) <= 4e-7 * scale else value


def _is_never_negative(atom: Atom, exponent: float) -> bool:
    return atom in _NEVER_NEGATIVE or isinstance(atom, Floor) or (isinstance(atom, Base) and exponent != 1)


def is_never_negative(polynomial: Polynomial) -> bool:
    """True of a sum of what is never negative, such as a variance, E[x²] − E[x]², with or without an epsilon."""
    terms = dict(polynomial.terms)
    squared_mean = frozenset({(MEAN, 2.0)})
    less = terms.pop(squared_mean, 0.0)
    if less < 0:
        square = frozenset({(SQUARE, 1.0)})
        # E[x²] is at least E[x]²; the factors were rounded to float32.
        if terms.pop(square, 0.0) < -less * (1 - _FACTOR_ROUNDING):
            return False
    return all(value > 0 and all(_is_even(atom, exponent) for atom, exponent in monomial) for monomial, value in terms.items())


def _is_even(atom: Atom, exponent: float) -> bool:
    return _is_never_negative(atom, exponent) or exponent % 2 == 0


def _product(left: Monomial, right: Monomial, value: float) -> Iterable[tuple[Monomial, float]]:
    if not left or not right:
        return _expanded(left or right, value).terms
    exponents = dict(left)
    for atom, exponent in right:
        exponents[atom] = exponents.get(atom, 0.0) + exponent
    return _expanded(frozenset([(atom, e) for atom, e in exponents.items() if e]), value).terms


def _expanded(monomial: Monomial, value: float) -> Polynomial:
    """The product, multiplied out where a power of a polynomial came back to the polynomial itself."""
    whole = [atom for atom, exponent in monomial if exponent == 1 and isinstance(atom, Base)]
    if not whole:
        return Polynomial(frozenset([(monomial, value)])) if value != 0.0 else Polynomial()
    rest = Polynomial.of({frozenset(pair for pair in monomial if pair[0] is not whole[0]): value})
    return rest * whole[0].of if isinstance(whole[0], Base) else rest


def mean(polynomial: Polynomial) -> Polynomial | None:
    """The mean over the axes of the statistics; None where it is no statistic of the data.

    Statistics are the same all along those axes. Of a parameter that is not known, so it may not be inside.
    """
    total = Polynomial()
    for monomial, value in polynomial:
        averaged = _mean_of_product(monomial)
        if averaged is None:
            return None
        total = total + _scaled(averaged, value)
    return total


def _scaled(polynomial: Polynomial, value: float) -> Polynomial:
    return polynomial * Polynomial.constant(value)


def _mean_of_product(monomial: Monomial) -> Polynomial | None:
    exponents = dict(monomial)
    if any(isinstance(atom, Parameter) or (isinstance(atom, Base | Floor) and _varies(atom)) for atom in exponents):
        return None
    data, magnitude = exponents.pop(DATA, 0.0), exponents.pop(MAGNITUDE, 0.0)
    statistic = {(0.0, 0.0): None, (1.0, 0.0): MEAN, (2.0, 0.0): SQUARE, (0.0, 2.0): SQUARE, (0.0, 1.0): MEAN_MAGNITUDE}
    if (data, magnitude) not in statistic:
        return None
    rest = Polynomial.of({frozenset(exponents.items()): 1.0})
    atom = statistic[data, magnitude]
    return rest if atom is None else rest * Polynomial.atom(atom)


def _varies(atom: Base | Floor) -> bool:
    """True where the value is not the same all along the axes of the statistics."""
    return any(inner in (DATA, MAGNITUDE) or isinstance(inner, Parameter) for inner in atom.of.atoms())


def parameters(monomials: Iterable[Monomial]) -> tuple[str, ...]:
    """The parameters in some products, in the order of their names."""
    return tuple(sorted({atom.tensor for monomial in monomials for atom, _ in monomial if isinstance(atom, Parameter)}))
