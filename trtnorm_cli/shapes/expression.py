"""Exact expressions of sizes: polynomials with integer coefficients over symbols and functions of expressions.

A size is an ``int`` or an ``Expr``. Expressions are immutable. Two that were simplified to the same form are equal. The
simplifications hold for all integers, except that a symbol is taken to be at least its ``low``. Nothing relies on a complete
normal form, since conditions are decided by evaluating them (``shapes.evaluate``).

Source of the rules for nested floors: Graham, Knuth, Patashnik, "Concrete Mathematics", section 3.2.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from typing import ClassVar, Union
from weakref import WeakValueDictionary

Size = Union[int, "Expr"]
Argument = Union[int, float, str, "Expr"]
Monomial = tuple["Atom", ...]

_COUNTER = itertools.count()
# Polynomials with more terms are kept as products: expanding them costs more than it could simplify.
_MOST_TERMS = 64
_LONGEST_TEXT = 400
COMPARISONS = {"eq": "==", "ne": "!=", "le": "<=", "lt": "<"}
# Operators that are written between their arguments: those that bind like a product, and those that bind less than a sum.
_TIGHT = frozenset({"floordiv", "mod"})
_LOOSE = frozenset({*COMPARISONS, "and", "or"})


class Atom:
    """A symbol, or a function of expressions. There is one object for each, so that identity is equality.

    ``serial`` grows with creation, so the arguments of an atom have smaller ones. ``low`` is a lower bound, None if unknown.
    """

    __slots__ = ("__weakref__", "_text", "args", "low", "op", "serial", "symbols")
    _known: ClassVar[WeakValueDictionary[tuple[object, ...], Atom]] = WeakValueDictionary()
    symbols: frozenset[str]

    def __init__(self, op: str, args: tuple[Argument, ...], low: int | None) -> None:
        self.op, self.args, self.low = op, args, low
        self.serial = next(_COUNTER)
        self._text: str | None = None
        own = {str(args[0])} if op == "symbol" else set()
        self.symbols = frozenset(own.union(*(a.symbols for a in args if isinstance(a, Expr))))

    @property
    def text(self) -> str:
        """The function as one reads it. What would be very long, because parts of it occur again and again, is cut."""
        if self._text is None:
            text = _atom_text(self)
            self._text = text if len(text) <= _LONGEST_TEXT else f"{self.op}(…)"
        return self._text

    @classmethod
    def of(cls, op: str, args: tuple[Argument, ...], low: int | None = None) -> Atom:
        # 1 and 1.0 are equal keys, but not the same argument.
        key = (op, args, tuple(map(type, args)), low if op == "symbol" else None)
        atom = cls._known.get(key)
        if atom is None:
            atom = cls._known[key] = cls(op, args, low)
        return atom


class Expr:
    """A polynomial that is not a plain integer. ``terms`` maps products of atoms to their coefficients."""

    __slots__ = ("_hash", "symbols", "terms")

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = tuple(sorted(terms.items(), key=lambda term: tuple(atom.serial for atom in term[0])))
        self._hash = hash(self.terms)
        self.symbols = frozenset().union(*(atom.symbols for atoms, _ in self.terms for atom in atoms))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self._hash == other._hash and self.terms == other.terms

    def __hash__(self) -> int:
        return self._hash

    def __add__(self, other: Size) -> Size:
        return _sum(((1, self), (1, other)))

    def __sub__(self, other: Size) -> Size:
        return _sum(((1, self), (-1, other)))

    def __rsub__(self, other: Size) -> Size:
        return _sum(((1, other), (-1, self)))

    def __neg__(self) -> Size:
        return _sum(((-1, self),))

    def __mul__(self, other: Size) -> Size:
        return _product(self, other)

    def __floordiv__(self, other: Size) -> Size:
        return floor_divide(self, other)

    def __rfloordiv__(self, other: Size) -> Size:
        return floor_divide(other, self)

    def __mod__(self, other: Size) -> Size:
        return modulo(self, other)

    def __rmod__(self, other: Size) -> Size:
        return modulo(other, self)

    __radd__ = __add__
    __rmul__ = __mul__

    def __bool__(self) -> bool:
        raise TypeError(f"whether {self} holds depends on {', '.join(sorted(self.symbols))}")

    def __str__(self) -> str:
        return text_of(self)

    __repr__ = __str__


def symbol(name: str, low: int = 1) -> Expr:
    """A size that is known by ``name`` only, and at least ``low``."""
    return apply("symbol", name, low=low)


def apply(op: str, *args: Argument, low: int | None = None) -> Expr:
    """The function ``op`` of ``args``, unsimplified. ``shapes.evaluate`` has the functions."""
    return Expr({(Atom.of(op, args, low),): 1})


def constant_part(value: Size) -> tuple[int, Size]:
    """Split ``value`` into an integer and the rest."""
    if isinstance(value, int):
        return value, 0
    number = dict(value.terms).get((), 0)
    return number, value - number


def lower_bound(value: Size) -> int | None:
    """A number that ``value`` is never below, as far as that is known."""
    if isinstance(value, int):
        return value
    total = 0
    for atoms, coefficient in value.terms:
        lows = [atom.low for atom in atoms]
        if coefficient < 0 and atoms:
            return None
        product = coefficient
        for low in lows:
            if low is None or (low < 0 and len(lows) > 1):
                return None
            product *= low
        total += product
    return total


def floor_divide(value: Size, divisor: Size) -> Size:
    """⌊value / divisor⌋. A zero divisor stays as it is written."""
    if isinstance(value, int) and isinstance(divisor, int) and divisor:
        return value // divisor
    exact = divide_exactly(value, divisor)
    if exact is not None:
        return exact
    if not isinstance(divisor, int) or divisor <= 0 or isinstance(value, int):
        return apply("floordiv", value, divisor)
    whole, rest = _multiples_and_rest(value, divisor)
    return _sum(((1, whole), (1, _floor_of_rest(rest, divisor))))


def _multiples_and_rest(value: Expr, divisor: int) -> tuple[Size, Size]:
    """``value`` = ``divisor`` · whole + rest, with the constant of the rest in (-divisor, 0]."""
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for atoms, coefficient in value.terms:
        remainder = -(-coefficient % divisor)
        left = remainder if atoms == () or remainder == 0 else coefficient
        whole[atoms] = (coefficient - left) // divisor
        rest[atoms] = left
    return _polynomial(whole), _polynomial(rest)


def _floor_of_rest(rest: Size, divisor: int) -> Size:
    if isinstance(rest, int):
        return rest // divisor
    number, moving = constant_part(rest)
    assert isinstance(moving, Expr)
    common = math.gcd(divisor, *(coefficient for _, coefficient in moving.terms))
    if common > 1:
        shrunk = _polynomial({atoms: coefficient // common for atoms, coefficient in moving.terms})
        return floor_divide(_sum(((1, shrunk), (1, number // common))), divisor // common)
    inner = single_atom(moving)
    if inner is not None and inner.op == "floordiv" and isinstance(inner.args[1], int) and inner.args[1] > 0:
        numerator, step = inner.args[0], inner.args[1]
        assert isinstance(numerator, (int, Expr))
        return floor_divide(_sum(((1, numerator), (number * step, 1))), step * divisor)
    low = lower_bound(rest)
    return apply("floordiv", rest, divisor, low=None if low is None else low // divisor)


def single_atom(value: Size) -> Atom | None:
    """The atom that ``value`` is, if it is nothing but one."""
    if isinstance(value, Expr) and len(value.terms) == 1:
        (atoms, coefficient) = value.terms[0]
        if len(atoms) == 1 and coefficient == 1:
            return atoms[0]
    return None


def divide_exactly(value: Size, divisor: Size) -> Size | None:
    """The polynomial whose product with ``divisor`` is ``value``, or None when there is none with integer coefficients."""
    if isinstance(value, int) and isinstance(divisor, int):
        return value // divisor if divisor and value % divisor == 0 else None
    if divisor == 1:
        return value
    if value == divisor:
        return 1
    divided_by = _terms(divisor)
    if not divided_by:
        return None
    lead, factor = max(divided_by.items(), key=_lexicographic)
    quotient: dict[Monomial, int] = {}
    rest = _terms(value)
    while rest:
        atoms, coefficient = max(rest.items(), key=_lexicographic)
        left = _without(atoms, lead)
        if left is None or coefficient % factor or len(quotient) > _MOST_TERMS:
            return None
        quotient[left] = coefficient // factor
        rest = _terms(_sum(((1, _polynomial(rest)), (-1, _product(_polynomial({left: coefficient // factor}), divisor)))))
    return _polynomial(quotient)


def _lexicographic(term: tuple[Monomial, int]) -> tuple[int, tuple[int, ...]]:
    # By degree, then by name: an order in which the leading term of a product is the product of the leading terms.
    return len(term[0]), tuple(sorted((atom.serial for atom in term[0]), reverse=True))


def _without(atoms: Monomial, factor: Monomial) -> Monomial | None:
    left = list(atoms)
    for atom in factor:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)


def ceil_divide(value: Size, divisor: Size) -> Size:
    """⌈value / divisor⌉."""
    return -floor_divide(-value, divisor)


def modulo(value: Size, divisor: Size) -> Size:
    """value - divisor · ⌊value / divisor⌋, which has the sign of ``divisor``."""
    if isinstance(value, int) and isinstance(divisor, int) and divisor:
        return value % divisor
    if divide_exactly(value, divisor) is not None:
        return 0
    if not isinstance(divisor, int) or divisor <= 0 or isinstance(value, int):
        return apply("mod", value, divisor)
    reduced = _polynomial({atoms: coefficient % divisor for atoms, coefficient in value.terms})
    return reduced % divisor if isinstance(reduced, int) else apply("mod", reduced, divisor, low=0)


def truncated_divide(value: Size, divisor: Size) -> Size:
    """The quotient rounded towards zero, as C and ONNX's Div do it."""
    low = lower_bound(value)
    if isinstance(divisor, int) and divisor > 0 and low is not None and low >= 0:
        return floor_divide(value, divisor)
    exact = divide_exactly(value, divisor)
    if exact is not None:
        return exact
    if isinstance(value, int) and isinstance(divisor, int) and divisor:
        return int(math.copysign(1, value) * math.copysign(1, divisor)) * (abs(value) // abs(divisor))
    return apply("truncdiv", value, divisor)


def product_of(values: Iterable[Size]) -> Size:
    """The product of ``values``, or 1 without any."""
    total: Size = 1
    for value in values:
        total = _product(total, value)
    return total


def _terms(value: Size) -> dict[Monomial, int]:
    if isinstance(value, int):
        return {(): value} if value else {}
    return dict(value.terms)


def _polynomial(terms: Mapping[Monomial, int]) -> Size:
    left = {atoms: coefficient for atoms, coefficient in terms.items() if coefficient}
    if not left:
        return 0
    if len(left) == 1 and () in left:
        return left[()]
    return Expr(left)


def _sum(parts: Iterable[tuple[int, Size]]) -> Size:
    total: dict[Monomial, int] = {}
    for factor, value in parts:
        for atoms, coefficient in _terms(value).items():
            total[atoms] = total.get(atoms, 0) + factor * coefficient
    return _polynomial(total)


def _product(a: Size, b: Size) -> Size:
    left, right = _terms(a), _terms(b)
    if len(left) * len(right) > _MOST_TERMS:
        return apply("mul", a, b)
    total: dict[Monomial, int] = {}
    for (atoms, x), (others, y) in itertools.product(left.items(), right.items()):
        together = tuple(sorted((*atoms, *others), key=lambda atom: atom.serial))
        total[together] = total.get(together, 0) + x * y
    return _polynomial(total)


def text_of(value: Argument) -> str:
    """``value`` as text such as ``2*((H - 1)//16) + 2``, which ``shapes.parse`` reads back."""
    if not isinstance(value, Expr):
        return str(value)
    ordered = sorted(value.terms, key=lambda term: (-len(term[0]), [atom.text for atom in term[0]]))
    alone = len(ordered) == 1
    text = ""
    for atoms, coefficient in ordered:
        part = _term_text(atoms, abs(coefficient), alone and coefficient > 0, binds=bool(text) or coefficient > 0)
        sign = "-" if coefficient < 0 else "+"
        text += f" {sign} {part}" if text else part if coefficient > 0 else "-" + part
    return text


def _term_text(atoms: Monomial, coefficient: int, alone: bool, binds: bool) -> str:
    if coefficient == 1 and len(atoms) == 1:
        text = atoms[0].text
        return text if alone or (atoms[0].op not in _LOOSE and binds) else f"({text})"
    factors = [f"({atom.text})" if atom.op in _TIGHT | _LOOSE else atom.text for atom in atoms]
    return "*".join(factors if coefficient == 1 and factors else [str(coefficient), *factors])


def _atom_text(atom: Atom) -> str:
    args = [text_of(argument) for argument in atom.args]
    if atom.op == "symbol":
        return args[0]
    if atom.op in ("floordiv", "mod"):
        return f"{_operand(args[0])}{'//' if atom.op == 'floordiv' else ' % '}{_operand(args[1])}"
    if atom.op in COMPARISONS:
        return f"{args[0]} {COMPARISONS[atom.op]} {args[1]}"
    if atom.op in ("and", "or"):
        return f" {atom.op} ".join(args)
    return f"{atom.op}({', '.join(args)})"


def _operand(text: str) -> str:
    return f"({text})" if any(mark in text for mark in " */%-") else text
