"""The top graph of a model as one that is computed in float32: which tensors are, who makes them, and who reads them."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS, default_opset
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.onnx_model.walk import subgraphs, tensors_read

# The output holds the values of the first input, each of them, and no others.
SAME_VALUES = frozenset({
    "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Identity", "Flatten", "DepthToSpace", "SpaceToDepth", "Dropout",
    "Expand", "Tile", "ReverseSequence",
})  # fmt: skip
# Every value of the output is one of an input's, or one of these with another sign: what is rounded stays rounded.
EXACT = SAME_VALUES | {
    "Slice", "Split", "Gather", "GatherElements", "GatherND", "Concat", "Relu", "MaxPool", "GlobalMaxPool", "Max", "Min", "Neg",
    "Abs", "Where", "ReduceMax", "ReduceMin", "TopK", "Pad", "Compress", "ScatterND", "ScatterElements", "Trilu",
}  # fmt: skip
# Inputs that are float32 whatever the type of the data.
ALWAYS_FLOAT = frozenset({("Resize", 1), ("Resize", 2), ("Upsample", 1), ("QuantizeLinear", 1), ("DequantizeLinear", 1)})


class FloatGraph:
    """The top graph of ``model`` by tensors and nodes. ``types`` are those of its tensors."""

    def __init__(self, model: onnx.ModelProto, types: Mapping[str, TensorType]) -> None:
        self.model, self.types = model, types
        self.opset = default_opset(model.opset_import)
        graph = model.graph
        self.producers = {name: node for node in graph.node for name in node.output if name}
        self.positions = {name: i for i, node in enumerate(graph.node) for name in node.output if name}
        self.consumers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in dict.fromkeys(tensors_read(node)):
                self.consumers.setdefault(name, []).append(node)
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.inputs = [value.name for value in graph.input if value.name not in self.initializers]
        self.outputs = {value.name for value in graph.output}

    def is_float(self, name: str) -> bool:
        """True for a tensor of float32."""
        if name in self.initializers:
            return bool(self.initializers[name].data_type == onnx.TensorProto.FLOAT)
        kind = self.types.get(name)
        return kind is not None and kind.dtype == onnx.TensorProto.FLOAT

    def is_constant(self, name: str) -> bool:
        """True for an initializer, and for the output of a Constant."""
        producer = self.producers.get(name)
        return name in self.initializers or (producer is not None and is_op(producer, "Constant"))

    def constant(self, name: str) -> onnx.TensorProto | None:
        """The tensor that holds a constant; None where it is none, or is written as numbers in an attribute."""
        producer = self.producers.get(name)
        if producer is None or name in self.initializers:
            return self.initializers.get(name)
        return next((a.t for a in producer.attribute if a.name == "value"), None) if is_op(producer, "Constant") else None

    def float_inputs(self, node: onnx.NodeProto) -> list[str]:
        """The float32 tensors that ``node`` reads in the type of its data, each once."""
        named = (name for i, name in enumerate(node.input) if name and (node.op_type, i) not in ALWAYS_FLOAT)
        return [name for name in dict.fromkeys(named) if self.is_float(name)]

    def float_outputs(self, node: onnx.NodeProto) -> list[str]:
        """The float32 tensors that ``node`` makes."""
        return [name for name in node.output if name and self.is_float(name)]

    def can_be_low(self, node: onnx.NodeProto) -> bool:
        """True for a node that reads or makes float32 and that holds no graph."""
        if is_op(node, "Constant") or any(True for _ in subgraphs(node)):
            return False
        return bool(self.float_inputs(node) or self.float_outputs(node))

    def rank(self, name: str) -> int | None:
        """The number of dimensions of a tensor, where it is known."""
        if name in self.initializers:
            return len(self.initializers[name].dims)
        kind = self.types.get(name)
        return None if kind is None or kind.shape is None else len(kind.shape)


class LoneProducts:
    """The MatMul and Conv nodes of ``graph`` that TensorRT computes in the low type although they are float32.

    Casts on all sides of one become part of it, and its weights become low. What stands beside another float32 node stays.
    """

    def __init__(self, graph: FloatGraph) -> None:
        self._around: dict[str, frozenset[str]] = {}
        for node in graph.model.graph.node:
            if not is_op(node, "MatMul", "Conv") or graph.outputs.intersection(node.output):
                continue
            data = [name for name in graph.float_inputs(node) if not graph.is_constant(name)]
            readers = graph.consumers.get(node.output[0], [])
            if data and readers and all(name in graph.producers for name in data):
                beside = [*(graph.producers[name] for name in data), *readers]
                self._around[node.output[0]] = frozenset(next(filter(None, one.output), "") for one in beside)

    def undone(self, low: frozenset[str]) -> frozenset[str]:
        """Those that are float32 with nothing but ``low`` nodes around them."""
        return frozenset(key for key, around in self._around.items() if key not in low and around <= low)


def is_op(node: onnx.NodeProto, *operators: str) -> bool:
    """True for one of ONNX's own ``operators``."""
    return node.op_type in operators and node.domain in DEFAULT_DOMAINS
