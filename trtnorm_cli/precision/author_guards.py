"""The author's own guards: float32 between two casts in a model that is half or bfloat16 otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.precision.low_constants import Constants
from trtnorm_cli.precision.plan import kept, key_of
from trtnorm_cli.records.precision import Kept

_FLOAT = onnx.TensorProto.FLOAT
_LOW = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)


def author_kept(model: onnx.ModelProto, types: Mapping[str, TensorType], constants: Constants) -> Iterator[Kept]:
    """The nodes in float32 islands that are entered by casts from a low type and left by casts to one, and only so."""
    elements = {name: kind.dtype for name, kind in types.items()}
    if not any(element in _LOW for element in elements.values()):
        return
    borders = {value.name for value in (*model.graph.input, *model.graph.output)}
    islands: dict[str, list[onnx.NodeProto]] = {}
    parent: dict[str, str] = {}

    def root(name: str) -> str:
        parent.setdefault(name, name)
        while parent[name] != name:
            parent[name] = parent[parent[name]]
            name = parent[name]
        return name

    open_ends = {name for name in borders if elements.get(name) == _FLOAT}
    for node in model.graph.node:
        floats = [name for name in (*node.input, *node.output) if elements.get(name) == _FLOAT and name not in constants]
        for name in floats[1:]:
            parent[root(name)] = root(floats[0])
        if not floats:
            continue
        if _is_cast(node):
            other = node.input[0] if elements.get(node.output[0]) == _FLOAT else node.output[0]
            if elements.get(other) not in (*_LOW, _FLOAT):
                open_ends.add(floats[0])
        else:
            islands.setdefault(floats[0], []).append(node)
    closed = {name for name in islands if root(name) not in {root(end) for end in open_ends}}
    for name in closed:
        for node in islands[name]:
            if key_of(node) and any(elements.get(output) == _FLOAT for output in node.output):
                yield kept(node, "author", "the file itself casts to float32 here and back behind it")


def _is_cast(node: onnx.NodeProto) -> bool:
    return node.op_type == "Cast" and node.domain in DEFAULT_DOMAINS
