"""Run the tests again and again under conditions that are not those of a quiet machine, and write docs/suite_runs.md.

    python -m benchmarks.suite_runs run RUNS.json [--runs 20]
    python -m benchmarks.suite_runs page RUNS.json docs/suite_runs.md

Each run is one of a clean clone of what is committed, by this Python. The conditions take turns, and a file that exists is
gone on with. Who finds out why a test failed writes it into the file: ``"because": {TEST: WHY}`` in its run. Needs Linux, and
the right to make namespaces for a home that is read-only and for no network.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
_BUSY = "busy: three runs at once"
# What stands before the command, and what the environment has besides.
CONDITIONS: dict[str, tuple[list[str], dict[str, str]]] = {
    "as in continuous integration": ([], {"CI": "true"}),
    _BUSY: ([], {}),
    "no network": (["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"], {}),
    "Turkish locale": ([], {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"}),
    "read-only home": (
        ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro tmpfs "$HOME" && exec "$@"', "sh"],
        {"HOME": "{folder}/home"},
    ),
    "locale C, on one core": (["taskset", "--cpu-list", "0"], {"LC_ALL": "C"}),
}
_HEAD = """# Runs of the tests

No test may fail by chance. `make test-often` runs the whole fast suite again and again, each time on a clean clone and under
another condition (`benchmarks/suite_runs.py`). The machine had two cores, and at times other work besides. hypothesis draws new
examples in all runs but those "as in continuous integration". docs/suite_runs.json holds the runs; the next `make test-often`
goes on with it up to twenty.

"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("runs_file", type=Path)
    running.add_argument("--runs", type=int, default=20, help="runs in all, with those that the file has")
    writing = commands.add_parser("page")
    writing.add_argument("runs_file", type=Path)
    writing.add_argument("page", type=Path)
    asked = parser.parse_args()
    if asked.command == "page":
        asked.page.write_text(page(json.loads(asked.runs_file.read_text())))
        return 0
    runs = json.loads(asked.runs_file.read_text()) if asked.runs_file.exists() else []
    while len(runs) < asked.runs:
        condition = next_condition(runs)
        runs += runs_at_once(condition, 3 if condition == _BUSY else 1)
        asked.runs_file.parent.mkdir(parents=True, exist_ok=True)
        asked.runs_file.write_text(json.dumps(runs, indent=1) + "\n")
        print(runs[-1], flush=True)
    return 1 if any(run["failures"] for run in runs) else 0


def next_condition(runs: Sequence[dict[str, Any]]) -> str:
    """The condition behind that of the last run."""
    names = list(CONDITIONS)
    return names[(names.index(runs[-1]["condition"]) + 1) % len(names)] if runs else names[0]


def runs_at_once(condition: str, number: int) -> list[dict[str, Any]]:
    """What runs of all fast tests came to, each in a clean clone of its own."""
    with tempfile.TemporaryDirectory(prefix="trtnorm-suite-") as folder, ExitStack() as begun:
        runs = [begun.enter_context(Run(condition, Path(folder, str(index)))) for index in range(number)]
        return [run.record() for run in runs]


class Run:
    """One run of the tests, begun when it is made, in ``folder``."""

    def __init__(self, condition: str, folder: Path) -> None:
        before, besides = CONDITIONS[condition]
        self._condition, self._results, self._output = condition, folder / "results.xml", folder / "output"
        clone = folder / "clone"
        (folder / "home").mkdir(parents=True)
        subprocess.run(["git", "clone", "--quiet", str(_ROOT), str(clone)], check=True)
        named = ["git", "rev-parse", "--short", "HEAD"]
        self._commit = subprocess.run(named, cwd=clone, check=True, capture_output=True, text=True).stdout.strip()
        environment = {key: value for key, value in os.environ.items() if key not in ("CI", "COLUMNS", "PYTHONPATH")}
        environment |= {key: value.format(folder=folder) for key, value in besides.items()} | {"PYTHONPATH": str(clone)}
        tests = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal", f"--junit-xml={self._results}"]
        self._start = time.monotonic()
        with self._output.open("w") as output:
            self._process = subprocess.Popen([*before, *tests], cwd=clone, env=environment, stdout=output, stderr=output)

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.terminate()
            self._process.wait()

    def record(self) -> dict[str, Any]:
        """Wait for the end, and tell what passed, was skipped and failed, and how long it took."""
        _, status, used = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - self._start
        if not self._results.exists():
            raise SystemExit(f"{self._condition}: no test ran\n{self._output.read_text()[-4000:]}")
        return {
            "condition": self._condition,
            "commit": self._commit,
            "python": ".".join(map(str, sys.version_info[:3])),
            **outcomes(self._results),
            "exit": self._process.returncode,
            "seconds": round(seconds),
            "processor_seconds": round(used.ru_utime + used.ru_stime),
        }


def outcomes(results: Path) -> dict[str, Any]:
    """How many tests passed and were skipped, and which failed with which first line, by pytest's JUnit file."""
    passed = skipped = 0
    failures = {}
    for case in ElementTree.parse(results).iter("testcase"):
        bad = [found for kind in ("failure", "error") for found in case.findall(kind)]
        if bad:
            failures[f"{case.get('classname')}::{case.get('name')}"] = (bad[0].get("message") or "").split("\n")[0][:200]
        elif case.find("skipped") is not None:
            skipped += 1
        else:
            passed += 1
    return {"passed": passed, "skipped": skipped, "failures": failures}


def page(runs: list[dict[str, Any]]) -> str:
    rows = [
        f"| {number} | {run['condition']} | {run['python']} | {run['commit']} | {run['passed']:,} | {run['skipped']:,} |"
        f" {len(run['failures'])} | {run['seconds'] / 60:.0f} | {run['processor_seconds'] / 60:.0f} |"
        for number, run in enumerate(runs, 1)
    ]
    told = [f"- {line}: {', '.join(f'`{test}`' for test in tests)}" for line, tests in _failures(runs).items()] or ["None."]
    return "\n".join(
        [
            _HEAD + "| run | condition | Python | commit | passed | skipped | failed | minutes | of processor time |",
            "|---|---|---|---|---|---|---|---|---|",
            *rows,
            "",
            "## Tests that failed",
            "",
            *told,
            "",
        ]
    )


def _failures(runs: list[dict[str, Any]]) -> dict[str, list[str]]:
    """The tests that failed by what is known of it: in which runs, and why or with which words."""
    seen: dict[str, dict[str, list[str]]] = {}
    for number, run in enumerate(runs, 1):
        for test, message in run["failures"].items():
            said = run.get("because", {}).get(test, message)
            seen.setdefault(test, {}).setdefault(said, []).append(str(number))
    alike: dict[str, list[str]] = {}
    for test, where in seen.items():
        line = "; ".join(f"run {', '.join(numbers)}: {said}" for said, numbers in where.items())
        alike.setdefault(line, []).append(test)
    return alike


if __name__ == "__main__":
    sys.exit(main())
