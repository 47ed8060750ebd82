"""The sizes that nodes say at the own shapes of a model, and what these become at others.

Two different numbers may become the same one there: a Slice up to place 70 of 96 ends at 38 of 64, and so does one up to 38. A
model with one of them in place of the other would not show it.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from trtnorm_cli.compare.sized_tensors import Shape, SizedTensors

# An operator with the shape that it is given, here and there, and what it says at other shapes.
_Told = tuple[str, Shape, Shape, object]
Restatements = Mapping[_Told, frozenset[object]]
_SAYING = frozenset(("Expand", "Reshape", "Resize", "Slice", "Upsample"))
# The inputs of a Slice that say where it begins and ends, and along which axes.
_PLACES = (1, 2, 3)


def restatements(own: SizedTensors, other: SizedTensors) -> Restatements:
    """By what nodes say at the ``other`` shapes, what they say at the model's ``own``: results, and places of a Slice."""
    found: dict[_Told, frozenset[object]] = {}
    for node in own.model.graph.node:
        if node.op_type in _SAYING and node.input and node.output:
            before, after = (at.known_shape(node.input[0]) for at in (own, other))
            said, now = (_said(node, at) for at in (own, other))
            if before is not None and after is not None and (before != after or said != now):
                told = (node.op_type, before, after, now)
                found[told] = found.get(told, frozenset()) | {said}
    return found


def are_distinct(*each: Restatements) -> bool:
    """False where two things that are said at the own shapes are the same at the others."""
    one: dict[_Told, object] = {}
    return all(one.setdefault(told, said) == said for some in each for told, all_said in some.items() for said in all_said)


def _said(node: onnx.NodeProto, at: SizedTensors) -> object:
    shape = at.known_shape(node.output[0])
    if node.op_type != "Slice" or len(node.input) <= max(_PLACES[:2]):
        return shape
    numbers = (at.asked(node, place) if len(node.input) > place and node.input[place] else None for place in _PLACES)
    return shape, *(None if some is None else tuple(some) for some in numbers)
