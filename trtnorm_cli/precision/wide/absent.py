"""Types that TensorRT has nowhere, not even in a tensor that nobody reads: refused before it, with their nodes."""

from __future__ import annotations

from collections.abc import Iterator

import onnx
from onnx import AttributeProto, TensorProto

from trtnorm_cli.errors import TensorRTRefusal
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.walk import all_graphs, subgraphs

# The type to use instead, in words, by the type that TensorRT does not have.
_INSTEAD = {
    TensorProto.INT16: "int32",
    TensorProto.UINT16: "int32",
    TensorProto.UINT32: "int64",
    TensorProto.UINT64: "int64",
    TensorProto.STRING: "",
    TensorProto.COMPLEX64: "",
    TensorProto.COMPLEX128: "",
}
_SHOWN = 4
_QUANTISATION = ("QuantizeLinear", "DequantizeLinear")


@dataclass(frozen=True)
class Absent:
    """A tensor of a type that TensorRT does not have. ``what`` names it: ``input x``, ``the output h of Cast /cast``."""

    what: str
    dtype: int
    is_interface: bool


def require_known_types(model: onnx.ModelProto, where: str) -> None:
    """Raise ``TensorRTRefusal`` where ``model`` has tensors of types that TensorRT does not have."""
    found = absent_types(model)
    if not found:
        return
    kinds = sorted({_word(one.dtype) for one in found})
    shown = [f"{one.what} is {_word(one.dtype)}" for one in found[:_SHOWN]]
    more = [f"and {len(found) - _SHOWN} more"] if len(found) > _SHOWN else []
    raise TensorRTRefusal(
        f"TensorRT does not have the type{'s' if len(kinds) > 1 else ''} {', '.join(kinds)}",
        "\n".join([where, *shown, *more]),
        "\n".join(dict.fromkeys(map(_hint, found))),
    )


def absent_types(model: onnx.ModelProto) -> list[Absent]:
    """The tensors of such types: inputs and outputs first, then stored ones, then those that nodes make."""
    stored = {tensor.name for tensor in model.graph.initializer}
    interface = [
        Absent(f"{side} {value.name}", kind, is_interface=True)
        for side, values in (("input", model.graph.input), ("output", model.graph.output))
        for value in values
        if value.name not in stored and (kind := _absent(value.type))
    ]
    seen = {value.name for value in (*model.graph.input, *model.graph.output)}
    inner = [one for graph in all_graphs(model.graph) for one in _inner(graph, seen)]
    return [*interface, *inner]


def _inner(graph: onnx.GraphProto, seen: set[str]) -> Iterator[Absent]:
    made = {value.name: kind for value in (*graph.value_info, *graph.output) if (kind := _absent(value.type))}
    quantised = _quantised(graph)
    readers = {name: node for node in reversed(graph.node) for name in node.input}
    for tensor in graph.initializer:
        if tensor.data_type in _INSTEAD and tensor.name not in quantised:
            reader = readers.get(tensor.name)
            read = "" if reader is None else f", which {_named(reader)} reads,"
            yield Absent(f"constant {tensor.name}{read}", tensor.data_type, is_interface=False)
    for node in graph.node:
        kind = next((made[name] for name in node.output if name in made and name not in seen), 0) or _attribute_type(node)
        if kind and node.op_type not in _QUANTISATION and not any(True for _ in subgraphs(node)):
            yield Absent(f"the output {node.output[0]} of {_named(node)}", kind, is_interface=False)


def _quantised(graph: onnx.GraphProto) -> set[str]:
    """Constants that only quantisation reads, which rules write in the types that TensorRT has."""
    by_others = {name for node in graph.node if node.op_type not in _QUANTISATION for name in node.input}
    by_others |= {name for node in graph.node for inner in subgraphs(node) for name in _names_read(inner)}
    return {name for node in graph.node if node.op_type in _QUANTISATION for name in node.input} - by_others


def _names_read(graph: onnx.GraphProto) -> set[str]:
    return {name for inner in all_graphs(graph) for node in inner.node for name in node.input}


def _attribute_type(node: onnx.NodeProto) -> int:
    """The type that a Constant, a ConstantOfShape or a Cast says to make."""
    for attribute in node.attribute:
        if attribute.type == AttributeProto.TENSOR and attribute.t.data_type in _INSTEAD:
            return int(attribute.t.data_type)
        if node.op_type == "Cast" and attribute.name == "to" and attribute.i in _INSTEAD:
            return int(attribute.i)
    return 0


def _absent(kind: onnx.TypeProto) -> int:
    """The type, where it is one of those; 0 otherwise."""
    which = kind.WhichOneof("value")
    if which in ("tensor_type", "sparse_tensor_type"):
        number = int(getattr(kind, which).elem_type)
        return number if number in _INSTEAD else 0
    if which in ("sequence_type", "optional_type"):
        return _absent(getattr(kind, which).elem_type)
    return 0


def _hint(one: Absent) -> str:
    word, instead = _word(one.dtype), _INSTEAD[one.dtype]
    if one.dtype == TensorProto.STRING:
        return "take the part with strings (a tokenizer, a table of words) out of the model, and run it outside of the engine"
    if not instead:
        return "compute with real and imaginary part as two float32 tensors, as exporters do with view_as_real"
    if one.is_interface:
        return f"export the model with {instead} there, and convert {word} before or after the engine"
    return f"export the model with {instead} in the place of {word}; results are the same where nothing is meant to wrap around"


def _named(node: onnx.NodeProto) -> str:
    return f"{node.op_type} {node.name}" if node.name else node.op_type


def _word(number: int) -> str:
    return TensorProto.DataType.Name(number).lower()
