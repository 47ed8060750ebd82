"""A model without float64: every double becomes float32, which is what TensorRT makes of it, but openly."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from pathlib import Path

import onnx
from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, numpy_helper

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.file_demands import TYPE_ATTRIBUTES
from trtnorm_cli.onnx_model.shelf import Shelf
from trtnorm_cli.onnx_model.stored import tensor_array
from trtnorm_cli.onnx_model.walk import all_graphs, all_nodes, all_tensors, nodes_within
from trtnorm_cli.precision.wide.rounding import as_float32, rounding_of
from trtnorm_cli.records.types import NarrowedConstant, NarrowedDoubles

_DOUBLE, _FLOAT = TensorProto.DOUBLE, TensorProto.FLOAT


@dataclass(frozen=True)
class Narrowed:
    """A model in float32, and what was narrowed. Large constants are on the ``shelf``, which must outlive the model."""

    model: onnx.ModelProto
    doubles: NarrowedDoubles
    shelf: Shelf = field(repr=False, compare=False)


def has_doubles(model: onnx.ModelProto) -> bool:
    """True for a model in which something is of type double."""
    values = (*model.graph.input, *model.graph.output)
    return (
        any(_holds_double(value.type) for value in values)
        or any(tensor.data_type == _DOUBLE for tensor in all_tensors(model))
        or any(_is_double_attribute(attribute) for node in all_nodes(model) for attribute in node.attribute)
    )


def without_doubles(model: onnx.ModelProto, folder: Path | None) -> Narrowed:
    """``model`` with float32 in the place of every double. External tensors are read from ``folder``."""
    found = _Narrowing(folder, _readers(model))
    result = onnx.ModelProto()
    result.CopyFrom(_without_weights(model))
    result.graph.initializer.extend(found.tensor(tensor) for tensor in model.graph.initializer)
    for index, graph in enumerate(all_graphs(result.graph)):
        found.graph(graph, has_weights=index > 0)
    for function in result.functions:
        found.nodes(function.node)
        for value in function.value_info:
            _narrow_type(value.type)
    doubles = NarrowedDoubles(
        inputs=tuple(value.name for value in model_inputs(model) if _holds_double(value.type)),
        outputs=tuple(value.name for value in model.graph.output if _holds_double(value.type)),
        constants=tuple(found.constants),
        computed=_computed_in_double(model),
    )
    return Narrowed(result, doubles, found.shelf)


def model_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs that a user feeds."""
    stored = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in stored]


class _Narrowing:
    """One pass over a model that changes it in place, and writes down what became of its constants."""

    def __init__(self, folder: Path | None, readers: dict[str, str]) -> None:
        self._folder, self._readers = folder, readers
        self.shelf = Shelf()
        self.constants: list[NarrowedConstant] = []

    def tensor(self, tensor: TensorProto, name: str | None = None) -> TensorProto:
        """``tensor`` itself, or in float32 where it holds doubles."""
        if tensor.data_type != _DOUBLE:
            return tensor
        values = tensor_array(tensor, self._folder)
        rounded = as_float32(values)
        known = name or tensor.name
        about = rounding_of(values, rounded)
        self.constants.append(
            NarrowedConstant(
                name=known,
                reader=self._readers.get(known, ""),
                elements=int(values.size),
                worst_relative=about.worst_relative,
                clamped=about.clamped,
                raised=about.raised,
                spread=about.spread,
            )
        )
        stored = self.shelf.put(rounded, tensor.name)
        return numpy_helper.from_array(rounded, tensor.name) if stored is None else stored.tensor

    def graph(self, graph: GraphProto, has_weights: bool) -> None:
        if has_weights:
            for index, tensor in enumerate(graph.initializer):
                graph.initializer[index].CopyFrom(self.tensor(tensor))
        for sparse in graph.sparse_initializer:
            sparse.values.CopyFrom(self.tensor(sparse.values))
        for value in (*graph.input, *graph.output, *graph.value_info):
            _narrow_type(value.type)
        for node in graph.node:
            self._node(node)

    def nodes(self, nodes: Iterable[NodeProto]) -> None:
        for node in nodes_within(nodes):
            self._node(node)

    def _node(self, node: NodeProto) -> None:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.INT and _is_double_attribute(attribute):
                attribute.i = _FLOAT
            elif attribute.type == AttributeProto.TENSOR:
                attribute.t.CopyFrom(self.tensor(attribute.t, node.output[0] if node.output else None))
            elif attribute.type == AttributeProto.SPARSE_TENSOR:
                attribute.sparse_tensor.values.CopyFrom(self.tensor(attribute.sparse_tensor.values, node.output[0]))
            elif attribute.type == AttributeProto.TYPE_PROTO:
                _narrow_type(attribute.tp)


def _is_double_attribute(attribute: AttributeProto) -> bool:
    return attribute.type == AttributeProto.INT and attribute.name in TYPE_ATTRIBUTES and attribute.i == _DOUBLE


def _holds_double(kind: onnx.TypeProto) -> bool:
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        return bool(getattr(kind, which).elem_type == _DOUBLE)
    if which in ("sequence_type", "optional_type"):
        return _holds_double(getattr(kind, which).elem_type)
    return False


def _narrow_type(kind: onnx.TypeProto) -> None:
    """In place, also within sequences and optionals."""
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        inner = getattr(kind, which)
        inner.elem_type = _FLOAT if inner.elem_type == _DOUBLE else inner.elem_type
    elif which in ("sequence_type", "optional_type"):
        _narrow_type(getattr(kind, which).elem_type)


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy that shares no weight of the main graph: those are narrowed one at a time."""
    copy = onnx.ModelProto()
    for descriptor, value in model.ListFields():
        if descriptor.name != "graph":
            _copy_field(copy, descriptor.name, value)
    for descriptor, value in model.graph.ListFields():
        if descriptor.name != "initializer":
            _copy_field(copy.graph, descriptor.name, value)
    return copy


def _copy_field(target: onnx.ModelProto | GraphProto, name: str, value: object) -> None:
    try:
        setattr(target, name, value)
    except AttributeError:
        getattr(target, name).extend(value)


def _readers(model: onnx.ModelProto) -> dict[str, str]:
    """The first node that reads each tensor, by the tensor's name."""
    readers: dict[str, str] = {}
    for node in all_nodes(model):
        for name in node.input:
            readers.setdefault(name, node.name or f"{node.op_type} -> {', '.join(node.output)}")
    return readers


def _computed_in_double(model: onnx.ModelProto) -> int:
    """How many nodes of the graphs make doubles at run time, as far as the file says."""
    graphs = list(all_graphs(model.graph))
    known = {value.name for graph in graphs for value in (*graph.value_info, *graph.output) if _holds_double(value.type)}
    made = (node for graph in graphs for node in graph.node if node.op_type != "Constant")
    return sum(not known.isdisjoint(node.output) for node in made)
