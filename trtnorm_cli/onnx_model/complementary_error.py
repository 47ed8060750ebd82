"""Write out Erfc, an operator of TensorFlow that ONNX does not have, and that tf2onnx leaves in the GELU of Keras.

It is 1 - erf. No runtime knows the node, so that nothing can be run as the file stands.
"""

from __future__ import annotations

from collections.abc import Set

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS, default_opset
from trtnorm_cli.onnx_model.names import free_name
from trtnorm_cli.onnx_model.walk import all_graphs, all_nodes, all_tensors, nodes_within

_OPERATOR = "Erfc"
_OPSET_OF_ERF = 9
# Attributes that say of which type a result is, those that hold numbers of one, and operators that make such without a word.
_SAYING_TYPES = frozenset({"to", "dtype", "output_dtype"})
_REAL_NUMBERS = frozenset({"value_float", "value_floats"})
_FLOAT_UNLESS_SAID = frozenset({"ConstantOfShape", "EyeLike", "RandomNormal", "RandomUniform"})
_REAL: dict[int, type[np.floating]] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.FLOAT16: np.float16,
    TensorProto.DOUBLE: np.float64,
}


def write_out_erfc(model: onnx.ModelProto) -> list[str]:
    """Replace each Erfc of the graph, and of graphs within it, by Erf and Sub.

    None where the model has several real types, as that of each is not known then, nor where its opset has no Erf.
    """
    found = [node for node in nodes_within(model.graph.node) if _is_erfc(node)]
    types = _real_types(model) if found else frozenset[int]()
    if len(types) != 1 or not types <= _REAL.keys() or default_opset(model.opset_import) < _OPSET_OF_ERF:
        return []
    (dtype,) = types
    taken = {name for node in all_nodes(model) for name in (*node.input, *node.output)}
    taken |= {value.name for graph in all_graphs(model.graph) for value in (*graph.input, *graph.initializer)}
    one = free_name("erfc_one", taken)
    model.graph.initializer.append(numpy_helper.from_array(np.array(1, _REAL[dtype]), one))
    for graph in all_graphs(model.graph):
        nodes = list(graph.node)
        if not any(map(_is_erfc, nodes)):
            continue
        del graph.node[:]
        for node in nodes:
            if _is_erfc(node):
                erf = free_name(f"{node.output[0]}_erf", taken)
                name = node.name or node.output[0]
                graph.node.append(onnx.helper.make_node("Erf", list(node.input), [erf], f"{name}_erf"))
                graph.node.append(onnx.helper.make_node("Sub", [one, erf], list(node.output), name))
            else:
                graph.node.append(node)
    return [node.name or node.output[0] for node in found]


def _is_erfc(node: onnx.NodeProto) -> bool:
    is_plain = len(node.input) == len(node.output) == 1 and not node.attribute
    return node.op_type == _OPERATOR and node.domain in DEFAULT_DOMAINS and is_plain


def _real_types(model: onnx.ModelProto) -> Set[int]:
    """The types of real numbers that inputs and stored tensors have, and that nodes make, by what they say or leave unsaid."""
    types = {value.type.tensor_type.elem_type for value in model.graph.input} | {each.data_type for each in all_tensors(model)}
    for node in all_nodes(model):
        stated = {attribute.name: attribute for attribute in node.attribute}
        types |= {stated[name].i for name in _SAYING_TYPES & stated.keys()}
        if _REAL_NUMBERS & stated.keys() or (node.op_type in _FLOAT_UNLESS_SAID and not stated.keys() & {"dtype", "value"}):
            types.add(TensorProto.FLOAT)
    return types & {*_REAL, TensorProto.BFLOAT16}
