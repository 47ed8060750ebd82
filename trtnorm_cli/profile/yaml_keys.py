"""Names as keys of YAML, for the lines that messages give to paste."""

from __future__ import annotations

import re

_AMBIGUOUS_KEY = frozenset({"yes", "no", "on", "off", "true", "false", "null"})


def yaml_key(name: str) -> str:
    """``name`` as a YAML key, quoted where a reader could take it for something else."""
    if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]*", name) and name.lower() not in _AMBIGUOUS_KEY:
        return name
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(char if char.isprintable() else f"\\U{ord(char):08X}" for char in escaped) + '"'
