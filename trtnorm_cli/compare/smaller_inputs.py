"""Smaller images, volumes and signals at which a model does the same as at those of its file, for the comparison in float64.

A convolution does the same at every position, and an evaluation takes as long as there are positions. A weight that is off is
off at all of them. So float64 may look at fewer, where each weight still reaches the data and no node knows where it is: then
ONNX Runtime alone runs the model at the file's own shapes, unless that takes long (``smaller_first.py``). What is added to
each position, as a transformer's embedding, or what it is multiplied by, as a detector's strides or a rotary embedding, may be
another number for each: some of these are taken, and what all of them are has to be the same in every model
(``position_numbers.py``).

Sizes are followed through the model from both shapes. A node is asked what it does where its tensors differ between them
(``position_rules.py``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from pathlib import Path

import numpy as np
import onnx

from trtnorm_cli.compare.data_ranges import DataRanges
from trtnorm_cli.compare.position_numbers import NotTheSameInPart, PositionNumbers
from trtnorm_cli.compare.position_rules import is_large_enough
from trtnorm_cli.compare.restatements import Restatements, are_distinct, have_shapes_of, restatements
from trtnorm_cli.compare.sized_model import SizedModel, SizesDoNotFit, TooFewToChooseFrom
from trtnorm_cli.compare.sized_tensors import NotTheSame, Shape, Shapes, SizedTensors
from trtnorm_cli.compare.taken_branches import with_branches_taken
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.shapes import model_inputs

# Fewer multiply-adds take no time, in float64 either.
_FEW_MULTIPLY_ADDS = 1 << 30
# An evaluation at smaller inputs takes at most this share of it. With a larger one little is saved.
_SHARE = 0.45
# Images and volumes stay as far from a multiple of these as they are, since that decides about borders: networks halve them up
# to five times, and volumes mostly four times.
_STEPS: Mapping[int, Sequence[int]] = {3: (32,), 4: (32,), 5: (16, 32)}
# The axes of a signal are samples, channels and times, the last two in either order.
_SIGNAL = 3
_MOST_TRIES = 10
# As many may be too small for a node, as for a kernel, or be refused for a constant.
_MOST_BROKEN = 3
# An image whose last axis is as short has its channels there.
_CHANNELS_OF_AN_IMAGE = 4
# There are so many times as many positions in an image that is so many times as large, but for what is rounded.
_NEARLY = 0.9
# Fewer channels than these are as many as anything else.
_CHANNELS = 64
# The axes along which there are fewer positions, by inputs.
Images = Mapping[str, Sequence[int]]
_REAL = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)


@dataclass(frozen=True)
class Smaller:
    """``shapes`` of the inputs at which ``model``, as it is there, does the same with less than half of the work.

    Of constants with numbers for each position some are taken; ``positions`` are these constants. A model that ``is_pinned``
    has the sizes of its own shapes as numbers, before these are followed to the smaller ones. ``restated`` is what nodes say of
    sizes there. ``work`` and ``own_work`` are the multiply-adds there and at the model's own shapes.
    """

    shapes: Shapes
    model: onnx.ModelProto
    positions: PositionNumbers
    is_pinned: bool = False
    restated: Restatements = field(default_factory=Restatements)
    work: int = 0
    own_work: int = 0


def smaller_inputs(model: onnx.ModelProto, shapes: Shapes, folder: Path | None = None, share: float = _SHARE) -> Smaller | None:
    """Smaller inputs than those of ``shapes``, which take a ``share`` of the multiply-adds at most.

    None where there are none, or the model takes little time anyway. ``folder`` is what the places of weights are relative to.
    """
    found = None
    for images in _images(model, shapes):
        found = found or _with_smaller(model, shapes, images, folder, share)
    return found


def _with_smaller(model: onnx.ModelProto, shapes: Shapes, images: Images, folder: Path | None, share: float) -> Smaller | None:
    """The smallest of these ``images`` that will do."""
    if not _may_be_slow(model, shapes, images):
        return None
    try:
        model = with_branches_taken(model, shapes)
        own = SizedModel(model, shapes)
        if own.own.work() < _FEW_MULTIPLY_ADDS:
            return None
    except NotTheSame:  # an input whose rank is not stated
        return None
    values = dict[str, np.ndarray]()
    windows = _steps_of_windows(own.own, shapes, images)
    # Where numbers are made of sizes, these have to be those of the model's own shapes.
    sized = own.pinned() or own
    for steps in filter(None, (_STEPS, windows)):
        with suppress(NotTheSame):
            return _smallest(sized, _candidates(shapes, images, steps), folder, values, share)
    return None


def _smallest(
    sized: SizedModel, candidates: Iterable[Shapes], folder: Path | None, values: dict[str, np.ndarray], share: float
) -> Smaller | None:
    """The first of the ``candidates`` that is large enough, and None where nothing is gained; raises ``NotTheSame``."""
    search = _Search(sized, folder, values)
    put_off = list[tuple[Shapes, SizedTensors]]()
    broken, least = 0, 0.0
    for smaller in candidates:
        if _elements(smaller) < least:
            continue
        try:
            other = sized.at(smaller)
        except TooFewToChooseFrom as error:
            least = _NEARLY * error.times * _elements(smaller)
            continue
        except SizesDoNotFit:
            if (broken := broken + 1) == _MOST_BROKEN:
                raise
            continue
        if other.work() > share * search.own_work:
            break
        if _are_alike(sized.own, other):
            put_off.append((smaller, other))
        elif (found := search.at(smaller, other)) is not None:
            return found
    return next((found for each in put_off if (found := search.at(*each)) is not None), None)


class _Search:
    """A model at smaller shapes, held to what it is at its own. Values of constants that were worked out are kept."""

    def __init__(self, sized: SizedModel, folder: Path | None, values: dict[str, np.ndarray]) -> None:
        self._sized, self._folder, self._values = sized, folder, values
        self._ranges, self.own_work = DataRanges(sized.own), sized.own.work()
        self._refused = 0

    def at(self, shapes: Shapes, other: SizedTensors) -> Smaller | None:
        """The model at these ``shapes``; None where they are too small, and ``NotTheSame`` where all would be refused."""
        own = self._sized.own
        if not is_large_enough(own, other, self._ranges, self._folder):
            return None
        try:
            positions, restated = PositionNumbers.of(other, self._folder, self._values), restatements(own, other)
        except NotTheSameInPart:  # of more positions, more may be seen
            return None
        except NotTheSame:  # so it is at any, unless an axis has its own length there
            self._refused += 1
            if self._refused == _MOST_BROKEN:
                raise
            return None
        if not are_distinct(restated):
            return None
        return Smaller(shapes, other.adapted(), positions, self._sized.is_pinned, restated, other.work(), self.own_work)


def _are_alike(own: SizedTensors, other: SizedTensors) -> bool:
    """True where an axis with all positions of an image is as long now as one of channels.

    A model that says the same of that one in another way may not be known to do so.
    """
    names = {name for node in own.model.graph.node for name in (*node.input, *node.output) if name}
    shapes = ((own.known_shape(name), other.known_shape(name)) for name in names)
    lengths = {pair for before, after in shapes if before and after for pair in zip(before, after, strict=False)}
    kept = {length for length, now in lengths if length == now}
    longest = max((length for name in model_inputs(own.model) for length in own.known_shape(name) or ()), default=0)
    return any(longest < length != now >= _CHANNELS and now in kept for length, now in lengths)


def at_smaller(model: onnx.ModelProto, shapes: Shapes, smaller: Smaller, folder: Path | None = None) -> onnx.ModelProto | None:
    """``model`` as it is at ``smaller`` inputs; None where it may not do the same there as at ``shapes``.

    What it has for each position has to be the ``positions`` there: of those left out, nothing is seen. Nor may it say another
    size than the reference here, and the same there.
    """
    try:
        sized = SizedModel(with_branches_taken(model, shapes), shapes)
        sized = (sized.pinned() if smaller.is_pinned else None) or sized
        other = sized.at(smaller.shapes)
        is_same = (
            is_large_enough(sized.own, other, folder=folder)
            and _says_the_same(restatements(sized.own, other), smaller.restated)
            and PositionNumbers.of(other, folder).are_those_of(smaller.positions)
        )
        return other.adapted() if is_same else None
    except NotTheSame:
        return None


def _says_the_same(one: Restatements, reference: Restatements) -> bool:
    return are_distinct(reference, one) and have_shapes_of(one, reference)


def _images(model: onnx.ModelProto, shapes: Shapes) -> Iterator[Images]:
    """The axes of inputs along which an image or a volume lies; without any, the longest one of signals, and the other one."""
    real = {name: shape for name, shape in shapes.items() if model_inputs(model)[name].dtype in _REAL}
    images = {name: _image_axes(shape) for name, shape in real.items() if len(shape) in _STEPS.keys() - {_SIGNAL}}
    if images:
        yield images
        return
    signals = {name: sorted((1, 2), key=shape.__getitem__) for name, shape in real.items() if len(shape) == _SIGNAL}
    if signals:
        yield {name: [axis] for name, (_, axis) in signals.items()}
        yield {name: [axis] for name, (axis, _) in signals.items()}


def _image_axes(shape: Shape) -> Sequence[int]:
    """The axes of an image or a volume, behind or before its channels."""
    return range(1, len(shape) - 1) if shape[-1] <= _CHANNELS_OF_AN_IMAGE < shape[1] else range(2, len(shape))


def _may_be_slow(model: onnx.ModelProto, shapes: Shapes, images: Images) -> bool:
    """False where products have few multiply-adds, if no image is larger than those that the model is given.

    True where a weight of a convolution is worked out in the model, as its size is not known then.
    """
    convolutions = (node for node in model.graph.node if node.op_type in ("Conv", "ConvTranspose"))
    read = {name for node in convolutions for name in node.input[1:2]}
    weights = {tensor.name: math.prod(tensor.dims) for tensor in model.graph.initializer if len(tensor.dims) > 1}
    for node in model.graph.node:
        for value in node.attribute if node.op_type == "Constant" else ():
            if value.name == "value" and len(value.t.dims) > 1:
                weights[node.output[0]] = math.prod(value.t.dims)
    positions = max(shapes[name][0] * math.prod(shapes[name][axis] for axis in axes) for name, axes in images.items())
    return not read <= weights.keys() or sum(weights.values()) * positions >= _FEW_MULTIPLY_ADDS


def _steps_of_windows(own: SizedTensors, shapes: Shapes, images: Images) -> Mapping[int, Sequence[int]]:
    """Steps at which the windows of an attention, into which an image is split, stay as large; empty without such windows.

    An image of a stride of 16 pixels in windows of 14 has them at each 224 pixels, whatever is padded.
    """
    makers = {name: node for node in own.model.graph.node for name in node.output}
    steps = dict.fromkeys(_STEPS, 1)
    for node in own.model.graph.node:
        if node.op_type == "Reshape" and node.input and node.output:
            maker = makers.get(node.input[0])
            source = maker.input[0] if maker is not None and maker.op_type == "Pad" else node.input[0]
            unpadded, before, after = (own.known_shape(name) for name in (source, node.input[0], node.output[0]))
            order = own.order_after(node.output[0])
            if not (unpadded and before and after and order):
                continue
            for name, axes in images.items():
                step = _step_of(unpadded, before, after, order, [shapes[name][axis] for axis in axes])
                steps[len(shapes[name])] = math.lcm(steps[len(shapes[name])], step)
    wider = {rank: (math.lcm(step, min(_STEPS[rank])),) for rank, step in steps.items()}
    return wider if any(step > max(_STEPS[rank]) for rank, (step,) in wider.items()) else {}


def _step_of(unpadded: Shape, before: Shape, after: Shape, order: Sequence[int], image: Sequence[int]) -> int:
    """The pixels of a window, where a Reshape splits all axes of an ``image`` into windows; one for another Reshape.

    A Transpose puts the axes into ``order`` then: the number of windows comes first.
    """
    rank = len(image)
    for first in range(len(before) - rank + 1):
        lengths, split = before[first : first + rank], range(first, first + 2 * rank, 2)
        strides = {pixels / length for pixels, length in zip(image, unpadded[first : first + rank], strict=False) if length}
        is_split = len(after) == len(before) + rank and before[:first] == after[:first]
        if is_split and len(strides) == 1 and tuple(after[axis] * after[axis + 1] for axis in split) == lengths:
            (stride,) = strides
            windows = (after[max(axis, axis + 1, key=order.__getitem__)] for axis in split)
            return math.lcm(*(int(stride) * window for window in windows)) if stride.is_integer() else 1
    return 1


def _candidates(shapes: Shapes, images: Images, steps: Mapping[int, Sequence[int]]) -> Iterator[dict[str, Shape]]:
    """Shapes with smaller images, the smallest first, as far from a multiple of one of the ``steps`` of their rank.

    Two axes differ in length where they can: that shows what was swapped. Those with equal lengths come last, unless the
    model's own differ, and only where none before was as large: what is too small stays so in a smaller image.
    """
    most = _SHARE * sum(map(math.prod, shapes.values()))
    by_steps = [*_staggered(shapes, images, steps, 1), *_staggered(shapes, images, steps, 2, first=1)]
    by_size = {_elements(one): one for one in reversed(by_steps)}
    tried = [by_size[elements] for elements in sorted(by_size) if elements <= most][:_MOST_TRIES]
    yield from tried
    if all(len({shapes[name][axis] for axis in axes}) == 1 for name, axes in images.items()):
        square = sorted((one for one in _staggered(shapes, images, steps, 0) if _elements(one) <= most), key=_elements)
        yield from (one for one in square[:_MOST_TRIES] if not any(_is_within(one, other) for other in tried))


def _is_within(one: Shapes, other: Shapes) -> bool:
    """True where nothing is longer than in the ``other``."""
    return all(a <= b for name, shape in one.items() for a, b in zip(shape, other[name], strict=True))


def _elements(shapes: Shapes) -> int:
    return sum(map(math.prod, shapes.values()))


def _staggered(
    shapes: Shapes, images: Images, steps: Mapping[int, Sequence[int]], further: int, first: int = 0
) -> Iterator[dict[str, Shape]]:
    """Shapes with smaller images, of which each other axis is so many steps longer, from the one of ``first`` steps."""
    for step in sorted({step for name in images for step in steps[len(shapes[name])]}):
        for number in range(first, _MOST_TRIES):
            smaller = dict(shapes)
            for name, axes in images.items():
                sizes = list(shapes[name])
                for place, axis in enumerate(axes):
                    # As short as it may be, and further steps.
                    least = step + sizes[axis] % step
                    sizes[axis] = min(least + step * (number + further * (place % 2)), sizes[axis])
                smaller[name] = tuple(sizes)
            if not any(_become_equal(shapes[name], smaller[name], axes) for name, axes in images.items()):
                yield smaller


def _become_equal(own: Shape, smaller: Shape, axes: Sequence[int]) -> bool:
    """True where two lengths of an image that differ no longer do: that hides what was turned."""
    return any(own[a] != own[b] and smaller[a] == smaller[b] for a in axes for b in axes if a < b)
