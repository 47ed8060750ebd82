"""The page of mutants: how many a test notices, by part of the program, those that none does, and the branches that run."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

# What the draws came to whose records nobody keeps: their rows, and what is to be said of them.
EARLIER = Path(__file__).with_name("earlier_draws.md")
_HEAD = """# Mutants

Small changes of the program, and whether a test notices. `make mutants` draws them with a seed, tries each with the tests
that run its line, and writes this page (`benchmarks/mutants.py`). The parts are those whose mistakes are silent, and those
that keep promises about files.

- **Drawn** are changes within functions: a comparison turned or moved by one, `and` for `or` or without one of its
  conditions, one operator of arithmetic for another, a number one larger, one side of a conditional expression, and
  statements left out: `raise`, `return`, `continue`, `break`, a call whose result nobody uses. Left alone are docstrings,
  annotations, assertions, the words of messages, and what stands at the top of a module or class.
- **Tried** are at most 30 tests that run the line, of 15 seconds together: those of the module's own file and those that run
  the fewest lines, one of each test function first. Where none of them notices, as many of the others are tried. Which tests
  run a line is recorded once, and follows the text when it changes. A test that fails without the mutant kills none.
- **Equivalent** are mutants with which the program does the same; `benchmarks/equivalent_mutants.yaml` has the reason of
  each. They count neither way.
"""
_DRAWS = """
## Draws

Each draw has a seed of its own. What survived it was killed by new tests, or the needless code went, before the next one. The
score when it was drawn says how good the tests were then for code that nobody had looked at. Survivors are tried again with the
tests of today on the code of today, at most 240 tests of 30 seconds together. That gives the score now. Mutants of code that is
gone count no more.

| draw | mutants | equivalent | killed | survived | run by no test | score when drawn | killed since | gone | left | score now |
|---|---|---|---|---|---|---|---|---|---|---|
"""
_PARTS = "| part | mutants | equivalent | killed | survived | run by no test | score |\n|---|---|---|---|---|---|---|\n"
Key = tuple[str, str, str, str]


class Mutant(Protocol):
    """What the page needs of an outcome."""

    part: str
    file: str
    line: int
    before: str
    after: str
    end: str
    now: str
    tests: int

    @property
    def key(self) -> Key: ...


Draws = Mapping[str, Sequence[Mutant]]


def page(
    draws: Draws,
    files: Mapping[str, Sequence[str]],
    equivalents: Mapping[Key, str],
    takes: Mapping[Key, str],
    branches: dict[str, Any] | None,
    remarks: Sequence[str] = (),
) -> str:
    """The page. The last of ``draws`` is the fresh one, ``takes`` says what a test of a survivor would take.

    ``branches`` is what `coverage json` says of each file.
    """
    last = list(draws)[-1]
    earlier_rows, _, said_of_them = EARLIER.read_text(encoding="utf-8").partition("\n\n")
    text = _HEAD + _DRAWS + earlier_rows + "\n"
    text += "".join(_row(name, outcomes, equivalents, _now(outcomes, equivalents)) for name, outcomes in draws.items())
    text += "".join(f"\n{textwrap.fill(remark, 126)}\n" for remark in remarks)
    text += f"\n{said_of_them}"
    text += f"\n## The {last} draw by part, when it was drawn\n\n" + _PARTS
    for part in [*files, ""]:
        mine = [one for one in draws[last] if part in ("", one.part)]
        text += _row(part or "all", mine, equivalents) if mine else ""
    text += _survivors(draws, equivalents, takes) + _equivalents(equivalents)
    return text + (_branches(files, branches) if branches else "")


def _row(name: str, outcomes: Sequence[Mutant], equivalents: Mapping[Key, str], more: str = "") -> str:
    counted = [one for one in outcomes if one.end == "killed" or one.key not in equivalents]
    ends = [one.end for one in counted]
    numbers = (len(outcomes), len(outcomes) - len(counted), ends.count("killed"), ends.count("survived"))
    score = f"{100 * ends.count('killed') / len(counted):.0f}%" if counted else ""
    return f"| {name} | {' | '.join(map(str, numbers))} | {ends.count('no test runs it')} | {score} |{more}\n"


def _now(outcomes: Sequence[Mutant], equivalents: Mapping[Key, str]) -> str:
    """What became of the survivors."""
    counted = [one for one in outcomes if one.end == "killed" or one.key not in equivalents]
    since = sum(one.end != "killed" and one.now == "killed" for one in counted)
    gone, left = sum(one.now == "gone" for one in counted), sum(_is_left(one) for one in counted)
    there = len(counted) - gone
    return f" {since} | {gone} | {left} | {100 * (there - left) / there:.0f}% |" if there else ""


def _is_left(one: Mutant) -> bool:
    return one.end != "killed" and one.now not in ("killed", "gone")


def _survivors(draws: Draws, equivalents: Mapping[Key, str], takes: Mapping[Key, str]) -> str:
    """Those of all draws that nothing kills yet, those of draws without records too."""
    left = {one.key: f"{one.file}:{one.line}" for outcomes in draws.values() for one in outcomes if _is_left(one)}
    left = {key: f"{key[0]}, {key[1]}" for key in takes} | left
    rows = "".join(
        f"| {place} | {_code(key[2])} | {_code(key[3])} | {' '.join(takes.get(key, 'nobody has looked at it').split())} |\n"
        for key, place in left.items()
        if key not in equivalents
    )
    table = "| place | before | after | why it is left |\n|---|---|---|---|\n" + rows if rows else "None.\n"
    return f"\n## Survivors that are left\n\n{table}"


def _equivalents(equivalents: Mapping[Key, str]) -> str:
    rows = "".join(
        f"| {key[0]} | {_code(key[2])} | {_code(key[3])} | {' '.join(why.split())} |\n"
        for key, why in sorted(equivalents.items())
    )
    return "\n## Equivalent mutants\n\n| file | before | after | why nothing changes |\n|---|---|---|---|\n" + rows


def _branches(files: Mapping[str, Sequence[str]], measured: Mapping[str, Any]) -> str:
    text = (
        "\n## Branches\n\nBranches of the same parts that the tests run in their own process, by coverage.py. What runs in"
        " child processes alone is not counted.\n\n| part | branches | run | share |\n|---|---|---|---|\n"
    )
    total = [0, 0]
    for part, names in files.items():
        summaries = [measured[name]["summary"] for name in names if name in measured]
        numbers = [sum(one[key] for one in summaries) for key in ("num_branches", "covered_branches")]
        total = [a + b for a, b in zip(total, numbers, strict=True)]
        text += _branch_row(part, *numbers)
    return text + _branch_row("all", *total)


def _branch_row(name: str, branches: int, run: int) -> str:
    return f"| {name} | {branches} | {run} | {100 * run / max(branches, 1):.1f}% |\n"


def _code(text: str) -> str:
    return f"`` {text} ``".replace("|", "\\|")
