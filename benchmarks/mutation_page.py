"""The page of mutants: how many a test notices, by part of the program, and those that none does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

_HEAD = """# Mutants

Small changes of the program, and whether a test notices. `make mutants` draws them with a seed, tries each with the tests that
run its line (at most 30, those that run the fewest lines first), and writes this page (`benchmarks/mutants.py`). A change that
no test can notice, because the program does the same with it, counts against the score.

| part | mutants | killed | score | survived | run by no test |
|---|---|---|---|---|---|
"""


class Mutant(Protocol):
    """What the page needs of an outcome."""

    part: str
    file: str
    line: int
    before: str
    after: str
    end: str
    tests: int


def page(outcomes: Sequence[Mutant], parts: Sequence[str]) -> str:
    """The page."""
    lines = []
    for part in [*parts, ""]:
        mine = [one for one in outcomes if part in ("", one.part)]
        if not mine:
            continue
        ends = [one.end for one in mine]
        killed = ends.count("killed")
        others = f"{ends.count('survived')} | {ends.count('no test runs it')}"
        lines.append(f"| {part or 'all'} | {len(mine)} | {killed} | {100 * killed / len(mine):.0f}% | {others} |")
    left = [one for one in outcomes if one.end != "killed"]
    lines += ["", "## Survivors", "", "| place | before | after | tests |", "|---|---|---|---|"]
    lines += [f"| {one.file}:{one.line} | {_code(one.before)} | {_code(one.after)} | {one.tests} |" for one in left]
    return _HEAD + "\n".join(lines) + "\n"


def _code(text: str) -> str:
    return f"`` {text} ``".replace("|", "\\|")
