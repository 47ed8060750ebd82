"""The legal sizes nearest to given ones, for several symbols at once and at min, opt and max."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from trtnorm_cli.shapes.evaluate import holds_over, value_at
from trtnorm_cli.shapes.expression import Size
from trtnorm_cli.shapes.solve import MAX_SIZE, LegalSizes, solve

Corners = tuple[int, int, int]
_MIN, _OPT, _MAX = range(3)
# How many relations between symbols are mended at one corner before giving up.
_ATTEMPTS = 12
_DIAGONAL = 8192


def solve_each(conditions: Sequence[Size], sizes: Mapping[str, Corners]) -> dict[str, LegalSizes]:
    """For each symbol of ``sizes`` the values that the conditions on it alone leave."""
    found = {}
    for name, corners in sizes.items():
        own = [c for c in conditions if not isinstance(c, int) and c.symbols == {name}]
        found[name] = solve(own, name, max(corners))
    return found


def repaired(
    conditions: Sequence[Size], sizes: Mapping[str, Corners], movable: Collection[str] | None = None
) -> dict[str, Corners] | None:
    """Sizes close to ``sizes`` that satisfy ``conditions`` at min, opt and max, or None where none were found.

    Min moves up and max down as far as that keeps min <= opt <= max. Opt moves to the nearest legal value. Only ``movable``
    symbols are moved to mend relations between several. By default these are all.
    """
    legal = solve_each(conditions, sizes)
    found: dict[str, Corners] = {}
    for name, corners in sizes.items():
        moved = _snapped(legal[name], corners)
        if moved is None:
            return None
        found[name] = moved
    shared = [c for c in conditions if not isinstance(c, int) and len(c.symbols) > 1 and c.symbols <= set(sizes)]
    chosen = set(sizes) if movable is None else set(movable)
    corners_found = [_corner(conditions, shared, found, chosen, corner) for corner in (_MIN, _OPT, _MAX)]
    if any(corner is None for corner in corners_found):
        return None
    together = frozenset().union(*(c.symbols for c in shared if not isinstance(c, int)))
    return _ordered(conditions, [corner for corner in corners_found if corner is not None], together)


def _snapped(legal: LegalSizes, corners: Corners) -> Corners | None:
    low, opt, high = corners
    least, most = legal.at_least(low, high), legal.at_most(high, max(low, 0))
    if least is None or most is None:
        only = legal.nearest(opt)
        return None if only is None else (only, only, only)
    typical = legal.nearest(opt)
    assert typical is not None
    return least, min(max(typical, least), most), most


def _corner(
    conditions: Sequence[Size], shared: Sequence[Size], sizes: Mapping[str, Corners], movable: set[str], corner: int
) -> dict[str, int] | None:
    at = {name: corners[corner] for name, corners in sizes.items()}
    for _ in range(_ATTEMPTS):
        broken = next((c for c in shared if value_at(c, at) == 0), None)
        if broken is None or isinstance(broken, int):
            return at
        names = sorted(broken.symbols & movable)
        moves = [_along_one(conditions, name, at, corner) for name in names]
        moves.append(_along_all(conditions, names, at) if len(names) > 1 else None)
        possible = [move for move in moves if move is not None]
        if not possible:
            return None
        distances = [_distance(move, at, sizes) for move in possible]
        at = {**at, **possible[distances.index(min(distances))]}
    return None


def _distance(move: Mapping[str, int], at: Mapping[str, int], sizes: Mapping[str, Corners]) -> tuple[bool, float]:
    """The distance of a move. One that leaves the range from min to max is farther than any other."""
    leaves = any(not sizes[name][_MIN] <= value <= sizes[name][_MAX] for name, value in move.items())
    return leaves, sum(abs(value - at[name]) / max(at[name], 1) for name, value in move.items())


def _along_one(conditions: Sequence[Size], name: str, at: Mapping[str, int], corner: int) -> dict[str, int] | None:
    """Move one symbol until everything that it has a part in holds, while the others stay."""
    fixed = {other: value for other, value in at.items() if other != name}
    own = [c for c in conditions if not isinstance(c, int) and name in c.symbols]
    legal = solve(own, name, at[name], fixed)
    if corner == _OPT:
        value = legal.nearest(at[name])
    elif corner == _MIN:
        value = legal.at_least(at[name])
        value = legal.at_most(at[name]) if value is None else value
    else:
        value = legal.at_most(at[name])
        value = legal.at_least(at[name]) if value is None else value
    return None if value is None else {name: value}


def _along_all(conditions: Sequence[Size], names: Sequence[str], at: Mapping[str, int]) -> dict[str, int] | None:
    """Give all ``names`` one value, as models for square images of a fixed size need."""
    centre = sum(at[name] for name in names) // len(names)
    values = np.arange(max(1, centre - _DIAGONAL), min(centre + _DIAGONAL, MAX_SIZE) + 1, dtype=np.int64)
    fixed = {other: value for other, value in at.items() if other not in names}
    mask = np.ones(len(values), dtype=bool)
    for condition in conditions:
        if not isinstance(condition, int) and condition.symbols & set(names):
            mask &= holds_over(condition, names, values, fixed)
    possible = values[mask]
    if not len(possible):
        return None
    nearest = int(possible[np.argmin(np.abs(possible - centre))])
    return dict.fromkeys(names, nearest)


def _ordered(conditions: Sequence[Size], corners: list[dict[str, int]], together: frozenset[str]) -> dict[str, Corners] | None:
    """The three corners as one range for each symbol, where min <= opt <= max. Opt is changed first for that, then min.

    Symbols that share a condition are changed ``together``.
    """
    low, opt, high = corners
    if any(low[name] > high[name] for name in low):
        low, opt = ({**corner, **{name: high[name] for name in together}} for corner in (low, opt))
    if any(not low[name] <= opt[name] <= high[name] for name in low):
        opt = {**opt, **{name: high[name] for name in together}}
    if any(not low[name] <= opt[name] <= high[name] for name in low):
        return None
    for corner in (low, opt, high):
        if any(value_at(condition, corner) == 0 for condition in conditions):
            return None
    return {name: (low[name], opt[name], high[name]) for name in low}
