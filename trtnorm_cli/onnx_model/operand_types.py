"""Constants of another floating type than the data that they are computed with.

An exporter that folds a normalization into a bfloat16 convolution leaves the weight in float32: an invalid model that ONNX
Runtime and TensorRT refuse. A convolution and a matrix product compute in one type, so the constant can only be meant in the
type of the data; it is rounded once.
"""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from trtnorm_cli.onnx_model.ir_walk import every_node

# Operators whose floating inputs are all of one type, by the ONNX specification.
_ONE_TYPE = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul"))
_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.DOUBLE)


def give_constants_the_type_of_the_data(model: ir.Model, counts: Counter[str]) -> None:
    """Cast constant operands whose type is not that of the data; where the data's type is not known, nothing is done."""
    for node in list(every_node(model.graph)):
        if node.op_type not in _ONE_TYPE or node.domain != "" or not isinstance(node.graph, ir.Graph):
            continue
        wanted = _type_of_data(node)
        for index, value in enumerate(node.inputs):
            if wanted is not None and _is_constant_of_other_type(value, wanted):
                _cast(node, index, wanted)
                counts["constants cast to the type of the data"] += 1


def _type_of_data(node: ir.Node) -> ir.DataType | None:
    """The one floating type of the operands that are no constants."""
    kinds = {value.dtype for value in node.inputs if value is not None and value.const_value is None}
    (kind,) = kinds if len(kinds) == 1 else (None,)
    return kind if kind in _FLOATS else None


def _is_constant_of_other_type(value: ir.Value | None, wanted: ir.DataType) -> bool:
    if value is None or value.const_value is None:
        return False
    return value.const_value.dtype in _FLOATS and value.const_value.dtype != wanted


def _cast(node: ir.Node, index: int, wanted: ir.DataType) -> None:
    old, graph = node.inputs[index], node.graph
    assert old is not None
    assert old.const_value is not None
    assert isinstance(graph, ir.Graph)
    tensor = ir.tensor(old.const_value.numpy().astype(wanted.numpy()), dtype=wanted)
    value = ir.Value(name=f"{old.name}_{wanted.name.lower()}", const_value=tensor, type=ir.TensorType(wanted))
    value.shape = ir.Shape(tensor.shape)
    if value.name not in graph.initializers:
        graph.register_initializer(value)
    node.replace_input_with(index, graph.initializers[value.name or ""])
