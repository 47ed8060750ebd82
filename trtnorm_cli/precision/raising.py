"""A model of half or bfloat16 in float32: for builds in float32, and as the ground from which types are chosen anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.names import free_name
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.onnx_model.shelf import Shelf
from trtnorm_cli.onnx_model.stored import tensor_array
from trtnorm_cli.onnx_model.walk import all_graphs, all_nodes, tensors_read
from trtnorm_cli.precision.author_guards import author_kept
from trtnorm_cli.precision.low_constants import Constants
from trtnorm_cli.precision.plan import InputsAndOutputs
from trtnorm_cli.precision.tensor_types import complete_types
from trtnorm_cli.records.precision import Kept

_FLOAT = onnx.TensorProto.FLOAT
LOW = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
# Attributes that state the type of what a node makes.
_STATES = {"Cast": "to", "SequenceEmpty": "dtype"}
_DTYPE = frozenset({"Bernoulli", "EyeLike", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"})


@dataclass(frozen=True)
class Raised:
    """A model without half and bfloat16, but for inputs and outputs that keep their types through casts.

    ``guards`` are the nodes that the file itself computed in float32 between casts. ``model`` refers to values on the
    ``shelves`` and must not outlive these. ``tensors`` counts stored tensors that were raised.
    """

    model: onnx.ModelProto
    shelves: tuple[Shelf, ...] = field(repr=False, compare=False)
    guards: Mapping[str, Kept]
    tensors: int


def has_low_types(model: onnx.ModelProto) -> bool:
    """True where anything in ``model`` is half or bfloat16."""
    for graph in all_graphs(model.graph):
        if any(tensor.data_type in LOW for tensor in graph.initializer):
            return True
        values = (*graph.input, *graph.output, *graph.value_info)
        if any(value.type.tensor_type.elem_type in LOW for value in values):
            return True
    return any(attribute.i in LOW for node in all_nodes(model) for attribute in node.attribute if _states_type(node, attribute))


def raised(model: onnx.ModelProto, folder: Path | None, io: InputsAndOutputs = "keep") -> Raised:
    """``model`` in float32. Its inputs and outputs keep their types, or with ``io`` ``low`` become float32 as well.

    ``model`` is not changed, and of its weights only half and bfloat16 are read.
    """
    constants = Constants(model, folder)
    types = complete_types(model, declared_types(model))
    guards = {one.key: one for one in author_kept(model, types, constants)}
    shelf, tensors = Shelf(), 0
    result = onnx.ModelProto()
    result.CopyFrom(model)
    borders = _low_borders(result) if io == "keep" else {}
    for graph in all_graphs(result.graph):
        for tensor in graph.initializer:
            tensors += _raise_tensor(tensor, folder, shelf)
        for value in (*graph.input, *graph.output, *graph.value_info):
            _raise_type(value.type)
    for node in all_nodes(result):
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                tensors += _raise_tensor(attribute.t, folder, shelf)
            elif _states_type(node, attribute) and attribute.i in LOW:
                attribute.i = _FLOAT
    _without_idle_casts(result, {name: kind.dtype for name, kind in types.items()})
    _cast_at(result, borders)
    return Raised(result, (shelf,), guards, tensors)


def _states_type(node: onnx.NodeProto, attribute: onnx.AttributeProto) -> bool:
    if node.domain not in DEFAULT_DOMAINS or attribute.type != onnx.AttributeProto.INT:
        return False
    return attribute.name == _STATES.get(node.op_type, "dtype" if node.op_type in _DTYPE else "")


def _low_borders(model: onnx.ModelProto) -> dict[str, int]:
    """The inputs and outputs of the model that are of a low type, with it."""
    stored = {tensor.name for tensor in model.graph.initializer}
    values = [value for value in model.graph.input if value.name not in stored] + list(model.graph.output)
    kinds = {value.name: value.type.tensor_type.elem_type for value in values}
    return {name: kind for name, kind in kinds.items() if kind in LOW and name not in stored}


def _raise_tensor(tensor: onnx.TensorProto, folder: Path | None, shelf: Shelf) -> int:
    if tensor.data_type not in LOW:
        return 0
    value = np.asarray(tensor_array(tensor, folder)).astype(np.float32)
    shelved = shelf.put(value, tensor.name)
    tensor.CopyFrom(numpy_helper.from_array(value, tensor.name) if shelved is None else shelved.tensor)
    return 1


def _raise_type(kind: onnx.TypeProto) -> None:
    if kind.HasField("tensor_type") and kind.tensor_type.elem_type in LOW:
        kind.tensor_type.elem_type = _FLOAT
    elif kind.HasField("sequence_type"):
        _raise_type(kind.sequence_type.elem_type)
    elif kind.HasField("optional_type"):
        _raise_type(kind.optional_type.elem_type)


def _without_idle_casts(model: onnx.ModelProto, before: Mapping[str, int]) -> None:
    """Take out the casts of the top graph between types that have become one, in place. ``before`` are types as they were."""
    floats = (_FLOAT, *LOW)
    fixed = {value.name for value in model.graph.output}
    fixed |= {name for node in model.graph.node for name in set(tensors_read(node)) - set(node.input)}
    names: dict[str, str] = {}
    kept = []
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = names.get(name, name)
        is_cast = node.op_type == "Cast" and node.domain in DEFAULT_DOMAINS
        is_idle = is_cast and before.get(node.output[0]) in floats and _was(node.input[0], before, names) in floats
        if is_idle and node.output[0] not in fixed:
            names[node.output[0]] = node.input[0]
        else:
            kept.append(node)
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    stated = [value for value in model.graph.value_info if value.name not in names]
    del model.graph.value_info[:]
    model.graph.value_info.extend(stated)


def _was(name: str, before: Mapping[str, int], names: Mapping[str, str]) -> int | None:
    return before.get(name, before.get(names.get(name, ""), None))


def _cast_at(model: onnx.ModelProto, borders: Mapping[str, int]) -> None:
    """Give inputs and outputs their types back, with casts, in place."""
    graph = model.graph
    taken = {name for node in all_nodes(model) for name in (*node.input, *node.output)}
    taken |= {value.name for inner in all_graphs(graph) for value in (*inner.input, *inner.output)}
    taken |= {tensor.name for inner in all_graphs(graph) for tensor in inner.initializer}
    inputs = [value for value in graph.input if value.name in borders]
    outputs = [value for value in graph.output if value.name in borders]
    names = {value.name: free_name(f"{value.name}_fp32", taken) for value in (*inputs, *outputs)}
    _rename(model, names)
    made = {name for node in graph.node for name in node.output}
    before = [_cast(value.name, names[value.name], _FLOAT) for value in inputs]
    behind = [_cast(names[v.name], v.name, borders[v.name]) for v in outputs if names[v.name] in made]
    nodes = [*before, *(onnx.NodeProto.FromString(node.SerializeToString()) for node in graph.node), *behind]
    del graph.node[:]
    graph.node.extend(nodes)
    for value in (*inputs, *outputs):
        value.type.tensor_type.elem_type = borders[value.name]


def _rename(model: onnx.ModelProto, names: Mapping[str, str]) -> None:
    """Let every node and every subgraph know the tensors ``names`` by other names, in place."""
    for node in all_nodes(model):
        for places in (node.input, node.output):
            for place, name in enumerate(places):
                if name in names:
                    places[place] = names[name]
    for graph in all_graphs(model.graph):
        if graph is not model.graph:
            for value in graph.output:
                value.name = names.get(value.name, value.name)


def _cast(source: str, made: str, kind: int) -> onnx.NodeProto:
    return onnx.helper.make_node("Cast", [source], [made], name=f"{made}/cast", to=kind)
