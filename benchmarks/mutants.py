"""Change the program in small ways, and see whether a test notices: a seeded sample by folder, and docs/mutation.md.

    make mutants
    python -m benchmarks.mutants run COVERAGE -o build/mutants.json --each 30
    python -m benchmarks.mutants page build/mutants.json docs/mutation.md

COVERAGE is what coverage.py wrote with ``dynamic_context = test_function``: it tells the tests that run a line. Of those, the
ones that run the fewest lines are tried first. A mutant is compiled in a forked process in the place of its module, and no file
changes.
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
import sqlite3
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.mutation import Mutation, mutations

ROOT = Path(__file__).parents[1]
# The parts of the program whose mistakes are silent, and those that keep promises about files.
PARTS = {
    "rewrite/rules": ("rewrite/rules/",),
    "rewrite/norms, scale_shift": ("rewrite/norms/", "rewrite/scale_shift/"),
    "rewrite, other": ("rewrite/",),
    "profile": ("profile/",),
    "shapes": ("shapes/",),
    "tensorrt/launch, pipeline": ("tensorrt/launch", "tensorrt/settings", "pipeline.py", "engine_making.py", "build_job.py"),
}
_MOST_TESTS, _CPU_S, _WALL_S = 30, 90, 900
KILLED, SURVIVED, UNTESTED = "killed", "survived", "no test runs it"


@dataclass(frozen=True)
class Outcome:
    """A mutant, and what became of it: ``tests`` is how many were run."""

    part: str
    file: str
    line: int
    before: str
    after: str
    end: str
    tests: int
    seconds: float


class Contexts:
    """The tests that run each line, by coverage.py's files."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._by_line: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._lines: Counter[str] = Counter()
        for file in files:
            self._read(file)

    def _read(self, file: Path) -> None:
        with sqlite3.connect(file) as base:
            rows = base.execute(
                "select file.path, context.context, line_bits.numbits from line_bits join file on file.id = file_id"
                " join context on context.id = context_id where context != ''"
            )
            for path, context, bits in rows:
                _, package, name = path.rpartition("/trtnorm_cli/")
                numbers = [byte * 8 + bit for byte, value in enumerate(bits) for bit in range(8) if value & (1 << bit)]
                if package and (test := _test_of(context)):
                    self._lines[test] += len(numbers)
                    for number in numbers:
                        self._by_line[name, number].add(test)

    def tests(self, file: str, first: int, last: int) -> list[str]:
        """The tests that run one of these lines, those that run the fewest lines first."""
        found = {test for line in range(first, last + 1) for test in self._by_line.get((file, line), ())}
        return sorted(found, key=lambda test: (self._lines[test], test))


def _test_of(context: str) -> str | None:
    """``tests.rewrite.test_a.test_b`` as pytest calls it; None for what is none of a file of tests."""
    module, _, name = context.rpartition(".")
    path = Path(*module.split(".")).with_suffix(".py")
    if (ROOT / path).is_file():
        return f"{path}::{name}"
    holder, _, outer = module.rpartition(".")
    path = Path(*holder.split(".")).with_suffix(".py") if holder else path
    return f"{path}::{outer}::{name}" if (ROOT / path).is_file() else None


def sample(each: int, seed: int) -> Iterator[tuple[str, Path, Mutation]]:
    """``each`` mutants of every part."""
    taken: set[Path] = set()
    for part, beginnings in PARTS.items():
        package = ROOT / "trtnorm_cli"
        files = [
            path
            for path in sorted(package.rglob("*.py"))
            if path not in taken and str(path.relative_to(package)).startswith(beginnings)
        ]
        taken.update(files)
        texts = {path: path.read_text(encoding="utf-8") for path in files}
        found = [(path, one) for path, text in texts.items() for one in mutations(text)]
        random.Random(f"{seed} {part}").shuffle(found)
        valid = ((path, one) for path, one in found if one.is_python(texts[path]))
        for path, one in itertools.islice(valid, each):
            yield part, path, one


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


def try_one(part: str, path: Path, one: Mutation, contexts: Contexts) -> Outcome:
    """Run the tests of one mutant until one fails."""
    file = str(path.relative_to(ROOT / "trtnorm_cli"))
    tests = contexts.tests(file, one.line, one.last_line)[:_MOST_TESTS]
    begun = time.monotonic()
    end = KILLED if tests and _fails(path, one, tests) else SURVIVED if tests else UNTESTED
    return Outcome(part, file, one.line, one.before, one.after, end, len(tests), round(time.monotonic() - begun, 1))


def _fails(path: Path, one: Mutation, tests: Sequence[str]) -> bool:
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        code = 1
        try:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S + 5))
            signal.alarm(_WALL_S)
            code = _tested(path, one, tests)
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status) != 0


def _tested(path: Path, one: Mutation, tests: Sequence[str]) -> int:
    import pytest

    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    sys.meta_path.insert(0, _Mutated(path, one.applied(path.read_text(encoding="utf-8"))))
    with tempfile.TemporaryDirectory(prefix="trtnorm-mutant-") as scratch:
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--basetemp", f"{scratch}/t"]
        code = int(pytest.main([*options, *tests]))
    return 0 if code == 5 else code  # none was collected: a test that was renamed kills nothing


def run(coverage: Path, each: int, seed: int, output: Path, seconds: float, parts: Sequence[str]) -> int:
    """Try the sample, and go on where an earlier run ended."""
    import numpy  # noqa: F401
    import onnx  # noqa: F401
    import onnx_graphsurgeon  # noqa: F401
    import onnxruntime  # noqa: F401
    import pytest  # noqa: F401

    files = sorted(coverage.glob(".coverage*")) if coverage.is_dir() else [coverage]
    contexts, begun = Contexts(files), time.monotonic()
    known = [Outcome(**one) for one in json.loads(output.read_text())] if output.is_file() else []
    done = {(one.file, one.line, one.before, one.after) for one in known}
    # By turns, so that a run that is stopped has some of every part.
    drawn = [one for one in sample(each, seed) if one[0] in parts]
    places: Counter[str] = Counter()
    order = sorted(((places.update([part]) or places[part]), number) for number, (part, _, _) in enumerate(drawn))
    for _, number in order:
        part, path, one = drawn[number]
        if (str(path.relative_to(ROOT / "trtnorm_cli")), one.line, one.before, one.after) in done:
            continue
        if time.monotonic() - begun > seconds:
            break
        outcome = try_one(part, path, one, contexts)
        known.append(outcome)
        print(f"{outcome.end} ({outcome.seconds} s): {outcome.file}:{outcome.line}: {one.before} → {one.after}", flush=True)
        output.write_text(json.dumps([asdict(one) for one in known], indent=1) + "\n", encoding="utf-8")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run", help="try a sample")
    running.add_argument("coverage", type=Path, help="a data file of coverage.py, or a folder of them")
    running.add_argument("-o", "--output", type=Path, required=True)
    running.add_argument("--each", type=int, default=30, help="mutants of each part")
    running.add_argument("--seed", type=int, default=0)
    running.add_argument("--seconds", type=float, default=1e9)
    running.add_argument("--part", action="append", choices=list(PARTS), help="only these parts")
    paging = commands.add_parser("page", help="write the page")
    paging.add_argument("record", type=Path)
    paging.add_argument("page", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "run":
        return run(
            arguments.coverage,
            arguments.each,
            arguments.seed,
            arguments.output,
            arguments.seconds,
            arguments.part or list(PARTS),
        )
    from benchmarks.mutation_page import page

    outcomes = [Outcome(**one) for one in json.loads(arguments.record.read_text(encoding="utf-8"))]
    arguments.page.write_text(page(outcomes, list(PARTS)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
