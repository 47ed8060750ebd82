"""The positions of a tensor that hold data, and those that are used, at some shapes of a model.

Around the data of an image or a signal lies what a Pad or a constant puts there, and a Slice or a negative pad leaves away what
nobody sees. A place of a kernel that only lies on the one, or only gives the other, does nothing at these shapes.

Each node links axes of its inputs with axes of its outputs. Along a link the range of positions that hold data is followed
forwards, and the range of those that are used backwards. An axis without a link holds data at all positions, and all are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import onnx

from trtnorm_cli.compare.sized_tensors import NotTheSame, Shape, SizedTensors
from trtnorm_cli.evaluate.float64.kernels.call import Call, NotImplementedHere
from trtnorm_cli.evaluate.float64.kernels.windows import Windows, windows_of
from trtnorm_cli.evaluate.float64.planning import attributes_of, imported_opsets
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS

# The first position and the one behind the last.
Range = tuple[int, int]
OVER_POSITIONS = frozenset(("AveragePool", "Conv", "ConvTranspose", "MaxPool"))
# Each element of these is made of those at its own position, of every input that has as many there.
_ELEMENTWISE = frozenset(
    (
        *("Abs", "Add", "And", "BatchNormalization", "Cast", "CastLike", "Ceil", "Celu", "Clip", "Cos", "Div", "Dropout"),
        *("Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid", "HardSwish", "Identity"),
        *("IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mul", "Neg", "Not"),
        *("Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Softplus"),
        *("Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tanh", "ThresholdedRelu", "Where", "Xor"),
    )
)
# What is around data, or not used, begins at these.
_AROUND, _LEAVING_AWAY = OVER_POSITIONS | {"Concat", "Pad"}, OVER_POSITIONS | {"Pad", "Slice", "Split"}
# These give sizes, which are no data.
_ASKING = frozenset(("Shape", "Size"))


@dataclass(frozen=True)
class _Link:
    """``axis`` of input number ``place``, and ``made`` of output number ``result`` that follows it."""

    place: int
    axis: int
    made: int
    forwards: Callable[[Range], Range]
    backwards: Callable[[Range], Range]
    result: int = 0


class DataRanges:
    """The ranges of positions that hold data and that are used, by tensor and axis.

    ``data`` has None for tensors that hold none, as constants; ``used`` has none of the tensors that nobody reads.
    """

    def __init__(self, at: SizedTensors) -> None:
        self.model, self._at, self._opsets = at.model, at, imported_opsets(at.model)
        self._found: dict[str, list[_Link]] = {}
        self._wholes: dict[str, tuple[Range, ...]] = {}

    @cached_property
    def data(self) -> Mapping[str, tuple[Range, ...] | None]:
        graph = self._at.model.graph
        constants = {tensor.name for tensor in graph.initializer}
        found: dict[str, tuple[Range, ...] | None] = {
            value.name: self._whole(value.name) for value in graph.input if value.name not in constants
        }
        for node in graph.node:
            given = [place for place, name in enumerate(node.input) if name in found and found[name] is not None]
            for number, name in enumerate(node.output):
                found[name] = self._made(node, number, given, found) if given and node.op_type not in _ASKING else None
        return found

    def _made(
        self, node: onnx.NodeProto, number: int, given: Sequence[int], found: Mapping[str, tuple[Range, ...] | None]
    ) -> tuple[Range, ...] | None:
        whole = self._whole(node.output[number])
        if node.op_type not in _AROUND and all(found[node.input[place]] == self._whole(node.input[place]) for place in given):
            return None if any(length == 0 for _, length in whole) else whole
        links = [link for link in self._links(node) if link.result == number]
        # An empty shape is that of a scalar, or it is not known; neither has an axis.
        ranges = list[Range]()
        for axis, length in enumerate(whole):
            along = {link.place: link for link in links if link.made == axis}
            held = ((along.get(place), found[node.input[place]]) for place in given)
            ranges.append(_hull([_followed(link, of, length) for link, of in held]))
        return None if any(first >= stop for first, stop in ranges) else tuple(ranges)

    @cached_property
    def used(self) -> Mapping[str, tuple[Range, ...]]:
        graph = self._at.model.graph
        found = {value.name: self._whole(value.name) for value in graph.output}
        for node in reversed(graph.node):
            read = [number for number, name in enumerate(node.output) if name in found]
            if node.op_type not in _LEAVING_AWAY and all(
                found[node.output[number]] == self._whole(node.output[number]) for number in read
            ):
                found.update((name, self._whole(name)) for name in node.input if read)
                continue
            links = self._links(node) if read else []
            for place, name in enumerate(node.input) if read else ():
                ranges = list[Range]()
                for axis, whole in enumerate(self._whole(name)):
                    those = {link.result: link for link in links if (link.place, link.axis) == (place, axis)}
                    hull = [
                        _within(those[number].backwards(found[node.output[number]][those[number].made]), whole[1])
                        if number in those
                        else whole
                        for number in read
                    ]
                    ranges.append(_hull(hull))
                before = found.get(name)
                found[name] = tuple(ranges) if before is None else tuple(map(_hull, zip(before, ranges, strict=True)))
        return found

    def reached(self, node: onnx.NodeProto, kernel: Shape) -> list[Sequence[bool]]:
        """By axis, which places of the ``kernel`` of a node lie on data at a position that is used."""
        windows = self._windows(node, kernel)
        rank = len(kernel)
        data = self.data.get(node.input[0]) or ((0, 0),) * (rank + 2)
        used = self.used.get(node.output[0]) or ((0, 0),) * (rank + 2)
        laid, on = (data, used) if node.op_type == "ConvTranspose" else (used, data)
        axes = zip(kernel, windows.strides, windows.dilations, windows.begin, laid[-rank:], on[-rank:], strict=True)
        return [
            [_is_between(position, stop, stride, begin - each * dilation, there) for each in range(size)]
            for size, stride, dilation, begin, (position, stop), there in axes
        ]

    def _whole(self, name: str) -> tuple[Range, ...]:
        if name not in self._wholes:
            self._wholes[name] = tuple((0, length) for length in self._at.known_shape(name) or ())
        return self._wholes[name]

    def _windows(self, node: onnx.NodeProto, kernel: Shape) -> Windows:
        is_spread = node.op_type == "ConvTranspose"
        attributes = attributes_of(node, self._opsets)
        if is_spread and (attributes.get("auto_pad") or "NOTSET") != "NOTSET":
            raise NotTheSame("a ConvTranspose that is padded by its sizes")
        call = Call(node.op_type, self._opsets.get("", 1), (), attributes, tuple(node.output))
        # A transposed convolution lays its kernel on the result, where a convolution lays it on its input.
        return windows_of(call, self._at.shape(node.output[0] if is_spread else node.input[0])[2:], kernel)

    def _links(self, node: onnx.NodeProto) -> list[_Link]:
        if node.domain not in DEFAULT_DOMAINS or not node.input or not node.output:
            return []
        before, after = (self._at.known_shape(name) for name in (node.input[0], node.output[0]))
        find = _elementwise if node.op_type in _ELEMENTWISE else _LINKS.get(node.op_type)
        if before is None or after is None or find is None:
            return []
        if node.output[0] not in self._found:
            with suppress(IndexError, NotImplementedHere, NotTheSame, ValueError):  # for others to say
                self._found[node.output[0]] = list(find(self, node, before, after))
        return self._found.setdefault(node.output[0], [])

    def kernel(self, node: onnx.NodeProto) -> Shape:
        stated = attributes_of(node, self._opsets).get("kernel_shape")
        return tuple(self._at.kernels.get(node.output[0]) or stated or self._at.shape(node.input[1])[2:])

    def shape(self, name: str) -> Shape:
        return self._at.known_shape(name) or ()

    def attributes(self, node: onnx.NodeProto) -> Mapping[str, Any]:
        return attributes_of(node, self._opsets)

    def numbers(self, node: onnx.NodeProto, place: int, attribute: str) -> Sequence[Any] | None:
        """The numbers that a node is given by an input or, in older opsets, by an ``attribute``."""
        if len(node.input) > place and node.input[place]:
            return self._at.asked(node, place)
        return self.attributes(node).get(attribute)


def _followed(link: _Link | None, data: tuple[Range, ...] | None, whole: Range) -> Range:
    return whole if link is None or data is None else _within(link.forwards(data[link.axis]), whole[1])


def _is_between(first: int, stop: int, stride: int, offset: int, there: Range) -> bool:
    """True where a position of a range, times ``stride`` and less ``offset``, is in another range."""
    lowest = max(first, -(-(there[0] + offset) // stride))
    return lowest < stop and lowest * stride - offset < there[1]


def _within(one: Range, length: int) -> Range:
    return min(max(one[0], 0), length), min(max(one[1], 0), length)


def _hull(ranges: Sequence[Range]) -> Range:
    """The range with all ``ranges`` in it, of which empty ones count for nothing."""
    some = [(first, stop) for first, stop in ranges if first < stop]
    return (min(first for first, _ in some), max(stop for _, stop in some)) if some else (0, 0)


def _shifted(place: int, axis: int, made: int, steps: int, result: int = 0) -> _Link:
    """An axis whose positions lie so many ``steps`` further on in the result."""
    return _Link(place, axis, made, lambda r: (r[0] + steps, r[1] + steps), lambda r: (r[0] - steps, r[1] - steps), result)


def _elementwise(ranges: DataRanges, node: onnx.NodeProto, _before: Shape, after: Shape) -> Iterator[_Link]:
    for place, name in enumerate(node.input if node.op_type != "BatchNormalization" else node.input[:1]):
        shape = ranges.shape(name)
        missing = len(after) - len(shape)
        for axis, length in enumerate(shape):
            if missing >= 0 and after[axis + missing] == length:
                yield _shifted(place, axis, axis + missing, 0)


def _padded(ranges: DataRanges, node: onnx.NodeProto, before: Shape, _after: Shape) -> Iterator[_Link]:
    mode, pads = ranges.attributes(node).get("mode") or "constant", ranges.numbers(node, 1, "pads")
    axes = ranges.numbers(node, 3, "axes") if len(node.input) > 3 else None
    if mode == "constant" and pads is not None:
        axes = range(len(before)) if axes is None else [axis % len(before) for axis in axes]
        begins = dict(zip(axes, pads, strict=False))
        for axis in range(len(before)):
            yield _shifted(0, axis, axis, int(begins.get(axis, 0)))


def _sliced(ranges: DataRanges, node: onnx.NodeProto, before: Shape, after: Shape) -> Iterator[_Link]:
    starts, axes, steps = (ranges.numbers(node, place, name) for place, name in ((1, "starts"), (3, "axes"), (4, "steps")))
    if starts is not None and all(step == 1 for step in steps or ()):
        axes = range(len(starts)) if axes is None else [axis % len(before) for axis in axes]
        first = dict(zip(axes, starts, strict=False))
        for axis, length in enumerate(before):
            start = int(first.get(axis, 0))
            yield _shifted(0, axis, axis, -min(max(start + length if start < 0 else start, 0), length))


def _concatenated(ranges: DataRanges, node: onnx.NodeProto, before: Shape, _after: Shape) -> Iterator[_Link]:
    along, offset = int(ranges.attributes(node).get("axis") or 0) % max(len(before), 1), 0
    for place, name in enumerate(node.input):
        shape = ranges.shape(name)
        for axis in range(len(shape)):
            yield _shifted(place, axis, axis, offset if axis == along else 0)
        if len(shape) <= along:
            return
        offset += shape[along]


def _split(ranges: DataRanges, node: onnx.NodeProto, before: Shape, _after: Shape) -> Iterator[_Link]:
    along, offset = int(ranges.attributes(node).get("axis") or 0) % max(len(before), 1), 0
    for number, name in enumerate(node.output):
        shape = ranges.shape(name)
        for axis in range(len(shape)):
            yield _shifted(0, axis, axis, -offset if axis == along else 0, number)
        if len(shape) <= along:
            return
        offset += shape[along]


def _transposed(ranges: DataRanges, node: onnx.NodeProto, before: Shape, _after: Shape) -> Iterator[_Link]:
    perm = ranges.attributes(node).get("perm") or range(len(before))[::-1]
    for made, axis in enumerate(perm):
        yield _shifted(0, axis, made, 0)


def _regrouped(_ranges: DataRanges, _node: onnx.NodeProto, before: Shape, after: Shape) -> Iterator[_Link]:
    """Axes that a Reshape leaves as they are: as long, with as much before them."""
    sizes = {(math.prod(after[:axis]), length): axis for axis, length in enumerate(after) if length > 1}
    for axis, length in enumerate(before):
        made = sizes.get((math.prod(before[:axis]), length)) if length > 1 else None
        if made is not None:
            yield _shifted(0, axis, made, 0)


def _resized(_ranges: DataRanges, _node: onnx.NodeProto, before: Shape, after: Shape) -> Iterator[_Link]:
    for axis, (was, made) in enumerate(zip(before, after, strict=True)):
        if was and made:
            yield _Link(0, axis, axis, _scaled(made, was), _scaled(was, made))


def _scaled(to: int, of: int) -> Callable[[Range], Range]:
    return lambda r: (r[0] * to // of, -(-r[1] * to // of))


def _over_positions(ranges: DataRanges, node: onnx.NodeProto, before: Shape, _after: Shape) -> Iterator[_Link]:
    windows = ranges._windows(node, ranges.kernel(node))
    yield _shifted(0, 0, 0, 0)
    axes = zip(windows.kernel, windows.strides, windows.dilations, windows.begin, strict=True)
    for axis, (size, stride, dilation, begin) in enumerate(axes, 2):
        narrow, wide = _narrowing(stride, begin, (size - 1) * dilation), _widening(stride, begin, (size - 1) * dilation)
        yield _Link(0, axis, axis, *((wide, narrow) if node.op_type == "ConvTranspose" else (narrow, wide)))


def _narrowing(stride: int, begin: int, reach: int) -> Callable[[Range], Range]:
    """The windows that lie on a position of a range, if only with one place."""
    return lambda r: (-(-(r[0] + begin - reach) // stride), (r[1] - 1 + begin) // stride + 1)


def _widening(stride: int, begin: int, reach: int) -> Callable[[Range], Range]:
    """The positions on which a window of a range lies."""
    return lambda r: (r[0] * stride - begin, (r[1] - 1) * stride - begin + reach + 1)


_LINKS: Mapping[str, Callable[[DataRanges, onnx.NodeProto, Shape, Shape], Iterator[_Link]]] = {
    "Concat": _concatenated,
    "Flatten": _regrouped,
    "Pad": _padded,
    "Reshape": _regrouped,
    "Resize": _resized,
    "Slice": _sliced,
    "Split": _split,
    "Squeeze": _regrouped,
    "Transpose": _transposed,
    "Unsqueeze": _regrouped,
    "Upsample": _resized,
    **dict.fromkeys(OVER_POSITIONS, _over_positions),
}
