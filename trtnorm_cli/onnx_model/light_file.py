"""Read a model's file without its weights, and write one into which they are copied file to file.

The bytes of large tensors stay where they are: in the message that is read, such a tensor is external data in the model's own
file. Everything that copies, checks or infers takes these for what they are. ``stored.py`` reads them.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Collection, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import onnx
from google.protobuf.message import DecodeError

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS, default_opset
from trtnorm_cli.onnx_model.light_copy import SPARSE_CONSTANTS_SINCE
from trtnorm_cli.onnx_model.stored import bring_in, file_part, is_external, is_own_reference, reference
from trtnorm_cli.onnx_model.walk import all_graphs, all_tensors
from trtnorm_cli.onnx_model.wire import (
    BYTES,
    VARINT,
    Edit,
    Field,
    Piece,
    UnexpectedEncoding,
    edited,
    fields,
    head,
    text_field,
    varint,
)

# Tensors with more bytes stay in the file. They have more than 1024 elements of any type: too many for shape arithmetic.
LARGE_BYTES = 1 << 14
_RELEASED_BYTES = 1 << 23

# Field numbers of onnx.proto.
_MODEL_GRAPH, _MODEL_FUNCTIONS = 7, 25
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_SPARSE = 1, 5, 15
_SPARSE_VALUES, _SPARSE_INDICES = 1, 2
_FUNCTION_NODE = 7
_NODE_OPERATOR, _NODE_ATTRIBUTE, _NODE_DOMAIN = 4, 5, 7
_ATTRIBUTE_TENSOR, _ATTRIBUTE_GRAPH, _ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS = 5, 6, 10, 11
_TENSOR_RAW, _TENSOR_EXTERNAL, _TENSOR_LOCATION = 9, 13, 14
# Segments, and the fields of values by type: a tensor that has one of these besides raw bytes needs a full parser.
_TENSOR_OTHER_VALUES = frozenset((3, 4, 5, 6, 7, 10, 11, _TENSOR_EXTERNAL))
_ENTRY_KEY, _ENTRY_VALUE = 1, 2
_CONSTANT, _LOCATION = b"Constant", b"location"


def read_light(path: Path) -> onnx.ModelProto | None:
    """The model in the file ``path`` with its large tensors left there; None where only a full parser can tell what it is.

    Raises ``OSError`` when the file cannot be read.
    """
    if not _is_utf8(path):
        return None  # a reference holds the folder, and protobuf's strings are UTF-8
    with path.open("rb") as stream:
        try:
            mapped = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError):  # a file system that does not map files, or an empty file
            return None
    with mapped, memoryview(mapped) as data:
        try:
            content = _Lightening(mapped, data, path).content()
        except RecursionError:  # graphs in graphs, deeper than protobuf goes
            return None
    if content is None:
        return None
    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(content)
    except DecodeError:
        return None
    for tensor in list(_needed_whole(proto)):
        bring_in(tensor, path.parent)
    return proto


def _is_utf8(path: Path) -> bool:
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        return False
    return True


class _Lightening:
    """One pass over the bytes of a model."""

    def __init__(self, mapped: mmap.mmap, data: memoryview, path: Path) -> None:
        self._mapped, self._data, self._passed = mapped, data, 0
        self._location, self._folder = path.name, str(path.parent.absolute())

    def content(self) -> bytes | None:
        """The message without the bytes of large tensors."""
        edits: dict[int, Edit] = {_MODEL_GRAPH: self._graph, _MODEL_FUNCTIONS: self._function}
        try:
            pieces = edited(self._data, 0, len(self._data), edits, once=frozenset((_MODEL_GRAPH,)))
        except UnexpectedEncoding:
            return None
        return bytes(self._data) if pieces is None else b"".join(piece for piece in pieces if isinstance(piece, bytes))

    def _graph(self, begin: int, end: int) -> list[Piece] | None:
        return self._inside(begin, end, {_GRAPH_NODE: self._node, _GRAPH_INITIALIZER: self._tensor})

    def _function(self, begin: int, end: int) -> list[Piece] | None:
        return self._inside(begin, end, {_FUNCTION_NODE: self._node})

    def _inside(self, begin: int, end: int, edits: dict[int, Edit], once: frozenset[int] = frozenset()) -> list[Piece] | None:
        return None if end - begin <= LARGE_BYTES else edited(self._data, begin, end, edits, once)

    def _node(self, begin: int, end: int) -> list[Piece] | None:
        if end - begin <= LARGE_BYTES:
            return None
        parts = list(fields(self._data, begin, end))
        attributes = [field for field in parts if field.number == _NODE_ATTRIBUTE]
        edits: dict[int, Edit] = {_ATTRIBUTE_GRAPH: self._graph, _ATTRIBUTE_GRAPHS: self._graph}
        # Only of Constant is it known that the tensor is nothing but a value. One given twice is for ``mend`` to compare.
        if self._is_constant(parts) and len(attributes) == 1:
            edits[_ATTRIBUTE_TENSOR] = self._tensor
        once = frozenset((_ATTRIBUTE_TENSOR, _ATTRIBUTE_GRAPH))
        return edited(self._data, begin, end, {_NODE_ATTRIBUTE: lambda a, b: self._inside(a, b, edits, once)})

    def _is_constant(self, parts: list[Field]) -> bool:
        operators = [bytes(self._data[f.value : f.end]) for f in parts if f.number == _NODE_OPERATOR]
        domains = [str(self._data[f.value : f.end], "utf-8", "replace") for f in parts if f.number == _NODE_DOMAIN]
        return operators[-1:] == [_CONSTANT] and (not domains or domains[-1] in DEFAULT_DOMAINS)

    def _tensor(self, begin: int, end: int) -> list[Piece] | None:
        """The tensor with a reference in the place of its raw bytes; None where it is small or holds something else."""
        if end - begin <= LARGE_BYTES:
            return None
        parts = list(fields(self._data, begin, end))
        raw = [field for field in parts if field.number == _TENSOR_RAW and field.kind == BYTES]
        places = [field for field in parts if field.number == _TENSOR_LOCATION]
        whole = all(field.kind == VARINT and field.integer == onnx.TensorProto.DEFAULT for field in places)
        if not whole or len(raw) != 1 or any(field.number in _TENSOR_OTHER_VALUES for field in parts):
            return None
        if raw[0].end - raw[0].value <= LARGE_BYTES:
            return None
        self._release(end)
        kept = [field for field in parts if field.number not in (_TENSOR_RAW, _TENSOR_LOCATION)]
        return [*(bytes(self._data[field.begin : field.end]) for field in kept), self._reference(raw[0])]

    def _release(self, end: int) -> None:
        """Give the memory of what was passed back: to look at one byte, the kernel may map two megabytes."""
        if end - self._passed > _RELEASED_BYTES and hasattr(mmap, "MADV_DONTNEED"):
            self._mapped.madvise(mmap.MADV_DONTNEED)
            self._passed = end

    def _reference(self, raw: Field) -> bytes:
        entries = reference(self._location, raw.value, raw.end - raw.value, self._folder)
        encoded = b"".join(_entry(key, value) for key, value in entries.items())
        return encoded + varint(_TENSOR_LOCATION << 3 | VARINT) + varint(onnx.TensorProto.EXTERNAL)


def _entry(key: str, value: str) -> bytes:
    content = text_field(_ENTRY_KEY, key) + text_field(_ENTRY_VALUE, value)
    return head(_TENSOR_EXTERNAL, len(content)) + content


def _needed_whole(proto: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Tensors that others must find in the message: those given twice, and what ``light_copy`` could not stand in for."""
    for graph in all_graphs(proto.graph):
        names = Counter(tensor.name for tensor in graph.initializer)
        yield from (t for t in graph.initializer if names[t.name] > 1 and is_own_reference(t))
    if default_opset(proto.opset_import) < SPARSE_CONSTANTS_SINCE:
        inner = islice(all_tensors(proto), len(proto.graph.initializer), None)
        yield from (tensor for tensor in inner if is_own_reference(tensor))


def whole_message(model: onnx.ModelProto, folder: Path | None) -> list[Piece]:
    """The message ``model`` as it is to be written: every tensor that is in a file becomes that part of the file.

    Locations are relative to ``folder``.
    """
    content = model.SerializeToString(deterministic=True)
    with memoryview(content) as data:
        return _Filling(data, folder).between(0, len(data))


class Parts(NamedTuple):
    """A message in three: before its graph, the fields of that, and behind it."""

    before: bytes
    graph: list[Piece]
    behind: list[Piece]


def message_in_parts(model: onnx.ModelProto, folder: Path | None, left_out: Collection[int]) -> Parts:
    """The same message in parts, without the initializers of the graph at the places ``left_out``."""
    content = model.SerializeToString(deterministic=True)
    with memoryview(content) as data:
        filling = _Filling(data, folder)
        graph = next(field for field in fields(data, 0, len(data)) if field.number == _MODEL_GRAPH)
        initializers = (field for field in fields(data, graph.value, graph.end) if field.number == _GRAPH_INITIALIZER)
        kept, begin = list[Piece](), graph.value
        for place, initializer in enumerate(initializers):
            if place in left_out:
                kept += filling.in_graph(begin, initializer.begin)
                begin = initializer.end
        kept += filling.in_graph(begin, graph.end)
        return Parts(content[: graph.begin], kept, filling.between(graph.end, len(data)))


class _Filling:
    """One pass over the bytes of a message with external tensors."""

    def __init__(self, data: memoryview, folder: Path | None) -> None:
        self._data, self._folder = data, folder

    def between(self, begin: int, end: int) -> list[Piece]:
        """Fields of the model with the tensors' bytes in them."""
        edits: dict[int, Edit] = {_MODEL_GRAPH: self._graph, _MODEL_FUNCTIONS: self._function}
        return edited(self._data, begin, end, edits) or [bytes(self._data[begin:end])]

    def in_graph(self, begin: int, end: int) -> list[Piece]:
        """Fields of a graph with the tensors' bytes in them."""
        return self._graph(begin, end) or [bytes(self._data[begin:end])]

    def _graph(self, begin: int, end: int) -> list[Piece] | None:
        edits: dict[int, Edit] = {_GRAPH_NODE: self._node, _GRAPH_INITIALIZER: self._tensor, _GRAPH_SPARSE: self._sparse}
        return edited(self._data, begin, end, edits)

    def _function(self, begin: int, end: int) -> list[Piece] | None:
        return edited(self._data, begin, end, {_FUNCTION_NODE: self._node})

    def _sparse(self, begin: int, end: int) -> list[Piece] | None:
        return edited(self._data, begin, end, {_SPARSE_VALUES: self._tensor, _SPARSE_INDICES: self._tensor})

    def _node(self, begin: int, end: int) -> list[Piece] | None:
        if _LOCATION not in bytes(self._data[begin:end]):
            return None
        edits: dict[int, Edit] = dict.fromkeys((_ATTRIBUTE_TENSOR, _ATTRIBUTE_TENSORS), self._tensor)
        edits |= dict.fromkeys((_ATTRIBUTE_GRAPH, _ATTRIBUTE_GRAPHS), self._graph)
        return edited(self._data, begin, end, {_NODE_ATTRIBUTE: lambda a, b: edited(self._data, a, b, edits)})

    def _tensor(self, begin: int, end: int) -> list[Piece] | None:
        parts = list(fields(self._data, begin, end))
        if not any(field.number == _TENSOR_EXTERNAL for field in parts):
            return None
        tensor = onnx.TensorProto.FromString(self._data[begin:end])
        if not is_external(tensor):
            return None
        part = file_part(tensor, self._folder)
        kept = [field for field in parts if field.number not in (_TENSOR_EXTERNAL, _TENSOR_LOCATION)]
        before, after = ([f for f in kept if (f.number < _TENSOR_RAW) is first] for first in (True, False))
        return [self._joined(before), head(_TENSOR_RAW, len(part)), part, self._joined(after)]

    def _joined(self, parts: list[Field]) -> bytes:
        return b"".join(bytes(self._data[field.begin : field.end]) for field in parts)
