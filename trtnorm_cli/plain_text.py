"""Text of strangers made fit to be shown: names in a model may hold what a terminal obeys, and be of any length."""

from __future__ import annotations

import re

# What moves the cursor, starts a sequence that terminals obey, or changes the direction of writing: all control characters
# but tabs and line ends, and Unicode's marks of direction.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
# A path of Linux has up to 4096 bytes, and is to be copied.
_LONGEST_WORD, _ENDS_SHOWN = 4096, 100
_LONG_WORDS = re.compile(rf"\S{{{_LONGEST_WORD + 1},}}")


def shown(text: str) -> str:
    r"""``text`` as it can be printed: what a terminal would obey is written out as ``\x1b``, and endless words are cut."""
    if text.isprintable() and len(text) <= _LONGEST_WORD:
        return text
    return _LONG_WORDS.sub(_cut, _OBEYED.sub(_written_out, text))


def _written_out(found: re.Match[str]) -> str:
    code = ord(found.group())
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def _cut(found: re.Match[str]) -> str:
    word = found.group()
    return f"{word[:_ENDS_SHOWN]}…({len(word) - 2 * _ENDS_SHOWN} characters)…{word[-_ENDS_SHOWN:]}"
