"""The name that was probably meant."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

_A_MISSPELLING = 0.8


def nearest(name: str, candidates: Iterable[str]) -> str | None:
    """The candidate that ``name`` most likely misspells, or None when nothing comes close.

    Case and the choice of ``-``, ``_``, ``.``, ``:`` or ``/`` as separator do not count as a difference. Closeness is difflib's
    Ratcliff-Obershelp ratio with its usual bound of 0.6; below 0.8, the only candidate that has all of its words goes before.
    """
    by_folded: dict[str, str] = {}
    for candidate in candidates:
        by_folded.setdefault(_folded(candidate), candidate)
    folded = _folded(name)
    close = get_close_matches(folded, list(by_folded), n=1, cutoff=_A_MISSPELLING)
    meant = close or _longer(folded, by_folded) or get_close_matches(folded, list(by_folded), n=1)
    return by_folded[meant[0]] if meant else None


def _longer(folded: str, candidates: Iterable[str]) -> list[str]:
    """The candidate with every word of ``folded`` and more, where there is one only."""
    words = set(filter(None, folded.split("_")))
    found = [candidate for candidate in candidates if words and words < set(candidate.split("_"))]
    return found if len(found) == 1 else []


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """The words ``; did you mean 'x'?`` to append to a message, or an empty string."""
    meant = nearest(name, candidates)
    return f"; did you mean {meant!r}?" if meant is not None else ""


def listing(names: Iterable[str], limit: int = 12) -> str:
    """The names as ``a, b, c`` for a message, cut with the count of what was left out."""
    shown = list(names)
    rest = len(shown) - limit
    return ", ".join(shown[:limit]) + (f" and {rest} more" if rest > 0 else "")


def _folded(name: str) -> str:
    return name.casefold().translate(str.maketrans("-.:/ ", "_____"))
