"""One try of a broken build: the folder it works in, the running command, and the check of what it leaves."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ENGINE, MANIFEST = "model.engine", "model.engine.json"
VERDICTS = "verdicts.xml"
_TOKEN = "TRTNORM_TORTURE"
# PyTorch and Dask keep folders of their own among temporary files.
_OTHERS = ("torchinductor", "dask-scratch-space")
_LONGEST_S, _ENDING_S = 600.0, 10.0
# The command, told on stderr just before an engine gets its name, and held there for a moment.
_HELD = """
import sys, time
def hook(event, arguments):
    if event == "os.rename" and str(arguments[1]).endswith("out/model.engine"):
        print("torture: placing", file=sys.stderr, flush=True)
        time.sleep(1)
sys.addaudithook(hook)
from trtnorm_cli.cli import main
main(sys.argv[1:])
"""


@dataclass
class Arena:
    """The folder of one try. ``out`` holds the earlier pair, ``tmp`` is where temporary files go. ``stack`` undoes things.

    ``words`` are the command, where it is not the build of ``model``.
    """

    folder: Path
    model: str
    profile: str
    env: dict[str, str]
    arguments: list[str] = field(default_factory=list)
    stack: ExitStack = field(default_factory=ExitStack)
    words: tuple[str, ...] = ()

    @staticmethod
    def made(folder: Path, model: Path, profile: Path, earlier: Mapping[str, Path]) -> Arena:
        for name in ("out", "tmp"):
            (folder / name).mkdir(parents=True)
        shutil.copy(model, folder / "model.onnx")
        shutil.copy(profile, folder / "cfg.yaml")
        for name, path in earlier.items():
            shutil.copy(path, folder / "out" / name)
        root = str(Path(__file__).resolve().parents[1])
        env = {**os.environ, "TMPDIR": str(folder / "tmp"), "PYTHONPATH": root, _TOKEN: uuid.uuid4().hex}
        return Arena(folder, "model.onnx", "cfg.yaml", env)

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def tmp(self) -> Path:
        return self.folder / "tmp"

    def command(self, *more: str, is_held: bool = False) -> list[str]:
        how = ["-c", _HELD] if is_held else ["-m", "trtnorm_cli"]
        if self.words:
            return [sys.executable, *how, *self.words, *more]
        profile = ["-p", self.profile] if self.profile else []
        told = ["--progress", "json"]
        return [sys.executable, *how, "build", self.model, *profile, "-o", f"out/{ENGINE}", "--force", *told, *more]

    def processes(self) -> list[int]:
        """The processes of this try that run."""
        wanted = f"{_TOKEN}={self.env[_TOKEN]}".encode()
        return [pid for pid, entry in _running() if wanted in _read(entry / "environ").split(b"\0")]

    def files(self) -> set[str]:
        """What is beside the output and among temporary files, without the pair, and what a batch keeps there."""
        beside = {f"out/{path.name}" for path in _listed(self.out)} - {f"out/{ENGINE}", f"out/{MANIFEST}"}
        if self.words[:1] == ("batch",):
            beside = {name for name in beside if name.startswith("out/.") and name != "out/.store"}
        beside -= {f"out/{VERDICTS}"}
        return beside | {f"tmp/{path.name}" for path in _listed(self.tmp) if not path.name.startswith(_OTHERS)}

    def pair(self) -> dict[str, tuple[str, int]]:
        """The digest and inode of the engine and the manifest that are there."""
        found = {name: self.out / name for name in (ENGINE, MANIFEST)}
        return {name: (_digest(path), path.lstat().st_ino) for name, path in found.items() if path.is_file()}


def _running() -> Iterator[tuple[int, Path]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and b") Z" not in _read(entry / "stat"):
            yield int(entry.name), entry


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _listed(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _hear_signals() -> None:
    """A command in the background of a shell ignores interrupts, and so does what it starts."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


class Running:
    """A build that runs, with what it has said so far."""

    def __init__(self, arena: Arena, command: list[str]) -> None:
        self.arena = arena
        self.said: list[str] = []
        self.process = subprocess.Popen(
            command,
            cwd=arena.folder,
            env=arena.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            preexec_fn=_hear_signals,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said.append(line)

    @property
    def text(self) -> str:
        return "".join(self.said)

    def until(self, condition: Callable[[], object]) -> bool:
        """Wait until ``condition`` holds; False where the command ended before."""
        deadline = time.monotonic() + _LONGEST_S
        while not condition():
            if self.process.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    def until_said(self, text: str) -> bool:
        return self.until(lambda: text in self.text)

    def send(self, number: signal.Signals) -> None:
        if self.process.poll() is None:
            self.process.send_signal(number)

    def children(self, word: str = "") -> list[int]:
        """The processes that it has started whose command has ``word`` in it."""
        others = [pid for pid in self.arena.processes() if pid != self.process.pid]
        return [pid for pid in others if word.encode() in _read(Path(f"/proc/{pid}/cmdline"))]

    def end(self) -> int:
        code = self.process.wait(timeout=_LONGEST_S)
        self._reader.join(timeout=_ENDING_S)
        return code


Act = Callable[[Running], None]


@dataclass(frozen=True)
class Case:
    """One way to break a build: ``prepare`` the folder, ``act`` while it runs; ``codes`` are the exit codes that are right."""

    kind: str
    label: str
    codes: frozenset[int]
    act: Act = lambda running: None
    prepare: Callable[[Arena], None] = lambda arena: None
    is_held: bool = False
    more: tuple[str, ...] = ()
    skip: Callable[[], str | None] = lambda: None
    keeps_pair: bool = True


@dataclass(frozen=True)
class Outcome:
    """The end of one try in words, and the ``problems`` with what it left."""

    kind: str
    label: str
    end: str
    problems: tuple[str, ...] = ()
    skipped: str | None = None
    said: str = ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def load(values: dict[str, Any]) -> Outcome:
        return Outcome(**{**values, "problems": tuple(values["problems"])})


def tried(case: Case, arena: Arena) -> Outcome:
    """Try one case."""
    if (reason := case.skip()) is not None:
        return Outcome(case.kind, case.label, "", skipped=reason)
    with arena.stack:
        case.prepare(arena)
        before = arena.pair()
        was_there = arena.files()
        running = Running(arena, arena.command(*case.more, is_held=case.is_held))
        case.act(running)
        code = running.end()
        problems = _problems(case, arena, before, was_there, code, running.text)
        after = arena.pair()
    kept = {name for name in arena.files() - was_there if Path(name).name in running.text}
    if code != 0 or case.kind.startswith(("two", "leftovers")):
        problems += _next_run(arena, kept)
    end = _how(code) if arena.words else _end(code, before, after)
    return Outcome(case.kind, case.label, end, tuple(problems), said=running.text[-2000:])


def _problems(case: Case, arena: Arena, before: Mapping[str, Any], was_there: set[str], code: int, said: str) -> list[str]:
    found = []
    if code not in case.codes:
        found.append(f"exit {code}")
    if "Traceback" in said or "this is a defect" in said:
        found.append("a traceback or a defect")
    found += _of_pair(arena)
    if code != 0 and case.keeps_pair and arena.pair() != before:
        found.append("the earlier pair was touched")
    deadline = time.monotonic() + _ENDING_S
    while (left := arena.processes()) and time.monotonic() < deadline:
        time.sleep(0.05)
    if left:
        found.append(f"{len(left)} processes run on")
    if code != -signal.SIGKILL:
        files = {name for name in arena.files() - was_there if Path(name).name not in said}
        found += [f"{name} is left" for name in sorted(files)]
    return found


def _of_pair(arena: Arena) -> list[str]:
    """The faults of engines and manifests that are there."""
    found = []
    for manifest in arena.out.glob("*.engine.json"):
        engine = manifest.with_suffix("")
        try:
            wanted = json.loads(manifest.read_text(encoding="utf-8"))["engine"]["sha256"]
        except (ValueError, KeyError):
            found.append("half a manifest")
            continue
        if not engine.is_file() or _digest(engine) != wanted:
            found.append("engine and manifest are of two builds")
    return found


def _next_run(arena: Arena, kept: set[str]) -> list[str]:
    """The faults of the next build of the same output. ``kept`` was kept for a report."""
    arena.out.mkdir(exist_ok=True)
    arena.tmp.mkdir(exist_ok=True)
    running = Running(arena, arena.command(*(() if arena.words else ("--no-compare",))))
    code = running.end()
    found = [] if code == 0 else [f"the next build: exit {code}: {running.text[-300:]}"]
    found += [f"after the next build: {problem}" for problem in _of_pair(arena)]
    if code == 0 and len(arena.pair()) < 2:
        found.append("the next build wrote no pair")
    return found + [f"{name} is left after the next build" for name in sorted(arena.files() - kept)]


def _how(code: int) -> str:
    return f"ended by {signal.Signals(-code).name}" if code < 0 else f"exit {code}"


def _end(code: int, before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    how = _how(code)
    if code == 0:
        return f"{how}, a new pair"
    if after == before:
        return f"{how}, the earlier pair is untouched"
    if not after:
        return f"{how}, the pair went with its folder"
    return f"{how}, an engine without a manifest" if MANIFEST not in after else f"{how}, a new pair"


def earlier_pair(model: Path, profile: Path, folder: Path) -> dict[str, Path]:
    """An engine and its manifest, built without a comparison."""
    files = {name: folder / name for name in (ENGINE, MANIFEST)}
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = ["build", str(model), "-p", str(profile), "-o", str(files[ENGINE]), "--no-compare", "-q"]
    root = str(Path(__file__).resolve().parents[1])
    subprocess.run([sys.executable, "-m", "trtnorm_cli", *command], check=True, env={**os.environ, "PYTHONPATH": root})
    return files
