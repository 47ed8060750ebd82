"""The sizes that nodes ask for at other shapes of a model, where they say those of its own in numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import pairwise

import numpy as np
import onnx

from trtnorm_cli.compare.regrouping import regrouped
from trtnorm_cli.compare.sized_tensors import ADDING, MULTIPLYING, Changes, Numbers, Shape, SizedTensors, known_lengths
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.shapes.tensor import UNKNOWN, SymbolicTensor

# The inputs that say a shape in numbers.
_PLACES_OF_SIZES = {"Expand": 1, "Reshape": 1, "Resize": 3}
_POOLING = frozenset(("AveragePool", "MaxPool"))
_MULTIPLYING_MATRICES = frozenset(("Einsum", "MatMul"))
_INTEGERS: Mapping[int, type[np.integer]] = {onnx.TensorProto.INT32: np.int32}
# The inputs of a Slice that say where it begins and ends.
_ENDS = (1, 2)


class Restored:
    """Nodes that say a shape in numbers: what they ask for at other shapes is in ``changes``.

    An exporter, a rewriting or TensorRT's parser knows the sizes of a file, and writes them as numbers. A Reshape gives its
    result the very shape that a tensor before it has, or merges and splits axes as there. A Resize lengthens each axis by the
    same factor as at the model's own shapes, and an Expand leaves each as long as it is; both make of a single position what
    such a tensor has. A Slice that crops an image leaves out as many positions at its end. A pooling over a whole image stays
    one.

    Constants with numbers for each position are cut to some of these.

    Maps of features that are put behind each other along an axis are taken apart again where these meet.
    """

    def __init__(self, own: SizedTensors, constant: Set[str]) -> None:
        self.changes = Changes()
        self._own, self._constant = own, constant
        # What tensors of a shape have as their shape now, what axes of a length have as theirs, and what neighbouring axes have
        # that have all changed, when no other axis of a tensor has.
        self._seen: dict[Shape, set[Shape]] = {}
        self._lengths: dict[int, set[int]] = {}
        self._grids: dict[Shape, set[Shape]] = {}
        self._new: list[str] | None = None

    def __call__(self, node: onnx.NodeProto, tensors: Mapping[str, SymbolicTensor]) -> Sequence[SymbolicTensor] | None:
        if node.op_type == "Split" and node.domain in DEFAULT_DOMAINS:
            made = self._taken_apart(node, tensors)
        else:
            first = self._first_of(node, tensors)
            made = None if first is None else [first]
        if self._new is not None:
            self._new.extend(node.output)
        return made

    def _first_of(self, node: onnx.NodeProto, tensors: Mapping[str, SymbolicTensor]) -> SymbolicTensor | None:
        """The first output of a node."""
        place = _PLACES_OF_SIZES.get(node.op_type)
        if not node.input or not node.output:
            return None  # it is for others to say that it is malformed
        if node.domain in DEFAULT_DOMAINS and node.op_type in ADDING | MULTIPLYING:
            return self._taken_in_part(node, tensors)
        if node.domain in DEFAULT_DOMAINS and node.op_type in _MULTIPLYING_MATRICES:
            return self._multiplied_in_part(node, tensors)
        if node.domain in DEFAULT_DOMAINS and node.op_type == "Where":
            return self._chosen_in_part(node, tensors)
        if node.domain in DEFAULT_DOMAINS and node.op_type == "Concat":
            self._join(node, tensors)
            return self._put_beside_in_part(node, tensors)
        if node.op_type == "Gather" and node.domain in DEFAULT_DOMAINS:
            return self._looked_up_in_part(node, tensors)
        if node.op_type == "Slice" and node.domain in DEFAULT_DOMAINS:
            return self._cropped(node, tensors)
        if node.op_type in _POOLING and node.domain in DEFAULT_DOMAINS:
            return self._pooled(node, tensors)
        if place is None or node.domain not in DEFAULT_DOMAINS or len(node.input) <= place:
            return None
        target, source = tensors.get(node.input[place], UNKNOWN).integers(), tensors.get(node.input[0], UNKNOWN)
        own, now = self._own.known_shape(node.output[0]), known_lengths(source.shape)
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
        self.changes.asked[node.output[0]] = [Numbers(place, tuple(shape[axis] for axis in _axes(node, len(shape))))]
        return SymbolicTensor(source.dtype, shape)

    def _pooled(self, node: onnx.NodeProto, tensors: Mapping[str, SymbolicTensor]) -> SymbolicTensor | None:
        """The result of a pooling whose kernel lies on a whole image once: it does so on another image as well."""
        source = tensors.get(node.input[0], UNKNOWN)
        own, made, now = (
            self._own.known_shape(node.input[0]),
            self._own.known_shape(node.output[0]),
            known_lengths(source.shape),
        )
        stated = {each.name: tuple(each.ints) for each in node.attribute}
        is_whole = own is not None and own[2:] == stated.get("kernel_shape") and made == (*own[:2], *(1 for _ in own[2:]))
        is_plain = not any(stated.get("pads", ())) and all(size == 1 for size in stated.get("dilations", ()))
        if not (is_whole and is_plain) or len(node.output) > 1 or now is None or now == own:
            return None
        self.changes.kernels[node.output[0]] = now[2:]
        return SymbolicTensor(source.dtype, (*now[:2], *(1 for _ in now[2:])))

    def _cropped(self, node: onnx.NodeProto, tensors: Mapping[str, SymbolicTensor]) -> SymbolicTensor | None:
        """The result of a Slice, of which places nearer to the end of an axis stay as far from it."""
        source, opset_1 = tensors.get(node.input[0], UNKNOWN), len(node.input) <= max(_ENDS)
        own, now = self._own.known_shape(node.input[0]), known_lengths(source.shape)
        if opset_1 or own is None or now is None or len(own) != len(now):
            return None
        starts, ends, axes, steps = (
            tensors.get(name, UNKNOWN).integers() if name else None for name in (*node.input[1:], "", "")[:4]
        )
        if starts is None or ends is None or any(step != 1 for step in steps or ()):
            return None
        along = range(len(starts)) if axes is None else axes
        if (
            not len(starts) == len(ends) == len(along)
            or min(now, default=0) < 1
            or any(not -len(own) <= axis < len(own) for axis in along)
        ):
            return None
        shape, places = list(now), (list(starts), list(ends))
        stand = [self._own.elements(node.input[at]) or [] for at in _ENDS]
        for number, axis in enumerate(along):
            are_own = all(was[number : number + 1] == [each[number]] for each, was in zip(places, stand, strict=True))
            joints = [self.changes.joints.place(own[axis], now[axis], each[number]) for each in places]
            is_between = are_own and None not in joints
            for each, was, joint in zip(places, stand, joints, strict=True):
                is_late = own[axis] < 2 * each[number] < 2 * own[axis]
                if is_between and joint is not None and -own[axis] <= each[number] < own[axis]:
                    each[number] = joint
                elif is_late and was[number : number + 1] == each[number : number + 1]:
                    each[number] -= own[axis] - now[axis]
                    if each[number] < 0:
                        return None
            first, last = (min(each[number] % now[axis] if each[number] < 0 else each[number], now[axis]) for each in places)
            shape[axis] = last - first
        types = [_INTEGERS.get(tensors.get(node.input[at], UNKNOWN).dtype, np.int64) for at in _ENDS]
        changed = zip(_ENDS, places, types, (starts, ends), strict=True)
        found = [Numbers(at, tuple(each), dtype) for at, each, dtype, was in changed if each != was]
        if not found or min(shape) < 1:
            return None
        self.changes.asked[node.output[0]] = found
        return SymbolicTensor(source.dtype, tuple(shape))

    def _join(self, node: onnx.NodeProto, tensors: Mapping[str, SymbolicTensor]) -> None:
        """Remember where the tensors meet that a Concat puts behind each other."""
        was = [self._own.known_shape(name) for name in node.input]
        now = [known_lengths(tensors.get(name, UNKNOWN).shape) for name in node.input]
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), None)
        ranks = {len(shape) for shape in (*was, *now) if shape is not None}
        if axis is not None and len(ranks) == 1 and -min(ranks) <= axis < min(ranks):
            lengths = ([shape[axis] for shape in shapes if shape is not None] for shapes in (was, now))
            self.changes.joints.learn(*lengths)

    def _taken_apart(self, node: onnx.NodeProto, tensors: Mapping[str, SymbolicTensor]) -> list[SymbolicTensor] | None:
        """The results of a Split into tensors that were put behind each other, whose lengths it says in numbers."""
        source = tensors.get(node.input[0], UNKNOWN) if node.input else UNKNOWN
        own, now = self._own.known_shape(node.input[0]) if node.input else None, known_lengths(source.shape)
        sizes = tensors.get(node.input[1], UNKNOWN).integers() if len(node.input) > 1 else None
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
        if own is None or now is None or sizes is None or len(own) != len(now) or not -len(own) <= axis < len(own):
            return None
        if sum(sizes) != own[axis] or own[axis] == now[axis] or len(sizes) != len(node.output):
            return None
        places = [self.changes.joints.place(own[axis], now[axis], sum(sizes[:number])) for number in range(len(sizes) + 1)]
        known = [place for place in places if place is not None]
        if len(known) < len(places) or sorted(set(known)) != known:
            return None
        lengths = tuple(last - first for first, last in pairwise(known))
        self.changes.asked[node.output[0]] = [Numbers(1, lengths)]
        axis %= len(now)
        return [SymbolicTensor(source.dtype, (*now[:axis], length, *now[axis + 1 :])) for length in lengths]

    def _taken_in_part(self, node: onnx.NodeProto, tensors: Mapping[str, SymbolicTensor]) -> SymbolicTensor | None:
        """The result of a node that takes a constant with a number for each position of its other inputs."""
        own, given = self._own.known_shape(node.output[0]), [tensors.get(name, UNKNOWN) for name in node.input]
        is_constant = [name in self._constant for name in node.input]
        now = [known_lengths(tensor.shape) for tensor in given]
        places = (ADDING | MULTIPLYING)[node.op_type]
        if own is None or len(given) <= max(places) or all(is_constant) or not any(is_constant[place] for place in places):
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
        self.changes.cut[node.output[0]] = cut
        return SymbolicTensor(given[-1].dtype, tuple(shape))

    def _chosen_in_part(self, node: onnx.NodeProto, tensors: Mapping[str, SymbolicTensor]) -> SymbolicTensor | None:
        """The result of a choice between data and a number by a constant condition, as that of a mask of positions."""
        now = [known_lengths(tensors.get(name, UNKNOWN).shape) for name in node.input]
        data = [place for place in (1, 2) if node.input[place : place + 1] and node.input[place] not in self._constant]
        if len(now) != 3 or None in now or len(data) != 1 or node.input[0] not in self._constant:
            return None
        condition, chosen, other = now[0] or (), now[data[0]] or (), now[3 - data[0]] or ()
        if math.prod(other) != 1 or len(chosen) < max(len(condition), len(other)):
            return None
        was = self._own.known_shape(node.input[data[0]]) or ()
        lengths, whole = (shape[len(shape) - len(condition) :] for shape in (chosen, was))
        longer = [axis for axis, length in enumerate(condition) if length not in (1, lengths[axis])]
        if not longer or len(was) != len(chosen) or any(not condition[at] == whole[at] > lengths[at] > 1 for at in longer):
            return None
        self.changes.cut[node.output[0]] = {0: tuple(map(min, condition, lengths))}
        return SymbolicTensor(tensors[node.input[data[0]]].dtype, chosen)

    def _looked_up_in_part(self, node: onnx.NodeProto, tensors: Mapping[str, SymbolicTensor]) -> SymbolicTensor | None:
        """The result of looking up places among all positions in a constant table that has a row for each."""
        if len(node.input) != 2 or node.input[0] not in self._constant or node.input[1] in self._constant:
            return None
        whole, places = (known_lengths(tensors.get(name, UNKNOWN).shape) for name in node.input)
        axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
        if whole is None or places is None or not -len(whole) <= axis < len(whole):
            return None
        self._look_at(tensors)
        axis %= len(whole)
        now = self._lengths.get(whole[axis], set())
        if len(now) != 1 or not min(now) < whole[axis]:
            return None
        self.changes.cut[node.output[0]] = {0: (*whole[:axis], *now, *whole[axis + 1 :])}
        return SymbolicTensor(tensors[node.input[0]].dtype, (*whole[:axis], *places, *whole[axis + 1 :]))

    def _put_beside_in_part(self, node: onnx.NodeProto, tensors: Mapping[str, SymbolicTensor]) -> SymbolicTensor | None:
        """The result of a Concat that puts constants with numbers for each position beside data, as further channels."""
        given = [tensors.get(name, UNKNOWN) for name in node.input]
        was = [self._own.known_shape(name) for name in node.input]
        now = [each for tensor in given if (each := known_lengths(tensor.shape)) is not None]
        data = [place for place, name in enumerate(node.input) if name not in self._constant]
        stated = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), None)
        if len(now) < len(given) or None in was or not data or stated is None:
            return None
        rank = len(now[data[0]])
        if not -rank <= stated < rank or any(len(each) != rank for each in (*now, *filter(None, was))):
            return None
        along = stated % rank
        parts = [(*now[data[0]][:along], each[along], *now[data[0]][along + 1 :]) for each in now]
        cut = {place: part for place, part in enumerate(parts) if part != now[place]}
        are_constants = all(place not in data and now[place] == was[place] for place in cut)
        are_shorter = all(a <= b for place, part in cut.items() for a, b in zip(part, now[place], strict=True))
        # What lies behind an image, as a border, is another one at another size.
        keeps_channels = all((was[place] or ())[along] == now[place][along] for place in data)
        if not (cut and are_constants and are_shorter and keeps_channels):
            return None
        self.changes.cut[node.output[0]] = cut
        made = (*now[data[0]][:along], sum(each[along] for each in now), *now[data[0]][along + 1 :])
        return SymbolicTensor(given[0].dtype, made)

    def _multiplied_in_part(self, node: onnx.NodeProto, tensors: Mapping[str, SymbolicTensor]) -> SymbolicTensor | None:
        """The product of data with a constant that has a matrix for each position, as the relative ones of an attention.

        An axis of the constant alone is another one of positions, where it is as long. Weights of positions, which are summed
        over, stay as they are.
        """
        axes = letters_of(node, [len(self._own.known_shape(name) or ()) for name in node.input])
        constants = [place for place, name in enumerate(node.input) if name in self._constant]
        if axes is None or len(constants) != 1:
            return None
        (constant,) = constants
        data = 1 - constant
        was, now = self._own.known_shape(node.input[data]), known_lengths(tensors.get(node.input[data], UNKNOWN).shape)
        whole = known_lengths(tensors.get(node.input[constant], UNKNOWN).shape)
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
        self.changes.cut[node.output[0]] = {constant: part}
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
            kept = None if before is None else regrouped(before, own, now, self._grids, order, self._lengths, False)
            rest = [size // asked if length == -1 else length or lengths[axis] for axis, length in enumerate(target)]
            return None if kept is None or list(kept) == rest else kept
        shapes = [shape for shape in self._seen.get(own, ()) if math.prod(shape) == size]
        if len(shapes) == 1:
            return shapes[0]
        return None if before is None else regrouped(before, own, now, self._grids, order, self._lengths)

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
        names, self._new = list(tensors) if self._new is None else self._new, []
        for name in filter(None, names):
            shape, own = known_lengths(tensors[name].shape), self._own.known_shape(name)
            if own is not None and shape is not None and shape not in self._seen.setdefault(own, set()):
                self._seen[own].add(shape)
                if len(own) == len(shape):
                    self._compare(own, shape)

    def _compare(self, own: Shape, shape: Shape) -> None:
        changed = [axis for axis, (was, length) in enumerate(zip(own, shape, strict=True)) if was != length]
        for axis in changed:
            self._lengths.setdefault(own[axis], set()).add(shape[axis])
        for axes in _windows(len(own)):
            if changed == list(axes):
                self._grids.setdefault(tuple(own[axis] for axis in axes), set()).add(tuple(shape[axis] for axis in axes))


def _windows(rank: int) -> Iterator[range]:
    """Axes beside each other, along which an image or a volume may lie."""
    return (range(first, first + length) for length in (2, 3) for first in range(rank - length + 1))


def letters_of(node: onnx.NodeProto, ranks: Sequence[int]) -> tuple[str, str, str] | None:
    """The axes of both operands and the result of a product, by letters; None for others."""
    if node.op_type == "Einsum":
        equation = next((one.s.decode(errors="replace") for one in node.attribute if one.name == "equation"), "")
        operands, arrow, result = equation.replace(" ", "").partition("->")
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


def _axes(node: onnx.NodeProto, rank: int) -> Sequence[int]:
    """The axes that the numbers of a node are of."""
    stated = next((list(attribute.ints) for attribute in node.attribute if attribute.name == "axes"), [])
    return stated if stated and node.op_type == "Resize" else range(rank)
