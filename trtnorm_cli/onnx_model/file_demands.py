"""Demands on every file before anybody works with it: texts, types, ranks, and functions that come to an end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import onnx

from trtnorm_cli.errors import ModelError
from trtnorm_cli.limits import NODES_VARIABLE, most_nodes
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.normalization_nodes import PARAMETERS
from trtnorm_cli.onnx_model.walk import all_graphs, all_nodes, all_tensors, nodes_within, subgraphs

# NumPy has no array of more axes; TensorRT has 8.
MOST_AXES = 64

# The attributes of ONNX's operators whose numbers are types.
TYPE_ATTRIBUTES = ("dtype", "output_datatype", "output_dtype", "precision", "softmax_precision", "stash_type", "to")

# An input or output is as much work as so many nodes.
_NODES_OF_AN_END = 100
# So many times the limit is no large model.
_HOPELESS = 100
_BODIES = ("Loop", "Scan")
_TYPES = frozenset(onnx.TensorProto.DataType.values())
_FunctionKey = tuple[str, str, str]


def require_texts(path: Path, model: onnx.ModelProto) -> None:
    """Raise ``ModelError`` where a name is no UTF-8: protobuf hands such a one out as bytes."""
    for graph in _graphs(model):
        _require_text(path, "a graph", graph.name)
        for value in (*graph.input, *graph.output, *graph.value_info):
            _require_text(path, "a tensor", value.name)
    for tensor in all_tensors(model):
        _require_text(path, "a tensor", tensor.name)
    for node in all_nodes(model):
        _require_text(path, "a node", node.name, node.op_type, node.domain)
        _require_text(path, "a tensor", *node.input, *node.output)
        _require_text(path, "an attribute", *(attribute.name for attribute in node.attribute))
    for function in model.functions:
        _require_text(path, "a function", function.name, function.domain, *function.input, *function.output)
    _require_text(path, "an opset's domain", *(entry.domain for entry in model.opset_import))


def _require_text(path: Path, what: str, *names: str | bytes) -> None:
    for name in names:
        if isinstance(name, bytes):
            raise ModelError(
                f"the name of {what} is not UTF-8: {name!r}",
                str(path),
                "the file is damaged, or written in another encoding: export it again",
            )


def require_known_types(path: Path, model: onnx.ModelProto) -> None:
    """Raise ``ModelError`` for a tensor of a type that ONNX does not know, or of more axes than arrays have."""
    for tensor in all_tensors(model):
        _require_known_type(path, tensor.name, tensor.data_type or -1)
        _require_few_axes(path, tensor.name, len(tensor.dims))
    for graph in _graphs(model):
        for value in (*graph.input, *graph.output, *graph.value_info):
            kind = value.type.tensor_type
            _require_known_type(path, value.name, kind.elem_type)
            _require_few_axes(path, value.name, len(kind.shape.dim))


def _require_known_type(path: Path, name: str, number: int) -> None:
    if number not in _TYPES:
        raise ModelError(
            f"the tensor is of type {max(number, 0)}, which this version of ONNX does not know",
            f"{path}, tensor {name}",
            "the file is damaged, or written by a newer exporter: update onnx",
        )


def _require_few_axes(path: Path, name: str, axes: int) -> None:
    if axes > MOST_AXES:
        raise ModelError(
            f"the tensor has {axes} axes; there are no arrays of more than {MOST_AXES}, and TensorRT takes 8",
            f"{path}, tensor {name}",
            "reshape it before the export, or export the model again",
        )


def require_whole_nodes(path: Path, model: onnx.ModelProto) -> None:
    """Raise ``ModelError`` for nodes that mean nothing.

    That is a Loop or Scan without a body that fits, a normalization of texts, a type that ONNX does not know, and an attribute
    of a function outside of one.
    """
    for graph in all_graphs(model.graph):
        texts = {tensor.name for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.STRING}
        for node in graph.node:
            if any(attribute.ref_attr_name for attribute in node.attribute):
                raise _unfit(path, node, "it takes an attribute of a function, and stands in none")
            if node.op_type == "Constant" and any(_is_text(attribute) for attribute in node.attribute):
                texts.update(node.output)
            elif texts and node.op_type in PARAMETERS and not texts.isdisjoint(node.input):
                raise _unfit(path, node, "it reads texts, and not numbers")
    for node in all_nodes(model):
        if node.op_type in _BODIES and node.domain in DEFAULT_DOMAINS and not _has_a_body(node):
            raise _unfit(path, node, "its body does not have the inputs and outputs that it needs")
        unknown = _unknown_type(node)
        if unknown is not None:
            raise _unfit(path, node, f"{unknown.name} is the type {unknown.i}, which this version of ONNX does not know")


def _unknown_type(node: onnx.NodeProto) -> onnx.AttributeProto | None:
    if node.domain not in DEFAULT_DOMAINS or not _may_name_a_type(node.op_type):
        return None
    named = (each for each in node.attribute if each.name in TYPE_ATTRIBUTES and each.type == onnx.AttributeProto.INT)
    return next((attribute for attribute in named if attribute.i not in _TYPES), None)


@cache
def _may_name_a_type(operator: str) -> bool:
    return onnx.defs.has(operator) and not onnx.defs.get_schema(operator).attributes.keys().isdisjoint(TYPE_ATTRIBUTES)


def _is_text(attribute: onnx.AttributeProto) -> bool:
    return attribute.name.startswith("value_string") or attribute.t.data_type == onnx.TensorProto.STRING


def _has_a_body(node: onnx.NodeProto) -> bool:
    body = next((attribute.g for attribute in node.attribute if attribute.name == "body"), onnx.GraphProto())
    if node.op_type == "Loop":  # the number of the step, the condition, and the state
        return len(body.input) >= 2 and len(body.output) >= len(body.input) - 1
    scanned = next((attribute.i for attribute in node.attribute if attribute.name == "num_scan_inputs"), 0)
    return 1 <= scanned <= len(body.input) and len(body.output) >= len(body.input) - scanned


def _unfit(path: Path, node: onnx.NodeProto, reason: str) -> ModelError:
    label = node.name or f"{node.op_type} -> {next(iter(node.output), '')}"
    return ModelError(f"the {node.op_type} is not valid: {reason}", f"{path}, node {label}", "export the model again")


def require_few_nodes(path: Path, model: onnx.ModelProto) -> None:
    """Raise ``ModelError`` for a model of too many nodes, its functions written out, or whose functions never end."""
    most = most_nodes()
    functions = {(f.domain, f.name, f.overload): f for f in model.functions}
    if len(model.functions) > most:
        raise ModelError(f"the model has {len(model.functions):,} functions", str(path), "export the model without functions")
    counted = _counted_functions(path, functions)
    held = {tensor.name for tensor in model.graph.initializer}
    ends = max(sum(value.name not in held for value in model.graph.input), len(model.graph.output))
    if ends * _NODES_OF_AN_END > most:
        raise ModelError(
            f"the model has {ends:,} inputs or outputs; more than {most // _NODES_OF_AN_END:,} are not read",
            str(path),
            f"export a part of the model, or allow more with {NODES_VARIABLE}={ends * _NODES_OF_AN_END}",
        )
    nodes = sum(_written_out(node, counted) for graph in all_graphs(model.graph) for node in graph.node)
    if nodes > most:
        written = ", its functions written out" if model.functions else ""
        raise ModelError(
            f"the model has {nodes:,} nodes{written}; more than {most:,} are not read",
            str(path),
            f"export a part of the model, or allow more with {NODES_VARIABLE}={nodes}"
            if nodes < _HOPELESS * most
            else "export the model without functions",
        )


def _counted_functions(path: Path, functions: dict[_FunctionKey, onnx.FunctionProto]) -> dict[_FunctionKey, int]:
    """The number of nodes of a call of each function. It does not recurse: calls can be nested deeper than Python goes."""
    counted: dict[_FunctionKey, int] = {}
    for first in functions:
        open_calls: dict[_FunctionKey, None] = {}
        waiting = [first]
        while waiting:
            key = waiting[-1]
            called = {_key(node) for node in nodes_within(functions[key].node)} & functions.keys() - counted.keys()
            if key in counted or not called:
                if key not in counted:
                    counted[key] = sum(_written_out(node, counted) for node in nodes_within(functions[key].node))
                open_calls.pop(key, None)
                waiting.pop()
                continue
            open_calls[key] = None
            if again := called & open_calls.keys():
                name = next(iter(again))[1]
                raise ModelError(
                    f"the function {name} calls itself",
                    f"{path}, function {name}",
                    "export the model without functions; TensorRT crashes on recursion",
                )
            waiting.extend(called)
    return counted


def _key(node: onnx.NodeProto) -> _FunctionKey:
    return node.domain, node.op_type, node.overload


def _written_out(node: onnx.NodeProto, counted: dict[_FunctionKey, int]) -> int:
    return counted.get(_key(node), 1)


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    yield from all_graphs(model.graph)
    yield from _inner_graphs(node for function in model.functions for node in function.node)


def _inner_graphs(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.GraphProto]:
    for node in nodes:
        for inner in subgraphs(node):
            yield from all_graphs(inner)
