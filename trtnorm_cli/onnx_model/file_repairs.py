"""Small repairs of files: each changes a model in place where it can mean only one thing, and returns what it is about.

What two readers could take differently (values that contradict each other, an attribute given twice) is left to the checker.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, MutableSequence
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, numpy_helper

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.light_copy import light_copy
from trtnorm_cli.onnx_model.names import free_name
from trtnorm_cli.onnx_model.walk import all_graphs, all_nodes, all_tensors, subgraphs, tensors_read

# The first IR version in which initializers need not be inputs, the first with functions, and the first with overloads.
_INITIALIZERS_ARE_NO_INPUTS, _FUNCTIONS, _OVERLOADS = 4, 8, 10
_FIELDS = {
    "f": AttributeProto.FLOAT,
    "i": AttributeProto.INT,
    "s": AttributeProto.STRING,
    "t": AttributeProto.TENSOR,
    "g": AttributeProto.GRAPH,
    "floats": AttributeProto.FLOATS,
    "ints": AttributeProto.INTS,
    "strings": AttributeProto.STRINGS,
    "tensors": AttributeProto.TENSORS,
    "graphs": AttributeProto.GRAPHS,
}


def use_one_name_for_the_domain(model: onnx.ModelProto) -> list[str]:
    """Call the domain of the ONNX operators "" wherever it is called ai.onnx, and import it once."""
    renamed = [node for node in all_nodes(model) if node.domain == "ai.onnx"]
    for node in renamed:
        node.domain = ""
    for imports in (model.opset_import, *(function.opset_import for function in model.functions)):
        versions = {entry.version for entry in imports if entry.domain in DEFAULT_DOMAINS}
        if len(versions) == 1 and sum(entry.domain in DEFAULT_DOMAINS for entry in imports) > 1:
            _replace(
                imports, [*(e for e in imports if e.domain not in DEFAULT_DOMAINS), onnx.helper.make_opsetid("", *versions)]
            )
        for entry in imports:
            entry.domain = "" if entry.domain == "ai.onnx" else entry.domain
    return [_label(node) for node in renamed]


def import_domains(model: onnx.ModelProto) -> list[str]:
    """Import the domains of operators that ONNX does not know, where that is forgotten: they have one version."""
    known = {schema.domain for schema in onnx.defs.get_all_schemas()}
    imported = {entry.domain for entry in model.opset_import}
    nodes = (node for graph in all_graphs(model.graph) for node in graph.node)
    missing = dict.fromkeys(node.domain for node in nodes if node.domain not in imported | known)
    model.opset_import.extend(onnx.helper.make_opsetid(domain, 1) for domain in missing)
    return list(missing)


def set_ir_version(model: onnx.ModelProto) -> list[str]:
    """State an IR version that has what the model uses; before version 4 every initializer had to be an input."""
    held = {tensor.name for tensor in model.graph.initializer}
    listed = {value.name for value in model.graph.input}
    needed = _OVERLOADS if any(f.overload for f in model.functions) else _FUNCTIONS if model.functions else 0
    if not held <= listed or (model.ir_version < 3 and model.opset_import):
        needed = max(needed, _INITIALIZERS_ARE_NO_INPUTS)
    if model.HasField("ir_version") and model.ir_version >= min(needed, _INITIALIZERS_ARE_NO_INPUTS):
        return []
    if model.ir_version < _INITIALIZERS_ARE_NO_INPUTS:  # these were weights, not inputs with a default value
        _replace(model.graph.input, [value for value in model.graph.input if value.name not in held])
    before = str(model.ir_version) if model.HasField("ir_version") else "none"
    model.ir_version = max(needed, _FUNCTIONS)
    return [before]


def drop_repeated_metadata(model: onnx.ModelProto) -> list[str]:
    """Keep the first entry of each key."""
    kept: dict[str, Any] = {}
    for entry in model.metadata_props:
        kept.setdefault(entry.key, entry)
    repeated = [key for key, count in Counter(entry.key for entry in model.metadata_props).items() if count > 1]
    if repeated:
        _replace(model.metadata_props, list(kept.values()))
    return repeated


def name_graphs(model: onnx.ModelProto) -> list[str]:
    """Give graphs without a name one."""
    nameless = [graph for graph in all_graphs(model.graph) if not graph.name]
    for graph in nameless:
        graph.name = "graph"
    return [graph.name for graph in nameless]


def name_nodes_apart(model: onnx.ModelProto) -> list[str]:
    """Number the later ones of several nodes with one name. Runtimes do not mind the name of a Constant."""
    renamed = []
    for graph in all_graphs(model.graph):
        taken = {node.name for node in graph.node}
        seen: set[str] = set()
        numbers: dict[str, int] = {}
        for node in graph.node:
            if node.op_type == "Constant" or not node.name:
                continue
            if node.name in seen:
                renamed.append(node.name)
                node.name = free_name(node.name, taken, numbers)
            seen.add(node.name)
    return renamed


def drop_idle_nodes(model: onnx.ModelProto) -> list[str]:
    """Remove nodes without inputs and outputs."""
    dropped = []
    for nodes in _node_lists(model):
        idle = [node for node in nodes if not node.input and not node.output]
        if idle:
            _replace(nodes, [node for node in nodes if node.input or node.output])
        dropped += [node.name or node.op_type for node in idle]
    return dropped


def sort_nodes(model: onnx.ModelProto) -> list[str]:
    """Put nodes after what they read; those that are in order stay in it. A graph with a cycle stays as it is."""
    moved = []
    for nodes in _node_lists(model):
        order = _sorted(nodes)
        if order is not None and order != list(range(len(nodes))):
            moved += [_label(nodes[place]) for number, place in enumerate(order) if place != number]
            _replace(nodes, [nodes[place] for place in order])
    return moved


def _sorted(nodes: MutableSequence[onnx.NodeProto]) -> list[int] | None:
    makers = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    waits = [{makers[name] for name in tensors_read(node) if name in makers} for node in nodes]
    if all(max(needed, default=-1) < place for place, needed in enumerate(waits)):
        return list(range(len(nodes)))
    readers: dict[int, list[int]] = {}
    for place, needed in enumerate(waits):
        for maker in needed:
            readers.setdefault(maker, []).append(place)
    ready = [place for place, needed in enumerate(waits) if not needed]  # sorted, and so a heap
    order: list[int] = []
    while ready:
        order.append(first := heapq.heappop(ready))
        for place in readers.get(first, ()):
            waits[place].discard(first)
            if not waits[place]:
                heapq.heappush(ready, place)
    return order if len(order) == len(nodes) else None


def type_outputs(model: onnx.ModelProto) -> list[str]:
    """State the type of outputs that have none, where it can be inferred."""
    untyped = [value for value in model.graph.output if value.name and not value.HasField("type")]
    if not untyped:
        return []
    try:
        inferred = onnx.shape_inference.infer_shapes(light_copy(model), check_type=False, strict_mode=False).graph
    except Exception:  # the inference library raises RuntimeError, ValueError and its own errors alike
        return []
    types = {value.name: value.type for value in (*inferred.value_info, *inferred.output) if value.HasField("type")}
    found = [value for value in untyped if value.name in types]
    for value in found:
        value.type.CopyFrom(types[value.name])
    return [value.name for value in found]


def type_attributes(model: onnx.ModelProto) -> list[str]:
    """State the type of attributes that have none and hold one value."""
    typed = []
    for node in all_nodes(model):
        for attribute in node.attribute:
            fields = [field for field in _FIELDS if _holds(attribute, field)]
            if not attribute.type and len(fields) == 1:
                attribute.type = _FIELDS[fields[0]]
                typed.append(f"{attribute.name} of {_label(node)}")
    return typed


def _holds(attribute: AttributeProto, field: str) -> bool:
    value = getattr(attribute, field)
    return bool(len(value)) if field.endswith("s") and field != "s" else bool(attribute.HasField(field))


def drop_repeated_attributes(model: onnx.ModelProto) -> list[str]:
    """Remove attributes that are given again with the same value."""
    dropped = []
    for node in all_nodes(model):
        if len({attribute.name for attribute in node.attribute}) == len(node.attribute):
            continue
        kept: list[AttributeProto] = []
        for attribute in node.attribute:
            if attribute in kept:
                dropped.append(f"{attribute.name} of {_label(node)}")
            else:
                kept.append(attribute)
        _replace(node.attribute, kept)
    return dropped


def drop_repeated_initializers(model: onnx.ModelProto) -> list[str]:
    """Remove initializers that nothing can read, having no name, and those that are there again with the same values."""
    dropped = []
    for graph in all_graphs(model.graph):
        names = Counter(tensor.name for tensor in graph.initializer)
        if not names[""] and all(count == 1 for count in names.values()):
            continue
        kept: dict[str, list[onnx.TensorProto]] = {}
        for tensor in graph.initializer:
            alike = kept.setdefault(tensor.name, [])
            if not tensor.name or tensor in alike:
                dropped.append(tensor.name or "one without a name")
            else:
                alike.append(tensor)
        _replace(graph.initializer, [tensor for alike in kept.values() for tensor in alike])
    return dropped


def drop_repeated_values(model: onnx.ModelProto) -> list[str]:
    """Keep the raw bytes of tensors that hold the same values in a second field."""
    mended = []
    for tensor in all_tensors(model):
        field = _second_field(tensor)
        if field is None:
            continue
        typed = onnx.TensorProto()
        typed.CopyFrom(tensor)
        typed.ClearField("raw_data")
        if np.array_equal(numpy_helper.to_array(typed), _raw_values(tensor)):
            tensor.ClearField(field)
            mended.append(tensor.name)
    return mended


def _second_field(tensor: onnx.TensorProto) -> Any:
    """The field of the tensor's type, where that and the raw bytes hold values."""
    if not tensor.raw_data or tensor.data_type not in onnx.TensorProto.DataType.values() or not tensor.data_type:
        return None
    field = onnx.helper.tensor_dtype_to_field(tensor.data_type)
    count = len(getattr(tensor, field))
    return field if count and count == np.prod(tensor.dims) else None


def _raw_values(tensor: onnx.TensorProto) -> np.ndarray:
    raw = onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims, raw_data=tensor.raw_data)
    return numpy_helper.to_array(raw)


def _node_lists(model: onnx.ModelProto) -> Iterator[MutableSequence[onnx.NodeProto]]:
    """The nodes of every graph and function, each a list that can be changed."""
    yield from (graph.node for graph in all_graphs(model.graph))
    for function in model.functions:
        yield function.node
        for node in function.node:
            for inner in subgraphs(node):
                yield from (graph.node for graph in all_graphs(inner))


def _replace(field: Any, messages: Iterable[Any]) -> None:
    """Make copies of ``messages`` what a repeated field holds."""
    copies = [type(message).FromString(message.SerializeToString()) for message in messages]
    del field[:]
    field.extend(copies)


def _label(node: onnx.NodeProto) -> str:
    return node.name or f"{node.op_type} -> {next(iter(node.output), '')}"
