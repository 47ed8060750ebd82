"""How a scale and shift passes an operator that has no weights to take it: one small function per operator.

Each answers the same equation in both directions. Going back, B is asked of the outputs; going forth, A is given on the inputs:

    B(op(x)) = op(A(x))

An operator that is not here passes nothing on. Nothing is approximated: where the equation holds under a condition only (a
maximum keeps the order under a positive scale, zero padding stays zero without a shift), the condition is checked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trtnorm_cli.rewrite.scale_shift.affine import Affine, Refused, affine, identity
from trtnorm_cli.rewrite.scale_shift.operation import Operation
from trtnorm_cli.rewrite.scale_shift.regroup import regroup

Shape = tuple[int | str | None, ...]
Sides = Mapping[int, Affine]


@dataclass(frozen=True)
class Carrier:
    """``back`` gives what is asked of the inputs from what is asked of the outputs, ``forth`` the other way round.

    ``data`` are the inputs that scales and shifts can pass; None stands for all of them.
    """

    back: Callable[[Operation, Sides], dict[int, Affine]]
    forth: Callable[[Operation, Sides], dict[int, Affine]]
    data: tuple[int, ...] | None = (0,)


def _one(pass_on: Callable[[Operation, Affine, bool], Affine]) -> Carrier:
    """One input and one output; ``pass_on`` is told whether it goes back."""
    return Carrier(lambda op, sides: {0: pass_on(op, sides[0], True)}, lambda op, sides: {0: pass_on(op, sides[0], False)})


def same(op: Operation, given: Affine, back: bool) -> Affine:
    """Identity."""
    return given


def dropout(op: Operation, given: Affine, back: bool) -> Affine:
    """Dropout outside of training; ``training_mode`` is an input since opset 12."""
    training = op.constant(2) if op.opset >= 12 else None
    if training is not None and np.any(training):
        raise Refused(f"{op.name} has training_mode=True: it drops values")
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
    first = tuple(f"?{axis}" if size is None else size for axis, size in enumerate(op.input_shape(0)))
    copied = _copied_sizes(op, first)
    return first, copied if copied is not None and None not in copied else _merged(copied, op.output_shape())


def _copied_sizes(op: Operation, first: Shape) -> Shape | None:
    """The sizes that the operator takes over from its input or states, as far as that can be told."""
    if op.op == "Squeeze" and _axes(op, 1) is not None:
        gone = {axis % len(first) for axis in _axes(op, 1) or ()}
        return tuple(size for axis, size in enumerate(first) if axis not in gone)
    if op.op == "Unsqueeze":
        rank = len(first) + len(_axes(op, 1) or ())
        made = {axis % rank for axis in _axes(op, 1) or ()}
        rest = iter(first)
        return tuple(1 if axis in made else next(rest) for axis in range(rank))
    if op.op == "Reshape" and op.is_constant(1) and not op.attr("allowzero", 0):
        stated = [int(size) for size in op.weight(1)]
        return tuple((first[i] if size == 0 else None if size < 0 else size) for i, size in enumerate(stated))
    return None


def _merged(copied: Shape | None, declared: Shape) -> Shape:
    if copied is None or len(copied) != len(declared):
        return declared
    return tuple(own if own is not None else other for own, other in zip(copied, declared, strict=True))


def _axes(op: Operation, index: int) -> list[int] | None:
    """The axes of an operator that has them as an attribute in old opsets and as input ``index`` in new ones."""
    stated = op.constant(index)
    values = op.attr("axes") if stated is None else stated
    return None if values is None else [int(axis) for axis in np.atleast_1d(values)]


def depth_to_space(op: Operation, given: Affine, back: bool) -> Affine:
    """Channels are [c, b, b] in CRD order and [b, b, c] in DCR order."""
    blocks_first = op.attr("mode", "DCR") in ("DCR", b"DCR")
    return _spread(op, given, blocks_first) if back else _gathered(op, given, blocks_first)


def space_to_depth(op: Operation, given: Affine, back: bool) -> Affine:
    return _gathered(op, given, True) if back else _spread(op, given, True)


def _spread(op: Operation, given: Affine, blocks_first: bool) -> Affine:
    """From one value per channel to one per channel and place in the block."""
    _require_only(op, given, (0, 1))
    number = int(op.attr("blocksize")) ** 2
    if given.shape[1] == 1:
        return given
    repeats = (1, number, *[1] * (given.rank - 2))
    return given.moved(lambda v: np.tile(v, repeats) if blocks_first else np.repeat(v, number, axis=1))


def _gathered(op: Operation, given: Affine, blocks_first: bool) -> Affine:
    """From one value per channel and place in the block to one per channel, if the places agree."""
    _require_only(op, given, (0, 1))
    number, size = int(op.attr("blocksize")) ** 2, given.shape[1]
    if size == 1:
        return given
    if size % number:
        raise Refused(f"{op.name} has {size} channels, which are no blocks of {number}")
    axis, parts = (1, (number, size // number)) if blocks_first else (2, (size // number, number))
    split = given.moved(lambda v: v.reshape(v.shape[0], *parts, *v.shape[2:]))
    if split.shape[axis] != 1:
        raise Refused(f"{op.name} puts channels with different scales and shifts into one")
    return split.moved(lambda v: v.take(0, axis))


def average(op: Operation, given: Affine, back: bool) -> Affine:
    """Averages over the plane: the weights of a mean add up to one, unless padding zeros are counted in."""
    _require_only(op, given, (0, 1))
    if op.op == "AveragePool" and _pads(op) and op.attr("count_include_pad", 0):
        raise Refused(f"{op.name} averages over zeros that it pads, which a shift would not reach")
    if op.op == "AveragePool" and op.attr("ceil_mode", 0):
        raise Refused(f"{op.name} has ceil_mode=1: whether its last windows count what lies outside differs between runtimes")
    return given


def maximum(op: Operation, given: Affine, back: bool) -> Affine:
    """Maxima over the plane: a scale that is not negative keeps the order."""
    _require_only(op, given, (0, 1))
    _require_no_negative_scale(op, given)
    return given


def reduce(op: Operation, given: Affine, back: bool) -> Affine:
    """ReduceMean and ReduceMax over axes on which the scale and shift does not depend."""
    rank = len(op.input_shape(0))
    axes = _axes(op, 1)
    if not axes and op.attr("noop_with_empty_axes", 0):
        return given
    reduced = sorted({axis % rank for axis in axes} if axes else range(rank))
    if op.op == "ReduceMax":
        _require_no_negative_scale(op, given)
    keeps = bool(op.attr("keepdims", 1))
    if back and not keeps:
        given = given.moved(lambda v: np.expand_dims(v, tuple(reduced)))
    if any(given.shape[axis] != 1 for axis in reduced):
        raise Refused(f"{op.name} reduces axis {reduced[0]}, along which scale and shift differ")
    return given if back or keeps else given.moved(lambda v: v.reshape([s for i, s in enumerate(v.shape) if i not in reduced]))


def resize(op: Operation, given: Affine, back: bool) -> Affine:
    """Interpolation between neighbours: the weights add up to one, and what lies outside repeats the border."""
    if op.attr("coordinate_transformation_mode") in ("tf_crop_and_resize", b"tf_crop_and_resize"):
        raise Refused(f"{op.name} fills in a constant, which a shift would not reach")
    first, second = op.input_shape(0), op.output_shape()
    changed = [axis for axis in given.axes if not isinstance(first[axis], int) or first[axis] != second[axis]]
    if changed:
        raise Refused(f"{op.name} resizes axis {changed[0]}, along which scale and shift differ")
    return given


def pad(op: Operation, given: Affine, back: bool) -> Affine:
    """Padding with copies, or with a constant that the scale and shift does not change, as zero without a shift."""
    mode = op.attr("mode", "constant")
    mode = mode.decode() if isinstance(mode, bytes) else str(mode)
    stated = op.attr("pads") if op.opset < 11 else op.weight(1).tolist()
    axes = None if op.opset < 18 else op.constant(3)
    padded_axes = range(given.rank) if axes is None else [int(axis) % given.rank for axis in axes]
    begins, ends = np.reshape(np.asarray(stated), (2, -1)).tolist()
    padded = [axis for axis, begin, end in zip(padded_axes, begins, ends, strict=True) if begin or end]
    if any(axis in padded for axis in given.axes):
        raise Refused(f"{op.name} pads axis {padded[0]}, along which scale and shift differ")
    value = float(op.attr("value", 0.0)) if op.opset < 11 else float(np.reshape(_or_zero(op.constant(2)), ()))
    if mode == "constant" and padded and np.any(given.scale * value + given.shift != value):
        raise Refused(f"{op.name} pads with {value:g}, which the scale and shift would have to reach as well")
    return given


def _or_zero(value: np.ndarray | None) -> np.ndarray:
    return np.zeros(()) if value is None else value


def rectifier(op: Operation, given: Affine, back: bool) -> Affine:
    """Relu, LeakyRelu, PRelu: a scale that is not negative goes through, a shift does not."""
    if given.shifts:
        raise Refused(f"a shift does not go through {op.name}, which is {op.op}")
    _require_no_negative_scale(op, given)
    return given


def negate(op: Operation, given: Affine, back: bool) -> Affine:
    return affine(given.scale, -given.shift)


def _require_only(op: Operation, given: Affine, axes: Sequence[int]) -> None:
    others = [axis for axis in given.axes if axis not in axes]
    if others:
        raise Refused(f"scale and shift differ along axis {others[0]} of {op.name}, which is {op.op}")


def _require_no_negative_scale(op: Operation, given: Affine) -> None:
    lowest = float(given.scale.min())
    if lowest < 0:
        raise Refused(f"{op.name} is {op.op}, and a scale is negative ({lowest:g})")


def _pads(op: Operation) -> bool:
    """True when a pooling operator may pad."""
    auto = op.attr("auto_pad", "NOTSET")
    auto = auto.decode() if isinstance(auto, bytes) else str(auto)
    return auto.startswith("SAME") or (auto == "NOTSET" and any(op.attr("pads", ())))


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
        raise Refused(f"the sizes of the parts of {op.name} are not known")
    return known


def _spans(op: Operation, sizes: Sequence[int | str | None], total: int) -> list[range]:
    """The places of consecutive parts."""
    ends = np.cumsum(_static(op, sizes)).tolist()
    if ends[-1] != total:
        raise Refused(f"there are {total} values for scale and shift, but the parts of {op.name} have {ends[-1]} channels")
    return [range(end - size, end) for end, size in zip(ends, _static(op, sizes), strict=True)]


def _part(given: Affine, chosen: Sequence[int], axis: int) -> Affine:
    return given.moved(lambda values: values.take(list(chosen), axis))


def _joined(parts: Sequence[Affine], axis: int, sizes: Sequence[int]) -> Affine:
    """Scales and shifts of neighbouring parts as those of the whole."""
    if len({(part.scale.tobytes(), part.shift.tobytes(), part.shape) for part in parts}) == 1 and parts[0].shape[axis] == 1:
        return parts[0]
    for part, size in zip(parts, sizes, strict=True):
        if part.shape[axis] not in (1, size):
            raise Refused(f"there are {part.shape[axis]} values for scale and shift of a part with {size} channels")
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
        if asked.shape[axis] == 1:
            continue
        if len(set(chosen)) != len(chosen) or len(chosen) != asked.shape[axis]:
            raise Refused(f"{op.name} selects an element of axis {axis} more than once")
        scale, shift = _placed(scale, axis, size, chosen, 1.0), _placed(shift, axis, size, chosen, 0.0)
    return {0: affine(scale, shift)}


def select_forth(op: Operation, sides: Sides) -> dict[int, Affine]:
    given = sides[0]
    for axis, (size, chosen) in _selected(op, given.axes).items():
        if given.shape[axis] not in (1, size):
            raise Refused(f"there are {given.shape[axis]} values for the {size} elements of axis {axis} of {op.name}")
        if given.shape[axis] != 1:
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
            raise Refused(f"the indices of {op.name} are no list")
        choices: dict[int, Any] = {axis: indices}
    else:
        choices = _slices(op, len(shape))
    found = {}
    for axis in sorted(set(needed) & set(choices)):
        size = shape[axis]
        if not isinstance(size, int):
            raise Refused(f"the size of axis {axis} of {op.name} is not known")
        try:
            found[axis] = size, [int(i) for i in np.arange(size)[choices[axis]]]
        except IndexError:
            raise Refused(f"{op.name} selects elements that axis {axis} has not") from None
    return found


def _slices(op: Operation, rank: int) -> dict[int, slice]:
    if op.opset < 10:
        starts, ends, axes, steps = op.attr("starts"), op.attr("ends"), op.attr("axes"), None
    else:
        starts, ends, axes, steps = op.weight(1), op.weight(2), op.constant(3), op.constant(4)
    chosen_axes = range(len(starts)) if axes is None else [int(axis) % rank for axis in axes]
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
    raise Refused(f"{op.name} adds another tensor, which has not the same scale")


def broadcast_back(op: Operation, index: int, asked: Affine, shape: Shape) -> Affine:
    """What is asked of input ``index``, which broadcasts to the output of ``shape``.

    An input that is one value along an axis on which the scale depends cannot be scaled without growing.
    """
    own = op.input_shape(index)
    lacking = len(shape) - len(own)
    for axis in asked.axes:
        size = own[axis - lacking] if axis >= lacking else 1
        if size != asked.shape[axis]:
            raise Refused(f"input {index} of {op.name} has not {asked.shape[axis]} values along axis {axis} to be scaled")
    return asked.moved(lambda v: v.reshape(v.shape[lacking:]))


CARRIERS: dict[str, Carrier] = {
    "Identity": _one(same),
    "Dropout": _one(dropout),
    "Transpose": _one(transpose),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _one(reshape)),
    "DepthToSpace": _one(depth_to_space),
    "SpaceToDepth": _one(space_to_depth),
    "Concat": Carrier(concat_back, concat_forth, None),
    "Split": Carrier(split_back, split_forth),
    **dict.fromkeys(("Slice", "Gather"), Carrier(select_back, select_forth)),
    **dict.fromkeys(("AveragePool", "GlobalAveragePool"), _one(average)),
    **dict.fromkeys(("MaxPool", "GlobalMaxPool"), _one(maximum)),
    **dict.fromkeys(("ReduceMean", "ReduceMax"), _one(reduce)),
    **dict.fromkeys(("Resize", "Upsample"), _one(resize)),
    "Pad": _one(pad),
    **dict.fromkeys(("Relu", "LeakyRelu", "PRelu"), _one(rectifier)),
    "Neg": _one(negate),
    **dict.fromkeys(("Add", "Sub", "Sum"), Carrier(sum_back, sum_forth, None)),
}
