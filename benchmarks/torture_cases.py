"""The ways to break a build that ``benchmarks.torture`` tries."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from benchmarks import torture_commands
from benchmarks.torture_disks import mounted, no_mounts, read_only, small_disk
from benchmarks.torture_run import ENGINE, MANIFEST, Act, Arena, Case, Running

OK, USAGE, UNREADABLE, BROKEN, INTERRUPTED = 0, 2, 3, 6, 130
_MIB = 1 << 20
_NET = """import torch

def net():
    layers = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8), torch.nn.ReLU())
    return layers.eval(), (torch.zeros(1, 3, 32, 32),)
"""
_DEAD = """import os, signal, sys
from pathlib import Path
from trtnorm_cli.scratch import Scratch
folders = [Scratch(".trtnorm-", Path(sys.argv[1])), Scratch("trtnorm-build-", Path(sys.argv[2]))]
for folder in folders:
    (folder.path / "large").write_bytes(bytes(1 << 20))
os.kill(os.getpid(), signal.SIGKILL)
"""
# Where a build can be met: what it says of its progress, or a file that is there then.
STAGES = {
    "export": '"stage": "export"',
    "rewrite": '"stage": "rewrite"',
    "build": '"stage": "build"',
    "compare": '"stage": "compare"',
    "placing": "torture: placing",
}


def cases() -> Iterator[Case]:
    """All of them."""
    yield from signals()
    yield from killed_children()
    yield from full_disks()
    yield from unwritable()
    yield from inputs()
    yield from folders_removed()
    yield from at_once()
    yield from found_there()
    yield from torture_commands.cases()


def at(stage: str, do: Act, after_s: float = 0.0) -> Act:
    """``do`` when the build has reached the stage, and ``after_s`` later."""

    def act(running: Running) -> None:
        if stage == "search":
            running.until(lambda: list(running.arena.tmp.glob("trtnorm-build-*/variant-*")))
        else:
            running.until_said(STAGES[stage])
        time.sleep(after_s)
        do(running)

    return act


def signals() -> Iterator[Case]:
    def twice(running: Running) -> None:
        running.send(signal.SIGINT)
        time.sleep(0.05)
        running.send(signal.SIGINT)

    ways: dict[str, tuple[Act, int]] = {
        "SIGKILL": (lambda running: running.send(signal.SIGKILL), -signal.SIGKILL),
        "SIGTERM": (lambda running: running.send(signal.SIGTERM), INTERRUPTED),
        "SIGHUP": (lambda running: running.send(signal.SIGHUP), INTERRUPTED),
        "Ctrl-C": (lambda running: running.send(signal.SIGINT), INTERRUPTED),
        "Ctrl-C twice": (twice, INTERRUPTED),
    }
    for way, (do, code) in ways.items():
        for stage in ("export", "rewrite", "search", "build", "compare", "placing"):
            yield Case(
                way, stage, frozenset({code}), at(stage, do, 0.0 if stage == "placing" else 0.3), _prepared_for(stage),
                is_held=stage == "placing", keeps_pair=(way, stage) != ("SIGKILL", "placing"),
            )  # fmt: skip


def _prepared_for(stage: str) -> Callable[[Arena], None]:
    def prepare(arena: Arena) -> None:
        if stage == "export":
            (arena.folder / "net.py").write_text(_NET)
            arena.model, arena.profile = "net.py:net", ""
        if stage == "search":
            _append(arena, "optimize: kernels")

    return prepare


def _append(arena: Arena, line: str) -> None:
    with (arena.folder / arena.profile).open("a") as stream:
        stream.write(line + "\n")


def killed_children() -> Iterator[Case]:
    def kill(word: str, is_always: bool = False) -> Act:
        def do(running: Running) -> None:
            running.until(lambda: running.children(word))
            while True:
                for pid in running.children(word):
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                if not is_always or not running.until(lambda: running.children(word)):
                    return

        return do

    kind = "SIGKILL of a child"
    yield Case(kind, "ONNX Runtime while rewriting", frozenset({OK}), at("rewrite", kill("ort_worker")))
    yield Case(kind, "TensorRT while searching", frozenset({OK}), at("search", kill("child.worker")), _prepared_for("search"))
    yield Case(kind, "TensorRT while building", frozenset({BROKEN}), at("build", kill("child.worker")))
    yield Case(kind, "ONNX Runtime while comparing", frozenset({OK}), at("compare", kill("ort_worker"), 0.3))
    yield Case(kind, "ONNX Runtime whenever it compares", frozenset({OK}), at("compare", kill("ort_worker", is_always=True)))
    yield Case(
        kind, "the same with --require-compare", frozenset({OK, 5}), at("compare", kill("ort_worker", is_always=True)),
        more=("--require-compare",),
    )  # fmt: skip
    yield Case(
        kind, "PyTorch while exporting", frozenset({3, BROKEN}), at("export", kill("export.child")), _prepared_for("export")
    )


def full_disks() -> Iterator[Case]:
    for free in (64 << 10, 20 * _MIB):
        label = f"{free / _MIB:g} MiB beside the output"
        yield Case("full disk", label, frozenset({BROKEN}), prepare=small_disk("out", free), skip=no_mounts)
    for free in (256 << 10, 20 * _MIB, 60 * _MIB, 110 * _MIB):
        label = f"{free / _MIB:g} MiB for temporary files"
        yield Case("full disk", label, frozenset({OK, BROKEN}), prepare=small_disk("tmp", free), skip=no_mounts)


def unwritable() -> Iterator[Case]:
    def immutable(name: str) -> Callable[[Arena], None]:
        def prepare(arena: Arena) -> None:
            path = str(arena.out / name)
            subprocess.run(["chattr", "+i", path], check=True)
            arena.stack.callback(lambda: subprocess.run(["chattr", "-i", path], check=True))

        return prepare

    def bound(name: str) -> Callable[[Arena], None]:
        return lambda arena: mounted(arena, "--bind", str(arena.out / name), str(arena.out / name))

    yield Case("read-only output", "a disk mounted read-only", frozenset({USAGE}), prepare=read_only, skip=no_mounts)
    for name in (ENGINE, MANIFEST):
        what = "engine" if name == ENGINE else "manifest"
        kind = "files that cannot be replaced"
        yield Case(kind, f"{what} with chattr +i", frozenset({USAGE}), prepare=immutable(name), skip=no_immutable)
        yield Case(kind, f"{what} mounted", frozenset({USAGE}), prepare=bound(name), skip=no_mounts)


@functools.cache
def no_immutable() -> str | None:
    """The reason why no file can be made immutable here; None where one can."""
    if os.geteuid() != 0 or shutil.which("chattr") is None:
        return "chattr +i takes root"
    file = Path("build/immutable")
    file.parent.mkdir(exist_ok=True)
    file.touch()
    tried = subprocess.run(["chattr", "+i", str(file)], capture_output=True, text=True)
    subprocess.run(["chattr", "-i", str(file)], capture_output=True)
    file.unlink()
    return None if tried.returncode == 0 else f"this disk knows no chattr +i: {tried.stderr.strip()}"


def inputs() -> Iterator[Case]:
    def external(arena: Arena) -> None:
        import onnx

        model = onnx.load(str(arena.folder / "model.onnx"))
        onnx.save(model, str(arena.folder / "model.onnx"), save_as_external_data=True, location="model.data")

    def keep(arena: Arena) -> None:
        for name in ("model.onnx", "model.data"):
            if (arena.folder / name).exists():
                shutil.copy(arena.folder / name, arena.folder / name.replace("model.", "good."))
                other = (arena.folder / name).read_bytes()[:-4] + b"\x00\x00\x00\x00"
                (arena.folder / f"other.{name}").write_bytes(other)

    def prepared(is_external: bool) -> Callable[[Arena], None]:
        def prepare(arena: Arena) -> None:
            if is_external:
                external(arena)
            keep(arena)

        return prepare

    def restored(do: Callable[[Path], None], name: str) -> Act:
        def act(running: Running) -> None:
            do(running.arena.folder / name)
            running.process.wait()
            shutil.copy(running.arena.folder / name.replace("model.", "good."), running.arena.folder / name)

        return act

    def overwrite(path: Path) -> None:
        with path.open("r+b") as stream:
            stream.seek(path.stat().st_size // 2)
            stream.write(b"\x3f" * 4096)

    def replace(path: Path) -> None:
        path.with_name(f"other.{path.name}").replace(path)

    ways: dict[str, Callable[[Path], None]] = {
        "removed": lambda path: path.unlink(),
        "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
        "overwritten": overwrite,
        "replaced": replace,
    }
    for name, what in (("model.onnx", "model"), ("model.data", "external data")):
        for way, do in ways.items():
            for stage in ("rewrite", "compare"):
                yield Case(
                    "removed or changed input", f"{what} {way} ({stage})", frozenset({UNREADABLE}),
                    at(stage, restored(do, name)), prepared(name == "model.data"),
                )  # fmt: skip


def folders_removed() -> Iterator[Case]:
    def remove(name: str) -> Act:
        return lambda running: shutil.rmtree(running.arena.folder / name)

    for stage in ("rewrite", "build", "compare"):
        codes = frozenset({USAGE, BROKEN})
        yield Case("folder removed", f"the output's ({stage})", codes, at(stage, remove("out"), 0.2), keeps_pair=False)
        yield Case("folder removed", f"temporary files ({stage})", codes, at(stage, remove("tmp"), 0.2))


def at_once() -> Iterator[Case]:
    def beside(is_together: bool) -> Act:
        def act(running: Running) -> None:
            arena = running.arena
            other = (arena.folder / "cfg.yaml").read_text().replace("32", "16")
            (arena.folder / "other.yaml").write_text(other)
            if not is_together:
                running.until_said(STAGES["placing"])
            second = Running(arena, [*arena.command("--no-compare"), "-p", "other.yaml"])
            code = second.end()
            if code != 0:
                running.said.append(f"Traceback of the second build, exit {code}: {second.text}")

        return act

    kind = "two processes on one output"
    for number in (1, 2, 3):
        yield Case(kind, f"begun together ({number})", frozenset({OK}), beside(True), more=("--no-compare",))
    yield Case(kind, "one while the other places", frozenset({OK}), beside(False), is_held=True, more=("--no-compare",))


def found_there() -> Iterator[Case]:
    def dead(arena: Arena) -> None:
        command = [sys.executable, "-c", _DEAD, str(arena.out), str(arena.tmp)]
        ended = subprocess.run(command, env=arena.env)
        assert ended.returncode == -signal.SIGKILL
        (arena.out / f".{ENGINE}.lock").touch()

    def garbage(arena: Arena) -> None:
        (arena.folder / "timing.cache").write_bytes(b"garbage" * 100)
        _append(arena, "builder: {timing_cache: timing.cache}")

    yield Case("leftovers of a killed run", "folders and a lock", frozenset({OK}), prepare=dead, more=("--no-compare",))
    yield Case("corrupt timing cache", "700 bytes of garbage", frozenset({OK, USAGE}), prepare=garbage, more=("--no-compare",))
