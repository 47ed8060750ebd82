"""The places of values in a user's file, as key paths and lines."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from trtnorm_cli.light_dataclass import dataclass

KeyPath = tuple[str | int, ...]

_PLAIN_KEY = re.compile(r"[A-Za-z_][\w-]*")


@dataclass(frozen=True)
class Positions:
    """The line (from 1) of every key and list element of one file, and its ``text``.

    Two positions are always equal, because the place of a value is no part of what it says. So a profile read from a file
    equals the same profile read back from a manifest.
    """

    source: str | None = field(default=None, compare=False)
    lines: Mapping[KeyPath, int] = field(default_factory=dict, compare=False, repr=False)
    text: str | None = field(default=None, compare=False, repr=False)

    def resolve(self, path: Sequence[str | int]) -> tuple[KeyPath, KeyPath]:
        """The part of ``path`` that the file holds, and the parts that it does not.

        A validated profile has more levels than its file, where a bare list stands for min, opt and max, and a string for a
        list. Without a file nothing can be compared, and ``path`` is returned whole.
        """
        if not self.lines:
            return tuple(path), ()
        held: KeyPath = ()
        missing: KeyPath = ()
        for part in path:
            if (*held, part) in self.lines:
                held = (*held, part)
            else:
                missing = (*missing, part)
        return held, missing

    def line(self, path: Sequence[str | int]) -> int | None:
        """The line of the deepest part of ``path`` that the file holds, or None without a file or at its top."""
        return self.lines.get(self.resolve(path)[0])

    def where(self, path: Sequence[str | int], line: int | None = None) -> str | None:
        """``file:line: key.path`` as far as each is known. ``line`` overrides the path's own line."""
        held, _ = self.resolve(path)
        line = line if line is not None else self.lines.get(held)
        place = f"{self.source}:{line}" if self.source and line else self.source
        return ": ".join(part for part in (place, format_path(held)) if part) or None


def format_path(path: Sequence[str | int]) -> str:
    """``a.b[2]."c.d"`` for ``("a", "b", 2, "c.d")``. Keys that hold punctuation are quoted."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            name = part if _PLAIN_KEY.fullmatch(part) else json.dumps(part, ensure_ascii=False)
            text += f".{name}" if text else name
    return text
