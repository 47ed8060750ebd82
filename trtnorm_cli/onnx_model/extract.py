"""Cut some nodes out of a model as a model of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import onnx

from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.onnx_model.walk import all_graphs, subgraphs


class CannotBeCut(Exception):
    """A tensor that would become an input of the cut has no known type or rank."""


def extract(model: onnx.ModelProto, wanted: Collection[int], types: Mapping[str, TensorType]) -> onnx.ModelProto:
    """The nodes of the top-level graph numbered in ``wanted`` as a model.

    What they read and do not make becomes an input, of the type and shape in ``types``, under its own name; weights and
    Constant nodes come along, so that what was a constant stays one. What nodes outside read, graph outputs, and what nobody
    reads become outputs. Tensors are shared with ``model``. Raises ``CannotBeCut``.
    """
    nodes = _with_constants(model.graph, wanted)
    made = {name for node in nodes for name in node.output if name}
    read = list(dict.fromkeys(name for node in nodes for name in reads(node)))
    weights = {tensor.name for tensor in model.graph.initializer}
    weights |= {sparse.values.name for sparse in model.graph.sparse_initializer}
    cut = onnx.ModelProto()
    cut.ir_version = max(model.ir_version, 4)
    cut.opset_import.extend(model.opset_import)
    cut.functions.extend(model.functions)
    cut.graph.name = model.graph.name or "graph"
    cut.graph.node.extend(nodes)
    cut.graph.initializer.extend(tensor for tensor in model.graph.initializer if tensor.name in read)
    cut.graph.sparse_initializer.extend(s for s in model.graph.sparse_initializer if s.values.name in read)
    cut.graph.input.extend(_input(name, model, types) for name in read if name not in made | weights)
    cut.graph.output.extend(_output(name, model, types) for name in _outputs(model.graph, nodes))
    return cut


def reads(node: onnx.NodeProto) -> Iterator[str]:
    """The tensors that a node reads from its own graph, also inside its branches and bodies."""
    yield from (name for name in node.input if name)
    for graph in subgraphs(node):
        for inner in all_graphs(graph):
            own = {value.name for value in inner.input} | {t.name for t in inner.initializer}
            own |= {name for other in inner.node for name in other.output}
            for other in inner.node:
                yield from (name for name in other.input if name and name not in own)
            yield from (value.name for value in inner.output if value.name not in own)


def _with_constants(graph: onnx.GraphProto, wanted: Collection[int]) -> list[onnx.NodeProto]:
    """The nodes in order, with the Constant nodes that they read."""
    read = {name for index in wanted for name in reads(graph.node[index])}
    return [
        node
        for index, node in enumerate(graph.node)
        if index in wanted or (node.op_type == "Constant" and not read.isdisjoint(node.output))
    ]


def _outputs(graph: onnx.GraphProto, nodes: Sequence[onnx.NodeProto]) -> list[str]:
    inside = {id(node) for node in nodes}
    used_inside = {name for node in nodes for name in reads(node)}
    used_outside = {name for node in graph.node if id(node) not in inside for name in reads(node)}
    used_outside |= {value.name for value in graph.output}
    made = [name for node in nodes if node.op_type != "Constant" for name in node.output if name]
    return [name for name in made if name in used_outside or name not in used_inside]


def _input(name: str, model: onnx.ModelProto, types: Mapping[str, TensorType]) -> onnx.ValueInfoProto:
    given = next((value for value in model.graph.input if value.name == name), None)
    kind = types.get(name)
    if given is not None and (kind is None or kind.shape is None):
        return given
    if kind is None or kind.shape is None or not kind.dtype:
        raise CannotBeCut(name)
    return onnx.helper.make_tensor_value_info(name, kind.dtype, list(kind.shape))


def _output(name: str, model: onnx.ModelProto, types: Mapping[str, TensorType]) -> onnx.ValueInfoProto:
    """A graph output as it stands, or with the shape that is known: the checker, not TensorRT, wants one."""
    given = next((value for value in model.graph.output if value.name == name), None)
    kind = types.get(name)
    if kind is None or kind.shape is None or (given is not None and given.type.tensor_type.HasField("shape")):
        return given or onnx.helper.make_tensor_value_info(name, kind.dtype if kind else onnx.TensorProto.FLOAT, None)
    return onnx.helper.make_tensor_value_info(name, kind.dtype, list(kind.shape))
