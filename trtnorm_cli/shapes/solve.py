"""The values of one symbol that satisfy conditions, found by trying every value of a window, then put into words.

Conditions made of sums, products with constants, and floors are periodic from some size on. The rule that is read off the
window (a residue class, a least value, single values) is what repeats there. ``LegalSizes.allows`` always evaluates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.shapes.evaluate import holds_over, value_at
from trtnorm_cli.shapes.expression import Size, text_of

MAX_SIZE = 2**31 - 1
_LEAST_WINDOW = 4096
_LARGEST_WINDOW = 1 << 17
_LONGEST_PERIOD = 1024
_LISTED = 8
# How far from a value a legal one is looked for, in steps of growing cost.
_REACHES = (64, 4096, _LARGEST_WINDOW)


@dataclass(frozen=True)
class SizeRule:
    """The rule that legal values follow: ``value % modulus in residues``, from ``least`` to ``most``, or one of ``extra``.

    ``most`` is None where nothing bounds them. With ``modulus`` 1 every value from ``least`` to ``most`` is legal. Without
    ``residues`` only the values in ``extra`` are legal.
    """

    modulus: int
    residues: tuple[int, ...]
    least: int
    most: int | None
    extra: tuple[int, ...] = ()

    @property
    def multiple_of(self) -> int | None:
        """The number whose multiples are the legal values, if that is the rule."""
        return self.modulus if self.modulus > 1 and self.residues == (0,) and not self.extra else None


@dataclass(frozen=True)
class LegalSizes:
    """The values of ``symbol`` from ``first`` on that satisfy every condition. ``mask[i]`` says it of ``first + i``."""

    symbol: str
    conditions: tuple[Size, ...]
    fixed: Mapping[str, int]
    first: int
    mask: np.ndarray = field(repr=False)

    def allows(self, value: int) -> bool:
        """True where no condition is broken. A condition that has no value there is not broken."""
        return all(value_at(c, {**self.fixed, self.symbol: value}) != 0 for c in self.conditions)

    def allow_all(self, values: np.ndarray) -> bool:
        """True where all ``values`` (int64) are legal."""
        return bool(_mask(self.conditions, self.symbol, values, self.fixed).all())

    def among(self, values: np.ndarray) -> np.ndarray:
        """Those of ``values`` (int64) that are legal."""
        return values[_mask(self.conditions, self.symbol, values, self.fixed)]

    def at_least(self, value: int, most: int = MAX_SIZE) -> int | None:
        """The smallest legal value from ``value`` to ``most``."""
        for reach in _REACHES:
            found = self._legal(value, min(value + reach, most))
            if len(found):
                return int(found[0])
        return None

    def at_most(self, value: int, least: int = 1) -> int | None:
        """The largest legal value from ``least`` to ``value``."""
        for reach in _REACHES:
            found = self._legal(max(value - reach, least), value)
            if len(found):
                return int(found[-1])
        return None

    def nearest(self, value: int) -> int | None:
        """The legal value closest to ``value``, and the larger one of two that are equally close."""
        below, above = self.at_most(value), self.at_least(value)
        if below is None or above is None:
            return above if below is None else below
        return above if above - value <= value - below else below

    def neighbours(self, value: int) -> tuple[int, ...]:
        """The next legal values below and above."""
        found = (self.at_most(value), self.at_least(value))
        return tuple(dict.fromkeys(legal for legal in found if legal is not None))

    def _legal(self, least: int, most: int) -> np.ndarray:
        return self.among(np.arange(least, most + 1, dtype=np.int64))

    @property
    def everything(self) -> bool:
        """True where every value of the window is legal."""
        return bool(self.mask.all())

    @property
    def nothing(self) -> bool:
        """True where no value of the window is legal."""
        return not self.mask.any()

    def rule(self) -> SizeRule | None:
        """The rule that the legal values follow, or None when no value is legal, or when they follow no simple rule."""
        return _rule(self.mask, self.first)

    def text(self) -> str:
        """The rule in words, as ``H must be ≡ 0 (mod 8) and at least 40``. It is empty where everything is legal."""
        return "" if self.everything else rule_text(self)


def solve(
    conditions: Sequence[Size], symbol: str, up_to: int = 0, fixed: Mapping[str, int] | None = None, first: int = 1
) -> LegalSizes:
    """The values of ``symbol`` that satisfy ``conditions``, where other symbols have ``fixed`` values.

    Every value from ``first`` to a multiple of ``up_to`` is tried (at least 4096, at most 131072 values).
    """
    last = min(first + max(2 * up_to, _LEAST_WINDOW), first + _LARGEST_WINDOW, MAX_SIZE)
    kept = tuple(dict.fromkeys(c for c in conditions if c != 1))
    sizes = np.arange(first, last + 1, dtype=np.int64)
    return LegalSizes(symbol, kept, dict(fixed or {}), first, _mask(kept, symbol, sizes, fixed or {}))


def _mask(conditions: Sequence[Size], symbol: str, sizes: np.ndarray, fixed: Mapping[str, int]) -> np.ndarray:
    mask = np.ones(len(sizes), dtype=bool)
    for condition in conditions:
        mask &= holds_over(condition, symbol, sizes, fixed)
    return mask


def _rule(mask: np.ndarray, first: int) -> SizeRule | None:
    legal = np.flatnonzero(mask)
    if not len(legal):
        return None
    tail = mask[len(mask) // 2 :]
    if not tail.any():
        return _bounded_rule(mask, legal, first)
    period = _period(tail)
    if period is None:
        return None
    repeats = mask[:-period] == mask[period:]
    start = int(np.flatnonzero(~repeats)[-1]) + 1 if not repeats.all() else 0
    return _periodic_rule(mask, legal, first, start, period, None)


def _bounded_rule(mask: np.ndarray, legal: np.ndarray, first: int) -> SizeRule | None:
    """Legal values that end somewhere: one interval, multiples in one, or a few single values."""
    begin, end = int(legal[0]), int(legal[-1])
    part = mask[begin : end + 1]
    period = 1 if part.all() else _period(part) if len(legal) > _LISTED else None
    if period is not None:
        return _periodic_rule(mask, legal, first, begin, period, first + end)
    if len(legal) <= _LISTED:
        return SizeRule(1, (), first + begin, first + end, tuple(int(i) + first for i in legal))
    return None


def _period(mask: np.ndarray) -> int | None:
    longest = min(_LONGEST_PERIOD, len(mask) // 2)
    return next((p for p in range(1, longest + 1) if np.array_equal(mask[:-p], mask[p:])), None)


def _periodic_rule(
    mask: np.ndarray, legal: np.ndarray, first: int, start: int, period: int, most: int | None
) -> SizeRule | None:
    from_start = legal[legal >= start]
    residues = tuple(sorted({int(i + first) % period for i in from_start[: period + 1]}))
    of_class = np.flatnonzero(np.isin((np.arange(len(mask)) + first) % period, residues))
    missing = of_class[(of_class < from_start[0]) & ~mask[of_class]]
    least = int(from_start[0]) if not len(of_class) else int(of_class[of_class > (missing[-1] if len(missing) else -1)][0])
    earlier = [int(i) for i in legal if i < from_start[0] and (i < least or int(i) not in of_class)]
    if len(earlier) > _LISTED:
        return None
    return SizeRule(period, residues, least + first, most, tuple(i + first for i in earlier))


def rule_text(legal: LegalSizes) -> str:
    """The demand of ``legal``, in words."""
    name, rule = legal.symbol, legal.rule()
    if rule is None:
        none = f"no value of {name} up to {legal.first + len(legal.mask) - 1} satisfies "
        return (none if legal.nothing else f"{name} must satisfy ") + _conditions_text(legal)
    if rule.most is not None and rule.modulus == 1:
        return f"{name} must be {_interval(rule)}"
    parts = _class_text(name, rule)
    if parts is None:
        return f"{name} must satisfy {_conditions_text(legal)}"
    smaller_fits = any((v % rule.modulus) in rule.residues for v in range(legal.first, rule.least))
    if smaller_fits:
        parts.append(f"at least {rule.least}")
    if rule.most is not None:
        parts.append(f"at most {rule.most}")
    text = " and ".join(parts)
    text = text if text.startswith(f"{name} mod ") else f"{name} must be {text}"
    return text + (f" (or {_listed(rule.extra)})" if rule.extra else "")


def _conditions_text(legal: LegalSizes) -> str:
    return " and ".join(text_of(condition) for condition in legal.conditions)


def _interval(rule: SizeRule) -> str:
    if not rule.residues:
        return _listed(rule.extra)
    span = f"at most {rule.most}" if rule.least <= 1 else f"from {rule.least} to {rule.most}"
    text = str(rule.least) if rule.least == rule.most else span
    return text + (f" (or {_listed(rule.extra)})" if rule.extra else "")


def _class_text(name: str, rule: SizeRule) -> list[str] | None:
    """The residue class in words, or None where too many residues are legal to list and too many are not."""
    if rule.modulus == 1:
        return []
    if len(rule.residues) == 1:
        return [f"≡ {rule.residues[0]} (mod {rule.modulus})"]
    if len(rule.residues) > _LISTED:
        missing = sorted(set(range(rule.modulus)) - set(rule.residues))
        listed = ", ".join(map(str, missing))
        return [f"{name} mod {rule.modulus} must not be in {{{listed}}}"] if len(missing) <= _LISTED else None
    return [f"{name} mod {rule.modulus} must be in {{{', '.join(map(str, rule.residues))}}}"]


def _listed(values: Sequence[int]) -> str:
    texts = [str(value) for value in values]
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " or " + texts[-1]
