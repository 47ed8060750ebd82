"""Numbers as a page shows them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# What no text of a page may have: control characters, halves of pairs, and what is no character.
_UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_SHORTEST_PERCENT = 1e-7


def number(value: float | None) -> str:
    """``value`` with two digits, as ``4.7×10⁻⁷`` where it is small or large, and a dash for None."""
    if value is None:
        return "–"
    if not math.isfinite(value):
        return "not a number" if math.isnan(value) else "∞" if value > 0 else "−∞"
    if 1000 <= abs(value) < 10_000:
        return f"{value:,.0f}".replace("-", "−")
    if value == 0 or 0.01 <= abs(value) < 1000:
        return f"{value:.3g}".replace("-", "−")
    digits, exponent = f"{value:.1e}".split("e")
    return f"{digits}×10{str(int(exponent)).translate(SUPERSCRIPTS)}".replace("-", "−")


def percent(share: float) -> str:
    """A share in percent, in plain digits: ``0.00005 %``."""
    if not math.isfinite(share):
        return number(share)
    if 0 < share < _SHORTEST_PERCENT / 100:
        return "less than 0.0000001 %"
    digits = 1 - math.floor(math.log10(share * 100)) if share else 0
    return f"{share * 100:,.{max(0, digits - 1)}f} %"


def size(value: float) -> str:
    """Bytes in the unit that fits them."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024 or unit == "GiB":
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    raise AssertionError("every size has a unit")


def seconds(value: float) -> str:
    return f"{value:,.2f} s" if value < 100 else f"{value:,.0f} s"


def microseconds(value: float) -> str:
    """A time of a kernel or a run, in the unit that fits it."""
    return f"{value / 1000:,.1f} ms" if value >= 10_000 else f"{value / 1000:.2f} ms" if value >= 1000 else f"{value:.1f} µs"


def shape(sizes: Iterable[object]) -> str:
    """A shape with ``?`` for what is open."""
    return "×".join("?" if one in (-1, None) else str(one) for one in sizes) or "scalar"


def counted(count: int, singular: str, plural: str = "") -> str:
    """``1 change``, ``2 changes``."""
    return f"{count:,} {singular if count == 1 else plural or singular + 's'}"


def fit(text: str) -> str:
    """``text`` with a mark in place of each character that neither XML nor HTML can have; a name may have any."""
    return _UNFIT.sub("\ufffd", text)
