"""Consoles and tables. Results go to stdout, progress and remarks to stderr."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.plain_text import shown

_PLAIN_WIDTH = 80
# Below this nothing can be laid out; a terminal that says so does not know its size.
_NARROWEST = 20
_GAP = 2
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


def wrapped(line: str, width: int, indent: int | None = None) -> list[str]:
    """``line`` in pieces of at most ``width`` columns, broken between words. Further pieces are indented like the first.

    A word that is longer than a line stays whole. ``indent`` is the depth of further pieces where it is another one.
    """
    if len(line) <= width:
        return [line.rstrip()]
    depth = len(line) - len(line.lstrip()) + 2 if indent is None else indent
    return textwrap.wrap(
        line, width, subsequent_indent=" " * min(depth, width // 2), break_long_words=False, break_on_hyphens=False
    ) or [""]


@dataclass(frozen=True)
class FittedTable:
    """A table of plain text, without blanks at the ends of lines.

    Where the columns do not fit beside each other with every word whole, each row becomes a block of lines instead.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if self._least_width() > options.max_width:
            yield from self._blocks(options.max_width)
            return
        for line in console.render_lines(self._table(), options, pad=False):
            yield from _without_blanks(line)
            yield Segment.line()

    def _table(self) -> Table:
        made = Table(title=self.title or None, title_justify="left", title_style="bold", box=None, pad_edge=False)
        made.padding, made.show_header = (0, _GAP, 0, 0), any(self.columns)
        for column in self.columns:
            made.add_column(column, overflow="fold")
        for row in self.rows:
            made.add_row(*row)
        return made

    def _least_width(self) -> int:
        """The columns that the table needs when no word is broken."""
        texts = [(name, *(row[at] for row in self.rows)) for at, name in enumerate(self.columns)]
        longest = [max((cell_len(word) for text in column for word in text.split()), default=0) for column in texts]
        return sum(longest) + _GAP * (len(longest) - 1)

    def _blocks(self, width: int) -> Iterator[Text | Segment]:
        """The first column as a headline, and what stands in the others below it."""
        if self.title:
            yield Text(self.title, style="bold", no_wrap=True, overflow="ignore")
        for first, *others in self.rows:
            yield _whole("\n".join(wrapped(first, width)))
            for name, cell in zip(self.columns[1:], others, strict=True):
                label = f"  {name}: " if name else "  "
                texts = cell.splitlines()
                pieces = [p for n, text in enumerate(texts) for p in wrapped((label if n == 0 else "    ") + text, width, 4)]
                if pieces:
                    yield _whole("\n".join(pieces))


def _whole(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ignore")


def _without_blanks(line: list[Segment]) -> list[Segment]:
    """``line`` without blanks at its end."""
    kept = list(line)
    while kept:
        last = kept.pop()
        if text := last.text.rstrip():
            return [*kept, Segment(text, last.style, last.control)]
    return []


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> FittedTable:
    """A table of plain text. Cells wrap rather than being cut off."""
    return FittedTable(title, tuple(columns), tuple(tuple(str(cell) for cell in row) for row in rows))


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
    return ", ".join(shown + ([f"{rest} others"] if rest else [])) or "none"


def bytes_text(count: int) -> str:
    """A size in bytes with a binary unit."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
