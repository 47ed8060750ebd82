"""Nodes that do the same at every position of an image, whichever and however many there are, and those that may not."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import onnx

from trtnorm_cli.compare.axis_links import MALFORMED, OVER_POSITIONS
from trtnorm_cli.compare.chosen_places import ChosenPlaces
from trtnorm_cli.compare.data_ranges import DataRanges
from trtnorm_cli.compare.sized_tensors import NotTheSame, Shape, SizedTensors
from trtnorm_cli.compare.slices import Places, places_by_axis
from trtnorm_cli.evaluate.float64.planning import attributes_of, imported_opsets
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.walk import all_nodes

# What these reckon from sizes has each of their numbers in it, at any size.
_RECKONING = frozenset(
    (
        *("Add", "And", "Cast", "CastLike", "Ceil", "Concat", "Constant", "ConstantOfShape", "Cos", "Div", "Equal", "Exp"),
        *("Expand", "Flatten", "Floor", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Log", "Mod", "Mul"),
        *("Neg", "Not", "Or", "Pow", "Range", "Reciprocal", "ReduceProd", "ReduceSum", "Reshape", "Round", "Shape", "Sin"),
        *("Size", "Sqrt", "Squeeze", "Sub", "Sum", "Transpose", "Unsqueeze"),
    )
)
# What these choose by a number may not be chosen by another one: the inputs that decide.
_CHOOSING: Mapping[str, Sequence[int] | None] = {"Clip": (1, 2), "Max": None, "Min": None, "Where": (0,)}
# Of a channel these may let nothing through, or all of it alike, at some positions.
_FLAT = frozenset(
    (
        *("Clip", "HardSigmoid", "HardSwish", "LeakyRelu", "Max", "Min", "PRelu", "Relu", "ThresholdedRelu", "Where"),
        *("GlobalMaxPool", "MaxPool"),
    )
)
# These normalize a channel over positions; written out, a mean is subtracted from what it is of.
_OVER_ALL_POSITIONS = frozenset(("InstanceNormalization", "MeanVarianceNormalization"))
_CHANGING_SHAPES = frozenset(("Expand", "Pad", "Reshape", "Resize", "Slice", "Upsample"))
# Positions that are left along each axis, as in one there is no order, and together: in few of them an activation lets only
# some channels through, and what is normalized over two is the same whatever it was.
_POSITIONS, _TOGETHER = 2, 8

# What these compute at one position, or of all, does not depend on which or how many there are.
_ANYWHERE = frozenset(
    (
        *("Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "AveragePool"),
        *("BatchNormalization", "Cast", "CastLike", "Ceil", "Celu", "Concat", "Conv", "ConvTranspose", "Cos"),
        *("Cosh", "DepthToSpace", "Div", "Dropout", "Einsum", "Elu", "Equal", "Erf", "Exp", "Expand", "Flatten"),
        *("Floor", "Gelu", "Gemm", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "Greater", "GreaterOrEqual"),
        *("GroupNormalization", "HardSigmoid", "HardSwish", "Hardmax", "Identity", "InstanceNormalization", "IsInf"),
        *("IsNaN", "LRN", "LayerNormalization", "LeakyRelu", "Less", "LessOrEqual", "Log", "LogSoftmax"),
        *("LpNormalization", "MatMul", "MaxPool", "Mean", "MeanVarianceNormalization", "Mish", "Mul"),
        *("Neg", "Not", "Or", "PRelu", "Pow", "RMSNormalization", "Reciprocal", "ReduceL1", "ReduceL2"),
        *("ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare"),
        *("Relu", "Reshape", "Round", "Selu", "SequenceAt", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softmax"),
        *("Softplus", "Softsign", "SpaceToDepth", "Sqrt", "Squeeze", "Sub", "Sum", "Tan", "Tanh", "ThresholdedRelu"),
        *("Transpose", "Unsqueeze", "Xor"),
    )
)


class TooSmall(Exception):
    """A shape at which a weight no longer reaches the data, or no order is left."""


def is_large_enough(
    own: SizedTensors, other: SizedTensors, ranges: DataRanges | None = None, folder: Path | None = None
) -> bool:
    """False where too little is left; raises ``NotTheSame`` for a node that may do something else there.

    ``ranges`` are those of ``own``. ``folder`` is what the places of weights are relative to.
    """
    nodes = own.model.graph.node
    if len(list(all_nodes(own.model))) > len(nodes) or own.model.functions:
        raise NotTheSame("a graph within a node, or a function")
    opsets, is_enough = imported_opsets(own.model), True
    both = ranges or DataRanges(own), DataRanges(other, at_least=True, own=own)
    read = {name for node in nodes for name in node.input} | {value.name for value in own.model.graph.output}
    kernels, chosen = list[onnx.NodeProto](), ChosenPlaces(own, other, opsets, folder)
    for node in nodes:
        names = [name for name in (*node.input, *read.intersection(node.output)) if name and not own.is_sequence(name)]
        try:
            chosen.follow(node)
            if _require_same_node(node, names, own, other, opsets) and _is_over_positions(node, other):
                kernels.append(node)
        except TooSmall:  # another node may say that nothing smaller helps
            is_enough = False
        except MALFORMED as error:
            raise NotTheSame(str(error)) from error
    try:
        return is_enough and _are_reached(kernels, *both) and not _is_emptied(both[0], DataRanges(other))
    except MALFORMED as error:
        raise NotTheSame(str(error)) from error


def _is_over_positions(node: onnx.NodeProto, other: SizedTensors) -> bool:
    return node.op_type in OVER_POSITIONS and node.output[0] not in other.changes.kernels


def _needs_positions(node: onnx.NodeProto, own: SizedTensors, other: SizedTensors) -> bool:
    if node.op_type == "ReduceMean":
        is_over_positions = own.shape(node.output[0]) == other.shape(node.output[0])
        return is_over_positions and own.is_read_by(node.input[0], "Sub")
    return node.op_type in _FLAT or node.op_type in _OVER_ALL_POSITIONS


def _is_emptied(own: DataRanges, other: DataRanges) -> bool:
    """True where a tensor has no data that has some at the model's own shapes, as what is moved by more than its length."""
    return not own.is_plain and any(value is not None and other.data.get(name) is None for name, value in own.data.items())


def _require_same_node(
    node: onnx.NodeProto, names: Sequence[str], own: SizedTensors, other: SizedTensors, opsets: Mapping[str, int]
) -> bool:
    """False where nothing differs, or a node reckons with sizes, which all participants do as they are."""
    is_reckoned = all(own.elements(name) is not None and other.elements(name) is not None for name in node.output if name)
    if is_reckoned and (node.op_type in _RECKONING or own.say_sizes >= set(filter(None, node.output))):
        return False
    differs = [name for name in names if own.shape(name) != other.shape(name)]
    if not differs and all(own.elements(name) == other.elements(name) for name in node.input if name):
        return False
    if node.domain not in DEFAULT_DOMAINS:
        raise NotTheSame(node.op_type)
    for name in differs:
        if any(a != b and b < _POSITIONS for a, b in zip(own.shape(name), other.shape(name), strict=True)):
            raise TooSmall(name)
        positions, left = (math.prod(at.shape(name)[2:]) for at in (own, other))
        if left < min(_TOGETHER, positions) and _needs_positions(node, own, other):
            raise TooSmall(name)
    asked = _Asked(node, opsets.get("", 1), attributes_of(node, opsets), own, other)
    rule = _RULES.get(node.op_type)
    if node.op_type in _CHANGING_SHAPES:
        _require_both_or_neither(asked)
    if rule is not None:
        rule(asked)
    elif node.op_type not in _ANYWHERE or is_reckoned:
        raise NotTheSame(node.op_type)
    return True


@dataclass(frozen=True)
class _Asked:
    """A node with its attributes, at the model's own shapes and at the others."""

    node: onnx.NodeProto
    opset: int
    attributes: Mapping[str, Any]
    own: SizedTensors
    other: SizedTensors

    def shapes(self, name: str) -> tuple[Shape, Shape]:
        return self.own.shape(name), self.other.shape(name)

    def require_equal_lengths(self, axis: int, of_results: bool = False) -> None:
        """Nothing may differ along ``axis``, or no result."""
        given = () if of_results else self.node.input[:1]
        names = (name for name in (*given, *self.node.output) if name and not self.own.is_sequence(name))
        for name in names:
            before, after = self.shapes(name)
            if before[axis] != after[axis]:
                raise NotTheSame(self.node.op_type)

    def is_joint(self, axis: int, own: int, other: int) -> bool:
        """True for two places of an ``axis`` of the first input where the same tensors meet that were put behind each other."""
        before, after = (at.shape(self.node.input[0])[axis] for at in (self.own, self.other))
        return self.other.changes.joints.place(before, after, own) == other


def _require_both_or_neither(asked: _Asked) -> None:
    """A node that changes no shape here changes none there: a model without it would be the same at one of both alone."""
    own, other = (
        [at.known_shape(name) for name in (asked.node.input[0], asked.node.output[0])] for at in (asked.own, asked.other)
    )
    if (own[0] == own[1]) != (other[0] == other[1]):
        raise NotTheSame(asked.node.op_type)


def _along_one_axis(asked: _Asked) -> None:
    """Parts are taken along an axis that keeps its length."""
    asked.require_equal_lengths(int(asked.attributes.get("axis") or 0))


def _split(asked: _Asked) -> None:
    """Along an axis that keeps its length, or where tensors meet that were put behind each other."""
    axis = int(asked.attributes.get("axis") or 0)
    own, other = (list(accumulate(at.shape(name)[axis] for name in asked.node.output)) for at in (asked.own, asked.other))
    if any(a != b and not asked.is_joint(axis, a, b) for a, b in zip(own, other, strict=True)):
        raise NotTheSame(asked.node.op_type)


def _chosen_from(asked: _Asked) -> None:
    """As many are chosen, of more at both."""
    data, axis = asked.node.input[0], int(asked.attributes.get("axis", -1))
    of_all = [at.shape(data)[axis] - at.shape(asked.node.output[0])[axis] for at in (asked.own, asked.other)]
    asked.require_equal_lengths(axis, of_results=True)
    if (of_all[0] > 0) != (of_all[1] > 0):
        raise TooSmall(data)


def _by_places(asked: _Asked) -> None:
    """Data say what is taken, and no constants: those may be places that are not there any more."""
    data, places = asked.node.input[:2]
    if places in asked.own.constants and asked.own.shape(data) != asked.other.shape(data):
        raise NotTheSame(asked.node.op_type)


def _sampled(asked: _Asked) -> None:
    """At places within an image, by parts of its size. How many lie there is seen where they are worked out."""
    if asked.node.input[1] in asked.own.stored:
        raise NotTheSame(asked.node.op_type)


def _sliced(asked: _Asked) -> None:
    """All is taken along axes that do not keep their length, or all but as many at either end, or as many at one."""
    (x, other_x), (y, other_y) = asked.shapes(asked.node.input[0]), asked.shapes(asked.node.output[0])
    differing = [axis for axis, (before, after) in enumerate(zip(x, other_x, strict=True)) if before != after]
    if any(y[axis] != other_y[axis] for axis in range(len(x)) if axis not in differing):
        raise NotTheSame("Slice")
    numbers = [[at.elements(name) for name in asked.node.input[1:] if name] for at in (asked.own, asked.other)]
    kept = [axis for axis in range(len(x)) if axis not in differing and numbers[0] != numbers[1] and y[axis] != x[axis]]
    if not kept and all(y[axis] == x[axis] and other_y[axis] == other_x[axis] for axis in differing):
        return
    own, other = (_places(asked, at, shape) for at, shape in ((asked.own, x), (asked.other, other_x)))
    for axis in (*differing, *kept):
        is_same = _are_same_places(own[axis], other[axis], x[axis], other_x[axis])
        if not is_same and not _are_between_joints(asked, axis, own[axis], other[axis]):
            raise NotTheSame("Slice")
        if _left_behind(own[axis]) != _left_behind(other[axis]):  # at another size it may be as much
            raise TooSmall(asked.node.input[0])


def _places(asked: _Asked, at: SizedTensors, shape: Shape) -> dict[int, Places]:
    """The places that a Slice takes, by axis; raises ``NotTheSame`` where that is not known."""
    given: list[Sequence[Any] | None] = [asked.attributes.get(name) for name in ("starts", "ends", "axes", "steps")]
    for number, name in enumerate(asked.node.input[1:]):
        given[number] = at.asked(asked.node, number + 1) if name else None
        if name and given[number] is None:
            raise NotTheSame("Slice")
    found = places_by_axis(given, shape)
    if found is None:
        raise NotTheSame("Slice")
    return found


def _are_same_places(own: Places, other: Places, length: int, other_length: int) -> bool:
    """True where both begin and end as far from the same ends, with equal steps."""
    ends = zip(own[:2], other[:2], strict=True)
    return own[2] == other[2] and all(a == b or length - a == other_length - b for a, b in ends)


def _left_behind(places: Places) -> int:
    """How many places are left behind the last whole step."""
    first, behind, step = places
    return (behind - first) % abs(step)


def _are_between_joints(asked: _Asked, axis: int, own: Places, other: Places) -> bool:
    """True for all places between two at which the same tensors meet."""
    return own[2] == other[2] == 1 and all(asked.is_joint(axis, a, b) for a, b in zip(own[:2], other[:2], strict=True))


def _gathered(asked: _Asked) -> None:
    """The same places, or along an axis that does not keep its length all of them in order.

    Those at the ends may be repeated, as often at both shapes: so TensorRT pads, and puts other numbers over what it repeats.
    """
    data, indices = asked.node.input[:2]
    (x, other_x), axis = asked.shapes(data), int(asked.attributes.get("axis") or 0)
    own, other = asked.own.elements(indices), asked.other.elements(indices)
    if own is None or other is None:
        if own is other and indices not in asked.own.constants:
            return  # data say them
        raise NotTheSame("Gather")
    is_same = own == other and all(-other_x[axis] <= place < other_x[axis] for place in other)
    if not is_same and x[axis] != other_x[axis]:
        found = _repeated(own, x[axis])
        is_same = found is not None and found == _repeated(other, other_x[axis])
    if not is_same:
        raise NotTheSame("Gather")


def _repeated(places: Sequence[Any], length: int) -> tuple[int, int] | None:
    """How often the first and the last of ``length`` places come before and after all of them in order; None for others."""
    if len(places) < length:
        return None
    before = places.index(1) - 1 if 1 in places else 0
    after = len(places) - length - before
    whole = [0] * before + list(range(length)) + [length - 1] * max(after, 0)
    return (before, after) if before >= 0 and list(places) == whole else None


def _by_constants(asked: _Asked) -> None:
    """By as much at both."""
    for name in filter(None, asked.node.input[1:]):
        if asked.own.elements(name) != asked.other.elements(name):
            raise NotTheSame(asked.node.op_type)


def _chosen(asked: _Asked) -> None:
    """By the same numbers, where some are known: another size may choose what is not seen at the own one."""
    places = _CHOOSING[asked.node.op_type]
    for place, name in enumerate(asked.node.input):
        if name and (places is None or place in places) and asked.own.elements(name) != asked.other.elements(name):
            raise NotTheSame(asked.node.op_type)


def _resized(asked: _Asked) -> None:
    """By the same factors, however they are said. A single position becomes as many as are wanted, all of them the same."""
    (x, other_x), (y, other_y) = asked.shapes(asked.node.input[0]), asked.shapes(asked.node.output[0])
    extrapolates = asked.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    for before, after, made, made_after in zip(x, other_x, y, other_y, strict=True):
        is_one = before == after == 1 and not extrapolates
        if made * after != made_after * before and not is_one:
            raise NotTheSame("Resize")


_RULES: Mapping[str, Callable[[_Asked], None]] = {
    "Gather": _gathered,
    "GatherElements": _by_places,
    "GridSample": _sampled,
    "Pad": _by_constants,
    "Resize": _resized,
    "Slice": _sliced,
    "Split": _split,
    "SplitToSequence": _along_one_axis,
    "Tile": _by_constants,
    "TopK": _chosen_from,
    "Upsample": _resized,
    **dict.fromkeys(_CHOOSING, _chosen),
}


def _are_reached(nodes: Sequence[onnx.NodeProto], own: DataRanges, other: DataRanges) -> bool:
    """True where every place of a kernel lies on data at some position that is used, as it does at the model's own shapes."""
    for node in nodes:
        before, after = (ranges.reached(node, ranges.kernel(node)) for ranges in (own, other))
        places = (pair for some, others in zip(before, after, strict=True) for pair in zip(some, others, strict=True))
        if any(was and not now for was, now in places):
            return False
    return True
