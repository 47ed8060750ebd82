"""The counts of a cleaning in words."""

from __future__ import annotations

import re
from collections.abc import Mapping

# The first plural: no word before it, as ``unused`` or ``Constant``, ends in an s.
_PLURAL = re.compile(r"\b\w+s\b")
_SINGULAR = {"biases": "bias", "identities": "identity"}


def cleaning_text(counts: Mapping[str, int]) -> str:
    """``81 constants folded, 1 unused initializer removed``; empty where nothing was done."""
    return ", ".join(f"{number:,} {_of_one(what) if number == 1 else what}" for what, number in counts.items() if number)


def _of_one(what: str) -> str:
    return _PLURAL.sub(lambda plural: _SINGULAR.get(plural[0], plural[0].removesuffix("s")), what, count=1)
