"""Networks to plant defects in, and the defects: each changes one node of a copy and says which."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

WIDTH = 16
Defect = Callable[[onnx.ModelProto], str]


def network(blocks: int, seed: int = 0) -> onnx.ModelProto:
    """A residual network of ``blocks`` blocks (Conv, BatchNorm, Relu, Conv, GroupNorm, Add, Relu) and a classifier.

    Nine blocks have the depth of a ResNet-18. The input is [N, 3, H, W].
    """
    build = _Builder(np.random.default_rng(seed))
    x = build.conv("stem", "image", 3, WIDTH)
    for index in range(blocks):
        x = build.block(f"block{index}", x)
    build.node("GlobalAveragePool", "pool", [x], "pooled")
    build.node("Flatten", "flatten", ["pooled"], "flat")
    weight = build.constant("fc.weight", build.rng.standard_normal((WIDTH, 10)) / np.sqrt(WIDTH))
    bias = build.constant("fc.bias", build.rng.standard_normal(10))
    build.node("Gemm", "fc", ["flat", weight, bias], "logits")
    graph = helper.make_graph(
        build.nodes,
        "planted",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["N", 3, "H", "W"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])],
        build.initializers,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


class _Builder:
    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, name: str, value: np.ndarray) -> str:
        self.initializers.append(numpy_helper.from_array(value.astype(np.float32), name))
        return name

    def node(self, op: str, name: str, inputs: list[str], output: str, **attributes: object) -> str:
        self.nodes.append(helper.make_node(op, inputs, [output], name, **attributes))
        return output

    def conv(self, name: str, x: str, channels_in: int, channels_out: int) -> str:
        scale = 1 / np.sqrt(channels_in * 9)
        weight = self.constant(f"{name}.weight", self.rng.standard_normal((channels_out, channels_in, 3, 3)) * scale)
        bias = self.constant(f"{name}.bias", self.rng.standard_normal(channels_out) * 0.1)
        return self.node("Conv", name, [x, weight, bias], f"{name}.out", pads=[1, 1, 1, 1])

    def block(self, name: str, x: str) -> str:
        y = self.conv(f"{name}.conv1", x, WIDTH, WIDTH)
        parameters = [
            self.constant(f"{name}.bn.scale", self.rng.uniform(0.5, 1.5, WIDTH)),
            self.constant(f"{name}.bn.bias", self.rng.standard_normal(WIDTH) * 0.3),
            self.constant(f"{name}.bn.mean", self.rng.standard_normal(WIDTH) * 0.3),
            self.constant(f"{name}.bn.variance", self.rng.uniform(0.5, 1.5, WIDTH)),
        ]
        y = self.node("BatchNormalization", f"{name}.bn", [y, *parameters], f"{name}.bn.out", epsilon=1e-5)
        y = self.node("Relu", f"{name}.relu1", [y], f"{name}.relu1.out")
        y = self.conv(f"{name}.conv2", y, WIDTH, WIDTH)
        scale = self.constant(f"{name}.gn.scale", self.rng.uniform(0.5, 1.5, WIDTH))
        bias = self.constant(f"{name}.gn.bias", self.rng.standard_normal(WIDTH) * 0.3)
        y = self.node("GroupNormalization", f"{name}.gn", [y, scale, bias], f"{name}.gn.out", num_groups=4)
        y = self.node("Add", f"{name}.add", [x, y], f"{name}.add.out")
        return self.node("Relu", f"{name}.relu2", [y], f"{name}.out")


def defects(block: str) -> dict[str, Defect]:
    """Ten defects to plant into ``block``; each edits a model in place and returns the name of the node it damaged."""
    return {
        "a wrong epsilon": _attribute(f"{block}.bn", "epsilon", 1e-3),
        "swapped mean and variance": _inputs(f"{block}.bn", [0, 1, 2, 4, 3]),
        "a permuted scale": _values(f"{block}.bn", f"{block}.bn.scale", lambda v: np.roll(v, 1)),
        "one channel of a bias off by 1e-2": _values(f"{block}.conv1", f"{block}.conv1.bias", _bump(1e-2)),
        "a weight off by 5e-3": _values(f"{block}.conv2", f"{block}.conv2.weight", _bump(5e-3)),
        "a scale off by 2e-4": _values(f"{block}.gn", f"{block}.gn.scale", _bump(2e-4)),
        "a wrong group count": _attribute(f"{block}.gn", "num_groups", 8),
        "a dropped bias": _inputs(f"{block}.conv2", [0, 1]),
        "a shifted padding": _attribute(f"{block}.conv1", "pads", [0, 1, 2, 1]),
        "a LeakyRelu for a Relu": _leaky(f"{block}.relu1"),
    }


def _node(model: onnx.ModelProto, name: str) -> onnx.NodeProto:
    return next(node for node in model.graph.node if node.name == name)


def _attribute(name: str, key: str, value: object) -> Defect:
    def plant(model: onnx.ModelProto) -> str:
        node = _node(model, name)
        kept = [attribute for attribute in node.attribute if attribute.name != key]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(key, value)])
        return name

    return plant


def _inputs(name: str, order: list[int]) -> Defect:
    def plant(model: onnx.ModelProto) -> str:
        node = _node(model, name)
        inputs = [node.input[index] for index in order]
        del node.input[:]
        node.input.extend(inputs)
        return name

    return plant


def _values(name: str, tensor: str, edit: Callable[[np.ndarray], np.ndarray]) -> Defect:
    def plant(model: onnx.ModelProto) -> str:
        found = next(t for t in model.graph.initializer if t.name == tensor)
        found.CopyFrom(numpy_helper.from_array(edit(numpy_helper.to_array(found).copy()), tensor))
        return name

    return plant


def _bump(amount: float) -> Callable[[np.ndarray], np.ndarray]:
    def edit(values: np.ndarray) -> np.ndarray:
        values.flat[values.size // 2] += amount
        return values

    return edit


def _leaky(name: str) -> Defect:
    def plant(model: onnx.ModelProto) -> str:
        node = _node(model, name)
        node.op_type = "LeakyRelu"
        node.attribute.append(helper.make_attribute("alpha", 0.01))
        return name

    return plant
