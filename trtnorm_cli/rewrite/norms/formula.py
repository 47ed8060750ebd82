"""Read a polynomial as ``(x − μ) · (a·σ² + ε)^-½ · scale + bias``, or say in which way it is something else."""

from __future__ import annotations

from functools import lru_cache

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.rewrite.norms.polynomial import (
    COUNT,
    DATA,
    MEAN,
    MEAN_MAGNITUDE,
    SQUARE,
    STATISTICS,
    Atom,
    Base,
    Floor,
    Monomial,
    Parameter,
    Polynomial,
)

_MEAN_SQUARED: Monomial = frozenset({(MEAN, 2.0)})
_SQUARE: Monomial = frozenset({(SQUARE, 1.0)})
_MAGNITUDE: Monomial = frozenset({(MEAN_MAGNITUDE, 1.0)})
_ONE: Monomial = frozenset()
_COUNT_LESS_ONE = Polynomial.atom(COUNT) - Polynomial.constant(1.0)
_UNBIASED: Monomial = frozenset({(COUNT, 1.0), (Base(_COUNT_LESS_ONE), -1.0)})
# Factors such as 1/n are stored in float32.
_ROUNDING = 1e-6
_FORMULAS_KEPT = 1024


@dataclass(frozen=True)
class Formula:
    """The divisor of the data, with the factors before and after.

    ``spread`` is "variance", "square" (E[x²]) or "magnitude" (E[|x|]), which is multiplied by ``weight``; ``epsilon`` is added
    to it, and ``floor`` is the least that the divisor may be. ``outside`` is added after the root. ``centred`` is set where the
    mean is subtracted, ``unbiased`` where the variance is divided by a count less one that is known at run time. ``factor`` is
    a constant that multiplies all. ``scale`` are the tensors that multiply the normalized data, and ``shift`` those of what is
    added.
    """

    centred: bool
    spread: str
    weight: float
    epsilon: float
    factor: float
    scale: tuple[tuple[str, float], ...]
    shift: Polynomial
    floor: float = 0.0
    floor_inside: bool = False
    outside: float = 0.0
    unbiased: bool = False

    @property
    def shift_tensors(self) -> tuple[str, ...]:
        return tuple(sorted(atom.tensor for atom in self.shift.atoms() if isinstance(atom, Parameter)))


@lru_cache(maxsize=_FORMULAS_KEPT)
def formula_of(polynomial: Polynomial) -> Formula | None:
    """The formula that ``polynomial`` is; None when it is no normalization of the data."""
    terms = dict(polynomial.terms)
    with_data = [monomial for monomial in terms if DATA in dict(monomial)]
    if len(with_data) != 1:
        return None
    main = dict(with_data[0])
    if main.pop(DATA) != 1.0:
        return None
    factor = terms.pop(with_data[0])
    with_mean = [monomial for monomial in terms if _mentions(monomial, MEAN)]
    centred = frozenset({*main.items(), (MEAN, 1.0)})
    if with_mean and (with_mean != [centred] or abs(terms[centred] + factor) > _ROUNDING * abs(factor)):
        return None
    terms.pop(centred, None)
    shift = Polynomial.of(terms)
    if shift.has(*STATISTICS) or any(isinstance(atom, Base | Floor) for atom in shift.atoms()):
        return None
    return _with_divisor(main, factor, bool(with_mean), shift)


def _mentions(monomial: Monomial, wanted: Atom) -> bool:
    return any(atom == wanted for atom, _ in monomial)


def _with_divisor(main: dict[Atom, float], factor: float, centred: bool, shift: Polynomial) -> Formula | None:
    divisors = [(atom, exponent) for atom, exponent in main.items() if not isinstance(atom, Parameter)]
    if len(divisors) != 1:
        return None
    atom, exponent = divisors[0]
    scale = tuple(sorted((a.tensor, e) for a, e in main.items() if isinstance(a, Parameter)))
    read = _divisor(atom, exponent)
    if read is None or centred != (read["spread"] == "variance"):
        return None
    return Formula(centred=centred, factor=factor, scale=scale, shift=shift, **read)  # type: ignore[arg-type]


def _divisor(atom: Atom, exponent: float) -> dict[str, object] | None:
    """The divisor that the power of ``atom`` stands for."""
    if isinstance(atom, Floor):
        return _floored(atom, exponent)
    if isinstance(atom, Base) and exponent == -1.0:
        return _added_outside(atom.of)
    inner = atom.of if isinstance(atom, Base) else Polynomial.atom(atom)
    wanted = -1.0 if atom == MEAN_MAGNITUDE else -0.5
    return _spread(inner) if exponent == wanted else None


def _floored(atom: Floor, exponent: float) -> dict[str, object] | None:
    if exponent == -0.5:
        read = _spread(atom.of)
        return None if read is None else {**read, "floor": atom.least, "floor_inside": True}
    if exponent != -1.0:
        return None
    read = _root(atom.of)
    return None if read is None else {**read, "floor": atom.least}


def _added_outside(inner: Polynomial) -> dict[str, object] | None:
    """``√(spread) + c``: the constant is not under the root. Also a sum of magnitudes with a constant."""
    terms = dict(inner.terms)
    outside = terms.pop(_ONE, 0.0)
    read = _root(Polynomial.of(terms))
    return None if read is None else {**read, "outside": outside}


def _root(inner: Polynomial) -> dict[str, object] | None:
    """The spread whose root ``inner`` is; of magnitudes, the sum itself."""
    if len(inner.terms) != 1:
        return None
    monomial, value = next(iter(inner.terms))
    if monomial == _MAGNITUDE:
        return {"spread": "magnitude", "weight": value, "epsilon": 0.0}
    if len(monomial) != 1 or value <= 0:
        return None
    (atom, exponent), *_ = monomial
    if exponent != 0.5:
        return None
    read = _spread(atom.of if isinstance(atom, Base) else Polynomial.atom(atom))
    return None if read is None else {**read, "weight": float(str(read["weight"])) * value**2}


def _spread(inner: Polynomial) -> dict[str, object] | None:
    """``weight · (E[x²] − μ²) + ε``, ``weight · E[x²] + ε`` or ``weight · E[|x|]``."""
    terms = dict(inner.terms)
    epsilon = terms.pop(_ONE, 0.0)
    counted = {_counts(monomial) for monomial in terms}
    if counted == {_UNBIASED}:
        read = _spread(Polynomial.of({monomial - _UNBIASED: value for monomial, value in terms.items()}))
        return None if read is None else {**read, "epsilon": epsilon, "unbiased": True}
    if set(terms) == {_MAGNITUDE}:
        return {"spread": "magnitude", "weight": terms[_MAGNITUDE], "epsilon": epsilon}
    weight = terms.pop(_SQUARE, 0.0)
    mean = terms.pop(_MEAN_SQUARED, 0.0)
    if terms or weight <= 0 or (mean and abs(weight + mean) > _ROUNDING * weight):
        return None
    return {"spread": "variance" if mean else "square", "weight": weight, "epsilon": epsilon}


def _counts(monomial: Monomial) -> Monomial:
    """The part of a product that is about how many values there are."""
    return frozenset((atom, e) for atom, e in monomial if atom == COUNT or _is_of_counts(atom))


def _is_of_counts(atom: Atom) -> bool:
    return isinstance(atom, Base) and atom.of.atoms() == {COUNT}
