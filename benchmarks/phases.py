"""Where the seconds of a command go, by folder of the package: ``python benchmarks/phases.py rewrite MODEL.onnx -o OUT.onnx``.

Runs the command in this process and looks two hundred times a second where its main thread is. The time since the last look
counts for the innermost frame of trtnorm and for nothing else. So the sum is the time of the whole command, and libraries count
for those who call them. A wait for a child process counts as ``child_process``. The last line of the output is JSON.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

EVERY_S = 0.005
# Files and folders of the package as a reader knows them; the rest counts under its first folder.
PARTS = (
    "onnx_model/load", "onnx_model/clean", "onnx_model/infer", "onnx_model/save", "onnx_model",
    "rewrite/proof", "rewrite/rules", "rewrite/norms", "rewrite/audit", "rewrite",
    "evaluate/float64", "evaluate/data", "evaluate", "profile", "shapes", "tensorrt", "compare", "child_process",
)  # fmt: skip


class Sampler(threading.Thread):
    def __init__(self, watched: int) -> None:
        super().__init__(daemon=True)
        self.watched, self.ended = watched, threading.Event()
        self.seconds: Counter[str] = Counter()
        self.last = time.perf_counter()

    def run(self) -> None:
        while not self.ended.wait(EVERY_S):
            now = time.perf_counter()
            self.seconds[part_of(sys._current_frames().get(self.watched))] += now - self.last
            self.last = now


def part_of(frame: FrameType | None) -> str:
    while frame is not None:
        head, found, tail = frame.f_code.co_filename.rpartition("/trtnorm_cli/")
        if found and head:
            return next((part for part in PARTS if tail.startswith(part)), tail.split("/")[0].removesuffix(".py"))
        frame = frame.f_back
    return "start"


def main(arguments: list[str]) -> None:
    sampler = Sampler(threading.main_thread().ident or 0)
    sampler.start()
    start = time.perf_counter()
    from trtnorm_cli.cli import run

    code = run(arguments)
    total = time.perf_counter() - start
    sampler.ended.set()
    sampler.join()
    seconds = {part: round(spent, 3) for part, spent in sampler.seconds.most_common() if spent >= 0.01}
    print(json.dumps({"total": round(total, 3), **seconds}))
    raise SystemExit(code)


if __name__ == "__main__":
    sys.path[:] = [path for path in sys.path if Path(path or ".").resolve() != Path(__file__).resolve().parent]
    main(sys.argv[1:])
