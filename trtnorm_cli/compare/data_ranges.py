"""The positions of a tensor that hold data, and those that are used, at some shapes of a model.

Around the data of an image or a signal lies what a Pad or a constant puts there, and a Slice or a negative pad leaves away what
nobody sees. A place of a kernel that only lies on the one, or only gives the other, does nothing at these shapes.

Each node links axes of its inputs with axes of its outputs. Along a link the range of positions that hold data is followed
forwards, and the range of those that are used backwards. Such a range is a bound. Of a model's own shapes it has all positions
that may hold data or be used, and of others those that surely do: what lies on data here has to lie on data there.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from functools import cached_property

import onnx

from trtnorm_cli.compare.axis_links import OVER_POSITIONS, AxisLinks, Link, Range
from trtnorm_cli.compare.regrouped_ranges import regrouped_ranges
from trtnorm_cli.compare.sized_tensors import Shape, SizedTensors

Ranges = tuple[Range, ...]
# What is around data, or not used, begins at these.
_AROUND, _LEAVING_AWAY = OVER_POSITIONS | {"Concat", "Pad"}, OVER_POSITIONS | {"Pad", "Slice", "Split"}
# Without these, all positions hold data and are used.
_TAKING_PARTS = frozenset(("Compress", "Gather", "GatherElements", "GatherND", "Pad", "SequenceAt", "Slice", "Split"))
# These give sizes, which are no data.
_ASKING = frozenset(("Shape", "Size"))
# These have data where one operand has, and others where all have; of a quotient the first one decides.
_SUMS = frozenset(("Add", "Mean", "Sub", "Sum"))
# Each result of these is made of all channels.
_MIXING = frozenset(("Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"))
_REGROUPING = frozenset(("Flatten", "Reshape"))


class DataRanges:
    """The ranges of positions that hold data and that are used, by tensor and axis; with ``at_least``, that surely do and are.

    ``data`` has None for tensors that hold none, as constants; ``used`` has none of the tensors that nobody reads, and None for
    those of which no position surely is. With ``at_least`` they hold for every channel. Axes as long as those of the ``own``
    model, where that is given, are used in the same way there.
    """

    def __init__(self, at: SizedTensors, at_least: bool = False, own: SizedTensors | None = None) -> None:
        self.model, self._at, self._at_least, self._own = at.model, at, at_least, own
        self._links = AxisLinks(at, at_least)
        self._wholes: dict[str, Ranges] = {}

    @cached_property
    def _depending(self) -> frozenset[str]:
        """The tensors that inputs decide about."""
        constants = {tensor.name for tensor in self.model.graph.initializer}
        found = {value.name for value in self.model.graph.input} - constants
        for node in self.model.graph.node:
            if node.op_type not in _ASKING and not found.isdisjoint(node.input):
                found.update(filter(None, node.output))
        return frozenset(found)

    @cached_property
    def is_plain(self) -> bool:
        """True where all positions of all that depends on inputs hold data, and are used."""
        return not any(self._is_partial(node) for node in self.model.graph.node if not self._depending.isdisjoint(node.input))

    def _is_partial(self, node: onnx.NodeProto) -> bool:
        if node.op_type == "Concat":
            return not self._depending.issuperset(node.input)
        if node.op_type not in OVER_POSITIONS:
            return node.op_type in _TAKING_PARTS
        windows = self._links.windows(node, self._links.kernel(node))
        extents = [(size - 1) * dilation + 1 for size, dilation in zip(windows.kernel, windows.dilations, strict=True)]
        pads = zip((*windows.begin, *windows.end), (*extents, *extents), strict=True)
        return node.op_type == "ConvTranspose" or not all(0 <= pad < extent for pad, extent in pads)

    @cached_property
    def data(self) -> Mapping[str, Ranges | None]:
        if self.is_plain:
            return {name: _unless_empty(self._whole(name)) for name in self._depending}
        return self._data_of_each_channel() if self._at_least else self._data_of_some_channel

    @cached_property
    def used(self) -> Mapping[str, Ranges | None]:
        if self.is_plain:
            return {name: self._whole(name) for node in self.model.graph.node for name in node.output if name}
        return self._used_of_each_channel() if self._at_least else self._used_of_some_channel

    @cached_property
    def _data_of_some_channel(self) -> Mapping[str, Ranges | None]:
        return self._follow(None)

    def _data_of_each_channel(self) -> Mapping[str, Ranges | None]:
        return self._follow(self._data_of_some_channel)

    def _follow(self, of_some: Mapping[str, Ranges | None] | None) -> Mapping[str, Ranges | None]:
        """The data of each channel, as those ``of_some`` are known; or of some."""
        found: dict[str, Ranges | None] = {
            value.name: self._whole(value.name) for value in self.model.graph.input if value.name in self._depending
        }
        for node in self.model.graph.node:
            before = of_some if of_some is not None and node.op_type in _MIXING else found
            given = [place for place, name in enumerate(node.input) if name and before.get(name) is not None]
            for number, name in enumerate(node.output):
                if name:
                    is_data = bool(given) and node.op_type not in _ASKING
                    found[name] = self._made(node, number, given, before, of_some is not None) if is_data else None
        return found

    def _made(
        self, node: onnx.NodeProto, number: int, given: Sequence[int], found: Mapping[str, Ranges | None], is_each: bool
    ) -> Ranges | None:
        whole, held = self._whole(node.output[number]), [found[node.input[place]] or () for place in given]
        are_whole = all(one == self._whole(node.input[place]) for place, one in zip(given, held, strict=True))
        if self._at_least and self._loses(node, found, is_each):
            return None
        if node.op_type not in _AROUND and are_whole:
            return None if any(length == 0 for _, length in whole) else whole
        if not self._at_least:
            return _unless_empty(tuple(map(_hull, zip(*self._each(node, number, given, held), strict=True))))
        if not self._links.knows(node) or (given[0] != 0 and node.op_type in _REGROUPING | {"Gather"}):
            return None
        if node.op_type in _REGROUPING:
            found_there = regrouped_ranges(held[0], *(self._at.shape(name) for name in (node.input[0], node.output[0])))
            return None if found_there is None else _unless_empty(found_there)
        if node.op_type == "Gather" and not self._takes_what_is_whole(node, held[0]):
            return None
        return _unless_empty(self._together(node, self._each(node, number, given, held), is_each))

    def _each(self, node: onnx.NodeProto, number: int, given: Sequence[int], held: Sequence[Ranges]) -> list[Ranges]:
        links = [link for link in self._links.of(node) if link.result == number]
        return [
            tuple(
                _followed(_along(links, place, made), one, length)
                for made, length in enumerate(self._whole(node.output[number]))
            )
            for place, one in zip(given, held, strict=True)
        ]

    def _loses(self, node: onnx.NodeProto, found: Mapping[str, Ranges | None], is_each: bool) -> bool:
        """True where something is read that depends on inputs, and of which no position surely holds data: it may be zero."""
        if node.op_type in _SUMS or (node.op_type == "Concat" and not is_each):
            return False
        names = node.input[:1] if node.op_type == "Div" else node.input
        return any(name in self._depending and found.get(name) is None for name in names)

    def _takes_what_is_whole(self, node: onnx.NodeProto, held: Ranges) -> bool:
        axis = int(self._links.attributes(node).get("axis") or 0) % max(len(held), 1)
        return held[axis] == self._whole(node.input[0])[axis]

    def _together(self, node: onnx.NodeProto, each: Sequence[Ranges], is_each: bool) -> Ranges:
        """The positions that hold data of all inputs, or of the one of a sum, or of some channels, that holds most."""
        if node.op_type in _SUMS:
            return max(each, key=_volume)
        joined = int(self._links.attributes(node).get("axis") or 0) if node.op_type == "Concat" else None
        along = None if joined is None else joined % max(len(each[0]), 1)
        if along is not None and not is_each:
            most = max(each, key=_volume)
            return (*most[:along], _hull([one[along] for one in each]), *most[along + 1 :])
        axes = enumerate(zip(*each, strict=True))
        return tuple(_hull(ranges) if axis == along else _intersection(ranges) for axis, ranges in axes)

    @cached_property
    def _used_of_some_channel(self) -> Mapping[str, Ranges | None]:
        return self._follow_back(None)

    def _used_of_each_channel(self) -> Mapping[str, Ranges | None]:
        return self._follow_back(self._used_of_some_channel)

    def _follow_back(self, of_some: Mapping[str, Ranges | None] | None) -> Mapping[str, Ranges | None]:
        found: dict[str, Ranges | None] = {value.name: self._whole(value.name) for value in self.model.graph.output}
        for node in reversed(self.model.graph.node):
            behind = of_some if of_some is not None and node.op_type in _MIXING else found
            read = [number for number, name in enumerate(node.output) if name and name in behind]
            for place, name in enumerate(node.input) if read else ():
                if name:
                    ranges = self._used_by(node, place, read, behind, of_some is not None)
                    found[name] = self._by_both(found[name], ranges, of_some is not None) if name in found else ranges
        return found

    def _used_by(
        self, node: onnx.NodeProto, place: int, read: Sequence[int], found: Mapping[str, Ranges | None], is_each: bool
    ) -> Ranges | None:
        whole, taken = self._whole(node.input[place]), {number: found[node.output[number]] for number in read}
        if node.op_type not in _LEAVING_AWAY and all(one == self._whole(node.output[n]) for n, one in taken.items()):
            return whole
        if self._at_least and (not self._links.knows(node) or all(one is None for one in taken.values())):
            return None
        if self._at_least and node.op_type in _REGROUPING and place == 0:
            shapes = (self._at.shape(name) for name in (node.output[0], node.input[0]))
            found_there = regrouped_ranges(taken[0] or (), *shapes)
            return None if found_there is None else _unless_empty(found_there)
        links = [link for link in self._links.of(node) if link.place == place]
        ranges = list[Range]()
        for axis, length in enumerate(whole):
            each = [
                _followed_back([link for link in links if (link.axis, link.result) == (axis, n)], one, length)
                for n, one in taken.items()
                if one is not None
            ]
            shared = _intersection(each) if self._at_least and is_each else (0, 0)
            ranges.append(shared if shared[0] < shared[1] else _hull(each))
        return _unless_empty(tuple(ranges)) if self._at_least else tuple(ranges)

    def _by_both(self, one: Ranges | None, other: Ranges | None, is_each: bool) -> Ranges | None:
        """The positions that two readers use; surely, those of the one that uses more, or some of both."""
        if one is None or other is None:
            return one or other
        hull = tuple(map(_hull, zip(one, other, strict=True)))
        if not self._at_least or hull in (one, other):
            return hull
        if not is_each:
            return hull if _touch_along_one_axis(one, other) else max(one, other, key=_volume)
        shared = [_intersection(pair) for pair in zip(one, other, strict=True)]
        return tuple(both if both[0] < both[1] else either for both, either in zip(shared, hull, strict=True))

    def reached(self, node: onnx.NodeProto, kernel: Shape) -> list[Sequence[bool]]:
        """By axis, which places of the ``kernel`` of a node lie on data at a position that is used."""
        windows = self._links.windows(node, kernel)
        none, rank = ((0, 0),) * (len(kernel) + 2), len(kernel)
        is_data = node.input[0] in self._depending
        data = (self.data.get(node.input[0]) if is_data else self._whole(node.input[0])) or none
        used = self.used.get(node.output[0]) or none
        laid, on = (data, used) if node.op_type == "ConvTranspose" else (used, data)
        axes = zip(kernel, windows.strides, windows.dilations, windows.begin, laid[-rank:], on[-rank:], strict=True)
        wanted = self._spacing.get(node.output[0], 1) if self._at_least else 1
        return [
            [_count_between(position, stop, stride, begin - each * dilation, there) >= wanted for each in range(size)]
            for size, stride, dilation, begin, (position, stop), there in axes
        ]

    @cached_property
    def _spacing(self) -> Mapping[str, int]:
        """How far apart the positions of a tensor may be that are used, where steps leave some out, one behind the other."""
        found: dict[str, int] = {}
        for node in reversed(self.model.graph.node):
            behind = max((found.get(name, 1) for name in node.output), default=1)
            spacing = self._links.spacing(node, behind, self._changed_axes(node.input[0])) if node.input else behind
            for name in filter(None, node.input if spacing > 1 else ()):
                found[name] = max(found.get(name, 1), spacing)
        return found

    def _changed_axes(self, name: str) -> Container[int]:
        now, before = self._at.known_shape(name) or (), self._own.known_shape(name) if self._own is not None else None
        if before is None or len(before) != len(now):
            return range(len(now))
        return [axis for axis, (length, own) in enumerate(zip(now, before, strict=True)) if length != own]

    def kernel(self, node: onnx.NodeProto) -> Shape:
        return self._links.kernel(node)

    def _whole(self, name: str) -> Ranges:
        if name not in self._wholes:
            self._wholes[name] = tuple((0, length) for length in self._at.known_shape(name) or ())
        return self._wholes[name]


def _along(links: Sequence[Link], place: int, made: int) -> Link | None:
    return next((link for link in links if (link.place, link.made) == (place, made)), None)


def _followed(link: Link | None, data: Ranges, whole: Range) -> Range:
    return whole if link is None else _within(link.forwards(data[link.axis]), whole[1])


def _followed_back(links: Sequence[Link], used: Ranges | None, whole: Range) -> Range:
    return _within(links[0].backwards(used[links[0].made]), whole[1]) if links and used is not None else whole


def _count_between(first: int, stop: int, stride: int, offset: int, there: Range) -> int:
    """How many positions of a range, times ``stride`` and less ``offset``, are in another range."""
    lowest, highest = max(first, -(-(there[0] + offset) // stride)), min(stop - 1, (there[1] - 1 + offset) // stride)
    return highest - lowest + 1


def _within(one: Range, length: int) -> Range:
    return min(max(one[0], 0), length), min(max(one[1], 0), length)


def _hull(ranges: Sequence[Range]) -> Range:
    """The range with all ``ranges`` in it, of which empty ones count for nothing."""
    some = [(first, stop) for first, stop in ranges if first < stop]
    return (min(first for first, _ in some), max(stop for _, stop in some)) if some else (0, 0)


def _intersection(ranges: Sequence[Range]) -> Range:
    return max(first for first, _ in ranges), min(stop for _, stop in ranges)


def _touch_along_one_axis(one: Ranges, other: Ranges) -> bool:
    """True for two boxes that are one together, as parts of the channels at the same positions."""
    differing = [(a, b) for a, b in zip(one, other, strict=True) if a != b]
    return len(differing) == 1 and max(first for first, _ in differing[0]) <= min(stop for _, stop in differing[0])


def _volume(ranges: Ranges) -> int:
    return math.prod(max(stop - first, 0) for first, stop in ranges)


def _unless_empty(ranges: Ranges) -> Ranges | None:
    return None if any(first >= stop for first, stop in ranges) else ranges
