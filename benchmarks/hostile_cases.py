"""A hostile case: what it writes into a folder, and the sound model that most of them spoil."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

MODEL = "model.onnx"
# What lies beside the model's folder and no command may read: 16 weights, each of this value.
SECRET, SECRET_VALUE = "secret.bin", 7.0
SHAPE = (1, 4, 6, 6)
_GRAPH = """g (float[1,4,6,6] x) => (float[1,4,6,6] y) {
    a = Conv<pads = [1, 1, 1, 1]>(x, w)
    b = BatchNormalization(a, gamma, beta, mu, var)
    y = Relu(b)
}"""


@dataclass(frozen=True)
class Case:
    """``write`` puts ``model.onnx``, and what belongs to it, into an empty folder.

    ``is_sound`` says that the model means one thing and is no larger than what users have: it must be taken. ``arguments`` go
    to every command that has them.
    """

    family: str
    name: str
    write: Callable[[Path], object]
    is_sound: bool = False
    arguments: tuple[str, ...] = ()


def sound_model(graph: str = _GRAPH, opset: int = 17) -> onnx.ModelProto:
    """A convolution with a BatchNormalization, or another graph of such weights."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {graph}')
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((4, 4, 3, 3)),
        **{name: rng.standard_normal(4) for name in ("gamma", "beta", "mu")},
        "var": rng.uniform(0.5, 2, 4),
    }
    read = {name for node in model.graph.node for name in node.input}
    for name, value in weights.items():
        if name in read:
            model.graph.initializer.append(numpy_helper.from_array(value.astype(np.float32), name))
    return model


def edited(edit: Callable[[onnx.ModelProto], object]) -> Callable[[Path], object]:
    """Writes the sound model after ``edit``."""

    def write(folder: Path) -> None:
        model = sound_model()
        edit(model)
        save(model, folder)

    return write


def built(
    nodes: Callable[[], Sequence[NodeProto]],
    weights: Callable[[], dict[str, np.ndarray]] = dict,
    inputs: Sequence[ValueInfoProto] = (helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE),),
    outputs: Sequence[str] = ("y",),
    opset: int = 17,
) -> Callable[[Path], object]:
    """Writes a model of ``nodes``, with outputs of unknown shape."""

    def write(folder: Path) -> None:
        held = [numpy_helper.from_array(value, name) for name, value in weights().items()]
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(list(nodes()), "g", list(inputs), ends, held)
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), folder)

    return write


def save(model: onnx.ModelProto, folder: Path) -> Path:
    """Write ``model`` as it is."""
    path = folder / MODEL
    path.write_bytes(model.SerializeToString())
    return path


def node(model: onnx.ModelProto, operator: str) -> NodeProto:
    """The node of ``operator``."""
    return next(node for node in model.graph.node if node.op_type == operator)


def held(model: onnx.ModelProto, name: str) -> TensorProto:
    """The initializer ``name``."""
    return next(tensor for tensor in model.graph.initializer if tensor.name == name)


def varint(value: int) -> bytes:
    """A number as protobuf encodes it."""
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])


def field(number: int, content: bytes) -> bytes:
    """A field of bytes, as protobuf encodes it."""
    return varint(number << 3 | 2) + varint(len(content)) + content
