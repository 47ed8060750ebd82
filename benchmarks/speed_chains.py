"""Models of a given size, written weight by weight so that the size of none of them matters here."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

EXTERNAL_FROM = 1 << 10


class Writer:
    """Nodes in a row, with weights in the file or in one beside it."""

    def __init__(self, path: Path, external: bool) -> None:
        self.path, self.external = path, external
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.rng = np.random.default_rng(0)
        self.data = path.with_name(path.name + ".data")
        if external:
            self.data.write_bytes(b"")

    def weight(self, name: str, values: np.ndarray) -> str:
        values = np.ascontiguousarray(values, np.float32)
        if not self.external or values.nbytes < EXTERNAL_FROM:
            self.weights.append(numpy_helper.from_array(values, name))
            return name
        with self.data.open("ab") as stream:
            offset = stream.seek(0, 2)
            stream.write(values.tobytes())
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=values.shape, data_location=TensorProto.EXTERNAL)
        for key, value in {"location": self.data.name, "offset": str(offset), "length": str(values.nbytes)}.items():
            tensor.external_data.add(key=key, value=value)
        self.weights.append(tensor)
        return name

    def node(self, operator: str, *inputs: str, **attributes: object) -> str:
        name = f"{operator}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [f"{name}_out"], name, **attributes))
        return f"{name}_out"

    def normal(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        return self.rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)

    def batchnorm(self, x: str, channels: int) -> str:
        """With running statistics of roughly what comes in, so that a deep chain neither dies nor explodes."""
        number = len(self.nodes)
        values: Mapping[str, np.ndarray] = {
            "scale": self.rng.uniform(0.8, 1.2, channels), "bias": self.rng.standard_normal(channels) * 0.2,
            "mean": self.rng.standard_normal(channels) * 0.1, "var": self.rng.uniform(0.5, 1.0, channels),
        }  # fmt: skip
        return self.node("BatchNormalization", x, *[self.weight(f"bn{number}.{key}", value) for key, value in values.items()])

    def save(self, shape: list[int | str], result: str) -> Path:
        inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, shape)]
        graph = helper.make_graph(self.nodes, "chain", inputs, outputs, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        self.path.write_bytes(model.SerializeToString())
        self.path.with_suffix(".yaml").write_text("dims: {N: {min: 1, opt: 2, max: 4}}\n")
        return self.path


def convolutions(path: Path, megabytes: float, links: int = 49, external: bool = True) -> Path:
    """``links`` times Conv, BatchNormalization and Relu; every weight is changed when they are folded."""
    channels = round((megabytes * 1e6 / 4 / 9 / links) ** 0.5)
    made, x = Writer(path, external), "x"
    for link in range(links):
        weight = made.weight(f"conv{link}.weight", made.normal(channels, channels, 3, 3, scale=(2 / channels / 9) ** 0.5))
        x = made.node("Relu", made.batchnorm(made.node("Conv", x, weight, pads=[1] * 4), channels))
    return made.save(["N", channels, 14, 14], x)


def projections(path: Path, megabytes: float, links: int = 100, external: bool = True) -> Path:
    """``links`` times MatMul and LayerNormalization: there is nothing to change."""
    width = round((megabytes * 1e6 / 4 / links) ** 0.5)
    made, x = Writer(path, external), "x"
    for link in range(links):
        product = made.node("MatMul", x, made.weight(f"linear{link}.weight", made.normal(width, width, scale=width**-0.5)))
        scale, bias = made.rng.uniform(0.8, 1.2, width), made.rng.standard_normal(width) * 0.1
        x = made.node("LayerNormalization", product, made.weight(f"ln{link}.scale", scale), made.weight(f"ln{link}.bias", bias))
    return made.save(["N", 16, width], x)


def many_nodes(path: Path, nodes: int = 20_000, links: int = 200) -> Path:
    """Small tensors and many nodes: a convolution with its norm, then elementwise arithmetic, over and over."""
    made, x = Writer(path, external=False), "x"
    half = made.weight("half", np.array([0.5]))
    for link in range(links):
        weight = made.weight(f"conv{link}.weight", made.normal(8, 8, 1, 1, scale=0.4))
        x = made.node("Relu", made.batchnorm(made.node("Conv", x, weight), 8))
        for _ in range((nodes // links - 3) // 4):
            x = made.node("Add", x, made.node("Mul", made.node("Tanh", made.node("Sigmoid", x)), half))
        while len(made.nodes) < nodes // links * (link + 1):
            x = made.node("Mul", x, half)
    return made.save(["N", 8, 6, 6], x)


def main(kind: str, megabytes: float, path: Path) -> None:
    """Two curves over the size, and the models of the table that no library exports."""
    if kind == "nodes_20000":
        many_nodes(path)
    elif kind == "chain_83mb":
        convolutions(path, 83.1, external=False)
    else:
        {"changed": convolutions, "unchanged": projections}[kind](path, megabytes)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), Path(sys.argv[3]))
