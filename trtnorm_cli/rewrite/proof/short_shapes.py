"""Shapes at which a change is proved where the file's are large: short along axes on which everything is repeated.

A defect shows there as it does at the file's shapes: every weight is reached, borders are there, and axes that are reduced keep
their length. Where an operator's meaning may depend on the length of an axis, no such shapes are given. Constants that state
the length of such an axis for a Reshape are stated anew.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from trtnorm_cli.evaluate.float64.planning import attributes_of, imported_opsets
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.rewrite.proof.axes import Axes, NotShortened
from trtnorm_cli.rewrite.proof.axis_rules import AXES_OF_EACH, AXIS_RULES
from trtnorm_cli.rewrite.proof.lengths import Numbers, Stated, computed, lengths, numbers_of
from trtnorm_cli.rewrite.proof.region import Region
from trtnorm_cli.rewrite.proof.use import Tensor, Use

Shapes = dict[str, tuple[int, ...]]

# Below, the file's shapes cost no more than all else that a proof does.
_MOST_ELEMENTS, _MOST_WORK = 1 << 17, 1 << 22
# More positions show smaller defects; so many are taken as cost next to nothing.
_FURTHER, _CHEAP = (16, 8, 4, 2, 0), 1 / 2
# These move elements from one axis to another.
_MOVING = frozenset({"Flatten", "Reshape", "Transpose"})
# Operators of an earlier opset take the softmax over several axes at once.
_ONE_AXIS_OPSET = 13


@dataclass(frozen=True)
class Short:
    """Shapes of the fed tensors in their order, and the constants of each side that state other lengths there.

    The constants have their names in the regions' canonical models, so that this holds for all equal pairs of regions.
    """

    shapes: tuple[tuple[int, ...], ...]
    before: Mapping[str, np.ndarray]
    after: Mapping[str, np.ndarray]


def short_shapes(before: Region, after: Region, real: Shapes) -> Short | None:
    """Shapes of the fed tensors that prove as much as the file's, ``real``; None where those are needed or cheap."""
    try:
        found, moves = _short_shapes(before, after, real, may_split=False)
        if found.cost <= _CHEAP or not moves:
            return found.short
        return _short_shapes(before, after, real, may_split=True)[0].short
    except (NotShortened, KeyError, IndexError, ValueError):
        return None


@dataclass(frozen=True)
class _Found:
    """Shapes that are short, None for the file's own, and what they cost, as a multiple of what is cheap."""

    short: Short | None
    cost: float


def _short_shapes(before: Region, after: Region, real: Shapes, may_split: bool) -> tuple[_Found, bool]:
    """The shapes, and whether both sides move elements in the same steps, of which one splits or joins axes."""
    axes = Axes(may_split)
    work: list[Tensor] = []
    fed = {name: axes.fed(shape) for name, shape in real.items()}
    one, other = (_Traced(region, fed, axes, work) for region in (before, after))
    for value in before.model.graph.output:
        for axis, instead in zip(one.made[value.name], other.made[value.name], strict=True):
            if axes.sizes[axis] != axes.sizes[instead]:
                raise NotShortened
            axes.link(axis, instead)
    moves_alike = one.moves == other.moves and any(step.splits for step in one.moves)
    tensors = [*one.made.values(), *other.made.values()]
    if (cost := _cost(axes.sizes, tensors, work)) <= 1:
        return _Found(None, 0.0), moves_alike
    lengths = ((sizes, _cost(sizes, tensors, work)) for sizes in map(axes.shortened, _FURTHER))
    sizes, cost = next(each for each in lengths if each[1] <= _CHEAP or each[0] == axes.shortened())
    shapes = {name: tuple(sizes[axis] for axis in tensor) for name, tensor in fed.items()}
    short = None if shapes == real else Short(tuple(shapes.values()), one.restated(sizes), other.restated(sizes))
    return _Found(short, cost), moves_alike


def _cost(sizes: Sequence[int], tensors: Iterable[Tensor], work: Iterable[Tensor]) -> float:
    """The cost at these lengths, as a multiple of what is cheap."""
    elements, multiplications = (sum(math.prod(sizes[axis] for axis in each) for each in many) for many in (tensors, work))
    return max(elements / _MOST_ELEMENTS, multiplications / _MOST_WORK)


def _is_shape(node: onnx.NodeProto, place: int) -> bool:
    """True where an input of ``node`` states the shape of its result."""
    return node.op_type == "Reshape" and place == 1


@dataclass(frozen=True)
class _Step:
    """A node that moves elements: its operator and order, and the shapes before and after it."""

    operator: str
    order: tuple[int, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def splits(self) -> bool:
        """True where there are other axes behind it, those of length one left out."""
        return sorted(size for size in self.before if size != 1) != sorted(size for size in self.after if size != 1)


class _Traced:
    """The axes of the tensors that ``region`` is fed with and makes, and the lengths that its constants state.

    ``moves`` are the steps in which it moves elements between axes.
    """

    def __init__(self, region: Region, fed: Mapping[str, Tensor], axes: Axes, work: list[Tensor]) -> None:
        self._region, self._axes, self._work = region, axes, work
        model = region.model
        self._opsets = imported_opsets(model)
        self._constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        self._constants.update(region.weights)
        self._stated: dict[Stated, int] = {}
        self._used: set[Stated] = set()
        self._readers = Counter(name for node in model.graph.node for name in node.input)
        self._known: dict[str, Tensor] = dict(fed)
        self._numbers: dict[str, Numbers | None] = {name: numbers_of(name, value) for name, value in self._constants.items()}
        self.moves: list[_Step] = []
        for node in model.graph.node:
            self._follow(node)
        axes.keep(axis for number, axis in self._stated.items() if number in self._used or self._readers[number.name] > 1)
        self.made = {name: tensor for name, tensor in self._known.items() if name not in self._constants}

    def restated(self, sizes: Sequence[int]) -> dict[str, np.ndarray]:
        """The constants, by their canonical names, that state other lengths at these ``sizes``."""
        found: dict[str, np.ndarray] = {}
        for number, axis in self._stated.items():
            if sizes[axis] != number.value:
                name = self._region.canonical.names[number.name]
                found.setdefault(name, self._constants[number.name].copy()).flat[number.place] = sizes[axis]
        return found

    def _follow(self, node: onnx.NodeProto) -> None:
        one_softmax = not node.op_type.endswith("Softmax") or self._opsets.get("", 1) >= _ONE_AXIS_OPSET
        if node.domain not in DEFAULT_DOMAINS or not one_softmax:
            raise NotShortened
        use = self._use(node)
        numbers = self._numbers_made(node, use)
        if numbers is None and any(
            self._are_lengths(name) for place, name in enumerate(node.input) if not _is_shape(node, place)
        ):
            raise NotShortened  # data that depend on a length
        if numbers is not None:
            self._numbers[node.output[0]] = numbers
            self._known[node.output[0]] = self._axes.fixed([len(numbers)] if numbers else [])
        elif node.op_type in AXES_OF_EACH:
            made = AXES_OF_EACH[node.op_type](use)
            self._known.update((name, tensor) for name, tensor in zip(node.output, made, strict=True) if name)
        elif node.op_type in AXIS_RULES and not any(node.output[1:]):
            self._known[node.output[0]] = AXIS_RULES[node.op_type](use)
            if node.op_type in _MOVING:
                order = tuple(use.attributes.get("perm") or ()) if node.op_type == "Transpose" else ()
                shapes = (tuple(use.sizes(tensor)) for tensor in (use.given(0), self._known[node.output[0]]))
                self.moves.append(_Step(node.op_type, order, *shapes))
        else:
            raise NotShortened

    def _use(self, node: onnx.NodeProto) -> Use:
        inputs, values = [], []
        for name in node.input:
            if name in self._constants and name not in self._known:
                self._known[name] = self._axes.fixed(self._constants[name].shape)
            inputs.append(self._known[name] if name else None)
            values.append(self._constants.get(name))
        numbers = [self._numbers.get(name) for name in node.input]
        attributes = attributes_of(node, self._opsets)
        return Use(self._axes, inputs, values, attributes, self._work, numbers, len(node.output), self._states)

    def _states(self, number: Stated, axis: int) -> None:
        """Remember that ``number`` is the length of ``axis``."""
        if (other := self._stated.setdefault(number, axis)) != axis:
            self._axes.same([other, axis])

    def _are_lengths(self, name: str) -> bool:
        """True for numbers that are worked out."""
        return self._numbers.get(name) is not None and name not in self._constants

    def _numbers_made(self, node: onnx.NodeProto, use: Use) -> Numbers | None:
        if node.op_type == "Shape":
            return lengths(use.given(0), int(use.attributes.get("start", 0)), use.attributes.get("end"))
        return computed(node.op_type, use.numbers, self._axes, self._used)
