"""How a scale and shift passes operators that join, part, select or add tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from trtnorm_cli.rewrite.scale_shift.affine import Affine, CannotMove, affine, identity
from trtnorm_cli.rewrite.scale_shift.operation import Operation

Shape = tuple[int | str | None, ...]
Sides = Mapping[int, Affine]


def concat_back(op: Operation, sides: Sides) -> dict[int, Affine]:
    asked = sides[0]
    axis = op.axis("axis", 1, asked.rank)
    if asked.shape[axis] == 1:
        return dict.fromkeys(range(len(op.node.inputs)), asked)
    spans = _spans(op, [op.input_shape(index)[axis] for index in range(len(op.node.inputs))], asked.shape[axis])
    return {index: _part(asked, span, axis) for index, span in enumerate(spans)}


def concat_forth(op: Operation, sides: Sides) -> dict[int, Affine]:
    rank = next(iter(sides.values())).rank
    axis = op.axis("axis", 1, rank)
    sizes = [op.input_shape(index)[axis] for index in range(len(op.node.inputs))]
    return {0: _joined([sides.get(index, identity(rank)) for index in range(len(sizes))], axis, _static(op, sizes))}


def split_back(op: Operation, sides: Sides) -> dict[int, Affine]:
    rank = next(iter(sides.values())).rank
    axis = op.axis("axis", 0, rank)
    sizes = [op.output_shape(index)[axis] for index in range(len(op.node.outputs))]
    return {0: _joined([sides.get(index, identity(rank)) for index in range(len(sizes))], axis, _static(op, sizes))}


def split_forth(op: Operation, sides: Sides) -> dict[int, Affine]:
    given = sides[0]
    axis = op.axis("axis", 0, given.rank)
    outputs = range(len(op.node.outputs))
    if given.shape[axis] == 1:
        return dict.fromkeys(outputs, given)
    spans = _spans(op, [op.output_shape(index)[axis] for index in outputs], given.shape[axis])
    return {index: _part(given, span, axis) for index, span in enumerate(spans)}


def _static(op: Operation, sizes: Sequence[int | str | None]) -> list[int]:
    known = [size for size in sizes if isinstance(size, int)]
    if len(known) != len(sizes):
        raise CannotMove(f"the sizes of the parts of {op.name} are not known")
    return known


def _spans(op: Operation, sizes: Sequence[int | str | None], total: int) -> list[range]:
    """The places of consecutive parts."""
    ends = np.cumsum(_static(op, sizes)).tolist()
    if ends[-1] != total:
        raise CannotMove(f"there are {total} values for scale and shift, but the parts of {op.name} have {ends[-1]} channels")
    return [range(end - size, end) for end, size in zip(ends, _static(op, sizes), strict=True)]


def _part(given: Affine, chosen: Sequence[int], axis: int) -> Affine:
    return given.moved(lambda values: values.take(list(chosen), axis))


def _joined(parts: Sequence[Affine], axis: int, sizes: Sequence[int]) -> Affine:
    """Scales and shifts of neighbouring parts as those of the whole."""
    if len({(part.scale.tobytes(), part.shift.tobytes(), part.shape) for part in parts}) == 1 and parts[0].shape[axis] == 1:
        return parts[0]
    for part, size in zip(parts, sizes, strict=True):
        if part.shape[axis] not in (1, size):
            raise CannotMove(f"there are {part.shape[axis]} values for scale and shift of a part with {size} channels")
    common = np.broadcast_shapes(*[tuple(1 if i == axis else s for i, s in enumerate(part.shape)) for part in parts])

    def whole(values: Sequence[np.ndarray]) -> np.ndarray:
        shapes = [tuple(size if i == axis else s for i, s in enumerate(common)) for size in sizes]
        return np.concatenate([np.broadcast_to(v, shape) for v, shape in zip(values, shapes, strict=True)], axis)

    return affine(whole([part.scale for part in parts]), whole([part.shift for part in parts]))


def select_back(op: Operation, sides: Sides) -> dict[int, Affine]:
    """Slice and Gather: what is not selected is not scaled."""
    asked = sides[0]
    places = _selected(op, asked.axes)
    scale, shift = asked.scale, asked.shift
    for axis, (size, chosen) in places.items():
        if len(set(chosen)) != len(chosen) or len(chosen) != asked.shape[axis]:
            raise CannotMove(f"{op.name} selects an element of axis {axis} more than once")
        scale, shift = _placed(scale, axis, size, chosen, 1.0), _placed(shift, axis, size, chosen, 0.0)
    return {0: affine(scale, shift)}


def select_forth(op: Operation, sides: Sides) -> dict[int, Affine]:
    given = sides[0]
    for axis, (size, chosen) in _selected(op, given.axes).items():
        if given.shape[axis] != size:
            raise CannotMove(f"there are {given.shape[axis]} values for the {size} elements of axis {axis} of {op.name}")
        given = _part(given, chosen, axis)
    return {0: given}


def _placed(values: np.ndarray, axis: int, size: int, chosen: Sequence[int], rest: float) -> np.ndarray:
    shape = list(values.shape)
    shape[axis] = size
    whole = np.full(shape, rest)
    whole[(slice(None),) * axis + (list(chosen),)] = values
    return whole


def _selected(op: Operation, needed: Sequence[int]) -> dict[int, tuple[int, list[int]]]:
    """For each axis in ``needed`` of which a part is selected: its size and the elements, in order."""
    shape = op.input_shape(0)
    if op.op == "Gather":
        indices, axis = op.weight(1), op.axis("axis", 0, len(shape))
        if indices.ndim != 1:
            raise CannotMove(f"the indices of {op.name} are no list")
        choices: dict[int, Any] = {axis: indices}
    else:
        choices = _slices(op, len(shape))
    found = {}
    for axis in sorted(set(needed) & set(choices)):
        size = shape[axis]
        if not isinstance(size, int):
            raise CannotMove(f"the size of axis {axis} of {op.name} is not known")
        try:
            found[axis] = size, [int(i) for i in np.arange(size)[choices[axis]]]
        except IndexError:
            raise CannotMove(f"{op.name} selects elements that axis {axis} has not") from None
    return found


def _slices(op: Operation, rank: int) -> dict[int, slice]:
    if op.opset < 10:
        starts, ends, axes, steps = op.attr("starts"), op.attr("ends"), op.attr("axes"), None
    else:
        starts, ends, axes, steps = op.weight(1), op.weight(2), op.constant(3), op.constant(4)
    chosen_axes = range(len(starts)) if axes is None else op.counted(axes, rank)
    strides = [1] * len(starts) if steps is None else [int(step) for step in steps]
    return {
        axis: slice(int(start), int(end), step)
        for axis, start, end, step in zip(chosen_axes, starts, ends, strides, strict=True)
    }


def sum_back(op: Operation, sides: Sides) -> dict[int, Affine]:
    """Add, Sub, Sum of run-time tensors: each is scaled, the first one takes the shift."""
    asked, shape = sides[0], op.output_shape()
    found = {}
    for index in range(len(op.node.inputs)):
        part = asked if index == 0 else asked.scale_only()
        found[index] = broadcast_back(op, index, part, shape)
    return found


def sum_forth(op: Operation, sides: Sides) -> dict[int, Affine]:
    raise CannotMove(f"{op.name} adds another tensor, which has not the same scale")


def broadcast_back(op: Operation, index: int, asked: Affine, shape: Shape) -> Affine:
    """The scale and shift asked of input ``index``, which broadcasts to the output of ``shape``.

    An input that is one value along an axis on which the scale depends cannot be scaled without growing.
    """
    own = op.input_shape(index)
    lacking = len(shape) - len(own)
    for axis in asked.axes:
        size = own[axis - lacking] if axis >= lacking else 1
        if size != asked.shape[axis]:
            raise CannotMove(f"input {index} of {op.name} has not {asked.shape[axis]} values along axis {axis} to be scaled")
    return asked.moved(lambda v: v.reshape(v.shape[lacking:]))
