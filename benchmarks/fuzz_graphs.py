"""Make random models around normalizations, hold every judge of them against the others, and reduce what disagrees.

    python -m benchmarks.fuzz_graphs run --seconds 5400 -o build/fuzz
    python -m benchmarks.fuzz_graphs page build/fuzz docs/fuzzing.md

Finds are written to the output folder: the smallest model of each kind that hypothesis came to, with the reason beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings

from benchmarks.fuzz_page import page
from benchmarks.random_models.judge import Find, judge
from benchmarks.random_models.models import RandomModel, models
from trtnorm_cli.evaluate.ort_runner import one_child

# In processor time, of the batch's own process.
_AT_ONCE, _MOST_SECONDS = 100, 300
RECORD = "graphs.json"


def try_some(first: int, count: int, folder: Path, known: set[str]) -> Counter[str]:
    """Judge ``count`` models of seed ``first``; finds that are not ``known`` go to ``folder``, reduced."""
    counted: Counter[str] = Counter()
    kinds: dict[str, type[Find]] = {}

    @seed(first)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=True,
    )
    @given(models())
    def judged(model: RandomModel) -> None:
        counted["executions"] += 1
        with tempfile.TemporaryDirectory(prefix="trtnorm-fuzz-") as name:
            (folder / "current.onnx").write_bytes(model.proto.SerializeToString())
            try:
                judge(model, Path(name), counted)
            except Find as find:
                counted[f"find: {find.key}"] += 1
                if find.key in known:
                    return
                _keep(find, model, folder)
                # hypothesis tells bugs apart by the type of the exception, and reduces each.
                raise kinds.setdefault(find.key, type("Found", (Find,), {}))(find.key, str(find)) from None

    with one_child():
        try:
            judged()
        except Exception as error:
            if not isinstance(error, Find) and not hasattr(error, "exceptions"):  # of several kinds at once
                raise
            counted["batches with finds"] += 1
    return counted


def _keep(find: Find, model: RandomModel, folder: Path) -> None:
    """Write the smallest model of this kind so far."""
    stem = "".join(c if c.isalnum() else "-" for c in find.key)[:90]
    file, content = folder / f"{stem}.onnx", model.proto.SerializeToString()
    if not file.exists() or len(content) <= file.stat().st_size:
        file.write_bytes(content)
        (folder / f"{stem}.txt").write_text(f"{find}\nsizes: {dict(model.sizes)}\n", encoding="utf-8")


def run(seconds: float, first: int, folder: Path) -> int:
    """Judge batches, each in a process of its own, until the time is over."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / RECORD
    record = json.loads(file.read_text()) if file.is_file() else {"seconds": 0.0, "batches": 0, "counted": {}, "known": []}
    begun, counted = time.monotonic(), Counter(record["counted"])
    known, number, before = set(record["known"]), first + record["batches"], record["seconds"]
    while time.monotonic() - begun < seconds:
        found = _batch(number, folder, known)
        counted += found
        known |= {key.removeprefix("find: ") for key in found if key.startswith("find: ")}
        number += 1
        record = {
            "seconds": round(before + time.monotonic() - begun),
            "batches": number - first,
            "counted": dict(counted),
            "known": sorted(known),
        }
        file.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


def _batch(number: int, folder: Path, known: set[str]) -> Counter[str]:
    answer = folder / "batch.json"
    answer.unlink(missing_ok=True)
    sys.stdout.flush()
    pid = os.fork()
    if not pid:
        resource.setrlimit(resource.RLIMIT_CPU, (_MOST_SECONDS, _MOST_SECONDS + 5))
        with Path(os.devnull).open("w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        try:
            answer.write_text(json.dumps(try_some(number, _AT_ONCE, folder, known)), encoding="utf-8")
        except BaseException:
            (folder / f"broken-{number}.txt").write_text(traceback.format_exc(), encoding="utf-8")
        finally:
            os._exit(0 if answer.is_file() else 1)
    _, status = os.waitpid(pid, 0)
    if answer.is_file():
        return Counter(json.loads(answer.read_text(encoding="utf-8")))
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGXCPU:
        return Counter({"batches out of time": 1})
    (folder / "current.onnx").rename(folder / f"died-{number}.onnx")
    return Counter({f"find: the process ended with {code}": 1})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    running = commands.add_parser("run")
    running.add_argument("--seconds", type=float, default=7200)
    running.add_argument("--seed", type=int, default=0, help="that of the first batch")
    running.add_argument("-o", "--output", type=Path, default=Path("build/fuzz"))
    paging = commands.add_parser("page")
    paging.add_argument("records", type=Path)
    paging.add_argument("page", type=Path)
    arguments = parser.parse_args()
    if arguments.command == "page":
        arguments.page.write_text(page(arguments.records), encoding="utf-8")
        return 0
    return run(arguments.seconds, arguments.seed, arguments.output)


if __name__ == "__main__":
    sys.exit(main())
