"""Words for sizes of a profile that do not fit the model, with node, sizes, rule, and the lines to paste."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.dims import CORNERS
from trtnorm_cli.profile.edits import Corners, EntryEdit
from trtnorm_cli.profile.fit import FittedProfile
from trtnorm_cli.profile.positions import Positions
from trtnorm_cli.profile.problems import Problem
from trtnorm_cli.shapes.constraint import Constraint
from trtnorm_cli.shapes.evaluate import broken_somewhere
from trtnorm_cli.shapes.expression import text_of
from trtnorm_cli.shapes.solve import LegalSizes, SizeRule

# Between min and max this many values are tried one by one.
_MOST_TRIED = 1 << 17
_SAMPLES = 64
_DRAWN = 4096
_LONGEST_CONDITION = 160


@dataclass(frozen=True)
class Conflict:
    """The sizes of one optimization profile that break what nodes demand, and those that would not."""

    profile: FittedProfile
    sizes: Mapping[str, Corners]
    broken: Sequence[Constraint]
    legal: Mapping[str, LegalSizes]


def conflict_problems(
    conflict: Conflict, edits: Sequence[EntryEdit] | None, positions: Positions, several: bool
) -> list[Problem]:
    """One problem for each symbol, or set of related symbols, whose sizes break what a node demands."""
    profile, sizes, broken, legal = conflict.profile, conflict.sizes, conflict.broken, conflict.legal
    hint = _hint(edits, positions)
    where = f"in optimization profile {profile.name!r}: " if several else ""
    problems = []
    for symbols in dict.fromkeys(constraint.symbols for constraint in broken):
        first = next(c for c in broken if c.symbols == symbols)
        corner = next(i for i in range(3) if not first.holds(sizes_at(sizes, i)))
        path = next((profile.origins[name][corner] for name in sorted(symbols) if name in profile.origins), ())
        text = f"{where}{_values(symbols, sizes, corner)} {_does(symbols)} not fit the model at {first.place}: {first.demand}"
        sides = first.values(sizes_at(sizes, corner))
        rule = _rule(symbols, first, sizes, legal)
        problems.append(Problem(path, f"{text}{f', but {sides}' if sides else ''}; {rule}", hint))
    return problems


def sizes_at(sizes: Mapping[str, Corners], corner: int) -> dict[str, int]:
    """Each size at min, opt or max, which are the corners 0, 1 and 2."""
    return {name: corners[corner] for name, corners in sizes.items()}


def _values(symbols: Iterable[str], sizes: Mapping[str, Corners], corner: int) -> str:
    return " and ".join(f"{name} = {sizes[name][corner]}" for name in sorted(symbols) if name in sizes)


def _does(symbols: frozenset[str]) -> str:
    return "does" if len(symbols) == 1 else "do"


def _rule(symbols: frozenset[str], first: Constraint, sizes: Mapping[str, Corners], legal: Mapping[str, LegalSizes]) -> str:
    if len(symbols) > 1:
        return _relation(first)
    (name,) = symbols
    moves = [_move(corner, value, legal[name]) for corner, value in zip(CORNERS, sizes[name], strict=True)]
    shown = ", ".join(dict.fromkeys(move for move in moves if move))
    return (legal[name].text() or f"{name} must satisfy {text_of(first.condition)}") + (f": {shown}" if shown else "")


def _relation(constraint: Constraint) -> str:
    names, text = " and ".join(sorted(constraint.symbols)), text_of(constraint.condition)
    return f"{names} must " + (f"satisfy {text}" if len(text) <= _LONGEST_CONDITION else f"go together at {constraint.place}")


def _move(corner: str, value: int, legal: LegalSizes) -> str:
    """The move as ``135 → 136``. Min can only grow if everything asked for is to be served. Max and opt can go either way."""
    if legal.allows(value):
        return ""
    near = (legal.at_least(value),) if corner == "min" else legal.neighbours(value)
    known = [str(size) for size in near if size is not None] or [str(size) for size in legal.neighbours(value)]
    return f"{value} → {' or '.join(known)}" if known else ""


def _hint(edits: Sequence[EntryEdit] | None, positions: Positions) -> str:
    if not edits:
        return "no sizes close to these fit; ask for sizes that the model was made for"
    return "\n".join(
        ["let --snap choose the nearest sizes that fit, or write this:", *(f"  {e.line(positions)}" for e in edits)]
    )


def notes_between(
    profile: FittedProfile, sizes: Mapping[str, Corners], constraints: Sequence[Constraint], legal: Mapping[str, LegalSizes]
) -> Iterator[str]:
    """Sizes between min and max that do not fit although min, opt and max do."""
    for name, corners in sizes.items():
        step = profile.dims[name].multiple_of if name in profile.dims else None
        if legal[name].conditions and not _all_legal(legal[name], corners, step or 1):
            rule = legal[name].rule()
            advice = f"; multiple_of: {rule.modulus} keeps to them" if rule is not None and _has_multiples(rule) else ""
            text = legal[name].text() or f"{name} must satisfy {text_of(legal[name].conditions[0])}"
            yield f"profile {profile.name}: between {corners[0]} and {corners[2]}, {text}{advice}"
    related = [c for c in constraints if len(c.symbols) > 1 and c.symbols <= set(sizes)]
    broken = broken_somewhere([c.condition for c in related], _samples(sizes, legal))
    first: dict[frozenset[str], Constraint] = {}
    for constraint, is_broken in zip(related, broken, strict=True):
        if is_broken:
            first.setdefault(constraint.symbols, constraint)
    for constraint in first.values():
        yield f"profile {profile.name}: between min and max, {_relation(constraint)}"


def _has_multiples(rule: SizeRule) -> bool:
    return rule.modulus > 1 and 0 in rule.residues


def _all_legal(legal: LegalSizes, corners: Corners, step: int) -> bool:
    low, _, high = corners
    values = np.arange(-(-low // step) * step, min(high, low + _MOST_TRIED) + 1, step, dtype=np.int64)
    return legal.allow_all(values)


def _samples(sizes: Mapping[str, Corners], legal: Mapping[str, LegalSizes]) -> dict[str, np.ndarray]:
    """Random sizes between min and max that are legal one by one."""
    rng = np.random.default_rng(0)
    found = {}
    for name, (low, _, high) in sizes.items():
        candidates = rng.integers(low, high + 1, _DRAWN) if high - low > _DRAWN else np.arange(low, high + 1)
        possible = legal[name].among(candidates.astype(np.int64))
        found[name] = rng.choice(possible if len(possible) else np.array([low]), _SAMPLES)
    return found
