"""The page of hostile files: how commands end on them, by kind of attack and by file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# What a command on a file may take before it is stopped, and what TensorRT's builder or a run may: the machine has others.
MOST_CPU_S, MOST_SECONDS, MOST_BYTES, MOST_CHILD_S = 60, 600, 6 << 30, 60
_INTRODUCTION = """# Hostile files

Files that are made to exhaust, mislead or crash what reads them, and how trtnorm's commands end on them. `make hostile` runs
them and writes this page (`benchmarks/hostile_*.py`). A command ends well when it is *done*, or *refuses* with one clear error;
when nothing in it hangs, crashes, prints a traceback or obeys an escape; when no byte of a file outside the model's folder is
in what it writes; and when a model that is sound, only unusual, is taken. [limits.md](limits.md) has the limits,
[SECURITY.md](../SECURITY.md) says what is trusted.

Each command runs in a process that was forked from one with everything imported, which is 120 MB to 240 MB of what is shown.
Memory is what the command and all that it started hold of their own, at its worst. Seconds are the processor's, of the command
and of what it started. Each command is given `--memory 3GiB`, and `build` and `compare` also `--timeout {child_s}`, which
bounds each run of TensorRT's builder and of ONNX Runtime; `compare` has 20 seconds for each run in float64. A command
that itself takes more than {cpu_s} seconds of the processor, {seconds} seconds by the clock, or {gigabytes} GiB with all
that it started, is stopped from outside, and has not ended well.
"""


@dataclass(frozen=True)
class End:
    """The end of ``command`` on a case; ``problem`` says what is wrong with that, and is empty where nothing is."""

    family: str
    case: str
    command: str
    code: int
    seconds: float
    cpu_s: float
    megabytes: float
    problem: str
    said: str


def page(ends: Sequence[End], known: int) -> str:
    """The page, in Markdown. ``known`` is how many cases there are."""
    commands = list(dict.fromkeys(end.command for end in ends))
    bad = [end for end in ends if end.problem]
    heaviest, longest = max(ends, key=lambda end: end.megabytes), max(ends, key=lambda end: end.cpu_s)
    files = len({(end.family, end.case) for end in ends})
    lines = [
        _INTRODUCTION.format(child_s=MOST_CHILD_S, cpu_s=MOST_CPU_S, seconds=MOST_SECONDS, gigabytes=MOST_BYTES >> 30),
        f"**{len(ends) - len(bad)} of {len(ends)}** ended well: {files} of {known} files, and {len(commands)} commands",
        f"({', '.join(commands)}). The most memory took `{heaviest.command}` on",
        f"*{_text(heaviest.case)}*: {heaviest.megabytes:.0f} MB. The most time took",
        f"`{longest.command}` on *{_text(longest.case)}*: {longest.cpu_s:.0f} s.\n",
        *_table(
            ("kind of attack", "files", "ended well", "done", "refused", "TensorRT refuses", "a limit", "MB", "s"), _kinds(ends)
        ),
    ]
    if bad:
        rows = ((end.family, _text(end.case), end.command, end.problem) for end in bad)
        lines += ["\n## What does not end well\n", *_table(("kind", "file", "command", "problem"), rows)]
    lines.append(
        "\n## By file\n\nExit codes: 0 done, 1 a comparison out of tolerance, 2 usage or profile, 3 the model, 4 ambiguous, "
        "5 TensorRT\nrefuses or nothing could be compared, 6 a limit or a crash of the builder. A cell is empty where that was "
        "not run."
    )
    for family in dict.fromkeys(end.family for end in ends):
        lines += [
            f"\n### {family[0].upper()}{family[1:]}\n",
            *_table(("file", *commands, "MB", "s"), _files(ends, family, commands)),
        ]
    return "\n".join(lines) + "\n"


def _kinds(ends: Sequence[End]) -> Iterable[tuple[object, ...]]:
    for family in dict.fromkeys(end.family for end in ends):
        of_it = [end for end in ends if end.family == family]
        good = Counter(end.code for end in of_it if not end.problem)
        yield (
            family, len({end.case for end in of_it}), f"{good.total()} of {len(of_it)}", good[0] + good[1],
            good[2] + good[3] + good[4], good[5], good[6],
            f"{max(end.megabytes for end in of_it):.0f}", f"{max(end.cpu_s for end in of_it):.1f}",
        )  # fmt: skip


def _files(ends: Sequence[End], family: str, commands: Sequence[str]) -> Iterable[tuple[object, ...]]:
    found: dict[str, dict[str, End]] = {}
    for end in ends:
        if end.family == family:
            found.setdefault(end.case, {})[end.command] = end
    for case, by_command in found.items():
        codes = [_code(by_command[command]) if command in by_command else "" for command in commands]
        megabytes, seconds = max(end.megabytes for end in by_command.values()), max(end.cpu_s for end in by_command.values())
        yield _text(case), *codes, f"{megabytes:.0f}", f"{seconds:.1f}"


def _code(end: End) -> str:
    return f"**{end.problem}**" if end.problem else str(end.code)


def _text(name: str) -> str:
    return name.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_").replace("<", "&lt;")


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    return [f"| {' | '.join(head)} |", "|" + "---|" * len(head), *(f"| {' | '.join(map(str, row))} |" for row in rows)]
