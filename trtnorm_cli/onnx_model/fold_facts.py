"""The types and sizes of a model's tensors that are certain while its constants are folded, from its inputs on."""

from __future__ import annotations

import onnx
import onnx_ir as ir

from trtnorm_cli.onnx_model.infer import sound_types
from trtnorm_cli.onnx_model.ir_walk import every_graph, every_node, holds_graphs
from trtnorm_cli.onnx_model.light_ir import LightSerializer


def state_facts(
    model: ir.Model, told: dict[ir.Value, ir.Shape], data_prop: bool, serializer: LightSerializer
) -> frozenset[ir.Value]:
    """Set every tensor's shape to the dimensions that are certain; all others become unknown.

    ``serializer`` is one for all the times that this is called with ``model``. Returns the tensors about which inferring the
    shape of their node alone tells no more, as long as nothing changes.
    """
    for node in every_node(model.graph):
        for value in node.outputs:
            value.shape = told.get(value)
    stated = _without_stated_types(model, told)
    tables = sound_types(serializer.serialised(model), data_prop)
    inferred = (tables or [{}])[0]
    if not all((found := inferred.get(value.name or "")) is not None and found.dtype for value in stated):
        # What inference cannot type on its own, what the file says of it may help with.
        for value, kind in stated.items():
            value.type = kind
        stated = {}
        tables = sound_types(serializer.serialised(model), data_prop)
    for index, graph in enumerate(every_graph(model.graph)):
        types = tables[index] if tables is not None else {}
        for value in (*graph.inputs, *(output for node in graph for output in node.outputs)):
            known = types.get(value.name or "")
            value.shape = None if known is None or known.shape is None else _integers(known.shape)
            if known is not None and known.dtype and value.type is None:
                value.type = ir.TensorType(ir.DataType(known.dtype))
    if tables is None or not stated:
        return frozenset()
    return frozenset(value for value in (*stated, *told) if value.shape is not None and value.type is not None)


def _without_stated_types(model: ir.Model, told: dict[ir.Value, ir.Shape]) -> dict[ir.Value, ir.TypeProtocol | None]:
    """Take the types off tensors that inference types by itself, and give them back: a file may state wrong ones."""
    stated: dict[ir.Value, ir.TypeProtocol | None] = {}
    opset = model.opset_imports.get("", 0)
    for node in model.graph:
        if node.domain != "" or not onnx.defs.has(node.op_type, opset, "") or holds_graphs(node):
            continue
        for value in node.outputs:
            if value.name and value not in told and (value.type is None or isinstance(value.type, ir.TensorType)):
                stated[value] = value.type
                value.type = None
    return stated


def _integers(shape: tuple[int | str | None, ...]) -> ir.Shape:
    return ir.Shape([size if isinstance(size, int) else None for size in shape])
