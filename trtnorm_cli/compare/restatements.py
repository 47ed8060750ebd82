"""The sizes that nodes say at the own shapes of a model, and what these become at others.

Two different numbers may become the same one there: a Slice up to place 70 of 96 ends at 38 of 64, and so does one up to 38. A
model with one of them in place of the other would not show it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from itertools import accumulate
from typing import NamedTuple

import onnx

from trtnorm_cli.compare.axis_links import MALFORMED
from trtnorm_cli.compare.sized_tensors import NotTheSame, Shape, SizedTensors
from trtnorm_cli.compare.slices import places_by_axis
from trtnorm_cli.light_dataclass import dataclass

# What is said, of a tensor of one shape here and another there, as it is said there.
_Told = tuple[str, Shape, Shape, object]


@dataclass(frozen=True)
class Restatements:
    """By what nodes say at other shapes, what they ``said`` at the model's own; and the ``shapes`` of tensors, so as well."""

    said: Mapping[_Told, frozenset[object]] = field(default_factory=dict)
    shapes: Mapping[Shape, frozenset[Shape]] = field(default_factory=dict)


def restatements(own: SizedTensors, other: SizedTensors) -> Restatements:
    """Results of nodes that say shapes, and the places that others take of what they are given, by the others' sizes.

    Raises ``NotTheSame`` for a malformed node.
    """
    said = dict[_Told, set[object]]()
    shapes = dict[Shape, set[Shape]]()
    names = (name for node in own.model.graph.node for name in (*node.input, *node.output) if name)
    for before, after in {(own.known_shape(name), other.known_shape(name)) for name in names}:
        if before is not None and after is not None:
            shapes.setdefault(after, set()).add(before)
    for node in own.model.graph.node:
        kind = "places" if node.op_type in _PLACES or node.op_type == "Split" else node.op_type
        if kind == "places" or node.op_type in _SHAPING or node.op_type == "GridSample":
            before, after = (at.known_shape(node.input[0]) if node.input and node.output else None for at in (own, other))
            if before is None or after is None:
                continue
            try:
                each = list(zip(_said(node, own), _said(node, other), strict=True))
            except MALFORMED as error:
                raise NotTheSame(str(error)) from error
            for was, now in each:
                if before != after or was != now:
                    there = now[0] if isinstance(now, _Sampling) else now
                    said.setdefault((kind, before, after, there), set()).add(was)
    return Restatements(
        {told: frozenset(values) for told, values in said.items()},
        {shape: frozenset(values) for shape, values in shapes.items()},
    )


def are_distinct(*each: Restatements) -> bool:
    """False where two things that are said at the own shapes are the same at the others."""
    one: dict[_Told, object] = {}
    return all(one.setdefault(told, said) == said for some in each for told, all_said in some.said.items() for said in all_said)


def have_shapes_of(one: Restatements, reference: Restatements) -> bool:
    """True where tensors with a shape of the reference at the other sizes have one that it stands for at the own ones."""
    return all(own <= reference.shapes.get(shape, own) for shape, own in one.shapes.items())


class _Sampling(NamedTuple):
    """The result's shape, and how a GridSample samples, of which little is seen where few places lie at the border."""

    shape: Shape | None
    how: tuple[object, ...]


def _said(node: onnx.NodeProto, at: SizedTensors) -> list[object]:
    """By result."""
    shape = at.known_shape(node.output[0])
    if node.op_type == "Split":
        return _of_split(node, at, at.shape(node.input[0]))
    if node.op_type == "GridSample":
        return [_Sampling(shape, _how(node))]
    return [shape if node.op_type in _SHAPING else (shape, _PLACES[node.op_type](node, at, at.shape(node.input[0])))]


def _how(node: onnx.NodeProto) -> tuple[object, ...]:
    stated = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    mode = stated.get("mode", b"linear")
    return (
        {b"bilinear": b"linear", b"bicubic": b"cubic"}.get(mode, mode),
        stated.get("padding_mode", b"zeros"),
        bool(stated.get("align_corners", 0)),
    )


def _of_split(node: onnx.NodeProto, at: SizedTensors, shape: Shape) -> list[object]:
    """For each result the places that a Slice would say."""
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0) % max(len(shape), 1)
    results, found = [at.shape(name) for name in node.output], list[object]()
    ends = list(accumulate(result[axis] for result in results))
    for result, end in zip(results, ends, strict=True):
        places = {each: (0, length, 1) for each, length in enumerate(shape)}
        found.append((result, tuple({**places, axis: (end - result[axis], end, 1)}.items())))
    return found


def _of_slice(node: onnx.NodeProto, at: SizedTensors, shape: Shape) -> object:
    """By axis, the first place, the one behind the last, and the step, from the front."""
    numbers = [at.asked(node, place) if len(node.input) > place and node.input[place] else None for place in (1, 2, 3, 4)]
    found = places_by_axis(numbers, shape)
    return None if found is None else tuple(found.items())


def _of_pad(node: onnx.NodeProto, at: SizedTensors, shape: Shape) -> object:
    """The places that a Slice would say that leaves away as much; None for other pads."""
    pads, axes = (at.asked(node, place) if len(node.input) > place and node.input[place] else None for place in (1, 3))
    if pads is None or any(pad > 0 for pad in pads):
        return None
    along = list(range(len(shape)) if axes is None else axes)
    found = {axis: (0, length, 1) for axis, length in enumerate(shape)}
    for axis, begin, end in zip(along, pads[: len(along)], pads[len(along) :], strict=False):
        found[axis % len(shape)] = (-int(begin), shape[axis] + int(end), 1)
    return tuple(found.items())


def _of_gather(node: onnx.NodeProto, at: SizedTensors, shape: Shape) -> object:
    """By axis the places that are taken, from the front."""
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0) % max(len(shape), 1)
    places = at.elements(node.input[1]) if len(node.input) > 1 else None
    return None if places is None else (axis, tuple(int(place) % shape[axis] for place in places))


_SHAPING = frozenset(("AveragePool", "Expand", "MaxPool", "Reshape", "Resize", "Upsample"))
_PLACES: Mapping[str, Callable[[onnx.NodeProto, SizedTensors, Shape], object]] = {
    "Gather": _of_gather,
    "Pad": _of_pad,
    "Slice": _of_slice,
}
