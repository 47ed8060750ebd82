"""Follow an axis of a tensor back to the node that made it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.rewrite.pattern import titled

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

    from trtnorm_cli.onnx_model.surgery import Surgery

Shape = tuple["int | str | None", ...]

_FURTHEST = 500
_SHOWN = 3
# Operators whose weight decides how long axis 1 of their output is.
_CONVOLUTIONS = ("Conv", "ConvTranspose")
_PRODUCTS = ("Gemm", "MatMul")
_REGROUPING = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


@dataclass(frozen=True)
class Origin:
    """The node that made an axis, in words; ``trail`` are the nodes between it and the tensor, nearest first.

    ``groups`` are the group counts that the maker and the nodes on the trail state.
    """

    text: str
    trail: tuple[str, ...] = ()
    groups: tuple[int, ...] = ()


def origin_of_axis(tensor: gs.Tensor, axis: int, surgery: Surgery, types: Mapping[str, TensorType]) -> Origin:
    """The node that made axis ``axis`` of ``tensor`` as long as it is, looking through nodes that keep it."""
    return _Walk(surgery, types).origin(tensor, axis)


class _Walk:
    def __init__(self, surgery: Surgery, types: Mapping[str, TensorType]) -> None:
        self.surgery, self.types = surgery, types
        self.trail: list[str] = []
        self.groups: list[int] = []

    def origin(self, tensor: gs.Tensor, axis: int) -> Origin:
        for _ in range(_FURTHEST):
            node = tensor.inputs[0] if tensor.inputs else None
            if node is None:
                kind = "the constant" if self.surgery.is_constant(tensor) else "the input"
                return self._found(f"{kind} {tensor.name}")
            self._note_groups(node)
            step = self._step_back(node, tensor, axis)
            if step is None:
                return self._found(self._made_by(node))
            self.trail.append(titled(node))
            tensor, axis = step
        return self._found(f"further away than {_FURTHEST} nodes")

    def _found(self, text: str) -> Origin:
        shown = self.trail[:_SHOWN]
        more = f" and {len(self.trail) - _SHOWN} more nodes" if len(self.trail) > _SHOWN else ""
        through = f", through {', '.join(reversed(shown))}{more}" if shown else ""
        return Origin(text + through, tuple(self.trail), tuple(self.groups))

    def _note_groups(self, node: gs.Node) -> None:
        """Only counts that a node states in so many words; one group is no grouping."""
        count = node.attrs.get("num_groups" if node.op == "GroupNormalization" else "group", 1)
        if isinstance(count, int) and count > 1:
            self.groups.append(count)

    def _made_by(self, node: gs.Node) -> str:
        text = titled(node)
        if node.op in (*_CONVOLUTIONS, *_PRODUCTS) and len(node.inputs) > 1:
            return f"{text}, whose weight {node.inputs[1].name} is {_text(self._shape(node.inputs[1]))}"
        return f"{text}, fed with {', '.join(_text(self._shape(t)) for t in node.inputs if t.name)}"

    def _shape(self, tensor: gs.Tensor) -> Shape | None:
        kind = self.types.get(tensor.name)
        if kind is not None and kind.shape is not None:
            return kind.shape
        return tuple(tensor.shape) if self.surgery.is_constant(tensor) and tensor.shape is not None else None

    def _step_back(self, node: gs.Node, tensor: gs.Tensor, axis: int) -> tuple[gs.Tensor, int] | None:
        """The input and its axis that axis ``axis`` of ``tensor`` is; None when ``node`` made it."""
        if node.domain not in DEFAULT_DOMAINS or not node.inputs:
            return None
        if node.op in _CONVOLUTIONS and axis == 1:
            return None
        if node.op in _PRODUCTS:
            return None
        if node.op == "Transpose":
            order = node.attrs.get("perm")
            rank = len(self._shape(tensor) or ())
            return node.inputs[0], int(order[axis]) if order is not None else rank - 1 - axis
        if node.op in _REGROUPING:
            return self._regrouped(node, tensor, axis)
        return self._kept(node, tensor, axis)

    def _regrouped(self, node: gs.Node, tensor: gs.Tensor, axis: int) -> tuple[gs.Tensor, int] | None:
        """The axis of the same length with as many elements before it; it is the same axis in another grouping."""
        new, old = self._shape(tensor), self._shape(node.inputs[0])
        if new is None or old is None or new[axis] is None:
            return None
        for candidate, size in enumerate(old):
            if size == new[axis] and _same_sizes(old[:candidate], new[:axis]):
                return node.inputs[0], candidate
        return None

    def _kept(self, node: gs.Node, tensor: gs.Tensor, axis: int) -> tuple[gs.Tensor, int] | None:
        """The first input of run time, aligned at the last axis as broadcasting does, that is as long there."""
        new = self._shape(tensor)
        if new is None:
            return (node.inputs[0], axis) if len(node.inputs) == 1 else None
        for source in node.inputs:
            old = self._shape(source) if source.name and not self.surgery.is_constant(source) else None
            if old is None or len(old) > len(new):
                continue
            aligned = axis - (len(new) - len(old))
            if aligned >= 0 and _may_be_equal(old[aligned], new[axis]):
                return source, aligned
        return None


def _may_be_equal(a: int | str | None, b: int | str | None) -> bool:
    """False for two numbers that differ, and for a length of 1, which broadcasts to any other."""
    return a == b if isinstance(a, int) and isinstance(b, int) else a != 1


def _same_sizes(a: Shape, b: Shape) -> bool:
    """True when two shapes have the same number of elements, symbols taken by name."""
    return _product(a) == _product(b)


def _product(shape: Shape) -> tuple[int, tuple[str, ...]]:
    number, symbols = 1, []
    for size in shape:
        if isinstance(size, int):
            number *= size
        else:
            symbols.append(str(size))
    return number, tuple(sorted(symbols))


def _text(shape: Shape | None) -> str:
    return "of unknown shape" if shape is None else "[" + ", ".join("?" if s is None else str(s) for s in shape) + "]"
