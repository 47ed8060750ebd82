"""How TensorRT for RTX launches its generated kernels for rows, read from engines that it builds without a GPU.

    python -m benchmarks.cost_check.rtx_rows OUT.json

An engine holds a line of text for each generated kernel, with its blocks and threads. The form of the line is not documented.
This is for seeing what the builder does; no part of trtnorm reads it.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import onnx
import tensorrt_rtx as trt

COUNTS = (1, 16, 64, 128, 187, 188, 256, 1024)
LENGTHS = (512, 1024, 4096, 8192, 16384, 32768, 65536, 1_048_576)
_LAUNCH = re.compile(rb"function=\{ name=(\S+) .*? grid = \{ (\d+) (\d+) (\d+) \} block = \{ (\d+) (\d+) (\d+) \}", re.S)
_REDUCES = (b"Mean", b"Sum")


class _Quiet(trt.ILogger):
    def log(self, severity: trt.ILogger.Severity, message: str) -> None:
        pass


def layer_norm(count: int, length: int) -> bytes:
    shape = f"float[{count},{length}]"
    text = f'<ir_version: 10, opset_import: ["" : 17]> g ({shape} x, float[{length}] s) => ({shape} y) '
    return onnx.parser.parse_model(text + "{ y = LayerNormalization (x, s) }").SerializeToString()


def engine(model: bytes) -> bytes:
    logger = _Quiet()
    builder = trt.Builder(logger)
    network = builder.create_network(0)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(model):
        raise RuntimeError(parser.get_error(0).desc())
    return bytes(builder.build_serialized_network(network, builder.create_builder_config()))


def launch(plan: bytes, count: int) -> str:
    """The launch of the first kernel that reduces: ``N blocks`` share a row, or it has ``N threads`` of one."""
    for name, *numbers in _LAUNCH.findall(plan):
        if any(part in name for part in _REDUCES):
            x, y, z, *block = map(int, numbers)
            blocks, threads = x * y * z, block[0] * block[1] * block[2]
            if blocks > count:
                return f"{blocks // count} blocks"
            return f"{threads * blocks // count} threads"
    raise RuntimeError("no kernel reduces")


def main(out: str) -> None:
    cells = {length: [launch(engine(layer_norm(count, length)), count) for count in COUNTS] for length in LENGTHS}
    found = {"tensorrt_rtx": trt.__version__, "counts": COUNTS, "lengths": cells}
    Path(out).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
