"""An onnx-ir model as protobuf for shape inference, again and again while it changes: what stays is serialised once."""

from __future__ import annotations

import math
from dataclasses import field
from weakref import ReferenceType, ref

import onnx
import onnx_ir as ir

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.ir_walk import holds_graphs, may_hold_graphs
from trtnorm_cli.onnx_model.light_copy import SHAPE_ELEMENTS, empty_inner_tensors, is_heavy

# What a node's protobuf is made of, besides its subgraphs.
_Signature = tuple[object, ...]


@dataclass
class LightSerializer:
    """Serialises one model as ``light_copy`` of its protobuf would be, without the names and the metadata of nodes.

    A node that has the attributes, inputs and outputs of last time is not serialised again, and neither is a tensor.
    """

    _nodes: dict[ir.Node, tuple[_Signature, tuple[ir.Attr, ...], onnx.NodeProto]] = field(default_factory=dict)
    # The tensor itself may be large, and go where nobody else needs it.
    _tensors: dict[ir.Value, tuple[ReferenceType[ir.TensorProtocol], onnx.TensorProto | onnx.ValueInfoProto]] = field(
        default_factory=dict
    )

    def serialised(self, model: ir.Model) -> onnx.ModelProto:
        """``model``, which has no functions, with inputs in the place of large and external initializers."""
        light = onnx.ModelProto(ir_version=max(model.ir_version, 4))
        for domain, version in sorted(model.opset_imports.items()):
            light.opset_import.add(domain=domain, version=version)
        graph = light.graph
        graph.name = model.graph.name or "graph"
        graph.node.extend(map(self.node, model.graph))
        graph.input.extend(ir.serde.serialize_value(value) for value in model.graph.inputs)
        graph.output.extend(ir.serde.serialize_value(value) for value in model.graph.outputs)
        stated = (value for node in model.graph for value in node.outputs if value.type is not None or value.shape is not None)
        graph.value_info.extend(ir.serde.serialize_value(v) for v in stated if v.name and not v.is_graph_output())
        for value in model.graph.initializers.values():
            self._add_initializer(graph, value)
        if any(node.op_type == "Constant" or may_hold_graphs(node) for node in model.graph):
            empty_inner_tensors(light)
        return light

    def node(self, node: ir.Node) -> onnx.NodeProto:
        """``node`` as it is now."""
        names = tuple("" if value is None else value.name for value in node.inputs)
        attributes = tuple(node.attributes.values())
        signature = (node.domain, node.op_type, names, tuple(value.name for value in node.outputs), *map(id, attributes))
        known = self._nodes.get(node)
        if known is not None and known[0] == signature:
            return known[2]
        made = ir.serde.serialize_node(node)
        if not holds_graphs(node):
            for what in ("name", "doc_string", "metadata_props"):  # exporters write pages of these
                made.ClearField(what)
            self._nodes[node] = signature, attributes, made
        return made

    def constant(self, value: ir.Value) -> onnx.TensorProto | onnx.ValueInfoProto | None:
        """The value of the initializer ``value``, or its type where it is large or in a file; None of what is no constant."""
        tensor, name = value.const_value, value.name or ""
        if tensor is None:
            return None
        known = self._tensors.get(value)
        if known is None or known[0]() is not tensor or known[1].name != name:
            known = self._tensors[value] = ref(tensor), _light(tensor, name)
        return known[1]

    def _add_initializer(self, graph: onnx.GraphProto, value: ir.Value) -> None:
        known = self.constant(value)
        if isinstance(known, onnx.TensorProto):
            graph.initializer.append(known)
        elif known is not None:
            graph.input.append(known)


def _light(tensor: ir.TensorProtocol, name: str) -> onnx.TensorProto | onnx.ValueInfoProto:
    """``tensor``, or an input in its place."""
    shape = tensor.shape.numpy()
    if math.prod(shape) <= SHAPE_ELEMENTS:
        made = ir.serde.serialize_tensor(tensor)
        made.name = name
        if not is_heavy(made):
            return made
    return onnx.helper.make_tensor_value_info(name, tensor.dtype.value, shape)
