"""Lines broken between words. A name, a path, or a number and what it counts is never broken."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.cells import cell_len

from trtnorm_cli.light_dataclass import dataclass

_WORD = re.compile(r"(\s*)(\S+)")
# A number that stands before what it counts or measures, as in `12 SLICE`, `1.06 s` or `13 × LayerNormalization`.
_NUMBER = re.compile(r"[(\[]?[-+]?\d[\d.,]*(e[-+]?\d+)?%?|×")
_WORD_OR_QUANTITY = re.compile(r"(?<!\S)[-+]?\d[\d.,]*(?:e[-+]?\d+)? (?:[KMGT]i?B|B|[mµn]?s|min|h)(?!\S)|\S+")
_COUNTED = re.compile(r"[^\W\d_]|×")


@dataclass(frozen=True)
class Piece:
    """Words that stay together, and the blanks before them."""

    gap: str
    text: str


def wrapped(line: str, width: int, indent: int | None = None) -> list[str]:
    """``line`` in pieces of at most ``width`` columns, broken between words. Further pieces are indented like the first.

    A word that is longer than a line stays whole. ``indent`` is the depth of further pieces where it is another one.
    """
    if cell_len(line) <= width:
        return [line.rstrip()]
    depth = len(line) - len(line.lstrip()) + 2 if indent is None else indent
    start = " " * min(depth, width // 2)
    lines, current = [], ""
    for piece in _pieces(line, width - len(start)):
        if current.strip() and cell_len(current + piece.gap + piece.text) > width:
            lines.append(current)
            current = start + piece.text
        else:
            current += piece.gap + piece.text
    return [*lines, current]


def longest_word(text: str) -> int:
    """The columns of the longest word in ``text``; a number with its unit is one word."""
    return max(map(cell_len, _WORD_OR_QUANTITY.findall(text)), default=0)


def _pieces(line: str, width: int) -> Iterable[Piece]:
    """The words of ``line``, a number together with the word that follows, where both fit into a line."""
    held: Piece | None = None
    for found in _WORD.finditer(line):
        piece = Piece(found[1], found[2])
        if held is not None:
            joined = Piece(held.gap, held.text + piece.gap + piece.text)
            if _COUNTED.match(piece.text) and cell_len(joined.text) <= width:
                piece = joined
            else:
                yield held
        held = piece if _NUMBER.fullmatch(found[2]) else None
        if held is None:
            yield piece
    if held is not None:
        yield held
