"""The columns of a table: how wide each is, and the lines of its rows."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.report.wrapping import longest_word, wrapped

GAP = 2
_INDENT = 2


@dataclass(frozen=True)
class Field:
    """A cell with the name of its column, for tables that are too wide to have columns."""

    name: str
    text: str

    @property
    def labelled(self) -> str:
        return f"{self.name}: {self.text}" if self.name else self.text


def gap_between(rows: Sequence[Sequence[str]], width: int) -> int:
    """The blanks between columns: one where that keeps every cell on one line, and two would not."""
    wanted = sum(max(cell_len(line) for cell in column for line in cell.split("\n")) for column in zip(*rows, strict=True))
    gaps = len(rows[0]) - 1
    return 1 if wanted + gaps <= width < wanted + GAP * gaps else GAP


def column_widths(rows: Sequence[Sequence[str]], width: int, gap: int = GAP) -> list[int] | None:
    """A width for each column, so that a row has ``width`` columns at most; None where a word would have to be broken."""
    columns = list(zip(*rows, strict=True))
    wanted = [max(cell_len(line) for cell in column for line in cell.split("\n")) for column in columns]
    least = [max(longest_word(cell) for cell in column) for column in columns]
    room = width - gap * (len(columns) - 1)
    if sum(least) > room:
        return None
    return _shared(wanted, least, room)


def _shared(wanted: Sequence[int], least: Sequence[int], room: int) -> list[int]:
    """``room`` shared among columns: those that want little have it, and the others the same each."""
    given = list(wanted)
    open_columns = sorted(range(len(wanted)), key=lambda at: wanted[at])
    for number, at in enumerate(open_columns):
        later = sum(least[other] for other in open_columns[number + 1 :])
        share = max(room // (len(open_columns) - number), least[at])
        given[at] = min(wanted[at], share, room - later)
        room -= given[at]
    return given


def row_lines(row: Sequence[str], widths: Sequence[int], gap: int = GAP) -> list[str]:
    """The lines of one row, without blanks at their ends."""
    cells = [
        [piece for line in cell.split("\n") for piece in wrapped(line, width, 0)]
        for cell, width in zip(row, widths, strict=True)
    ]
    height = max(map(len, cells))
    padded = [[*lines, *[""] * (height - len(lines))] for lines in cells]
    return [_line(parts, widths, gap) for parts in zip(*padded, strict=True)]


def _line(parts: Sequence[str], widths: Sequence[int], gap: int) -> str:
    filled = (part + " " * (width - cell_len(part)) for part, width in zip(parts, widths, strict=True))
    return (" " * gap).join(filled).rstrip()


def field_lines(fields: Sequence[Field], width: int) -> list[str]:
    """The fields below their headline: short ones beside each other, and the others on lines of their own."""
    lines: list[str] = []
    current = ""
    for field in fields:
        text = field.labelled
        joined = f"{current}, {text}" if current else text
        if "\n" not in text and _INDENT + cell_len(joined) <= width:
            current = joined
            continue
        lines += [" " * _INDENT + current] if current else []
        current = text
        if "\n" in text or _INDENT + cell_len(text) > width:
            first, *more = text.split("\n")
            own = [" " * _INDENT + first, *(" " * 2 * _INDENT + line for line in more)]
            lines += [piece for line in own for piece in wrapped(line, width, 2 * _INDENT)]
            current = ""
    return [*lines, " " * _INDENT + current] if current else lines
