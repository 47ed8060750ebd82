"""Read plugin nodes of trtnorm as the operators that they stand for, so that a build profile decides anew what computes them.

Inlining their functions means the same, but leaves an activation that a rule would not recognise.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx_ir as ir

from trtnorm_cli.onnx_model.ir_walk import every_node
from trtnorm_cli.onnx_model.plugin_functions import GROUP_NORM, INSTANCE_NORM
from trtnorm_cli.onnx_model.plugin_nodes import DOMAIN

# From this opset on a GroupNormalization has a scale and bias for each channel, as the plugin.
_PER_CHANNEL = 21


def read_plugins_natively(model: ir.Model, names: set[str], counts: Counter[str]) -> None:
    """Replace plugin nodes of trtnorm by ONNX operators, in place.

    ``names`` are the plugins whose functions are those of trtnorm; all others, and what cannot be replaced, are left to theirs.
    """
    for node in list(every_node(model.graph)):
        if node.domain == DOMAIN and node.op_type in names and node.graph is not None:
            last = _native(node, model)
            if last is not None:
                _put(node, last)
                counts["plugin nodes read as operators"] += 1


def _native(node: ir.Node, model: ir.Model) -> list[ir.Node] | None:
    if node.op_type == INSTANCE_NORM:
        return _instance_norm(node, model)
    if node.op_type == GROUP_NORM and model.opset_imports.get("", 0) >= _PER_CHANNEL:
        attrs = [_renamed(node, "eps", "epsilon"), node.attributes["num_groups"]]
        return [ir.Node("", "GroupNormalization", node.inputs, attrs, name=node.name)]
    return None


def _instance_norm(node: ir.Node, model: ir.Model) -> list[ir.Node] | None:
    data = node.inputs[0]
    if data is None or data.dtype not in (ir.DataType.FLOAT, ir.DataType.FLOAT16):
        return None
    values = {role: np.array(node.attributes[role].as_floats(), np.float32) for role in ("scales", "bias")}
    with np.errstate(over="ignore"):
        stored = {role: value.astype(data.dtype.numpy()) for role, value in values.items()}
    if any(not np.array_equal(stored[role], value) for role, value in values.items()):
        return None  # the plugin has them in float32; in the type of the data they would be rounded
    parameters = [_parameter(node, role, value, model.graph) for role, value in stored.items()]
    norm = ir.Node("", "InstanceNormalization", [data, *parameters], [node.attributes["epsilon"]], name=node.name)
    if node.attributes["relu"].as_int() <= 0:
        return [norm]
    slope = node.attributes["alpha"].as_float()
    name = f"{node.name}/activation" if node.name else None
    if slope == 0:
        return [norm, ir.Node("", "Relu", norm.outputs, name=name)]
    return [norm, ir.Node("", "LeakyRelu", norm.outputs, [ir.AttrFloat32("alpha", slope)], name=name)]


def _parameter(node: ir.Node, role: str, values: np.ndarray, graph: ir.Graph) -> ir.Value:
    stem = name = f"{node.outputs[0].name}/{role}"
    number = 1
    while name in graph.initializers:
        number += 1
        name = f"{stem}_{number}"
    value = ir.Value(name=name, const_value=ir.tensor(values, name=name))
    value.type, value.shape = ir.TensorType(ir.DataType.from_numpy(values.dtype)), ir.Shape(values.shape)
    graph.register_initializer(value)
    return value


def _renamed(node: ir.Node, name: str, new: str) -> ir.Attr:
    return ir.AttrFloat32(new, node.attributes[name].as_float())


def _put(node: ir.Node, native: list[ir.Node]) -> None:
    """``native``, a chain, in the place of ``node``."""
    graph, old, new = node.graph, node.outputs[0], native[-1].outputs[0]
    assert isinstance(graph, ir.Graph)
    graph.insert_before(node, native)
    name, new.type, new.shape = old.name, old.type, old.shape
    for inner in native[:-1]:
        inner.outputs[0].type, inner.outputs[0].shape = old.type, old.shape
    old.replace_all_uses_with(new, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    new.name = name
