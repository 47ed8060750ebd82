"""Operators that ONNX defines by a function: evaluated by the function's own nodes.

The function body is the specification itself; its constants and casts are raised to float64 like the model's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import FunctionProto, GraphProto, NodeProto, TypeProto
from onnx.inliner import inline_local_functions

from trtnorm_cli.evaluate.float64.raising import raise_structure

BODY_DOMAIN = "trtnorm.function_body"


def body_model(node: NodeProto, inputs: Sequence[Any], domain: str, version: int) -> onnx.ModelProto | None:
    """A model in float64 that does what ``node`` does with ``inputs``, or None if the operator is no function.

    Inputs and outputs of the model are named as the node's.
    """
    schema = _schema(node.op_type, version, domain)
    if schema is None:
        return None
    function = _function(schema, _with_defaults(node, schema), inputs, version)
    if function is None:
        return None
    function.domain, function.name = BODY_DOMAIN, node.op_type
    call = _with_defaults(node, schema)
    call.domain = BODY_DOMAIN
    graph = GraphProto(name=node.op_type, node=[call])
    graph.input.extend(onnx.ValueInfoProto(name=name) for name in dict.fromkeys(node.input) if name)
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in node.output if name)
    model = onnx.ModelProto(ir_version=onnx.IR_VERSION, graph=graph, functions=[function])
    model.opset_import.extend(function.opset_import)
    model.opset_import.add(domain=BODY_DOMAIN, version=1)
    return raise_structure(inline_local_functions(model))


def _schema(op_type: str, version: int, domain: str) -> Any:
    try:
        return onnx.defs.get_schema(op_type, version, domain)
    except onnx.defs.SchemaError:
        return None


def _function(schema: Any, node: NodeProto, inputs: Sequence[Any], version: int) -> FunctionProto | None:
    if schema.has_function:
        usable = [v for v in schema.function_opset_versions if v <= version]
        data = schema.get_function_with_opset_version(max(usable)) if usable else b""
    elif schema.has_context_dependent_function:
        usable = [v for v in schema.context_dependent_function_opset_versions if v <= version]
        types = [_type_of(value).SerializeToString() for value in inputs]
        build = schema.get_context_dependent_function_with_opset_version
        data = build(max(usable), node.SerializeToString(), types) if usable else b""
    else:
        data = b""
    return FunctionProto.FromString(data) if data else None


def _type_of(value: Any) -> TypeProto:
    if value is None:
        return TypeProto()
    if isinstance(value, list):
        return onnx.helper.make_sequence_type_proto(_type_of(value[0]) if value else TypeProto())
    array = np.asarray(value)
    return onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _with_defaults(node: NodeProto, schema: Any) -> NodeProto:
    """The node with every default of its schema written out, because a function's references have none."""
    copy = NodeProto()
    copy.CopyFrom(node)
    present = {attribute.name for attribute in node.attribute}
    for name, attribute in schema.attributes.items():
        if name not in present and attribute.default_value.type != onnx.AttributeProto.UNDEFINED:
            copy.attribute.append(attribute.default_value)
    return copy
