"""Run the tests again and again under conditions that are not those of a quiet machine, and write docs/suite_runs.md.

    python -m benchmarks.suite_runs run RUNS.json [--runs 20]
    python -m benchmarks.suite_runs page RUNS.json docs/suite_runs.md

Each run is one of a clean clone of what is committed, by this Python. The conditions take turns, and a file that exists is
gone on with. Needs Linux, and the right to make namespaces for a home that is read-only and for no network.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parent.parent
# What stands before the command, and what the environment has besides.
CONDITIONS: dict[str, tuple[list[str], dict[str, str]]] = {
    "as in continuous integration": ([], {"CI": "true"}),
    "busy: two more processes for each core": ([], {}),
    "no network": (["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"], {}),
    "Turkish locale": ([], {"LC_ALL": "tr_TR.UTF-8", "LANG": "tr_TR.UTF-8"}),
    "read-only home": (
        ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o ro tmpfs "$HOME" && exec "$@"', "sh"],
        {"HOME": "{scratch}/home"},
    ),
    "locale C, on one core": (["taskset", "--cpu-list", "0"], {"LC_ALL": "C"}),
}
_HEAD = """# Runs of the tests

No test may fail by chance. `make test-often` runs the whole fast suite again and again, each time on a clean clone and under
another condition (`benchmarks/suite_runs.py`). Other work was done on the machine of two cores meanwhile, so that all runs were
busy ones; "busy" adds two processes for each core that do nothing but count. hypothesis draws new examples in all but those
"as in continuous integration".

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
    names = list(CONDITIONS)
    while len(runs) < asked.runs:
        runs.append(one_run(names[len(runs) % len(names)]))
        asked.runs_file.parent.mkdir(parents=True, exist_ok=True)
        asked.runs_file.write_text(json.dumps(runs, indent=1) + "\n")
        print(runs[-1], flush=True)
    return 1 if any(run["failures"] for run in runs) else 0


def one_run(condition: str) -> dict[str, Any]:
    """What a run of all fast tests in a clean clone came to."""
    before, besides = CONDITIONS[condition]
    with tempfile.TemporaryDirectory(prefix="trtnorm-suite-") as folder:
        scratch, clone = Path(folder), Path(folder, "clone")
        (scratch / "home").mkdir()
        subprocess.run(["git", "clone", "--quiet", str(_ROOT), str(clone)], check=True)
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=clone, check=True, capture_output=True, text=True
        ).stdout.strip()
        environment = {key: value for key, value in os.environ.items() if key not in ("CI", "COLUMNS", "PYTHONPATH")}
        environment |= {key: value.format(scratch=scratch) for key, value in besides.items()} | {"PYTHONPATH": str(clone)}
        results = scratch / "results.xml"
        tests = [sys.executable, "-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal", f"--junit-xml={results}"]
        start, used = time.monotonic(), _processor_seconds()
        with _busy(2 * len(os.sched_getaffinity(0)) if condition.startswith("busy") else 0):
            done = subprocess.run([*before, *tests], cwd=clone, env=environment, capture_output=True, text=True)
        seconds = time.monotonic() - start
        if not results.exists():
            raise SystemExit(f"{condition}: no test ran\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return {
            "condition": condition,
            "commit": commit,
            "python": ".".join(map(str, sys.version_info[:3])),
            **outcomes(results),
            "exit": done.returncode,
            "seconds": round(seconds),
            "processor_seconds": round(_processor_seconds() - used),
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
        f"| {number} | {run['condition']} | {run['commit']} | {run['passed']:,} | {run['skipped']:,} |"
        f" {len(run['failures'])} | {run['seconds'] / 60:.0f} | {run['processor_seconds'] / 60:.0f} |"
        for number, run in enumerate(runs, 1)
    ]
    failed: dict[str, list[str]] = {}
    for number, run in enumerate(runs, 1):
        for test, message in run["failures"].items():
            failed.setdefault(test, []).append(f"run {number}: {message}")
    told = [f"- `{test}`, {'; '.join(said)}" for test, said in failed.items()] or ["None."]
    return "\n".join(
        [
            _HEAD + "| run | condition | commit | passed | skipped | failed | minutes | of processor time |",
            "|---|---|---|---|---|---|---|---|",
            *rows,
            "",
            "## Tests that failed",
            "",
            *told,
            "",
        ]
    )


@contextmanager
def _busy(processes: int) -> Iterator[None]:
    counting = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in counting:
            process.kill()
            process.wait()


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main())
