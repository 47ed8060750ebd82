"""A model in whose place of each If stands the branch that is taken at the shapes of its inputs.

Exporters write an If where what they trace asks for the rank or the length of a tensor. What is taken then is taken at smaller
inputs too, as these stand for the model's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

from trtnorm_cli.compare.sized_model import SizedModel
from trtnorm_cli.compare.sized_tensors import Shapes
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.names import free_name
from trtnorm_cli.onnx_model.walk import all_graphs, subgraphs, tensor_names

_BRANCHES = ("else_branch", "then_branch")


def with_branches_taken(model: onnx.ModelProto, shapes: Shapes) -> onnx.ModelProto:
    """``model``, or a copy without each If of which ``shapes`` decide; those that data decide stay, and one within a branch.

    Names within a branch get others, which the model does not have.
    """
    if not any(_is_if(node) for node in model.graph.node):
        return model
    own = SizedModel(model, shapes).own
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    names = {name for graph in all_graphs(model.graph) for name in _names(graph)}
    del copy.graph.node[:]
    for node in model.graph.node:
        condition = own.elements(node.input[0]) if _is_if(node) and node.input else None
        branch = None if condition is None or len(condition) != 1 else _branch(node, bool(condition[0]))
        if branch is None or len(branch.output) != len(node.output) or branch.sparse_initializer:
            copy.graph.node.append(node)
        else:
            _put(copy.graph, branch, node, names)
    return copy


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    yield from tensor_names(graph)
    yield from (value.name for value in (*graph.input, *graph.initializer))


def _is_if(node: onnx.NodeProto) -> bool:
    return node.op_type == "If" and node.domain in DEFAULT_DOMAINS


def _branch(node: onnx.NodeProto, condition: bool) -> onnx.GraphProto | None:
    wanted = _BRANCHES[condition]
    return next((attribute.g for attribute in node.attribute if attribute.name == wanted), None)


def _put(graph: onnx.GraphProto, branch: onnx.GraphProto, node: onnx.NodeProto, names: set[str]) -> None:
    """Put the nodes and weights of a ``branch`` into ``graph``, and its results under the names that ``node`` gives them."""
    made = [name for each in branch.node for name in each.output if name]
    made += [tensor.name for tensor in branch.initializer]
    new = {name: free_name(name, names) for name in made}
    for tensor in branch.initializer:
        copy = graph.initializer.add()
        copy.CopyFrom(tensor)
        copy.name = new[tensor.name]
    for each in branch.node:
        _renamed(graph.node.add(), each, new)
    for result, name in zip(branch.output, node.output, strict=True):
        if name:
            graph.node.append(onnx.helper.make_node("Identity", [new.get(result.name, result.name)], [name]))


def _renamed(copy: onnx.NodeProto, node: onnx.NodeProto, new: Mapping[str, str]) -> None:
    """Make ``copy`` the ``node`` with ``new`` names; those that a graph within it makes itself stay."""
    copy.CopyFrom(node)
    copy.input[:] = [new.get(name, name) for name in node.input]
    copy.output[:] = [new.get(name, name) for name in node.output]
    for graph in subgraphs(copy):
        own = set(_names(graph))
        outer = {name: other for name, other in new.items() if name not in own}
        for each in graph.node:
            inner = onnx.NodeProto()
            _renamed(inner, each, outer)
            each.CopyFrom(inner)
        for result in graph.output:
            result.name = outer.get(result.name, result.name)
