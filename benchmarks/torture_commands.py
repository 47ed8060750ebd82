"""The ways to break `compare`, `diff` and `batch` that ``benchmarks.torture`` tries."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

from benchmarks.torture_disks import no_mounts, read_only, small_disk
from benchmarks.torture_run import VERDICTS, Act, Arena, Case, Running

OK, FAILED, USAGE, UNREADABLE, NOT_RUN, BROKEN, INTERRUPTED = 0, 1, 2, 3, 5, 6, 130
_MIB = 1 << 20
_BLOCKS = 12
_JSON = ("--progress", "json")
COMPARE = ("compare", "model.onnx", "--in-between", "0", "--junit", f"out/{VERDICTS}", *_JSON)
DIFF = ("diff", "model.onnx", "network:other.onnx", *_JSON)
BATCH = ("batch", "plan.yaml", "-o", "out", "-j", "2", "--no-report")
_PLAN = "models:\n  one: {model: model.onnx}\n  two: {model: other.onnx, precisions: [fp16]}\n"
# Where a command can be met: what it says of its progress, or a file that is there then.
_MET: dict[str, Callable[[Running], object]] = {
    "compare, rewriting": lambda running: '"stage": "rewrite"' in running.text,
    "compare, comparing": lambda running: '"stage": "trials"' in running.text,
    "diff, parsing": lambda running: '"stage": "network"' in running.text,
    "batch, begun": lambda running: list(running.arena.out.glob(".store/claims/*.json")),
    "batch, one built": lambda running: len(list(running.arena.out.glob("*.engine"))) > 1,
}
_WORDS = {"compare": COMPARE, "diff": DIFF, "batch": BATCH}


def _network() -> onnx.ModelProto:
    """A chain of convolutions with BatchNormalizations: a batch of larger models would take hours."""
    nodes = [
        f"c{n} = Conv<pads = [1, 1, 1, 1]>(t{n}, w) b{n} = BatchNormalization(c{n}, gamma, beta, mu, var) t{n + 1} = Relu(b{n})"
        for n in range(_BLOCKS)
    ]
    graph = f"g (float[1, 32, 16, 16] t0) => (float[1, 32, 16, 16] t{_BLOCKS}) {{ {' '.join(nodes)} }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {graph}')
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((32, 32, 3, 3)) / 17, "gamma": rng.standard_normal(32), "beta": rng.standard_normal(32)}
    weights |= {"mu": rng.standard_normal(32), "var": rng.uniform(0.5, 2, 32)}
    model.graph.initializer.extend(numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items())
    return model


def cases() -> Iterator[Case]:
    """All of them."""
    for stage in _MET:
        yield from _signals(stage)
        yield from _inputs(stage)
    yield from _disks()


def _at(stage: str, do: Act, after_s: float = 0.2) -> Act:
    def act(running: Running) -> None:
        running.until(lambda: _MET[stage](running))
        time.sleep(after_s)
        do(running)

    return act


def _prepared(stage: str, also: Callable[[Arena], None] = lambda arena: None) -> Callable[[Arena], None]:
    def prepare(arena: Arena) -> None:
        arena.words = _WORDS[stage.split(",")[0]]
        onnx.save(_network(), str(arena.folder / "model.onnx"))
        shutil.copy(arena.folder / "model.onnx", arena.folder / "other.onnx")
        (arena.folder / "plan.yaml").write_text(_PLAN)
        also(arena)

    return prepare


def _signals(stage: str) -> Iterator[Case]:
    def send(*numbers: signal.Signals) -> Act:
        def do(running: Running) -> None:
            for number in numbers:
                running.send(number)
                time.sleep(0.05)

        return do

    ways = {"SIGTERM": (signal.SIGTERM,), "SIGHUP": (signal.SIGHUP,), "Ctrl-C": (signal.SIGINT,)}
    kind = f"{stage}: signals"
    yield Case(kind, "SIGKILL", frozenset({-signal.SIGKILL}), _at(stage, send(signal.SIGKILL)), _prepared(stage))
    for way, numbers in (*ways.items(), ("Ctrl-C twice", (signal.SIGINT, signal.SIGINT))):
        yield Case(kind, way, frozenset({INTERRUPTED}), _at(stage, send(*numbers)), _prepared(stage))


def _inputs(stage: str) -> Iterator[Case]:
    """The model removed, cut off or replaced while it is read: a result, or a message that names it."""
    ways: dict[str, Callable[[Path], object]] = {
        "removed": lambda path: path.unlink(),
        "truncated": lambda path: os.truncate(path, path.stat().st_size // 2),
        "overwritten": lambda path: path.write_bytes(b"\x3f" * path.stat().st_size),
    }

    def restored(do: Callable[[Path], object]) -> Act:
        def act(running: Running) -> None:
            path = running.arena.folder / "other.onnx" if stage.startswith("diff") else running.arena.folder / "model.onnx"
            held = path.read_bytes()
            do(path)
            running.process.wait()
            path.write_bytes(held)

        return act

    codes = frozenset({OK, FAILED, UNREADABLE, NOT_RUN})
    for way, do in ways.items():
        yield Case(f"{stage}: input", way, codes, _at(stage, restored(do), 0.0), _prepared(stage))


def _disks() -> Iterator[Case]:
    full = frozenset({OK, FAILED, NOT_RUN, BROKEN})
    for name in _WORDS:
        for free in (256 << 10, 20 * _MIB):
            label = f"{free / _MIB:g} MiB for temporary files"
            yield Case(f"{name}: disk", label, full, prepare=_prepared(name, small_disk("tmp", free)), skip=no_mounts)
    for name in ("compare", "batch"):
        label = "0.02 MiB beside the output"
        yield Case(f"{name}: disk", label, full, prepare=_prepared(name, small_disk("out", 20 << 10)), skip=no_mounts)
        label = "a disk mounted read-only"
        yield Case(f"{name}: disk", label, frozenset({USAGE, BROKEN}), prepare=_prepared(name, read_only), skip=no_mounts)
