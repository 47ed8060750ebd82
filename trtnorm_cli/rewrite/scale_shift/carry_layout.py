"""How a scale and shift passes operators that only move elements: the order changes, or nothing at all."""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.parts.shape_elements import AxisSize, Element, shape_elements
from trtnorm_cli.rewrite.scale_shift.affine import Affine, CannotMove
from trtnorm_cli.rewrite.scale_shift.operation import Operation
from trtnorm_cli.rewrite.scale_shift.regroup import regroup

Shape = tuple[int | str | None, ...]


def same(op: Operation, given: Affine, back: bool) -> Affine:
    """Identity."""
    return given


def dropout(op: Operation, given: Affine, back: bool) -> Affine:
    """Dropout outside of training; ``training_mode`` is an input since opset 12."""
    training = op.constant(2) if op.opset >= 12 else None
    if training is not None and np.any(training):
        raise CannotMove(f"{op.name} has training_mode=True: it drops values")
    return given


def transpose(op: Operation, given: Affine, back: bool) -> Affine:
    perm = [int(axis) for axis in op.attr("perm", range(given.rank)[::-1])]
    order = np.argsort(perm) if back else perm
    return given.moved(lambda values: values.transpose(order))


def reshape(op: Operation, given: Affine, back: bool) -> Affine:
    """Reshape, Flatten, Squeeze, Unsqueeze: the order of elements stays."""
    first, second = layouts(op)
    return regroup(given, second, first, op.name) if back else regroup(given, first, second, op.name)


def layouts(op: Operation) -> tuple[Shape, Shape]:
    """The shapes before and after; unknown sizes of the input have names of their own, which the output repeats."""
    tensor = op.tensor(0)
    name = "" if tensor is None else tensor.name
    first = tuple(f"?{name}:{axis}" if size is None else size for axis, size in enumerate(op.input_shape(0)))
    copied = _copied_sizes(op, first)
    return first, copied if copied is not None and None not in copied else _merged(copied, op.output_shape())


def _copied_sizes(op: Operation, first: Shape) -> Shape | None:
    """The sizes that the operator takes over from its input or states, as far as that can be told."""
    if op.op == "Squeeze" and op.axes(1) is not None:
        gone = set(op.counted(op.axes(1) or (), len(first)))
        return tuple(size for axis, size in enumerate(first) if axis not in gone)
    if op.op == "Unsqueeze":
        rank = len(first) + len(op.axes(1) or ())
        made = set(op.counted(op.axes(1) or (), rank))
        rest = iter(first)
        return tuple(1 if axis in made else next(rest) for axis in range(rank))
    return _stated_sizes(op, first) if op.op == "Reshape" else None


def _stated_sizes(op: Operation, first: Shape) -> Shape | None:
    """The sizes that a Reshape asks for: numbers, sizes of its input, and sizes of axes of other tensors by their symbols."""
    tensor = op.tensor(1)
    elements = None if tensor is None else shape_elements(op.match, tensor)
    return None if elements is None else tuple(_stated_size(op, first, axis, e) for axis, e in enumerate(elements))


def _stated_size(op: Operation, first: Shape, axis: int, element: Element) -> int | str | None:
    if isinstance(element, AxisSize):
        kind = op.match.types.get(element.tensor)
        size = None if kind is None or kind.shape is None else kind.shape[element.axis]
        return size if isinstance(size, str) else f"?{element.tensor}:{element.axis}"
    if element == 0 and not op.attr("allowzero", 0):
        return first[axis]
    return None if element is None or element < 0 else element


def _merged(copied: Shape | None, declared: Shape) -> Shape:
    if copied is None or len(copied) != len(declared):
        return declared
    return tuple(own if own is not None else other for own, other in zip(copied, declared, strict=True))


def depth_to_space(op: Operation, given: Affine, back: bool) -> Affine:
    """Channels are [c, b, b] in CRD order and [b, b, c] in DCR order."""
    blocks_first = op.text("mode", "DCR") == "DCR"
    return _spread(op, given, blocks_first) if back else _gathered(op, given, blocks_first)


def space_to_depth(op: Operation, given: Affine, back: bool) -> Affine:
    return _gathered(op, given, True) if back else _spread(op, given, True)


def _spread(op: Operation, given: Affine, blocks_first: bool) -> Affine:
    """From one value per channel to one per channel and place in the block."""
    given.require_only((0, 1), op.name)
    number = int(op.attr("blocksize")) ** 2
    if given.shape[1] == 1:
        return given
    repeats = (1, number, *[1] * (given.rank - 2))
    return given.moved(lambda v: np.tile(v, repeats) if blocks_first else np.repeat(v, number, axis=1))


def _gathered(op: Operation, given: Affine, blocks_first: bool) -> Affine:
    """From one value per channel and place in the block to one per channel, if the places agree."""
    given.require_only((0, 1), op.name)
    number, size = int(op.attr("blocksize")) ** 2, given.shape[1]
    if size == 1:
        return given
    if size % number:
        raise CannotMove(f"{op.name} has {size} channels, which are no blocks of {number}")
    axis, parts = (1, (number, size // number)) if blocks_first else (2, (size // number, number))
    split = given.moved(lambda v: v.reshape(v.shape[0], *parts, *v.shape[2:]))
    if split.shape[axis] != 1:
        raise CannotMove(f"{op.name} puts channels with different scales and shifts into one")
    return split.moved(lambda v: v.take(0, axis))
