"""The axes of results whose positions follow those of inputs, by node: how a range of positions is followed along them."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import onnx

from trtnorm_cli.compare.restored_sizes import letters_of
from trtnorm_cli.compare.sized_tensors import NotTheSame, Shape, SizedTensors
from trtnorm_cli.compare.slices import Places, places_by_axis
from trtnorm_cli.evaluate.float64.kernels.call import Call, NotImplementedHere
from trtnorm_cli.evaluate.float64.kernels.windows import Windows, windows_of
from trtnorm_cli.evaluate.float64.planning import attributes_of, imported_opsets
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS

# The first position and the one behind the last.
Range = tuple[int, int]
# What comes of a malformed node, which is for others to say.
MALFORMED = (ArithmeticError, IndexError, NotImplementedHere, TypeError, ValueError)
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
# So it is of these, among others: of a row, or of all positions.
_NORMALIZING = frozenset(
    (
        *("GroupNormalization", "Hardmax", "InstanceNormalization", "LRN", "LayerNormalization", "LogSoftmax"),
        *("LpNormalization", "MeanVarianceNormalization", "RMSNormalization", "Softmax"),
    )
)


@dataclass(frozen=True)
class Link:
    """``axis`` of input number ``place``, and ``made`` of output number ``result`` that follows it."""

    place: int
    axis: int
    made: int
    forwards: Callable[[Range], Range]
    backwards: Callable[[Range], Range]
    result: int = 0


class AxisLinks:
    """The links of the nodes of a model at some shapes; ``at_least`` also those along which more than they say is linked."""

    def __init__(self, at: SizedTensors, at_least: bool) -> None:
        self._at, self._opsets, self._at_least = at, imported_opsets(at.model), at_least
        self._found: dict[str, list[Link]] = {}

    def knows(self, node: onnx.NodeProto) -> bool:
        """True where an axis that is linked with none follows all of what the node reads."""
        return self._finder(node) is not None

    def of(self, node: onnx.NodeProto) -> list[Link]:
        """The links of a node; none where it is malformed."""
        find, before = self._finder(node), self.shape(node.input[0]) if node.input else None
        after = self.shape(node.output[0]) if node.output else None
        if find is None or before is None or after is None:
            return []
        if node.output[0] not in self._found:
            with suppress(NotTheSame, *MALFORMED):
                self._found[node.output[0]] = list(find(self, node, before, after))
        return self._found.setdefault(node.output[0], [])

    def _finder(self, node: onnx.NodeProto) -> _Finder | None:
        if node.domain not in DEFAULT_DOMAINS:
            return None
        if node.op_type in _ELEMENTWISE:
            return _elementwise
        return (_FURTHER.get(node.op_type) if self._at_least else None) or _FINDERS.get(node.op_type)

    def windows(self, node: onnx.NodeProto, kernel: Shape) -> Windows:
        """Where the ``kernel`` of a node goes: that of a transposed convolution lies on its result."""
        is_spread = node.op_type == "ConvTranspose"
        attributes = self.attributes(node)
        if is_spread and (attributes.get("auto_pad") or "NOTSET") != "NOTSET":
            raise NotTheSame("a ConvTranspose that is padded by its sizes")
        call = Call(node.op_type, self._opsets.get("", 1), (), attributes, tuple(node.output))
        return windows_of(call, self._at.shape(node.output[0] if is_spread else node.input[0])[2:], kernel)

    def spacing(self, node: onnx.NodeProto, of_results: int, axes: Container[int]) -> int:
        """How far apart positions along some ``axes`` are that a node uses, as those of its results are.

        By its steps or strides, where these are known, and there is more than one position behind them.
        """
        before, after = (self.shape(names[0]) if names else None for names in (node.input, node.output))
        if before is None or after is None or node.domain not in DEFAULT_DOMAINS:
            return of_results
        with suppress(NotTheSame, *MALFORMED):
            several = [axis for axis, length in enumerate(after) if length > 1 and axis in axes]
            if node.op_type == "Slice":
                places = self.places(node, before) or {}
                return of_results * max((abs(places[axis][2]) for axis in several if axis in places), default=1)
            if node.op_type in OVER_POSITIONS - {"ConvTranspose"}:
                windows = self.windows(node, self.kernel(node))
                steps = [(windows.strides[axis - 2], windows.kernel[axis - 2]) for axis in several if axis > 1]
                leaves_out = of_results > 1 or any(size < stride for stride, size in steps)
                return of_results * (max((stride for stride, _ in steps), default=1) if leaves_out else 1)
        return of_results

    def places(self, node: onnx.NodeProto, shape: Shape) -> dict[int, Places] | None:
        """The places that a Slice takes, by axis; None where these are not known."""
        stated = ((1, "starts"), (2, "ends"), (3, "axes"), (4, "steps"))
        return places_by_axis([self.numbers(node, *each) for each in stated], shape)

    def kernel(self, node: onnx.NodeProto) -> Shape:
        stated = self.attributes(node).get("kernel_shape")
        return tuple(self._at.changes.kernels.get(node.output[0]) or stated or self._at.shape(node.input[1])[2:])

    def shape(self, name: str) -> Shape | None:
        return self._at.known_shape(name)

    def attributes(self, node: onnx.NodeProto) -> Mapping[str, Any]:
        return attributes_of(node, self._opsets)

    def numbers(self, node: onnx.NodeProto, place: int, attribute: str = "") -> Sequence[Any] | None:
        """The numbers that a node is given by an input or, in older opsets, by an ``attribute``."""
        if len(node.input) > place and node.input[place]:
            return self._at.asked(node, place)
        return self.attributes(node).get(attribute)


_Finder = Callable[[AxisLinks, onnx.NodeProto, Shape, Shape], Iterator[Link]]


def _shifted(place: int, axis: int, made: int, steps: int, result: int = 0) -> Link:
    """An axis whose positions lie so many ``steps`` further on in the result."""
    return Link(place, axis, made, lambda r: (r[0] + steps, r[1] + steps), lambda r: (r[0] - steps, r[1] - steps), result)


def _elementwise(axes_of: AxisLinks, node: onnx.NodeProto, _before: Shape, after: Shape) -> Iterator[Link]:
    for place, name in enumerate(node.input if node.op_type != "BatchNormalization" else node.input[:1]):
        shape = (axes_of.shape(name) if name else None) or ()
        missing = len(after) - len(shape)
        for axis, length in enumerate(shape):
            if missing >= 0 and after[axis + missing] == length:
                yield _shifted(place, axis, axis + missing, 0)


def _padded(
    axes_of: AxisLinks, node: onnx.NodeProto, before: Shape, _after: Shape, modes: Sequence[str] = ("constant",)
) -> Iterator[Link]:
    mode, pads = axes_of.attributes(node).get("mode") or "constant", axes_of.numbers(node, 1, "pads")
    axes = axes_of.numbers(node, 3)
    if mode in modes and pads is not None:
        axes = range(len(before)) if axes is None else [axis % len(before) for axis in axes]
        begins = dict(zip(axes, pads, strict=False))
        for axis in range(len(before)):
            yield _shifted(0, axis, axis, int(begins.get(axis, 0)))


def _stepped(axis: int, first: int, step: int) -> Link:
    """An axis of which a Slice takes each place that is so many times a ``step`` behind the ``first`` one, in either direction.

    Between two that are used are others that are not: ``DataRanges`` asks for as many positions in a row as there may be.
    """

    def taken(r: Range) -> Range:
        ends = (r[0] - first, r[1] - 1 - first)
        low, high = ends if step > 0 else ends[::-1]
        return -(-low // step), high // step + 1

    def used(r: Range) -> Range:
        ends = (first + r[0] * step, first + (r[1] - 1) * step)
        return min(ends), max(ends) + 1

    return Link(0, axis, axis, taken, used)


def _sliced(axes_of: AxisLinks, node: onnx.NodeProto, before: Shape, after: Shape) -> Iterator[Link]:
    for axis, (first, _, step) in (axes_of.places(node, before) or {}).items():
        yield _stepped(axis, first, step)


def _concatenated(axes_of: AxisLinks, node: onnx.NodeProto, before: Shape, _after: Shape) -> Iterator[Link]:
    along, offset = int(axes_of.attributes(node).get("axis") or 0) % max(len(before), 1), 0
    for place, name in enumerate(node.input):
        shape = axes_of.shape(name) or ()
        for axis in range(len(shape)):
            yield _shifted(place, axis, axis, offset if axis == along else 0)
        if len(shape) <= along:
            return
        offset += shape[along]


def _split(axes_of: AxisLinks, node: onnx.NodeProto, before: Shape, _after: Shape) -> Iterator[Link]:
    along, offset = int(axes_of.attributes(node).get("axis") or 0) % max(len(before), 1), 0
    for number, name in enumerate(node.output):
        shape = axes_of.shape(name) or ()
        for axis in range(len(shape)):
            yield _shifted(0, axis, axis, -offset if axis == along else 0, number)
        if len(shape) <= along:
            return
        offset += shape[along]


def _transposed(axes_of: AxisLinks, node: onnx.NodeProto, before: Shape, _after: Shape) -> Iterator[Link]:
    perm = axes_of.attributes(node).get("perm") or range(len(before))[::-1]
    for made, axis in enumerate(perm):
        yield _shifted(0, axis, made, 0)


def _regrouped(_axes_of: AxisLinks, _node: onnx.NodeProto, before: Shape, after: Shape) -> Iterator[Link]:
    """Axes that a Reshape leaves as they are: as long, with as much before them."""
    sizes = {(math.prod(after[:axis]), length): axis for axis, length in enumerate(after) if length > 1}
    for axis, length in enumerate(before):
        made = sizes.get((math.prod(before[:axis]), length)) if length > 1 else None
        if made is not None:
            yield _shifted(0, axis, made, 0)


def _resized(_axes_of: AxisLinks, _node: onnx.NodeProto, before: Shape, after: Shape) -> Iterator[Link]:
    for axis, (was, made) in enumerate(zip(before, after, strict=True)):
        if was and made:
            yield Link(0, axis, axis, _scaled(made, was), _scaled(was, made))


def _scaled(to: int, of: int) -> Callable[[Range], Range]:
    return lambda r: (r[0] * to // of, -(-r[1] * to // of))


def _over_positions(axes_of: AxisLinks, node: onnx.NodeProto, before: Shape, _after: Shape) -> Iterator[Link]:
    windows = axes_of.windows(node, axes_of.kernel(node))
    yield _shifted(0, 0, 0, 0)
    axes = zip(windows.kernel, windows.strides, windows.dilations, windows.begin, strict=True)
    for axis, (size, stride, dilation, begin) in enumerate(axes, 2):
        narrow, wide = _narrowing(stride, begin, (size - 1) * dilation), _widening(stride, begin, (size - 1) * dilation)
        yield Link(0, axis, axis, *((wide, narrow) if node.op_type == "ConvTranspose" else (narrow, wide)))


def _narrowing(stride: int, begin: int, reach: int) -> Callable[[Range], Range]:
    """The windows that lie on a position of a range, if only with one place."""
    return lambda r: (-(-(r[0] + begin - reach) // stride), (r[1] - 1 + begin) // stride + 1)


def _widening(stride: int, begin: int, reach: int) -> Callable[[Range], Range]:
    """The positions on which a window of a range lies."""
    return lambda r: (r[0] * stride - begin, (r[1] - 1) * stride - begin + reach + 1)


_FINDERS: Mapping[str, _Finder] = {
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


def _padded_anyhow(axes_of: AxisLinks, node: onnx.NodeProto, before: Shape, _after: Shape) -> Iterator[Link]:
    yield from _padded(axes_of, node, before, _after, ("constant", "edge", "reflect", "wrap"))


def _reduced(axes_of: AxisLinks, node: onnx.NodeProto, before: Shape, after: Shape) -> Iterator[Link]:
    """Axes that stay, whether the others are kept with one position or left out."""
    axes = axes_of.numbers(node, 1, "axes") or range(len(before))
    reduced = {int(axis) % len(before) for axis in axes}
    kept = [axis for axis in range(len(before)) if axis not in reduced]
    for number, axis in enumerate(kept):
        yield _shifted(0, axis, axis if len(after) == len(before) else number, 0)


def _pooled(_axes_of: AxisLinks, _node: onnx.NodeProto, _before: Shape, _after: Shape) -> Iterator[Link]:
    yield from (_shifted(0, axis, axis, 0) for axis in (0, 1))


def _normalized(_axes_of: AxisLinks, _node: onnx.NodeProto, before: Shape, after: Shape) -> Iterator[Link]:
    yield from (_shifted(0, axis, axis, 0) for axis in range(len(before)) if before == after)


def _multiplied(axes_of: AxisLinks, node: onnx.NodeProto, _before: Shape, after: Shape) -> Iterator[Link]:
    """Axes of a product of matrices that are not summed over."""
    shapes = [axes_of.shape(name) or () for name in node.input]
    axes = letters_of(node, [len(shape) for shape in shapes])
    for place, letters in enumerate(axes[:2] if axes is not None else ()):
        for axis, letter in enumerate(letters):
            made = axes[2].find(letter) if axes is not None else -1
            if made >= 0 and shapes[place][axis] == after[made]:
                yield _shifted(place, axis, made, 0)


def _gathered(axes_of: AxisLinks, node: onnx.NodeProto, before: Shape, after: Shape) -> Iterator[Link]:
    """All axes but the one along which something is taken."""
    along = int(axes_of.attributes(node).get("axis") or 0) % max(len(before), 1)
    for axis in range(len(before)):
        if axis != along:
            yield _shifted(0, axis, axis if axis < along else axis + len(after) - len(before), 0)


def _in_blocks(axes_of: AxisLinks, node: onnx.NodeProto, _before: Shape, _after: Shape) -> Iterator[Link]:
    block = int(axes_of.attributes(node).get("blocksize") or 1)
    out, back = (block, 1) if node.op_type == "DepthToSpace" else (1, block)
    yield _shifted(0, 0, 0, 0)
    yield from (Link(0, axis, axis, _scaled(out, back), _scaled(back, out)) for axis in (2, 3))


# Of these, more may be followed than is linked.
_FURTHER: Mapping[str, _Finder] = {
    "DepthToSpace": _in_blocks,
    "Einsum": _multiplied,
    "Gather": _gathered,
    "MatMul": _multiplied,
    "Pad": _padded_anyhow,
    "SpaceToDepth": _in_blocks,
    **dict.fromkeys(_NORMALIZING, _normalized),
    **dict.fromkeys(("GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool"), _pooled),
    **{f"Reduce{name}": _reduced for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Sum", "SumSquare")},
}
