"""Sizes that TensorRT's parser works out of the shape of a tensor, as those of a Pad are whose data has run-time lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.tensorrt.network.context import LayerContext
from trtnorm_cli.tensorrt.network.reading import Tensor

# The parser takes a handful of layers for a size.
_DEEPEST = 12
_SIGNS = {"SUM": 1, "SUB": -1}
# Numbers of other types are rounded.
_WHOLE = frozenset(("INT32", "INT64"))


@dataclass(frozen=True)
class Length:
    """A number, and with an ``axis`` the length of the data along that in addition."""

    number: int
    axis: int | None = None


def lengths_in(layer: LayerContext, tensor: Tensor, data: Tensor, depth: int = 0) -> Sequence[Length] | None:
    """The elements of a one-dimensional ``tensor`` in lengths of ``data``; None where they are worked out in any other way."""
    maker = tensor.producer
    is_vector = tensor.dtype in _WHOLE and tensor.shape is not None and len(tensor.shape) == 1
    if maker is None or depth > _DEEPEST or not is_vector:
        return None
    if maker.kind == "SHAPE":
        is_of_data = maker.inputs[0] is data and data.shape is not None
        return [Length(0, axis) for axis in range(len(data.shape or ()))] if is_of_data else None
    if maker.kind == "CONSTANT":
        numbers = layer.constant_of(tensor)
        return None if numbers is None else [Length(int(number)) for number in numbers]
    given = [lengths_in(layer, each, data, depth + 1) for each in maker.inputs if each is not None]
    known = [lengths for lengths in given if lengths is not None]
    if len(known) < max(len(given), 1):
        return None
    if maker.kind in ("CAST", "IDENTITY"):
        return known[0]
    if maker.kind == "GATHER" and maker.handle.mode.name == "DEFAULT":
        return _taken(*known)
    if maker.kind == "ELEMENTWISE" and maker.handle.op.name in _SIGNS:
        return _summed(_SIGNS[maker.handle.op.name], *known)
    return None


def _taken(lengths: Sequence[Length], places: Sequence[Length]) -> Sequence[Length] | None:
    if any(place.axis is not None or not 0 <= place.number < len(lengths) for place in places):
        return None
    return [lengths[place.number] for place in places]


def _summed(sign: int, some: Sequence[Length], others: Sequence[Length]) -> Sequence[Length] | None:
    """Their sums or differences; None where lengths are added to each other or taken away, or one is broadcast."""
    if len(some) != len(others):
        return None
    found = []
    for one, other in zip(some, others, strict=True):
        if sign > 0 and one.axis is None:
            one, other = other, one
        if other.axis is not None:
            return None
        found.append(replace(one, number=one.number + sign * other.number))
    return found
