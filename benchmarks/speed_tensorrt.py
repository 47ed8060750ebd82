"""TensorRT's own parser and builder on one file: ``python -m benchmarks.speed_tensorrt MODEL.onnx PROFILE.yaml|-``.

Prints the seconds of parsing and building as trtnorm's manifest has them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

import onnx

from benchmarks.foreign_corpus import Source
from benchmarks.foreign_models import corners
from trtnorm_cli.child_process import Limits
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.request import BuildRequest


def main(path: Path, profile: Path | None) -> None:
    source = Source(path.stem, path, "", "", "", profile)
    ranges = corners(source, onnx.load(path, load_external_data=False))
    with tempfile.TemporaryDirectory() as name:
        engine = str(Path(name) / "m.engine")
        request = BuildRequest(
            str(path), engine, "tensorrt-rtx", (ranges,) if ranges else (), {"profiling_verbosity": "detailed"}
        )
        result = launch(request, Path(name), lambda event: None, Limits(1800))
    if not result.ok:
        raise SystemExit(f"TensorRT refuses it: {[message.text for message in result.errors][:1]}")
    print(json.dumps({"seconds": result.seconds}))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), None if sys.argv[2] == "-" else Path(sys.argv[2]))
