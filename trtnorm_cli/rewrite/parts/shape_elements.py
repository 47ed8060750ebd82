"""The elements of a computed shape: numbers, or sizes of axes of other tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

    from trtnorm_cli.onnx_model.shapes import TensorType
    from trtnorm_cli.onnx_model.surgery import Surgery

_DEEPEST = 40
_SAME_ELEMENTS = ("Cast", "Identity", "Squeeze", "Unsqueeze", "Reshape")


class Model(Protocol):
    """A source of facts about tensors: a ``Match``, or a whole model."""

    @property
    def surgery(self) -> Surgery: ...

    def type_of(self, tensor: gs.Tensor) -> TensorType | None: ...


@dataclass(frozen=True)
class AxisSize:
    """The size of one axis of a tensor."""

    tensor: str
    axis: int


Element = int | AxisSize | None


def shape_elements(m: Model, tensor: gs.Tensor) -> list[Element] | None:
    """The elements of an integer scalar or vector; None for each that is not known, None when their number is not known.

    Follows Shape, Gather, Slice, Concat and reshapings; sizes that are known are numbers.
    """
    return _elements(m, tensor, _DEEPEST)


def _elements(m: Model, tensor: gs.Tensor, depth: int) -> list[Element] | None:
    value = m.surgery.constant(tensor)
    if value is not None:
        return [int(element) for element in value.reshape(-1)] if np.issubdtype(value.dtype, np.integer) else None
    node = tensor.inputs[0] if tensor.inputs else None
    if node is None or node.domain not in DEFAULT_DOMAINS or depth == 0:
        return None
    if node.op == "Shape":
        return _shape(m, node)
    if node.op in _SAME_ELEMENTS:
        return _elements(m, node.inputs[0], depth - 1)
    if node.op == "Concat":
        parts = [_elements(m, part, depth - 1) for part in node.inputs]
        return None if None in parts else [element for part in parts for element in part or ()]
    if node.op in ("Gather", "Slice"):
        data = _elements(m, node.inputs[0], depth - 1)
        return None if data is None else (_gather if node.op == "Gather" else _slice)(m, node, data)
    return None


def _shape(m: Model, node: gs.Node) -> list[Element] | None:
    kind = m.type_of(node.inputs[0])
    if kind is None or kind.shape is None:
        return None
    name = node.inputs[0].name
    sizes: list[Element] = [s if isinstance(s, int) else AxisSize(name, axis) for axis, s in enumerate(kind.shape)]
    return sizes[node.attrs.get("start", 0) : node.attrs.get("end")]


def _gather(m: Model, node: gs.Node, data: list[Element]) -> list[Element] | None:
    indices = m.surgery.constant(node.inputs[1])
    if indices is None or not all(-len(data) <= index < len(data) for index in indices.reshape(-1)):
        return None
    return [data[int(index)] for index in indices.reshape(-1)]


def _slice(m: Model, node: gs.Node, data: list[Element]) -> list[Element] | None:
    starts, ends, steps = (_bound(m, node, i, name) for i, name in ((1, "starts"), (2, "ends"), (4, "steps")))
    if starts is None or ends is None or steps is None or len(starts) != 1 or len(ends) != 1:
        return None
    return data[starts[0] : ends[0]] if steps in ([], [1]) else None


def _bound(m: Model, node: gs.Node, position: int, name: str) -> list[int] | None:
    """An argument of Slice, which is an attribute up to opset 9 and an input afterwards; empty when it is left out."""
    if name in node.attrs:
        return [int(value) for value in node.attrs[name]]
    if position >= len(node.inputs) or not node.inputs[position].name:
        return []
    value = m.surgery.constant(node.inputs[position])
    return None if value is None else [int(element) for element in value.reshape(-1)]
