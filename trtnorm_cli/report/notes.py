"""The choice of remarks that are shown. Those on which a user can act are always shown, the others with -v.

The manifest keeps all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console

from trtnorm_cli.report.console import console, print_warnings
from trtnorm_cli.report.verbosity import Verbosity

# What TensorRT and the cleaning say of every such model, and no change to model, profile or machine would be right because of
# it: the type of an int64 input is the model's own, as is where its layers keep their weights.
_IDLE = re.compile(
    r"""Make\ sure\ (input|output)\ .*\ has\ Int64\ binding
    | has\ been\ generated\ with\ INT64\ weights
    | Timing\ cache\ operations\ are\ no-ops
    | Tensor\ DataType\ is\ determined\ at\ build\ time
    | CUDA\ lazy\ loading\ is\ not\ enabled
    | Empty\ initializer\ .*\ Overriding\ data\ to\ nullptr
    | Resize\ scale\ factors\ are\ not\ set\.\ Output\ dims\ are\ set
    | computed\ from\ constants\ only,\ and\ left\ to\ the\ rules
    | constant,\ but\ its\ value\ is\ too\ large\ to\ be\ stored
    """,
    re.VERBOSE,
)
# So many nodes of which the same is said are named in one note.
_ALIKE = 3


def can_be_acted_on(note: str) -> bool:
    """False for remarks that call for nothing."""
    return _IDLE.search(note) is None


def print_notes(out: Console, notes: Iterable[str], verbosity: Verbosity, indent: str = "") -> None:
    """A line for each note that is to be seen, each once."""
    if verbosity is Verbosity.QUIET:
        return
    shown = [note for note in dict.fromkeys(notes) if verbosity is Verbosity.VERBOSE or can_be_acted_on(note)]
    for note in shown if verbosity is Verbosity.VERBOSE else _alike_in_one(shown):
        out.print(f"{indent}note: {note}")


def _alike_in_one(notes: Sequence[str]) -> Iterator[str]:
    """One note for several nodes of which the same is said, in the place of the first."""
    nodes: dict[str, list[str]] = {}
    for note in notes:
        node, said = _node_and_text(note)
        nodes.setdefault(said, []).append(node)
    for said, names in nodes.items():
        if len(names) < _ALIKE:
            yield from (f"{name}: {said}" if name else said for name in names)
        else:
            yield f"{', '.join(names[:2])} and {len(names) - 2} more: {said}"


def _node_and_text(note: str) -> tuple[str, str]:
    """The name before the first colon, where there is one."""
    name, colon, said = note.partition(": ")
    return (name, said) if colon and " " not in name else ("", note)


def print_results_alone(paths: Iterable[object], warnings: Iterable[str], as_json: bool) -> None:
    """Print what -q leaves, which is the files that were written, one a line, and the warnings on stderr."""
    print_warnings(console(stderr=True), warnings)
    for path in () if as_json else paths:
        console().print(str(path), soft_wrap=True)
