"""The page of mutants: how many a test notices, by part of the program, those that none does, and the branches that run."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

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

Most survivors of a draw were killed by new tests, or the needless code went, before the next one was drawn with another seed.
So the last draw, which was fresh, is what says how good the tests were then. Its survivors are listed as they were drawn; later
tests may kill them.

| draw | mutants | equivalent | killed | survived | run by no test | score |
|---|---|---|---|---|---|---|
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
    tests: int

    @property
    def key(self) -> Key: ...


Draws = Mapping[str, Sequence[Mutant]]


def page(
    draws: Draws,
    files: Mapping[str, Sequence[str]],
    equivalents: Mapping[Key, str],
    branches: dict[str, Any] | None,
    remarks: Sequence[str] = (),
) -> str:
    """The page. The last of ``draws`` is the fresh one; ``branches`` is what `coverage json` wrote."""
    last = list(draws)[-1]
    text = _HEAD + _DRAWS + "".join(_row(name, outcomes, equivalents) for name, outcomes in draws.items())
    text += "".join(f"\n{textwrap.fill(remark, 126)}\n" for remark in remarks)
    text += f"\n## The {last} draw, by part\n\n" + _PARTS
    for part in [*files, ""]:
        mine = [one for one in draws[last] if part in ("", one.part)]
        text += _row(part or "all", mine, equivalents) if mine else ""
    text += _survivors(last, draws[last], equivalents) + _equivalents(draws, equivalents)
    return text + (_branches(files, branches["files"]) if branches else "")


def _row(name: str, outcomes: Sequence[Mutant], equivalents: Mapping[Key, str]) -> str:
    counted = [one for one in outcomes if one.end == "killed" or one.key not in equivalents]
    ends = [one.end for one in counted]
    numbers = (len(outcomes), len(outcomes) - len(counted), ends.count("killed"), ends.count("survived"))
    score = f"{100 * ends.count('killed') / len(counted):.0f}%" if counted else ""
    return f"| {name} | {' | '.join(map(str, numbers))} | {ends.count('no test runs it')} | {score} |\n"


def _survivors(name: str, outcomes: Sequence[Mutant], equivalents: Mapping[Key, str]) -> str:
    left = [one for one in outcomes if one.end != "killed" and one.key not in equivalents]
    rows = "".join(f"| {one.file}:{one.line} | {_code(one.before)} | {_code(one.after)} | {one.tests} |\n" for one in left)
    table = "| place | before | after | tests |\n|---|---|---|---|\n" + rows if left else "None.\n"
    return f"\n### Survivors of the {name} draw\n\n{table}"


def _equivalents(draws: Draws, equivalents: Mapping[Key, str]) -> str:
    found = {one.key: one for outcomes in draws.values() for one in outcomes if one.end != "killed" and one.key in equivalents}
    rows = "".join(
        f"| {one.file} | {_code(one.before)} | {_code(one.after)} | {' '.join(equivalents[key].split())} |\n"
        for key, one in sorted(found.items())
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
