"""Wide ranges planted in front of norms, which leave a float32 model's results as they are.

A LayerNormalization does not care about the scale of its input, and neither does one in pieces; a convolution in front of a
BatchNormalization may be a hundred times larger if the statistics are so too. Half precision does care.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

FACTOR = 300.0
_NATIVE = ("LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization")


def planted(model: onnx.ModelProto, most: int = 4) -> onnx.ModelProto | None:
    """A copy of ``model`` with wide ranges in front of up to ``most`` norms; None where it has no place for them."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    found = _in_front_of_nodes(copy, most) or _in_front_of_pieces(copy, most) or _in_batchnorms(copy, most)
    return copy if found else None


def _in_front_of_nodes(model: onnx.ModelProto, most: int) -> int:
    norms = [node for node in model.graph.node if node.op_type in _NATIVE][:most]
    for node in norms:
        _scale_input(model, node.input[0], [node])
    return len(norms)


def _in_front_of_pieces(model: onnx.ModelProto, most: int) -> int:
    """Norms in pieces: what is squared and averaged, or averaged and subtracted, is scaled for all their nodes."""
    number = 0
    for mean in [node for node in model.graph.node if node.op_type == "ReduceMean"]:
        readers = [node for node in model.graph.node if mean.input[0] in node.input and node.op_type in ("Sub", "ReduceMean")]
        if len(readers) > 1 and number < most:
            _scale_input(model, mean.input[0], readers)
            number += 1
    return number


def _in_batchnorms(model: onnx.ModelProto, most: int) -> int:
    makers = {node.output[0]: node for node in model.graph.node}
    values = {tensor.name: tensor for tensor in model.graph.initializer}
    number = 0
    for node in model.graph.node:
        maker = makers.get(node.input[0]) if node.op_type == "BatchNormalization" else None
        if (
            number == most
            or maker is None
            or maker.op_type != "Conv"
            or not {maker.input[1], *node.input[3:5]} <= values.keys()
        ):
            continue
        _multiply(values[maker.input[1]], FACTOR)
        if len(maker.input) > 2:
            _multiply(values[maker.input[2]], FACTOR)
        _multiply(values[node.input[3]], FACTOR)
        _multiply(values[node.input[4]], FACTOR**2)
        number += 1
    return number


def _multiply(tensor: onnx.TensorProto, factor: float) -> None:
    tensor.CopyFrom(numpy_helper.from_array((numpy_helper.to_array(tensor) * factor).astype(np.float32), tensor.name))


def _scale_input(model: onnx.ModelProto, name: str, readers: list[onnx.NodeProto]) -> None:
    factor, wide = f"{name}_planted_factor", f"{name}_planted"
    model.graph.initializer.append(numpy_helper.from_array(np.array(FACTOR, np.float32), factor))
    first = min(list(model.graph.node).index(node) for node in readers)
    model.graph.node.insert(first, helper.make_node("Mul", [name, factor], [wide], name=f"{wide}/Mul"))
    for node in readers:
        for index, given in enumerate(node.input):
            if given == name:
                node.input[index] = wide
