"""The tensors of a model at some shapes of its inputs, and the model as it is there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import field
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import onnx

from trtnorm_cli.compare.joints import Joints
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.shapes.tensor import UNKNOWN, SymbolicTensor

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]
# Of the inputs of a node, what it takes of them along their axes.
Cut = Mapping[int, Shape]
# These add a number of its own to each position, and those multiply by one, by the places of such numbers. Conditions may keep
# data from what follows.
ADDING = {"Add": (0, 1), "Sub": (0, 1)}
MULTIPLYING = {"Mul": (0, 1), "Div": (1,)}
# These put numbers elsewhere.
_MOVING = frozenset(
    (
        *("Concat", "Constant", "ConstantOfShape", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Shape", "Slice"),
        *("Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    )
)
# The rounding of these goes with each number itself.
_OF_ITS_OWN_SIZE = frozenset(("Abs", "Cast", "Div", "Exp", "Mul", "Neg", "Pow", "Range", "Reciprocal", "Sqrt"))
# The inputs that say sizes, places or axes and are no data themselves.
_PLACES_OF_SIZES: Mapping[str, Sequence[int]] = {
    "CenterCropPad": (1,), "ConstantOfShape": (0,), "Expand": (1,), "Gather": (1,), "OneHot": (1,), "Pad": (1, 3),
    "Reshape": (1,), "Resize": (2, 3), "Slice": (1, 2, 3, 4), "Split": (1,), "SplitToSequence": (1,), "Squeeze": (1,),
    "Tile": (1,), "TopK": (1,), "Unsqueeze": (1,), "Upsample": (1,),
}  # fmt: skip
# Places are few where they are less than one in so many.
_FEW, _GOLDEN = 3, (math.sqrt(5.0) - 1.0) / 2.0


class NotTheSame(Exception):
    """A model or a node that may do something else at other shapes, or of which that is not known."""


@dataclass(frozen=True)
class Numbers:
    """The numbers that input ``place`` of a node says at other shapes, instead of those that stand in the model."""

    place: int
    values: Shape
    dtype: type[np.integer] = np.int64


@dataclass(frozen=True)
class ConstantInPart:
    """A constant of which a node takes some ``lengths``, to multiply by it or to add it, or as the condition of a choice.

    ``keeps`` is the condition by which that takes the data. ``turned_with`` is the other constant of a rotation, the cosine
    beside the sine: what is multiplied by that one is added to what is multiplied by this one.
    """

    name: str
    lengths: Shape
    is_factor: bool
    turned_with: str | None = None
    keeps: bool | None = None


@dataclass
class Changes:
    """The other things that nodes do at other shapes, by their results.

    ``asked`` is what they ask for in numbers, ``cut`` is what they take of constants with numbers for each position, and
    ``kernels`` are those of poolings over a whole image. ``joints`` are those of all axes.
    """

    asked: dict[str, Sequence[Numbers]] = field(default_factory=dict)
    cut: dict[str, Cut] = field(default_factory=dict)
    kernels: dict[str, Shape] = field(default_factory=dict)
    joints: Joints = field(default_factory=Joints)


class SizedTensors:
    """A model at some shapes of its inputs: its tensors and the ``changes`` there.

    No input decides about the ``constants``. Demands are ``broken`` there, and nodes with these results have ``unmet`` ones.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        tensors: Mapping[str, SymbolicTensor],
        constants: Set[str],
        changes: Changes | None = None,
        broken: Sequence[str] = (),
        unmet: Set[str] = frozenset(),
    ) -> None:
        self.model, self.constants, self.broken, self.unmet = model, constants, broken, unmet
        self._tensors, self.changes = tensors, Changes() if changes is None else changes
        self._shapes: dict[str, Shape | None] = {}

    def shape(self, name: str) -> Shape:
        found = self.known_shape(name)
        if found is None:
            raise NotTheSame(f"the shape of {name} is not known")
        return found

    def known_shape(self, name: str) -> Shape | None:
        if name not in self._shapes:
            self._shapes[name] = known_lengths(self._tensors.get(name, UNKNOWN).shape)
        return self._shapes[name]

    def adapted(self) -> onnx.ModelProto:
        """The model, or a copy in which nodes ask for other sizes in numbers and take parts of constants.

        Its weights stay where they are.
        """
        if not self.changes.asked and not self.changes.cut and not self.changes.kernels:
            return self.model
        copy = onnx.ModelProto()
        copy.CopyFrom(self.model)
        del copy.graph.value_info[:]
        added = _Added(copy)
        nodes = list[onnx.NodeProto]()
        for node in self.model.graph.node:
            own = onnx.NodeProto()
            own.CopyFrom(node)
            name = own.output[0] if own.output else ""
            for value in own.attribute if name in self.changes.kernels else ():
                if value.name == "kernel_shape":
                    value.ints[:] = self.changes.kernels[name]
            for asked in self.changes.asked.get(name, ()):
                own.input[asked.place] = added.numbers(name, asked.values, asked.dtype)
            for place, lengths in self.changes.cut.get(name, {}).items():
                taken = added.taken(own.input[place], spread_places(self.shape(own.input[place]), lengths))
                nodes += taken
                own.input[place] = taken[-1].output[0]
            nodes.append(own)
        del copy.graph.node[:]
        copy.graph.node.extend(nodes)
        return copy

    def constants_in_part(self) -> Iterator[ConstantInPart]:
        """The constants of which nodes take some positions. One for each time that something is taken."""
        for node in self.model.graph.node:
            for place, lengths in self.changes.cut.get(node.output[0] if node.output else "", {}).items():
                keeps = node.input[2] in self.constants if node.op_type == "Where" else None
                is_factor = node.op_type in MULTIPLYING or keeps is not None
                yield ConstantInPart(node.input[place], lengths, is_factor, self._turned_with(node), keeps)

    def _turned_with(self, node: onnx.NodeProto) -> str | None:
        """The constant of the other product, where that of ``node`` is one of two that are added and nobody else reads it."""
        readers = self._readers.get(node.output[0], [])
        if node.op_type != "Mul" or len(readers) != 1 or readers[0].op_type not in ADDING:
            return None
        others = (self._makers.get(name) for name in readers[0].input if name != node.output[0])
        other = next((one for one in others if one is not None and one.op_type == "Mul"), None)
        cut = {} if other is None else self.changes.cut.get(other.output[0], {})
        return next((other.input[place] for place in cut), None) if other is not None else None

    @cached_property
    def _readers(self) -> Mapping[str, list[onnx.NodeProto]]:
        found: dict[str, list[onnx.NodeProto]] = {}
        for node in self.model.graph.node:
            for name in node.input:
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def _makers(self) -> Mapping[str, onnx.NodeProto]:
        return {name: node for node in self.model.graph.node for name in node.output}

    def is_read_by(self, name: str, op_type: str) -> bool:
        """True for a tensor that a node of this type reads."""
        return any(reader.op_type == op_type for reader in self._readers.get(name, ()))

    def asked(self, node: onnx.NodeProto, place: int) -> list[Any] | None:
        """The sizes that input ``place`` of a node says; None where one is not known."""
        stated = (each.values for each in self.changes.asked.get(node.output[0], ()) if each.place == place)
        return next(map(list, stated), None) or self.elements(node.input[place])

    def order_after(self, name: str) -> Sequence[int] | None:
        """The place of each axis of a tensor after the one Transpose that reads it, and nothing else does; None for others."""
        readers = self._readers.get(name, [])
        if len(readers) != 1 or readers[0].op_type != "Transpose":
            return None
        perm = next((list(attribute.ints) for attribute in readers[0].attribute if attribute.name == "perm"), None)
        if perm is None or sorted(perm) != list(range(len(self.known_shape(name) or ()))):
            return None
        return [perm.index(axis) for axis in range(len(perm))]

    @cached_property
    def stored(self) -> Set[str]:
        """The constants that stand in the model, and are not worked out."""
        made = {name for node in self.model.graph.node if node.op_type == "Constant" for name in node.output}
        return made | {tensor.name for tensor in self.model.graph.initializer}

    @cached_property
    def say_sizes(self) -> Set[str]:
        """The tensors that nothing is made of but sizes, places and axes of others; those within nodes are not asked."""
        graph = self.model.graph
        others = {value.name for value in graph.output}
        for node in reversed(graph.node):
            places = _PLACES_OF_SIZES.get(node.op_type, ()) if node.domain in DEFAULT_DOMAINS else ()
            if not others.isdisjoint(node.output):
                others.update(name for place, name in enumerate(node.input) if place not in places)
        return {name for node in graph.node for name in node.output} - others

    def maker(self, names: Iterable[str]) -> onnx.ModelProto:
        """The model that makes these constants, which no input decides about."""
        wanted = sorted(set(names))
        graph, needed, nodes = self.model.graph, set(wanted), list[onnx.NodeProto]()
        for node in reversed(graph.node):
            if not needed.isdisjoint(node.output):
                needed.update(node.input)
                nodes.append(node)
        maker = onnx.ModelProto(ir_version=self.model.ir_version, opset_import=self.model.opset_import)
        maker.graph.name = graph.name
        maker.graph.node.extend(reversed(nodes))
        maker.graph.initializer.extend(tensor for tensor in graph.initializer if tensor.name in needed)
        maker.graph.output.extend(map(onnx.helper.make_empty_tensor_value_info, wanted))
        return maker

    def is_sequence(self, name: str) -> bool:
        """True for a sequence of tensors, whose number is known."""
        return self._tensors.get(name, UNKNOWN).items is not None

    def is_worked_out(self, name: str, sums_alone: bool = False) -> bool:
        """True for a constant that is computed in the model, and not only moved; of ``sums_alone`` by more than factors."""
        return name in self._worked_out[sums_alone]

    @cached_property
    def _worked_out(self) -> Mapping[bool, Set[str]]:
        """The tensors that are computed in the model, of whatever, and those of them that are by more than factors."""
        found: dict[bool, set[str]] = {False: set(), True: set()}
        for node in self.model.graph.node:
            for sums_alone, kept in ((False, _MOVING), (True, _MOVING | _OF_ITS_OWN_SIZE)):
                if node.op_type not in kept or not found[sums_alone].isdisjoint(node.input):
                    found[sums_alone].update(node.output)
        return found

    def elements(self, name: str) -> list[Any] | None:
        """The elements of a tensor that holds sizes; None where one is not known."""
        elements = self._tensors.get(name, UNKNOWN).vector()
        return None if elements is None or not all(isinstance(each, int | float) for each in elements) else elements

    def times_as_many(self, node: onnx.NodeProto) -> float:
        """How many times as many elements a TopK wants as there are."""
        wanted, there = self.shape(node.output[0]), self.shape(node.input[0])
        return max((a / max(b, 1) for a, b in zip(wanted, there, strict=True)), default=1.0)

    def work(self) -> int:
        """The multiply-adds of convolutions and products, those of unknown shape left out."""
        return sum(self._multiply_adds(node) for node in self.model.graph.node if node.op_type in _PRODUCTS)

    def _multiply_adds(self, node: onnx.NodeProto) -> int:
        try:
            return _PRODUCTS[node.op_type](*map(self.shape, (*node.input[:2], node.output[0])))
        except (IndexError, NotTheSame, TypeError):  # malformed nodes are for others to name
            return 0


class _Added:
    """Adds nodes and numbers to a ``model``, under names that it does not have."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._graph = model.graph
        named = (*model.graph.input, *model.graph.output, *model.graph.initializer)
        self._taken = {name for node in model.graph.node for name in (*node.input, *node.output)} | {
            each.name for each in named
        }

    def _name(self, of: str) -> str:
        name = next(name for number in count() if (name := f"{of}/smaller{number or ''}") not in self._taken)
        self._taken.add(name)
        return name

    def numbers(self, of: str, values: Sequence[int], dtype: type[np.integer] = np.int64) -> str:
        name = self._name(of)
        self._graph.initializer.append(onnx.numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def taken(self, tensor: str, places: Mapping[int, Sequence[int]]) -> list[onnx.NodeProto]:
        """Nodes of which the last gives the elements of a ``tensor`` at some ``places`` along each of its axes."""
        nodes = list[onnx.NodeProto]()
        for axis, along in places.items():
            name = self._name(tensor)
            given = nodes[-1].output[0] if nodes else tensor
            nodes.append(onnx.helper.make_node("Gather", [given, self.numbers(name, along)], [name], axis=axis))
        return nodes


def spread_places(shape: Shape, lengths: Shape) -> dict[int, list[int]]:
    """For each axis of ``shape`` that is shorter in ``lengths``, as many of its places from all over it, with the first one.

    Where they are few they follow the golden ratio, as equal distances may meet one column of an image again and again.
    """
    axes = zip(shape, lengths, strict=True)
    return {at: _spread(whole, taken) for at, (whole, taken) in enumerate(axes) if taken < whole}


def _spread(whole: int, taken: int) -> list[int]:
    if taken * _FEW >= whole:
        return [place * whole // taken for place in range(taken)]
    # The next multiple of the ratio lies in the largest gap that is left, so that no two places are the same.
    return sorted(math.floor(place * _GOLDEN % 1.0 * whole) for place in range(taken))


def known_lengths(shape: Sequence[object] | None) -> Shape | None:
    """A shape of which each length is known; None for others."""
    lengths = tuple(size for size in shape or () if isinstance(size, int))
    return None if shape is None or len(lengths) < len(shape) else lengths


_PRODUCTS: Mapping[str, Callable[[Shape, Shape, Shape], int]] = {
    "Conv": lambda x, weight, y: math.prod(y) * math.prod(weight[1:]),
    "ConvTranspose": lambda x, weight, y: math.prod(x) * math.prod(weight[1:]),
    "Gemm": lambda x, weight, y: math.prod(x) * max(y[-1], 1),
    "MatMul": lambda x, weight, y: math.prod(y) * x[-1],
}
