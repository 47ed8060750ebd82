"""Run every command on every hostile file, and write docs/hostile_files.md.

python -m benchmarks.hostile_files run -o build/hostile.json [--only TEXT] [--commands inspect,rewrite] [--resume] [--at-once 1]
python -m benchmarks.hostile_files page build/hostile.json docs/hostile_files.md
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import NoReturn

import numpy as np

from benchmarks import hostile_external, hostile_graphs, hostile_messages, hostile_settings, hostile_sizes
from benchmarks.hostile_cases import MODEL, SECRET, SECRET_VALUE, Case
from benchmarks.hostile_page import MOST_BYTES, MOST_CHILD_S, MOST_CPU_S, MOST_SECONDS, End, page
from benchmarks.measured import family
from trtnorm_cli import cli
from trtnorm_cli.child_process import memory_of

_LOOKS_EVERY_S = 0.03
COMMANDS: dict[str, tuple[str, ...]] = {
    "inspect": ("inspect", MODEL),
    "rewrite": ("rewrite", MODEL, "-o", "fixed.onnx"),
    "build": ("build", MODEL, "-o", "out.engine"),
    "compare": ("compare", MODEL),
    "init": ("init", MODEL),
}
# The limit that every command is given; the whole family may have twice as much before it is stopped from outside.
_LIMIT = ("--memory", "3GiB")
# The limit on time of what a command starts: TensorRT's builder, and runs in ONNX Runtime; and of runs in float64.
_TIMED = {"build": ("--timeout", str(MOST_CHILD_S)), "compare": ("--timeout", str(MOST_CHILD_S), "--budget", "20")}
_TAKES = {"--profile": ("rewrite", "build", "compare"), "--weights": ("inspect", "rewrite", "build")}
_SAID_BYTES = 4000
# What the commands import, once for all of them.
_IMPORTED = (
    "onnxruntime",
    "onnxscript.optimizer",
    *(f"trtnorm_cli.commands.{name}" for name in COMMANDS),
    "trtnorm_cli.pipeline",
    "trtnorm_cli.api",
    "trtnorm_cli.compare.session",
    "trtnorm_cli.rewrite.describe",
    "trtnorm_cli.rewrite.write",
    "trtnorm_cli.onnx_model.fold",
    "trtnorm_cli.first_profile",
    "trtnorm_cli.onnx_model.fold_library",
    "trtnorm_cli.report.build",
    "trtnorm_cli.report.model",
)
# How a command may end: done, out of tolerance, or one of the refusals that errors.py names.
_GOOD_CODES = frozenset(range(7))


def all_cases() -> Iterator[Case]:
    """Every case of every family."""
    for module in (hostile_external, hostile_graphs, hostile_sizes, hostile_messages, hostile_settings):
        yield from module.cases()


def end_of(case: Case, command: str) -> End:
    """Run ``command`` on ``case``, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="trtnorm-hostile-", ignore_cleanup_errors=True) as name:
        (Path(name) / SECRET).write_bytes(np.full(16, SECRET_VALUE, np.float32).tobytes())
        folder = Path(name) / "work"
        folder.mkdir()
        case.write(folder)
        return _watched(case, command, folder)


def _watched(case: Case, command: str, folder: Path) -> End:
    extra = (
        *_LIMIT,
        *_TIMED.get(command, ()),
        *(case.arguments if case.arguments and command in _TAKES[case.arguments[0]] else ()),
    )
    out = folder.parent / "out"
    start = time.perf_counter()
    pid = os.fork()
    if not pid:
        _be_the_command([*COMMANDS[command], *extra], folder, out)
    peak, stopped = 0, ""
    while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        held = sum(memory_of(each) for each in family(pid))
        peak = max(peak, held)
        stopped = _excess(held, _cpu_of(pid), time.perf_counter() - start)
        if stopped:
            os.kill(pid, signal.SIGKILL)
            break
        time.sleep(_LOOKS_EVERY_S)
    _, status, used = os.wait4(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    said = out.read_bytes()[-_SAID_BYTES:].decode(errors="replace")
    problem = f"stopped beyond {stopped}" if stopped else _problem(case, code, said, folder)
    return End(
        case.family, case.name, command, code, round(time.perf_counter() - start, 2),
        round(used.ru_utime + used.ru_stime, 2), round(peak / 2**20, 1), problem, said,
    )  # fmt: skip


def _excess(held: int, cpu_s: float, seconds: float) -> str:
    """The limit that a command went beyond; empty where there is none."""
    if held > MOST_BYTES:
        return f"{MOST_BYTES >> 30} GiB"
    if cpu_s > MOST_CPU_S:
        return f"{MOST_CPU_S} s of the processor"
    return f"{MOST_SECONDS} s by the clock" if seconds > MOST_SECONDS else ""


def _cpu_of(pid: int) -> float:
    """Seconds of the processor that a process has taken; 0 when it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _be_the_command(arguments: list[str], folder: Path, out: Path) -> NoReturn:
    """Run trtnorm in this process, which was forked and has everything imported."""
    written = os.open(out, os.O_CREAT | os.O_WRONLY)
    os.dup2(written, 1)
    os.dup2(written, 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")  # a test may have put something else there
    os.setsid()
    os.chdir(folder)
    temporary = folder.parent / "temp"
    temporary.mkdir()
    tempfile.tempdir = os.environ["TMPDIR"] = str(temporary)
    sys.argv = ["trtnorm", *arguments]
    cli.leave = sys.exit  # or what is registered for the end of the first process would run in this one
    try:
        cli.main(arguments)
    except SystemExit as leaving:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(leaving.code if isinstance(leaving.code, int) else 1)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(1)


def _problem(case: Case, code: int, said: str, folder: Path) -> str:
    if code not in _GOOD_CODES:
        return f"exit code {code}"
    if "Traceback" in said:
        return "a traceback"
    if "\x1b" in said:
        return "an escape reached the terminal"
    if code > 1 and not any(word in said.lower() for word in ("error: ", "verdict: ")):
        return f"exit code {code} without a reason"
    if case.is_sound and code in (2, 3, 4, 70):
        return f"a sound model was refused with exit code {code}"
    if (folder / hostile_settings.MARK).exists():
        return "its code was run"
    return "the secret was read" if _holds_the_secret(folder) else ""


def _holds_the_secret(folder: Path) -> bool:
    secret = np.full(4, SECRET_VALUE, np.float32).tobytes()
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path.stat().st_nlink == 1)
    return any(secret in path.read_bytes() for path in files if path.name.startswith(("fixed", "out")))


def run(
    cases: Sequence[Case], commands: Sequence[str], target: Path, at_once: int = 2, earlier: Sequence[End] = ()
) -> list[End]:
    """All ends, written to ``target`` as they come. Each case runs in processes of its own; those of ``earlier`` not again."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for module in _IMPORTED:
        importlib.import_module(module)
    done = {(end.family, end.case, end.command) for end in earlier}
    asked = [(case, command) for command in commands for case in cases]
    pending = [(case, command) for case, command in asked if (case.family, case.name, command) not in done][::-1]
    ends = list(earlier)
    running: dict[int, Path] = {}
    with tempfile.TemporaryDirectory(prefix="trtnorm-hostile-") as folder:
        while pending or running:
            while pending and len(running) < at_once:
                case, command = pending.pop()
                answer = Path(folder) / f"{len(pending)}.json"
                pid = os.fork()
                if not pid:
                    answer.write_text(json.dumps(asdict(end_of(case, command))), encoding="utf-8")
                    os._exit(0)
                running[pid] = answer
            pid, _ = os.wait()
            end = End(**json.loads(running.pop(pid).read_text(encoding="utf-8")))
            ends.append(end)
            if end.problem:
                taken = f"({end.cpu_s} s, {end.megabytes} MB)"
                print(f"{end.problem}: {end.command} on {end.family}, {end.case} {taken}", flush=True)
            target.write_text(json.dumps([asdict(end) for end in ends], indent=1), encoding="utf-8")
    bad = sum(bool(end.problem) for end in ends)
    print(f"{len(ends) - bad} of {len(ends)} ended well")
    return ends


def _ends_in(source: Path) -> list[End]:
    return [End(**record) for record in json.loads(source.read_text(encoding="utf-8"))]


def main() -> None:
    """Run the cases, or write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ways = parser.add_subparsers(dest="way", required=True)
    running = ways.add_parser("run")
    running.add_argument("-o", type=Path, dest="target", required=True)
    running.add_argument("--only", default="", help="cases whose family and name hold this")
    running.add_argument("--commands", default=",".join(COMMANDS))
    running.add_argument("--resume", action="store_true", help="keep what stands in the target, and run what does not")
    running.add_argument("--at-once", type=int, default=2, help="how many cases run at a time")
    writing = ways.add_parser("page")
    writing.add_argument("source", type=Path)
    writing.add_argument("target", type=Path)
    arguments = parser.parse_args()
    if arguments.way == "page":
        arguments.target.write_text(page(_ends_in(arguments.source), len(list(all_cases()))), encoding="utf-8")
        return
    chosen = [case for case in all_cases() if arguments.only in f"{case.family}: {case.name}"]
    earlier = _ends_in(arguments.target) if arguments.resume and arguments.target.exists() else []
    ends = run(chosen, arguments.commands.split(","), arguments.target, arguments.at_once, earlier)
    sys.exit(any(end.problem for end in ends))


if __name__ == "__main__":
    main()
