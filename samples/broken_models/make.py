"""Write three small models that TensorRT refuses or computes wrongly because of a normalization layer.

python samples/broken_models/make.py FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

# Statistics of 16 groups of 4 channels each, behind a convolution of 16 groups.
COUNTS = """counts (float[1, 64, 32, 32] x) => (float[1, 64, 32, 32] y) {
    features = Conv <group = 16, pads = [1, 1, 1, 1]> (x, kernel, bias)
    normal = BatchNormalization (features, gamma, beta, mean, variance)
    y = Relu (normal)
}"""
# The same behind a convolution that says nothing of groups.
AMBIGUOUS = COUNTS.replace("counts", "ambiguous").replace("group = 16, ", "")
# What PyTorch's GroupNorm(1, 64) becomes.
ONE_GROUP = """one_group (float[1, 64, 32, 32] x) => (float[1, 64, 32, 32] y) {
    features = Conv <pads = [1, 1, 1, 1]> (x, kernel, bias)
    normal = GroupNormalization <num_groups = 1> (features, gamma, beta)
    y = Relu (normal)
}"""


def weights(channels: int, parameters: int, statistics: bool) -> dict[str, np.ndarray]:
    """Random weights of the convolution (``channels`` inputs a group) and of the normalization behind it."""
    rng = np.random.default_rng(12)
    values = {
        "kernel": rng.standard_normal((64, channels, 3, 3)) / np.sqrt(9 * channels),
        "bias": rng.standard_normal(64),
        "gamma": rng.uniform(0.5, 1.5, parameters),
        "beta": rng.standard_normal(parameters),
    }
    if statistics:
        values |= {"mean": rng.standard_normal(parameters), "variance": rng.uniform(0.5, 2, parameters)}
    return {name: value.astype(np.float32) for name, value in values.items()}


def model(graph: str, values: dict[str, np.ndarray]) -> onnx.ModelProto:
    made = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {graph}')
    for node in made.graph.node:
        node.name = node.op_type
    made.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    return made


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, made in {
        "counts": model(COUNTS, weights(4, 16, statistics=True)),
        "ambiguous": model(AMBIGUOUS, weights(64, 16, statistics=True)),
        "one_group": model(ONE_GROUP, weights(64, 64, statistics=False)),
    }.items():
        path = folder / f"{name}.onnx"
        path.write_bytes(made.SerializeToString())
        print(f"wrote {path}")


if __name__ == "__main__":
    main()
