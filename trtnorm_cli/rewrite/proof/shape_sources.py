"""Find the nodes that compute an integer tensor from shapes, so that a cut-out computes it too instead of being fed with it.

Random numbers for the second input of a Reshape fit nothing; the shape of a tensor that is fed does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from typing import TYPE_CHECKING

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

    from trtnorm_cli.rewrite.rule import Match

_INTEGERS = (onnx.TensorProto.INT64, onnx.TensorProto.INT32)
_ARITHMETIC = frozenset((
    "Add", "Cast", "Concat", "ConstantOfShape", "Div", "Equal", "Expand", "Gather", "Identity", "Max", "Min", "Mod",
    "Mul", "ReduceProd", "Reshape", "Slice", "Split", "Squeeze", "Sub", "Unsqueeze", "Where",
))  # fmt: skip
_MOST_NODES = 64


@dataclass
class ShapeSources:
    """``nodes`` compute integers, in the order of execution, from the shapes of ``tensors``."""

    nodes: list[gs.Node] = field(default_factory=list)
    tensors: list[gs.Tensor] = field(default_factory=list)


def shape_sources(match: Match, inputs: Iterable[gs.Tensor]) -> ShapeSources:
    """The nodes behind those of ``inputs`` that are integers made of shapes alone; all others are left to be fed."""
    found = ShapeSources()
    for tensor in inputs:
        kind = match.type_of(tensor)
        if kind is None or kind.dtype not in _INTEGERS or not tensor.inputs:
            continue
        trial = ShapeSources(list(found.nodes), list(found.tensors))
        if _follow(match, tensor.inputs[0], trial):
            found = trial
    return found


def _follow(match: Match, node: gs.Node, found: ShapeSources) -> bool:
    """Add ``node`` and what computes its inputs; False when something else than shapes goes in."""
    if any(node is known for known in found.nodes):
        return True
    if node.domain not in DEFAULT_DOMAINS or len(found.nodes) >= _MOST_NODES or any(node is inner for inner in match.nodes):
        return False
    if node.op == "Shape":
        if not _is_outside(match, node.inputs[0]):
            return False
        found.tensors.append(node.inputs[0])
    elif node.op not in _ARITHMETIC or not all(_is_computed(match, t, found) for t in node.inputs if t.name):
        return False
    found.nodes.append(node)
    return True


def _is_computed(match: Match, tensor: gs.Tensor, found: ShapeSources) -> bool:
    if match.surgery.is_constant(tensor):
        return True
    return bool(tensor.inputs) and _follow(match, tensor.inputs[0], found)


def _is_outside(match: Match, tensor: gs.Tensor) -> bool:
    """True when no matched node produces ``tensor``: the cut-out of the replacement has it too."""
    return not any(tensor is output for node in match.nodes for output in node.outputs)
