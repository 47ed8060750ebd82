"""Change the program in small ways, and see whether a test notices: a seeded sample by folder, and docs/mutation.md.

    make mutants
    python -m benchmarks.mutants run LINES -o build/mutants.json --each 30
    python -m benchmarks.mutants again LINES -o build/mutants.json
    python -m benchmarks.mutants page build/mutants.json docs/mutation.md

LINES is the folder that the plugin benchmarks/lines_of_tests.py filled: it tells the tests that run a line. Of those, the
ones that run the fewest lines are tried, the quickest first. A mutant is compiled in a forked process in the place of its
module; no file changes. ``again`` tries the survivors once more, after tests were written for them: the record then holds
what became of each when it was drawn, and now.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import itertools
import json
import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.mutated_parts import PACKAGE, PARTS, ROOT, files_of_parts
from benchmarks.mutation import Mutation, mutations

if TYPE_CHECKING:
    import pytest

    from benchmarks.tested_lines import TestedLines

EQUIVALENTS = Path(__file__).with_name("equivalent_mutants.yaml")
LEFT = Path(__file__).with_name("surviving_mutants.yaml")
_MOST_TESTS, _MOST_TESTS_S = 30, 15.0
# A survivor is tried again with so many, among which a test for it is.
_MOST_AGAIN, _MOST_AGAIN_S = 240, 30.0
# Processor time beyond what the tests took when their lines were recorded, and of that.
_MORE_CPU_S, _TIMES_CPU, _WALL_S = 10, 2, 2400
KILLED, SURVIVED, UNTESTED, GONE = "killed", "survived", "no test runs it", "gone"
_LIMIT = "the limit of time"


@dataclass(frozen=True)
class Outcome:
    """A mutant, and what became of it: ``tests`` is how many were there to run, and ``by`` the one that failed.

    ``now`` is what became of it when it was tried again; it is ``gone`` with code that is not there any more.
    """

    part: str
    file: str
    function: str
    line: int
    before: str
    after: str
    end: str
    tests: int
    seconds: float
    by: str = ""
    now: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.file, self.function, self.before, self.after


def sample(each: int, seed: int) -> Iterator[tuple[str, Path, Mutation]]:
    """``each`` mutants of every part."""
    for part, files in files_of_parts():
        texts = {path: path.read_text(encoding="utf-8") for path in files}
        found = [(path, one) for path, text in texts.items() for one in mutations(text)]
        random.Random(f"{seed} {part}").shuffle(found)
        valid = ((path, one) for path, one in found if one.is_python(texts[path]))
        for path, one in itertools.islice(valid, each):
            yield part, path, one


def same(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, Path, Mutation]]:
    """The mutants of ``outcomes`` in the texts of today, those nearest to the line where they were."""
    for outcome in outcomes:
        path = PACKAGE / outcome.file
        found = [one for one in mutations(path.read_text(encoding="utf-8")) if _key(path, one) == outcome.key]
        if found:
            yield outcome.part, path, min(found, key=lambda one: abs(one.line - outcome.line))


def _key(path: Path, one: Mutation) -> tuple[str, str, str, str]:
    return str(path.relative_to(PACKAGE)), one.function, one.before, one.after


class _Mutated(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives one module with another text."""

    def __init__(self, path: Path, text: str) -> None:
        names = path.relative_to(ROOT).with_suffix("").parts
        self.name = ".".join(names[:-1] if names[-1] == "__init__" else names)
        self.path, self.text = path, text

    def find_spec(self, name: str, path: object, target: object = None) -> importlib.machinery.ModuleSpec | None:
        if name != self.name:
            return None
        is_package = self.path.name == "__init__.py"
        spec = importlib.machinery.ModuleSpec(name, self, origin=str(self.path), is_package=is_package)
        spec.has_location = True
        if is_package:
            spec.submodule_search_locations = [str(self.path.parent)]
        return spec

    def exec_module(self, module: object) -> None:
        exec(compile(self.text, str(self.path), "exec"), vars(module))


class _Failures:
    """Writes down the tests that fail: a plugin of pytest."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            with self._file.open("a", encoding="utf-8") as file:
                print(report.nodeid, file=file)


def try_one(part: str, path: Path, one: Mutation, lines: TestedLines, again: bool = False) -> Outcome:
    """Run the tests of one mutant until one fails, more of them when it is tried ``again``."""
    file = str(path.relative_to(PACKAGE))
    # What runs when a module is imported belongs to no test, and no more do lines that are newer than the record.
    running = lines.tests(file, one.line, one.last_line) or lines.tests(file, 1, sys.maxsize)
    begun = time.monotonic()
    tests = lines.within(running, *((_MOST_AGAIN, _MOST_AGAIN_S) if again else (_MOST_TESTS, _MOST_TESTS_S)))
    failed = failing(tests, lines, (path, one)) if tests else []
    left = [test for test in running if test not in tests]
    if left and not failed and not again:
        # Those that run a line by the way tell less, but of many one may tell.
        further = lines.within(left[:: len(left) // _MOST_TESTS + 1], _MOST_TESTS, _MOST_TESTS_S)
        failed = failing(further, lines, (path, one))
        tests += further
    end = KILLED if failed else SURVIVED if tests else UNTESTED
    took = round(time.monotonic() - begun, 1)
    return Outcome(part, file, one.function, one.line, one.before, one.after, end, len(tests), took, "".join(failed[:1]))


def failing(tests: Sequence[str], lines: TestedLines, mutant: tuple[Path, Mutation] | None = None) -> list[str]:
    """Of ``tests``, the first that fails with the ``mutant``; without one all that fail, which have nothing to tell."""
    sys.stdout.flush()
    limit = int(_MORE_CPU_S + _TIMES_CPU * sum(lines.seconds.get(test, 0) for test in tests)) if mutant else _WALL_S
    with tempfile.TemporaryDirectory(prefix="trtnorm-mutant-") as scratch:
        told = Path(scratch, "failed")
        pid = os.fork()
        if not pid:
            code = 1
            try:
                os.setsid()
                resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
                signal.alarm(_WALL_S)
                code = _tested(tests, mutant, told)
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        with suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        if os.waitstatus_to_exitcode(status) == 0:
            return []
        return told.read_text(encoding="utf-8").splitlines() if told.is_file() else [_LIMIT]


def _tested(tests: Sequence[str], mutant: tuple[Path, Mutation] | None, told: Path) -> int:
    import pytest

    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--basetemp", str(told.parent / "t")]
    if mutant is not None:
        path, one = mutant
        options.append("-x")
        sys.meta_path.insert(0, _Mutated(path, one.applied(path.read_text(encoding="utf-8"))))
    code = int(pytest.main([*options, *tests], plugins=[_Failures(told)]))
    return 0 if code == 5 else code  # none was collected: a test that was renamed kills nothing


def run(
    mutants: Sequence[tuple[str, Path, Mutation]],
    lines: TestedLines,
    known: list[Outcome],
    output: Path,
    seconds: float,
    again: bool = False,
) -> int:
    """Try the mutants, by turns of the parts: a run that is stopped has some of every part."""
    for module in ("numpy", "onnx", "onnx_graphsurgeon", "onnxruntime", "pytest"):
        importlib.import_module(module)
    begun = time.monotonic()
    places: Counter[str] = Counter()
    order = sorted(((places.update([part]) or places[part]), number) for number, (part, _, _) in enumerate(mutants))
    fresh: list[Outcome] = []
    for _, number in order:
        if time.monotonic() - begun > seconds:
            break
        outcome = try_one(*mutants[number], lines, again)
        fresh.append(outcome)
        print(
            f"{outcome.end} ({outcome.seconds} s): {outcome.file}:{outcome.line}: {outcome.before} → {outcome.after}",
            flush=True,
        )
        _write(output, known, fresh, again)
    # A test that fails without a mutant, too, kills none.
    killers = sorted({one.by for one in fresh} - {"", _LIMIT})
    flawed = {test for start in range(0, len(killers), _MOST_TESTS) for test in failing(killers[start:][:_MOST_TESTS], lines)}
    for test in sorted(flawed):
        print(f"fails without a mutant, too: {test}")
    _write(output, known, [one for one in fresh if one.by not in flawed], again)
    return 1 if flawed else 0


def _write(output: Path, known: Sequence[Outcome], fresh: Sequence[Outcome], again: bool) -> None:
    """Write the outcomes, and of a mutant that was tried ``again`` both."""
    outcomes = {one.key: one for one in known}
    for one in fresh:
        outcomes[one.key] = replace(outcomes[one.key], now=one.end, by=one.by) if again else one
    output.write_text(json.dumps([asdict(one) for one in outcomes.values()], indent=1) + "\n", encoding="utf-8")


def _read(output: Path) -> list[Outcome]:
    return [Outcome(**one) for one in json.loads(output.read_text(encoding="utf-8"))] if output.is_file() else []


def reasons(file: Path) -> dict[tuple[str, str, str, str], str]:
    """The reason of each mutant of a list."""
    import yaml

    found = yaml.safe_load(file.read_text(encoding="utf-8")) or []
    return {(one["file"], one["function"], one["before"], one["after"]): one["why"] for one in found}


def _branches(file: Path) -> dict[str, Any]:
    """What `coverage json` wrote, by paths from the root of the repository wherever it was written."""
    measured = json.loads(file.read_text(encoding="utf-8"))["files"]
    return {os.path.relpath(ROOT / name, ROOT): found for name, found in measured.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="try a sample, and go on where an earlier run ended")
    again = commands.add_parser("again", help="try the survivors once more")
    for command in (running, again):
        command.add_argument("lines", type=Path, help="the folder of benchmarks/lines_of_tests.py")
        command.add_argument("-o", "--output", type=Path, required=True)
        command.add_argument("--seconds", type=float, default=1e9)
        command.add_argument("--part", action="append", choices=list(PARTS), help="only these parts")
    running.add_argument("--each", type=int, default=30, help="mutants of each part")
    running.add_argument("--seed", type=int, default=0)
    paging = commands.add_parser("page", help="write the page")
    paging.add_argument("records", type=Path, nargs="+", help="records of draws, the last one first to be read")
    paging.add_argument("page", type=Path)
    paging.add_argument("--remark", action="append", default=[], help="a sentence about how these draws were made")
    paging.add_argument("--branches", type=Path, help="what `coverage json` wrote")
    arguments = parser.parse_args()
    if arguments.command == "page":
        from benchmarks.mutation_page import page

        draws = {path.stem: _read(path) for path in arguments.records}
        measured = _branches(arguments.branches) if arguments.branches else None
        files = {part: [str(path.relative_to(ROOT)) for path in paths] for part, paths in files_of_parts()}
        text = page(draws, files, reasons(EQUIVALENTS), reasons(LEFT), measured, arguments.remark)
        arguments.page.write_text(text, encoding="utf-8")
        return 0
    from benchmarks.tested_lines import TestedLines

    known, parts = _read(arguments.output), arguments.part or list(PARTS)
    again = arguments.command == "again"
    if again:
        same_as = reasons(EQUIVALENTS)
        wanted = [one for one in known if KILLED not in (one.end, one.now) and one.key not in same_as and one.part in parts]
        mutants = list(same(wanted))
        gone = {one.key for one in wanted} - {_key(*one[1:]) for one in mutants}
        known = [replace(one, now=GONE) if one.key in gone else one for one in known]
        _write(arguments.output, known, (), again)
    else:
        done = {one.key for one in known}
        mutants = [one for one in sample(arguments.each, arguments.seed) if _key(*one[1:]) not in done]
    mutants = [one for one in mutants if one[0] in parts]
    return run(mutants, TestedLines(arguments.lines), known, arguments.output, arguments.seconds, again)


if __name__ == "__main__":
    sys.exit(main())
