"""Consoles and tables. Results go to stdout, progress and remarks to stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.style import Style

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.plain_text import shown
from trtnorm_cli.report.columns import GAP, Field, column_widths, field_lines, gap_between, row_lines
from trtnorm_cli.report.short_names import shortened_apart
from trtnorm_cli.report.wrapping import longest_word, wrapped

_PLAIN_WIDTH = 80
# Below this nothing can be laid out; a terminal that says so does not know its size.
_NARROWEST = 20
# A name that is shortened keeps so many columns.
_LEAST_NAME = 24
# Names of dimensions up to this length can be told from the x between them.
_SHORT_NAME = 2


class PlainConsole(Console):
    """A console whose text is wrapped between words only. A path or a name is never broken, so that it can be copied.

    What a terminal would obey is written out: names come from files of strangers.
    """

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as rich does."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(shown(segment.text), segment.style)

    def print(self, *objects: Any, soft_wrap: bool | None = None, **options: Any) -> None:
        """Print as rich does.

        With ``soft_wrap`` a line stays one line, which is for paths and for what is copied into a file.
        """
        if objects and not soft_wrap and all(isinstance(text, str) for text in objects):
            lines = " ".join(objects).split("\n")
            objects, soft_wrap = ("\n".join(part for line in lines for part in wrapped(line, self.width)),), True
        super().print(*objects, soft_wrap=soft_wrap, **{"crop": False, **options})


def console(stderr: bool = False) -> Console:
    """A console that fits the terminal. Where there is none, it has as many columns as COLUMNS says, or 80, and no colour."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else plain_width()
    return PlainConsole(file=stream, width=width, highlight=False, soft_wrap=False, markup=False, emoji=False)


def plain_width() -> int:
    """The columns of a line where there is no terminal."""
    given = os.environ.get("COLUMNS", "")
    return max(int(given), _NARROWEST) if given.isdecimal() and int(given) > 0 else _PLAIN_WIDTH


@dataclass(frozen=True)
class FittedTable:
    """A table of plain text, without blanks at the ends of lines.

    Where the columns do not fit beside each other with every word whole, the names in the columns ``names`` are shortened in
    the middle. Where they do not fit then, each row becomes a block of lines instead.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: tuple[int, ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        header = [self.columns] if any(self.columns) else []
        rows = self._with_short_names(width)
        gap = gap_between([*header, *rows], width) if rows or header else GAP
        widths = column_widths([*header, *rows], width, gap) if rows or header else []
        bold = console.get_style("bold")
        yield from _lines(wrapped(self.title, width, 0) if self.title else [], bold)
        if widths is None:
            yield from self._blocks(width)
            return
        yield from _lines([line for row in header for line in row_lines(row, widths, gap)], bold)
        yield from _lines([line for row in rows for line in row_lines(row, widths, gap)])

    def _with_short_names(self, width: int) -> tuple[tuple[str, ...], ...]:
        """The rows, whose names have the room that the other columns leave, and no less than is useful."""
        if not self.names or column_widths([self.columns, *self.rows], width) is not None:
            return self.rows
        texts = list(zip(self.columns, *self.rows, strict=True))
        others = [texts[at] for at in range(len(self.columns)) if at not in self.names]
        gaps = GAP * (len(self.columns) - 1)
        for size_of in (cell_len, longest_word):
            room = (width - gaps - sum(max(map(size_of, column)) for column in others)) // len(self.names)
            if room >= _LEAST_NAME:
                short = {at: shortened_apart(texts[at][1:], room) for at in self.names}
                columns = [short.get(at, texts[at][1:]) for at in range(len(self.columns))]
                return tuple(zip(*columns, strict=True))
        return self.rows

    def _blocks(self, width: int) -> Iterator[Segment]:
        """The first column as a headline, and what stands in the others below it."""
        for first, *others in self.rows:
            yield from _lines(wrapped(first, width))
            fields = [Field(name, cell) for name, cell in zip(self.columns[1:], others, strict=True) if cell]
            yield from _lines(field_lines(fields, width))


def _lines(texts: Iterable[str], style: Style | None = None) -> Iterator[Segment]:
    for text in texts:
        yield Segment(text, style)
        yield Segment.line()


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], names: Sequence[int] = ()) -> FittedTable:
    """A table of plain text. Cells wrap rather than being cut off; names in the columns ``names`` may be shortened."""
    return FittedTable(title, tuple(columns), tuple(tuple(str(cell) for cell in row) for row in rows), tuple(names))


def print_warnings(out: Console, warnings: Iterable[str]) -> None:
    """Print the warnings. Further lines of a warning are indented."""
    for warning in warnings:
        first, *rest = warning.splitlines()
        out.print("\n".join([f"WARNING: {first}", *(f"         {line}" for line in rest)]), style="bold yellow")


def shape_text(shape: Sequence[object] | None) -> str:
    """A shape as ``Nx3x224x224``, or as ``[batch_size, 3, H//4]`` where names are longer.

    ``?`` stands for what is not known.
    """
    if shape is None:
        return "?"
    sizes = ["?" if size is None else str(size) for size in shape]
    if all(size.isdecimal() or len(size) <= _SHORT_NAME for size in sizes):
        return "x".join(sizes) or "scalar"
    return f"[{', '.join(size[1:-1] if _is_bracketed(size) else size for size in sizes)}]"


def _is_bracketed(text: str) -> bool:
    """True for an expression in one pair of brackets."""
    return text[:1] == "(" and text[-1:] == ")" and "(" not in text[1:-1]


def counts_text(counts: dict[str, int], most: int = 8) -> str:
    """``20 correlation, 4 runtime_fusion``, most frequent first."""
    shown = [f"{number} {name}" for name, number in list(counts.items())[:most]]
    rest = sum(list(counts.values())[most:])
    return ", ".join(shown + ([f"{rest} {'others' if rest > 1 else 'other'}"] if rest else [])) or "none"


def bytes_text(count: int) -> str:
    """A size in bytes with a binary unit."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
