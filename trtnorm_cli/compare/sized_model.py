"""A model at one shape of its inputs or another: the sizes of its tensors, and the model as it is there."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import count
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.shapes import model_inputs
from trtnorm_cli.shapes.propagate import propagate
from trtnorm_cli.shapes.tensor import UNKNOWN, SymbolicTensor

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]

# Longer constants hold no sizes.
_MOST_SIZES = 64


# The inputs that say a shape in numbers.
_PLACES_OF_SIZES = {"Expand": 1, "Reshape": 1, "Resize": 3}
# These add a number of its own to each position, and those multiply by one, by the places of such numbers. Conditions may keep
# data from what follows.
_ADDING = {"Add": (0, 1), "Sub": (0, 1)}
_MULTIPLYING = {"Mul": (0, 1), "Div": (1,)}
_POOLING = frozenset(("AveragePool", "MaxPool"))
# These ask for the sizes of a tensor.
_ASKING = frozenset(("Shape", "Size"))
# These put numbers elsewhere.
_MOVING = frozenset(
    (
        *("Concat", "Constant", "ConstantOfShape", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Shape", "Slice"),
        *("Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    )
)
_MULTIPLYING_MATRICES = frozenset(("Einsum", "MatMul"))
# Areas of positions are fewer than the positions in each, by this factor at least.
_MANY_MORE = 4
# The inputs of a Slice that say where it begins and ends.
_ENDS = (1, 2)
# Into how many axes one is split for windows.
_NUMBER_AND_SIZE = 2
# Places are few where they are less than one in so many.
_FEW, _GOLDEN = 3, (math.sqrt(5.0) - 1.0) / 2.0


class NotTheSame(Exception):
    """A model or a node that may do something else at other shapes, or of which that is not known."""


class SizesDoNotFit(NotTheSame):
    """Shapes at which a node's demands on the sizes of its inputs are not met. They may be at larger ones."""


class SizedModel:
    """A model whose inputs take one shape or another. ``own`` is the model at its own shapes."""

    def __init__(self, model: onnx.ModelProto, shapes: Shapes, is_pinned: bool = False) -> None:
        self._model, self._shapes, self.is_pinned = model, shapes, is_pinned
        self._pinned = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
        graph = self._pinned.graph
        graph.node.extend(model.graph.node)
        given = model_inputs(model)
        graph.input.extend(value for value in model.graph.input if value.name in given)
        self._given = list(graph.input)
        for tensor in model.graph.initializer:
            if math.prod(tensor.dims) <= _MOST_SIZES:
                graph.initializer.append(tensor)
            else:
                graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))

    @cached_property
    def own(self) -> SizedTensors:
        return self._at(self._shapes, None)

    def pinned(self) -> SizedModel | None:
        """The model with the sizes at its own shapes as numbers; None where it makes nothing of these but sizes.

        A table that is read by indices worked out from the size of an image is a constant there.
        """
        asking = [node for node in self._model.graph.node if node.op_type in _ASKING and node.domain in DEFAULT_DOMAINS]
        known = {name: elements for node in asking for name in node.output if (elements := self.own.elements(name)) is not None}
        if all(self.own.elements(name) is not None for name in self._decided_by(known.keys()) - self._constant):
            return None
        copy = onnx.ModelProto()
        copy.CopyFrom(self._model)
        for node in copy.graph.node:
            if node.op_type in _ASKING and node.output[0] in known:
                sizes = np.array(known[node.output[0]], np.int64)
                value = onnx.numpy_helper.from_array(sizes if node.op_type == "Shape" else sizes.reshape(()))
                node.CopyFrom(onnx.helper.make_node("Constant", [], list(node.output), node.name, value=value))
        return SizedModel(copy, self._shapes, is_pinned=True)

    def at(self, smaller: Shapes) -> SizedTensors:
        """The model at other shapes; raises ``SizesDoNotFit`` where its sizes do not fit together there."""
        found = self._at(smaller, _Restored(self.own, self._constant))
        if found.broken:
            raise SizesDoNotFit(found.broken[0])
        return found

    def _at(self, shapes: Shapes, restored: _Restored | None) -> SizedTensors:
        for value in self._given:
            dims, shape = value.type.tensor_type.shape.dim, shapes.get(value.name, ())
            if len(dims) != len(shape):
                raise NotTheSame(f"input {value.name} has another rank, or none is stated")
            for dim, size in zip(dims, shape, strict=True):
                dim.dim_value = size
        found = propagate(self._pinned, instead=restored)
        asked, cut, kernels = ({}, {}, {}) if restored is None else (restored.asked, restored.cut, restored.kernels)
        return SizedTensors(self._model, dict(found.tensors), found.broken, asked, cut, kernels)

    @cached_property
    def _constant(self) -> Set[str]:
        """The tensors that no input of the model decides about."""
        return self._decided_by(())

    def _decided_by(self, names: Iterable[str]) -> Set[str]:
        """The tensors that nothing decides about but constants and the tensors of these ``names``."""
        found = {"", *names, *(tensor.name for tensor in self._model.graph.initializer)}
        for node in self._model.graph.node:
            if (node.input or node.op_type == "Constant") and found.issuperset(node.input):
                found.update(node.output)
        return found - {""}


@dataclass(frozen=True)
class _Numbers:
    """The numbers that input ``place`` of a node says at other shapes, instead of those that stand in the model."""

    place: int
    values: Shape


# Of the inputs of a node, what it takes of them along their axes.
_Cut = Mapping[int, Shape]


class _Restored:
    """Nodes that say a shape in numbers: what they ask for at other shapes, by their results, is in ``asked``.

    An exporter, a rewriting or TensorRT's parser knows the sizes of a file, and writes them as numbers. A Reshape gives its
    result the very shape that a tensor before it has, or merges and splits axes as there. A Resize lengthens each axis by the
    same factor as at the model's own shapes, and an Expand leaves each as long as it is; both make of a single position what
    such a tensor has. A Slice that crops an image leaves out as many positions at its end, and a pooling over a whole image is one.

    Constants with numbers for each position are ``cut`` to some of these, by the results of the nodes that take them.
    """

    def __init__(self, own: SizedTensors, constant: Set[str]) -> None:
        self.asked: dict[str, Sequence[_Numbers]] = {}
        self.cut: dict[str, _Cut] = {}
        self.kernels: dict[str, Shape] = {}
        self._own, self._constant = own, constant
        # What tensors of a shape have as their shape now, what axes of a length have as theirs, and neighbouring lengths that have
        # all changed.
        self._seen: dict[Shape, set[Shape]] = {}
        self._lengths: dict[int, set[int]] = {}
        self._grids: dict[Shape, set[Shape]] = {}
        self._looked_at = 0

    def __call__(self, node: onnx.NodeProto, tensors: Mapping[str, SymbolicTensor]) -> SymbolicTensor | None:
        place = _PLACES_OF_SIZES.get(node.op_type)
        if node.domain in DEFAULT_DOMAINS and node.op_type in _ADDING | _MULTIPLYING:
            return self._taken_in_part(node, tensors)
        if node.domain in DEFAULT_DOMAINS and node.op_type in _MULTIPLYING_MATRICES:
            return self._multiplied_in_part(node, tensors)
        if node.op_type == "Slice" and node.domain in DEFAULT_DOMAINS:
            return self._cropped(node, tensors)
        if node.op_type in _POOLING and node.domain in DEFAULT_DOMAINS:
            return self._pooled(node, tensors)
        if place is None or node.domain not in DEFAULT_DOMAINS or len(node.input) <= place:
            return None
        target, source = tensors.get(node.input[place], UNKNOWN).integers(), tensors.get(node.input[0], UNKNOWN)
        own, now = self._own.known_shape(node.output[0]), _known(source.shape)
        if target is None or own is None or now is None:
            return None
        self._look_at(tensors)
        if node.op_type == "Reshape":
            order = self._own.order_after(node.output[0])
            shape = self._reshaped(target, self._own.known_shape(node.input[0]), own, now, order)
        else:
            shape = self._lengthened(node, target, own, now)
        if shape is None:
            return None
        self.asked[node.output[0]] = [_Numbers(place, tuple(shape[axis] for axis in _axes(node, len(shape))))]
        return SymbolicTensor(source.dtype, shape)

    def _pooled(self, node: onnx.NodeProto, tensors: Mapping[str, SymbolicTensor]) -> SymbolicTensor | None:
        """The result of a pooling whose kernel lies on a whole image once: it does so on another image as well."""
        source = tensors.get(node.input[0], UNKNOWN)
        own, made, now = self._own.known_shape(node.input[0]), self._own.known_shape(node.output[0]), _known(source.shape)
        stated = {each.name: tuple(each.ints) for each in node.attribute}
        is_whole = own is not None and own[2:] == stated.get("kernel_shape") and made == (*own[:2], *(1 for _ in own[2:]))
        is_plain = not any(stated.get("pads", ())) and all(size == 1 for size in stated.get("dilations", ()))
        if not (is_whole and is_plain) or len(node.output) > 1 or now is None or now == own:
            return None
        self.kernels[node.output[0]] = now[2:]
        return SymbolicTensor(source.dtype, (*now[:2], *(1 for _ in now[2:])))

    def _cropped(self, node: onnx.NodeProto, tensors: Mapping[str, SymbolicTensor]) -> SymbolicTensor | None:
        """The result of a Slice, of which places nearer to the end of an axis stay as far from it."""
        source, opset_1 = tensors.get(node.input[0], UNKNOWN), len(node.input) <= max(_ENDS)
        own, now = self._own.known_shape(node.input[0]), _known(source.shape)
        if opset_1 or own is None or now is None or len(own) != len(now):
            return None
        starts, ends, axes, steps = (
            tensors.get(name, UNKNOWN).integers() if name else None for name in (*node.input[1:], "", "")[:4]
        )
        if starts is None or ends is None or any(step != 1 for step in steps or ()):
            return None
        shape, places = list(now), (list(starts), list(ends))
        stand = [self._own.elements(node.input[at]) or [] for at in _ENDS]
        for number, axis in enumerate(axes or range(len(starts))):
            for each, was in zip(places, stand, strict=True):
                is_late = own[axis] < 2 * each[number] < 2 * own[axis]
                if is_late and was[number : number + 1] == each[number : number + 1]:
                    each[number] -= own[axis] - now[axis]
                    if each[number] < 0:
                        return None
            first, last = (min(each[number] % now[axis] if each[number] < 0 else each[number], now[axis]) for each in places)
            shape[axis] = last - first
        found = [_Numbers(at, tuple(each)) for at, each, was in zip(_ENDS, places, (starts, ends), strict=True) if each != was]
        if not found or min(shape) < 1:
            return None
        self.asked[node.output[0]] = found
        return SymbolicTensor(source.dtype, tuple(shape))

    def _taken_in_part(self, node: onnx.NodeProto, tensors: Mapping[str, SymbolicTensor]) -> SymbolicTensor | None:
        """The result of a node that takes a constant with a number for each position of its other inputs."""
        own, given = self._own.known_shape(node.output[0]), [tensors.get(name, UNKNOWN) for name in node.input]
        is_constant = [name in self._constant for name in node.input]
        now = [_known(tensor.shape) for tensor in given]
        places = (_ADDING | _MULTIPLYING)[node.op_type]
        if own is None or all(is_constant) or not any(is_constant[place] for place in places):
            return None
        lengths = [(*(1,) * (len(own) - len(shape)), *shape) for shape in now if shape is not None and len(shape) <= len(own)]
        if len(lengths) < len(now):
            return None
        # As long as the data; where these have one position or none, as long as the constants.
        of_data = np.max([each for each, constant in zip(lengths, is_constant, strict=True) if not constant], axis=0)
        shape = [int(length) for length in np.where(of_data != 1, of_data, np.max(lengths, axis=0))]
        cut: dict[int, Shape] = {}
        for place, each in enumerate(lengths):
            part = tuple(map(min, each, shape))
            longer = [axis for axis, length in enumerate(each) if length not in (1, shape[axis])]
            if longer and (
                not is_constant[place]
                or place not in places
                or any(not each[axis] == own[axis] > shape[axis] for axis in longer)
            ):
                return None
            if longer:
                cut[place] = part[len(own) - len(now[place] or ()) :]
        if not cut:
            return None
        self.cut[node.output[0]] = cut
        return SymbolicTensor(given[-1].dtype, tuple(shape))

    def _multiplied_in_part(self, node: onnx.NodeProto, tensors: Mapping[str, SymbolicTensor]) -> SymbolicTensor | None:
        """The product of data with a constant that has a matrix for each position, as the relative ones of an attention.

        An axis of the constant alone is another one of positions, where it is as long. Weights of positions, which are summed
        over, stay as they are.
        """
        axes = _letters(node, [len(self._own.known_shape(name) or ()) for name in node.input])
        constants = [place for place, name in enumerate(node.input) if name in self._constant]
        if axes is None or len(constants) != 1:
            return None
        (constant,) = constants
        data = 1 - constant
        was, now = self._own.known_shape(node.input[data]), _known(tensors.get(node.input[data], UNKNOWN).shape)
        whole = _known(tensors.get(node.input[constant], UNKNOWN).shape)
        if was is None or now is None or whole is None or len(was) != len(now):
            return None
        lengths, before = dict(zip(axes[data], now, strict=True)), dict(zip(axes[data], was, strict=True))
        shorter = {axis for axis in axes[constant] if axis in axes[2] and lengths.get(axis, 0) < before.get(axis, 0)}
        changed = {before[axis]: lengths[axis] for axis in shorter}
        for axis, length in zip(axes[constant], whole, strict=True):
            if axis not in lengths:
                lengths[axis] = changed.get(length, length)
        named = list(zip(axes[constant], whole, strict=True))
        part = tuple(min(lengths[axis], length) for axis, length in named)
        is_summed = any(axis not in axes[2] and lengths[axis] != length for axis, length in named)
        if is_summed or part == whole or any(length not in (1, before.get(axis, length)) for axis, length in named):
            return None
        self.cut[node.output[0]] = {constant: part}
        return SymbolicTensor(tensors[node.input[data]].dtype, tuple(lengths[axis] for axis in axes[2]))

    def _reshaped(
        self, target: Sequence[int], before: Shape | None, own: Shape, now: Shape, order: Sequence[int] | None
    ) -> Shape | None:
        """The shape that a Reshape is to ask for, where ``target`` does not fit what it gets ``now``, and not ``before``."""
        size, lengths = math.prod(now), (*now, *([0] * len(target)))
        asked = math.prod(length or lengths[axis] for axis, length in enumerate(target) if length != -1)
        if asked == size:
            return None
        if -1 in target and asked and size % asked == 0:
            # The one length that is left open may not be the one that has changed.
            kept = None if before is None else _regrouped(before, own, now, self._grids, order, self._lengths, False)
            rest = [size // asked if length == -1 else length or lengths[axis] for axis, length in enumerate(target)]
            return None if kept is None or list(kept) == rest else kept
        shapes = [shape for shape in self._seen.get(own, ()) if math.prod(shape) == size]
        return (
            shapes[0]
            if len(shapes) == 1
            else None
            if before is None
            else _regrouped(before, own, now, self._grids, order, self._lengths)
        )

    def _lengthened(self, node: onnx.NodeProto, target: Sequence[int], own: Shape, now: Shape) -> Shape | None:
        """The shape that a Resize or an Expand is to ask for, where its ``target`` is still that at the model's own shapes."""
        before, missing = self._own.known_shape(node.input[0]), (1,) * (len(own) - len(now))
        if before is None or len(before) != len(now) or list(target) != [own[axis] for axis in _axes(node, len(own))]:
            return None
        lengths = list(zip((*missing, *now), own, (*missing, *before), strict=True))
        if node.op_type == "Expand":
            shape = tuple(length if made == was else made for length, made, was in lengths)
        elif 0 in before or any(length * made % was for length, made, was in lengths):
            return None
        else:
            shape = tuple(length * made // was for length, made, was in lengths)
        if single := {axis for axis, (_, made, was) in enumerate(lengths) if was == 1 < made}:
            others = [axis for axis in range(len(own)) if axis not in single]
            seen = [each for each in self._seen.get(own, ()) if all(each[axis] == shape[axis] for axis in others)]
            shape = seen[0] if len(seen) == 1 else shape if node.op_type == "Expand" else own
        return None if shape == own else shape

    def _look_at(self, tensors: Mapping[str, SymbolicTensor]) -> None:
        """Look at tensors that are new."""
        names = list(tensors)
        for name in names[self._looked_at :]:
            shape, own = _known(tensors[name].shape), self._own.known_shape(name)
            if own is not None and shape is not None and shape not in self._seen.setdefault(own, set()):
                self._seen[own].add(shape)
                if len(own) == len(shape):
                    self._compare(own, shape)
        self._looked_at = len(names)

    def _compare(self, own: Shape, shape: Shape) -> None:
        changed = [axis for axis, (was, length) in enumerate(zip(own, shape, strict=True)) if was != length]
        for axis in changed:
            self._lengths.setdefault(own[axis], set()).add(shape[axis])
        for axes in _windows(len(own)):
            if changed == list(axes):
                self._grids.setdefault(tuple(own[axis] for axis in axes), set()).add(tuple(shape[axis] for axis in axes))


@dataclass(frozen=True)
class ConstantInPart:
    """A constant of which a node takes some ``lengths``, to multiply by it or to add it.

    ``turned_with`` is the other constant of a rotation, the cosine beside the sine: what is multiplied by that one is added to
    what is multiplied by this one.
    """

    name: str
    lengths: Shape
    is_factor: bool
    turned_with: str | None = None


class SizedTensors:
    """A model at some shapes of its inputs: its tensors, and the demands that are ``broken`` there.

    By their results, ``asked`` is what nodes ask for there instead of the numbers that stand in the model, ``cut`` is what they
    take of constants with numbers for each position, and ``kernels`` are those of poolings over a whole image.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        tensors: Mapping[str, SymbolicTensor],
        broken: Sequence[str],
        asked: Mapping[str, Sequence[_Numbers]],
        cut: Mapping[str, _Cut],
        kernels: Mapping[str, Shape] = MappingProxyType({}),
    ) -> None:
        self.model, self.broken, self._tensors, self._asked, self._cut = model, broken, tensors, asked, cut
        self.kernels = kernels
        self._shapes: dict[str, Shape | None] = {}

    def shape(self, name: str) -> Shape:
        found = self.known_shape(name)
        if found is None:
            raise NotTheSame(f"the shape of {name} is not known")
        return found

    def known_shape(self, name: str) -> Shape | None:
        if name not in self._shapes:
            self._shapes[name] = _known(self._tensors.get(name, UNKNOWN).shape)
        return self._shapes[name]

    def adapted(self) -> onnx.ModelProto:
        """The model, or a copy in which nodes ask for other sizes in numbers and take parts of constants.

        Its weights stay where they are.
        """
        if not self._asked and not self._cut and not self.kernels:
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
            for value in own.attribute if name in self.kernels else ():
                if value.name == "kernel_shape":
                    value.ints[:] = self.kernels[name]
            for asked in self._asked.get(name, ()):
                own.input[asked.place] = added.numbers(name, asked.values)
            for place, lengths in self._cut.get(name, {}).items():
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
            for place, lengths in self._cut.get(node.output[0] if node.output else "", {}).items():
                yield ConstantInPart(node.input[place], lengths, node.op_type in _MULTIPLYING, self._turned_with(node))

    def _turned_with(self, node: onnx.NodeProto) -> str | None:
        """The constant of the other product, where that of ``node`` is one of two that are added and nobody else reads it."""
        readers = self._readers.get(node.output[0], [])
        if node.op_type != "Mul" or len(readers) != 1 or readers[0].op_type not in _ADDING:
            return None
        others = (self._makers.get(name) for name in readers[0].input if name != node.output[0])
        other = next((one for one in others if one is not None and one.op_type == "Mul"), None)
        cut = {} if other is None else self._cut.get(other.output[0], {})
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

    def asked(self, node: onnx.NodeProto, place: int) -> list[Any] | None:
        """The sizes that input ``place`` of a node says; None where one is not known."""
        stated = (each.values for each in self._asked.get(node.output[0], ()) if each.place == place)
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

    def is_worked_out(self, name: str) -> bool:
        """True for a constant that is computed in the model, and not only moved."""
        makers = list(self.maker([name]).graph.node)
        return any(node.op_type not in _MOVING for node in makers)

    def elements(self, name: str) -> list[Any] | None:
        """The elements of a tensor that holds sizes; None where one is not known."""
        elements = self._tensors.get(name, UNKNOWN).vector()
        return None if elements is None or not all(isinstance(each, int | float) for each in elements) else elements

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

    def numbers(self, of: str, values: Sequence[int]) -> str:
        name = self._name(of)
        self._graph.initializer.append(onnx.numpy_helper.from_array(np.array(values, np.int64), name))
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


def _windows(rank: int) -> Iterator[range]:
    """Axes beside each other, along which an image or a volume may lie."""
    return (range(first, first + length) for length in (2, 3) for first in range(rank - length + 1))


def _regrouped(
    before: Shape,
    own: Shape,
    now: Shape,
    grids: Mapping[Shape, Set[Shape]] = MappingProxyType({}),
    order: Sequence[int] | None = None,
    seen: Mapping[int, Set[int]] = MappingProxyType({}),
    may_guess: bool = True,
) -> Shape | None:
    """The shape that a Reshape from ``before`` to ``own`` gives ``now``: it merges axes, and splits those as long as before.

    One that is not is split as the ``grids`` say, by the lengths that it is split into in ``own``, if in one way alone, or else
    into as few areas as there, if it has the positions of an image in a row or is an axis of one. Where a Transpose follows, which
    puts axes into an ``order``, an axis of an image is split into as large windows: their number comes first there. One of the
    lengths may be ``seen`` to have changed elsewhere. None for others, or where the axes of both do not fall into groups.
    """
    if len(before) != len(now) or 0 in before or any(length != 1 for was, length in zip(before, now, strict=True) if was == 1):
        return None
    given = [(was, length) for was, length in zip(before, now, strict=True) if was != 1]
    is_image = sum(was != length for was, length in given) > 1
    axes, shape = [axis for axis, length in enumerate(own) if length != 1], [1] * len(own)
    while given and axes:
        merged, parts = 1, 1
        while (size := math.prod(was for was, _ in given[:merged])) != (
            wanted := math.prod(own[axis] for axis in axes[:parts])
        ):
            if size < wanted and merged < len(given):
                merged += 1
            elif wanted < size and parts < len(axes):
                parts += 1
            else:
                return None
        if parts == 1:
            shape[axes[0]] = math.prod(length for _, length in given[:merged])
        elif all(was == length for was, length in given[:merged]):
            for axis in axes[:parts]:
                shape[axis] = own[axis]
        else:
            size, split = math.prod(length for _, length in given[:merged]), tuple(own[axis] for axis in axes[:parts])
            found = [grid for grid in grids.get(split, ()) if math.prod(grid) == size]
            if not found and is_image and merged == 1 and order is not None and parts == _NUMBER_AND_SIZE:
                found = _in_windows(split, size, [order[axis] for axis in axes[:parts]])
            found = found or _with_one_length(split, size, seen)
            is_one = (is_image and merged == 1) or any(math.prod(grid) == math.prod(split) for grid in grids)
            if not found and may_guess and is_one:
                found = _in_areas(split, size)
            if len(found) != 1:
                return None
            for axis, length in zip(axes[:parts], found[0], strict=True):
                shape[axis] = length
        given, axes = given[merged:], axes[parts:]
    return None if given or axes else tuple(shape)


def _in_areas(split: Shape, size: int) -> list[Shape]:
    """The lengths of an axis of ``size`` positions in a row that is ``split`` into as few areas as at its own size."""
    few, *others, many = sorted(split)
    if others or few * _MANY_MORE > many or size % few:
        return []
    return [tuple(few if length == few else size // few for length in split)]


def _with_one_length(split: Shape, size: int, seen: Mapping[int, Set[int]]) -> list[Shape]:
    """The lengths of an axis of ``size`` that is ``split``, where one of them is ``seen`` to have changed like that elsewhere."""
    found = list[Shape]()
    for place, was in enumerate(split):
        others = math.prod(split) // was
        if size % others == 0 and size // others in seen.get(was, ()):
            found.append((*split[:place], size // others, *split[place + 1 :]))
    return found


def _in_windows(split: Shape, size: int, order: Sequence[int]) -> list[Shape]:
    """The lengths of an axis of ``size`` that is ``split`` into windows and their number, which comes first in ``order``."""
    window = order.index(max(order))
    if size % split[window]:
        return []
    return [tuple(length if place == window else size // split[window] for place, length in enumerate(split))]


def _letters(node: onnx.NodeProto, ranks: Sequence[int]) -> tuple[str, str, str] | None:
    """The axes of both operands and the result of a product, by letters; None for others."""
    if node.op_type == "Einsum":
        equation = next((one.s.decode() for one in node.attribute if one.name == "equation"), "").replace(" ", "")
        operands, arrow, result = equation.partition("->")
        first, comma, second = operands.partition(",")
        letters = (first, second, result)
        is_plain = arrow and comma and (first + second + result).isalpha()
        return letters if is_plain and [len(first), len(second)] == list(ranks) and all(map(_are_different, letters)) else None
    batch = "abcdefgh"[: max(ranks, default=0) - 2] if min(ranks, default=0) > 1 else None
    if len(ranks) != 2 or batch is None or max(ranks) > 8:
        return None
    first, second = (batch[len(batch) - rank + 2 :] for rank in ranks)
    return first + "mk", second + "kn", batch + "mn"


def _are_different(letters: str) -> bool:
    return len(set(letters)) == len(letters)


def _known(shape: Sequence[object] | None) -> Shape | None:
    """A shape of which each length is known; None for others."""
    lengths = tuple(size for size in shape or () if isinstance(size, int))
    return None if shape is None or len(lengths) < len(shape) else lengths


def _axes(node: onnx.NodeProto, rank: int) -> Sequence[int]:
    """The axes that the numbers of a node are of."""
    stated = next((list(attribute.ints) for attribute in node.attribute if attribute.name == "axes"), [])
    return stated if stated and node.op_type == "Resize" else range(rank)


_PRODUCTS: Mapping[str, Callable[[Shape, Shape, Shape], int]] = {
    "Conv": lambda x, weight, y: math.prod(y) * math.prod(weight[1:]),
    "ConvTranspose": lambda x, weight, y: math.prod(x) * math.prod(weight[1:]),
    "Gemm": lambda x, weight, y: math.prod(x) * max(y[-1], 1),
    "MatMul": lambda x, weight, y: math.prod(y) * x[-1],
}
