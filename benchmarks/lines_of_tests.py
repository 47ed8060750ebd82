"""Lines that each test runs, and the branches that all of them run: a plugin of pytest, for benchmarks/mutants.py.

    python -m pytest -p benchmarks.lines_of_tests --lines FOLDER …

Every process writes a file of lines and one of coverage.py into FOLDER. What a fixture of a module or a session runs counts for
every test that uses it. Child processes are not traced.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

from benchmarks.mutated_parts import PACKAGE, files_of_parts

_WRITTEN_EACH_S = 180


class Recorder:
    """Where the lines that run now belong: a test, a fixture, or neither."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._coverage = coverage.Coverage(
            data_file=None,
            branch=True,
            config_file=False,
            include=[str(path) for _, paths in files_of_parts() for path in paths],
            messages=False,
        )
        self._coverage.set_option("run:disable_warnings", ["no-data-collected"])
        self._lines: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._arcs: dict[str, set[tuple[int, int]]] = defaultdict(set)
        self._owner = ""
        self._written = time.monotonic()
        self.tests: dict[str, dict[str, Any]] = {}
        self._coverage.start()

    def switch(self, owner: str) -> str:
        """Give what has run to its owner, and what comes to ``owner``. Return the one before."""
        self._coverage.stop()
        self._harvest()
        self._coverage.erase()
        before, self._owner = self._owner, owner
        self._coverage.start()
        return before

    def _harvest(self) -> None:
        data = self._coverage.get_data()
        for path in data.measured_files():
            arcs = data.arcs(path) or ()
            name = str(Path(path).relative_to(PACKAGE))
            self._arcs[name].update(arcs)
            bits = 0
            for line in {abs(end) for arc in arcs for end in arc}:
                bits |= 1 << line
            self._lines[self._owner][name] |= bits

    def write_at_times(self) -> None:
        """Keep what there is, for a run that is stopped."""
        if time.monotonic() - self._written > _WRITTEN_EACH_S:
            self.write()
            self._written = time.monotonic()

    def write(self) -> None:
        """Write what belongs to tests and fixtures that have ended."""
        self._folder.mkdir(parents=True, exist_ok=True)
        lines = {owner: {name: f"{bits:x}" for name, bits in files.items()} for owner, files in self._lines.items()}
        texts = {name: (PACKAGE / name).read_text(encoding="utf-8") for name in self._arcs}
        record = {"tests": self.tests, "lines": lines, "texts": texts}
        (self._folder / f"{os.getpid()}.json").write_text(json.dumps(record), encoding="utf-8")
        data = coverage.CoverageData(str(self._folder / f".coverage.{os.getpid()}"))
        data.erase()
        data.add_arcs({str(PACKAGE / name): arcs for name, arcs in self._arcs.items()})
        data.write()


_recorder: Recorder | None = None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--lines", type=Path, required=True, help="folder for the lines that each test runs")


def pytest_configure(config: pytest.Config) -> None:
    global _recorder
    # With processes of xdist, the first one runs no test.
    if hasattr(config, "workerinput") or not config.getoption("numprocesses", None):
        _recorder = Recorder(config.getoption("--lines"))


def pytest_unconfigure() -> None:
    if _recorder is not None:
        _recorder.switch("")
        _recorder.write()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if _recorder is None:
        return (yield)
    known = getattr(item, "_fixtureinfo", None)
    used = [_key(one[-1]) for one in known.name2fixturedefs.values() if one[-1].scope != "function"] if known else []
    _recorder.tests[item.nodeid] = {"fixtures": used, "seconds": 0.0, "passed": False}
    _recorder.switch(item.nodeid)
    begun = _processor_seconds()
    result = yield
    _recorder.tests[item.nodeid]["seconds"] = round(_processor_seconds() - begun, 3)
    _recorder.switch("")
    _recorder.write_at_times()
    return result


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Iterator[Any]:
    if _recorder is None or fixturedef.scope == "function":
        return (yield)
    before = _recorder.switch(_key(fixturedef))
    try:
        return (yield)
    finally:
        _recorder.switch(before)


def _processor_seconds() -> float:
    return sum(os.times()[:4])


def _key(fixturedef: Any) -> str:
    return f"fixture {fixturedef.baseid} {fixturedef.argname}"


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if _recorder is not None and report.when == "call":
        _recorder.tests[report.nodeid]["passed"] = report.passed
