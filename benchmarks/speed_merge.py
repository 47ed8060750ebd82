"""Results of speed.py that were measured apart, on equal machines, as one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

# What one run wrote as a whole.
WHOLE = ("seconds", "norms", "libraries")


def merge(output: Path, results: list[Path]) -> None:
    """All runs of ``results``; of what only one run can know, the first is taken."""
    known: dict[str, Any] = {}
    for path in results:
        add(known, json.loads(path.read_text()))
    output.write_text(json.dumps(known, indent=1) + "\n")


def add(known: dict[str, Any], found: Mapping[str, Any]) -> None:
    for key, value in found.items():
        if isinstance(value, dict) and key not in WHOLE:
            add(known.setdefault(key, {}), value)
        elif key == "runs":
            known.setdefault(key, []).extend(value)
        elif key == "machine" and known.setdefault(key, value) != value:
            raise SystemExit(f"measured on different machines: {known[key]}, and {value}")
        else:
            known.setdefault(key, value)
