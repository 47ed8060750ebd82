"""The inputs and outputs of a model, a network or an engine, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rich.console import Console

from trtnorm_cli.report.console import shape_text, table

_SHOWN = 12


class End(Protocol):
    """An input or output."""

    @property
    def name(self) -> str: ...

    @property
    def dtype(self) -> str: ...

    @property
    def shape(self) -> Sequence[object] | None: ...


def print_ends(out: Console, inputs: Sequence[End], outputs: Sequence[End], every: bool = False) -> None:
    """Print the inputs and outputs with types and shapes, and of very many the first ones unless ``every`` is wanted."""
    rows, left = [], []
    for what, ends in (("input", inputs), ("output", outputs)):
        shown = ends if every or len(ends) <= _SHOWN else ends[:_SHOWN]
        rows += [(what, end.name, end.dtype.lower(), shape_text(end.shape)) for end in shown]
        left += [f"{len(ends) - len(shown)} more {what}s"] if len(shown) < len(ends) else []
    out.print(table("", ("", "name", "type", "shape"), rows), new_line_start=True)
    if left:
        out.print(f"and {', '.join(left)}; --all shows them")
