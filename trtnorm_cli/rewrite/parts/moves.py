"""Tensors whose elements are those of another tensor, moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.rewrite.rule import NewConstant, NewNode

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

    from trtnorm_cli.onnx_model.surgery import Surgery

# Their output has elements of their first input and no others, so that they say the same of floats as of integers.
MOVES = frozenset((
    "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity", "MaxPool", "Reshape", "Slice",
    "SpaceToDepth", "Squeeze", "Tile", "Transpose", "Unsqueeze",
))  # fmt: skip


@dataclass(frozen=True)
class Moved:
    """A tensor with the elements of ``source``, which ``nodes`` move, the first to run first."""

    source: gs.Tensor
    nodes: tuple[gs.Node, ...] = ()

    def after(self, value: gs.Tensor | NewNode | NewConstant, surgery: Surgery) -> gs.Tensor | NewNode | NewConstant:
        """The same moves of ``value``, which has the place of the source."""
        for node in self.nodes:
            further = (read_again(tensor, surgery) for tensor in node.inputs[1:])
            value = NewNode(node.op, (value, *further), dict(node.attrs), role=node.op.lower())
        return value


def read_again(tensor: gs.Tensor, surgery: Surgery) -> gs.Tensor | NewConstant | None:
    """An input of a node that is written again; constants come with it, as no node of the match may have them."""
    if not tensor.name:
        return None
    value = surgery.constant(tensor)
    return tensor if value is None else NewConstant(tensor.name.rsplit("/", 1)[-1], value)


def moved(tensor: gs.Tensor) -> Moved:
    """``tensor`` as moves of the first tensor that is not only moved."""
    nodes: list[gs.Node] = []
    while tensor.inputs and _moves(tensor.inputs[0]):
        nodes.insert(0, tensor.inputs[0])
        tensor = nodes[0].inputs[0]
    return Moved(tensor, tuple(nodes))


def _moves(node: gs.Node) -> bool:
    only = [tensor for tensor in node.outputs if tensor.name]
    if node.domain not in DEFAULT_DOMAINS or len(only) != 1 or node.outputs[0] is not only[0]:
        return False
    return node.op in MOVES or (node.op == "Resize" and node.attrs.get("mode", "nearest") == "nearest")
