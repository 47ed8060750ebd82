"""Consoles and tables. Results go to stdout; progress and remarks go to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

_PLAIN_WIDTH = 160


def console(stderr: bool = False) -> Console:
    """A console that fits the terminal; where there is none, lines of up to 160 columns without colour."""
    stream = sys.stderr if stderr else sys.stdout
    width = None if stream.isatty() else _PLAIN_WIDTH
    return Console(file=stream, width=width, highlight=False, soft_wrap=False, markup=False, emoji=False)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table of plain text; cells wrap rather than being cut off."""
    made = Table(title=title or None, title_justify="left", title_style="bold", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*(str(cell) for cell in row))
    return made


def print_warnings(out: Console, warnings: Iterable[str]) -> None:
    """What must not be overlooked; further lines of a warning are indented."""
    for warning in warnings:
        first, *rest = warning.splitlines()
        out.print("\n".join([f"WARNING: {first}", *(f"         {line}" for line in rest)]), style="bold yellow")


def shape_text(shape: Sequence[object] | None) -> str:
    """``Nx3x224x224``; ``?`` for what is not known, ``…`` for an expression of symbols, which would not fit a table."""
    if shape is None:
        return "?"
    return "x".join(_size_text(size) for size in shape) or "scalar"


def _size_text(size: object) -> str:
    if size is None:
        return "?"
    return "…" if isinstance(size, str) and not size.isidentifier() else str(size)


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
