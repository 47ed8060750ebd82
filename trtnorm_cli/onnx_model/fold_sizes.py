"""The size and the cost of what a constant node makes, known before it is evaluated."""

from __future__ import annotations

import math

import numpy as np
import onnx
import onnx_ir as ir

from trtnorm_cli.onnx_model.inference import infer_types
from trtnorm_cli.onnx_model.light_copy import SHAPE_ELEMENTS
from trtnorm_cli.onnx_model.shapes import tensor_type

# What these make depends on values, and is never much more than what they read.
PICKING = frozenset(("Compress", "NonMaxSuppression", "NonZero", "Unique"))
_STRING_BITS = 64


def result_bytes(node: ir.Node, opset: int) -> int | None:
    """The size of what ``node`` makes of its constants; None where more than sizes decides it.

    Where the graph does not tell it, ``node`` is inferred alone with the values of its small constants: the length of a Range,
    the shape that Expand, Tile or Resize asks for.
    """
    sizes = [_bytes(value.shape, value.dtype) for value in node.outputs if value.name]
    if any(size is None for size in sizes):
        sizes = _sizes_alone(node, opset)
    return None if any(size is None for size in sizes) else sum(size for size in sizes if size is not None)


def products(node: ir.Node) -> int:
    """The number of products that an Einsum takes, which its result does not tell: one for each position of all its letters."""
    equation = node.attributes.get("equation")
    if node.op_type != "Einsum" or equation is None:
        return 0
    sizes: dict[str, int] = {}
    for term, value in zip(equation.as_string().partition("->")[0].split(","), node.inputs, strict=False):
        tensor = None if value is None else value.const_value
        letters = term.replace(" ", "")
        if tensor is None or "." in letters:
            return math.prod(t.size for v in node.inputs if v is not None and (t := v.const_value) is not None)
        sizes |= {letter: size for letter, size in zip(letters, tensor.shape.numpy(), strict=False) if size > 1}
    return math.prod(sizes.values())


def _bytes(shape: ir.Shape | None, dtype: ir.DataType | None) -> int | None:
    if shape is None or dtype is None or not shape.is_static() or min(sizes := shape.numpy(), default=0) < 0:
        return None
    return math.prod(sizes) * (_STRING_BITS if dtype == ir.DataType.STRING else dtype.bitwidth) // 8


def _sizes_alone(node: ir.Node, opset: int) -> list[int | None]:
    constants = {value.name: value.const_value for value in node.inputs if value is not None and value.const_value is not None}
    graph = onnx.GraphProto(name="alone", node=[ir.serde.serialize_node(node)])
    for name, tensor in constants.items():
        if tensor.size <= SHAPE_ELEMENTS:
            graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(tensor.numpy()), name))
        else:
            graph.input.append(onnx.helper.make_tensor_value_info(name or "", tensor.dtype.value, tensor.shape.numpy()))
    graph.output.extend(onnx.ValueInfoProto(name=value.name) for value in node.outputs if value.name)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    try:
        found = infer_types(model, data_prop=False).graph.output
    except Exception:  # the inference library has several classes of errors
        return [None]
    kinds = [tensor_type(value) for value in found]
    return [
        None if kind is None or not kind.dtype or kind.shape is None else _bytes(_shape(kind.shape), ir.DataType(kind.dtype))
        for kind in kinds
    ]


def _shape(sizes: tuple[int | str | None, ...]) -> ir.Shape:
    return ir.Shape([size if isinstance(size, int) else None for size in sizes])
