"""Smaller images and volumes at which a model does the same as at those of its file, for the comparison in float64.

A convolution does the same at every position, and an evaluation takes as long as there are positions. A weight that is off is
off at all of them. So float64 may look at fewer, where each weight still reaches the data and no node knows where it is: then
ONNX Runtime alone runs the model at the file's own shapes, where a wrong size or border shows in any number.

Sizes are followed through the model from both shapes. A node is asked what it does where its tensors differ between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import onnx

from trtnorm_cli.evaluate.float64.planning import attributes_of, imported_opsets
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.shapes import model_inputs
from trtnorm_cli.onnx_model.walk import all_nodes
from trtnorm_cli.shapes.propagate import propagate
from trtnorm_cli.shapes.tensor import UNKNOWN, SymbolicTensor

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]

# Fewer multiply-adds take no time, in float64 either.
_FEW_MULTIPLY_ADDS = 1 << 30
# An evaluation at smaller inputs takes at most this share of it.
_SHARE = 0.25
# Images and volumes stay as far from a multiple of these as they are, since that decides about borders: networks halve them up
# to five times, and volumes mostly four times.
_STEPS = {4: (32,), 5: (16, 32)}
_MOST_TRIES = 6
_MOST_SIZES = 64
# Positions that are left along each axis. In one there is no order.
_POSITIONS = 2
# An image whose last axis is as short has its channels there.
_CHANNELS_OF_AN_IMAGE = 4
_REAL = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)

# What these compute at one position, or of all, does not depend on which or how many there are.
_ANYWHERE = frozenset(
    (
        *("Abs", "Add", "AveragePool", "BatchNormalization", "Cast", "Ceil", "Celu", "Clip", "Conv", "ConvTranspose", "Cos"),
        *("DepthToSpace", "Div", "Dropout", "Elu", "Erf", "Exp", "Expand", "Flatten", "Floor", "Gelu", "Gemm"),
        *("GlobalAveragePool", "GlobalMaxPool", "GroupNormalization", "HardSigmoid", "HardSwish", "Identity"),
        *("InstanceNormalization", "LRN", "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "MatMul", "Max", "MaxPool"),
        *("Mean", "MeanVarianceNormalization", "Min", "Mish", "Mul", "Neg", "PRelu", "Pow", "RMSNormalization", "Reciprocal"),
        *("ReduceL1", "ReduceL2", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare"),
        *("Relu", "Reshape", "Selu", "Sigmoid", "Sin", "Softmax", "Softplus", "Softsign", "SpaceToDepth", "Sqrt", "Squeeze"),
        *("Sub", "Sum", "Tanh", "ThresholdedRelu", "Transpose", "Unsqueeze", "Where"),
    )
)
_OVER_POSITIONS = frozenset(("AveragePool", "Conv", "ConvTranspose", "MaxPool"))


class NotTheSame(Exception):
    """A node that may do something else at other shapes, or of which that is not known."""


class TooSmall(Exception):
    """A shape at which a weight no longer reaches the data, or no order is left."""


def smaller_inputs(model: onnx.ModelProto, shapes: Shapes) -> tuple[Shapes, onnx.ModelProto] | None:
    """Shapes of the inputs at which ``model`` does the same with at most a quarter of the work as at ``shapes``.

    With these, the model as it is there. None where there are none, or it takes little time anyway.
    """
    images = {name: axes for name, shape in shapes.items() if (axes := _image_axes(model, name, shape))}
    if not images or _most_work(model, shapes, images) < _FEW_MULTIPLY_ADDS:
        return None
    sized = _Sized(model, shapes)
    try:
        for smaller in _candidates(shapes, images):
            other = sized.at(smaller)
            if sized.own.work() < _FEW_MULTIPLY_ADDS:
                return None
            if _is_large_enough(sized.own, other):
                return (smaller, other.adapted()) if other.work() <= _SHARE * sized.own.work() else None
    except NotTheSame:
        return None
    return None


def at_smaller(model: onnx.ModelProto, shapes: Shapes, smaller: Shapes) -> onnx.ModelProto | None:
    """``model`` as it is at ``smaller`` inputs; None where it may not do the same there as at ``shapes``."""
    sized = _Sized(model, shapes)
    try:
        other = sized.at(smaller)
        return other.adapted() if _is_large_enough(sized.own, other) else None
    except NotTheSame:
        return None


class _Sized:
    """A model whose inputs take one shape or another. ``own`` is the model at its own shapes."""

    def __init__(self, model: onnx.ModelProto, shapes: Shapes) -> None:
        self._model, self._shapes = model, shapes
        self._pinned = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import)
        graph = self._pinned.graph
        graph.node.extend(model.graph.node)
        given = model_inputs(model)
        graph.input.extend(value for value in model.graph.input if value.name in given)
        self._given = list(graph.input)
        for tensor in model.graph.initializer:
            # Longer ones hold no sizes.
            if math.prod(tensor.dims) <= _MOST_SIZES:
                graph.initializer.append(tensor)
            else:
                graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))

    @cached_property
    def own(self) -> _At:
        return self._at(self._shapes, None)

    def at(self, smaller: Shapes) -> _At:
        """The model at other shapes; raises ``NotTheSame`` where its sizes do not fit together there."""
        found = self._at(smaller, _Restored(self.own))
        if found.broken:
            raise NotTheSame(found.broken[0])
        return found

    def _at(self, shapes: Shapes, restored: _Restored | None) -> _At:
        for value in self._given:
            for dim, size in zip(value.type.tensor_type.shape.dim, shapes[value.name], strict=True):
                dim.dim_value = size
        found = propagate(self._pinned, instead=restored)
        return _At(self._model, dict(found.tensors), found.broken, {} if restored is None else restored.targets)


class _Restored:
    """Reshapes that give a tensor the very shape that one before it has: ``targets`` are what they ask for at other shapes.

    A rewriting or TensorRT's parser knows the sizes of a file, and writes them as numbers.
    """

    def __init__(self, own: _At) -> None:
        self.targets: dict[str, Shape] = {}
        self._own = own
        # What tensors of a shape have as their shape now.
        self._seen: dict[Shape, set[Shape]] = {}
        self._looked_at = 0

    def __call__(self, node: onnx.NodeProto, tensors: Mapping[str, SymbolicTensor]) -> SymbolicTensor | None:
        if node.op_type != "Reshape" or node.domain not in DEFAULT_DOMAINS or len(node.input) < 2:
            return None
        target, source = tensors.get(node.input[1], UNKNOWN).integers(), tensors.get(node.input[0], UNKNOWN)
        own = self._own.known_shape(node.output[0])
        if target is None or own is None or source.shape is None or not isinstance(source.size, int):
            return None
        asked = math.prod(size if size else source.shape[axis] or 0 for axis, size in enumerate(target) if size != -1)
        if asked == source.size or (-1 in target and asked and source.size % asked == 0):
            return None
        self._look_at(tensors)
        shapes = [shape for shape in self._seen.get(own, ()) if math.prod(shape) == source.size]
        if len(shapes) != 1:
            return None
        self.targets[node.output[0]] = shapes[0]
        return SymbolicTensor(source.dtype, shapes[0])

    def _look_at(self, tensors: Mapping[str, SymbolicTensor]) -> None:
        """Look at tensors that are new."""
        names = list(tensors)
        for name in names[self._looked_at :]:
            shape, own = tensors[name].shape, self._own.known_shape(name)
            if own is not None and shape is not None and all(isinstance(size, int) for size in shape):
                self._seen.setdefault(own, set()).add(tuple(size for size in shape if isinstance(size, int)))
        self._looked_at = len(names)


class _At:
    """A model at some shapes of its inputs: its tensors, and the demands that are ``broken`` there.

    ``targets`` are the shapes that Reshapes ask for there instead of what stands in the model, by their results.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        tensors: Mapping[str, SymbolicTensor],
        broken: Sequence[str],
        targets: Mapping[str, Shape],
    ) -> None:
        self.model, self.broken, self._tensors, self._targets = model, broken, tensors, targets
        self._shapes: dict[str, Shape | None] = {}

    def shape(self, name: str) -> Shape:
        found = self.known_shape(name)
        if found is None:
            raise NotTheSame(f"the shape of {name} is not known")
        return found

    def known_shape(self, name: str) -> Shape | None:
        if name not in self._shapes:
            shape = self._tensors.get(name, UNKNOWN).shape
            is_known = shape is not None and all(isinstance(size, int) for size in shape)
            self._shapes[name] = tuple(size for size in shape or () if isinstance(size, int)) if is_known else None
        return self._shapes[name]

    def adapted(self) -> onnx.ModelProto:
        """The model, or a copy with other targets of Reshapes. Its weights stay where they are."""
        if not self._targets:
            return self.model
        copy = onnx.ModelProto()
        copy.CopyFrom(self.model)
        del copy.graph.value_info[:]
        taken = {name for node in copy.graph.node for name in (*node.input, *node.output)}
        for node in copy.graph.node:
            target = self._targets.get(node.output[0]) if node.output else None
            if target is not None:
                name = next(name for number in count() if (name := f"{node.output[0]}/smaller{number or ''}") not in taken)
                copy.graph.initializer.append(onnx.numpy_helper.from_array(np.array(target, np.int64), name))
                node.input[1] = name
        return copy

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
        except NotTheSame:
            return 0


_PRODUCTS: Mapping[str, Callable[[Shape, Shape, Shape], int]] = {
    "Conv": lambda x, weight, y: math.prod(y) * math.prod(weight[1:]),
    "ConvTranspose": lambda x, weight, y: math.prod(x) * math.prod(weight[1:]),
    "Gemm": lambda x, weight, y: math.prod(x) * max(y[-1], 1),
    "MatMul": lambda x, weight, y: math.prod(y) * x[-1],
}


def _image_axes(model: onnx.ModelProto, name: str, shape: Shape) -> range | None:
    """The axes of an input along which an image or a volume lies; None where it is neither."""
    kind = model_inputs(model)[name]
    is_real = kind.dtype in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
    if not is_real or len(shape) not in _STEPS:
        return None
    return range(1, len(shape) - 1) if shape[-1] <= _CHANNELS_OF_AN_IMAGE < shape[1] else range(2, len(shape))


def _most_work(model: onnx.ModelProto, shapes: Shapes, images: Mapping[str, range]) -> int:
    """No fewer multiply-adds than the convolutions of a model have that makes no image larger than it is given."""
    read = {node.input[1] for node in model.graph.node if node.op_type in ("Conv", "ConvTranspose")}
    weights = sum(math.prod(tensor.dims) for tensor in model.graph.initializer if tensor.name in read)
    return weights * max(shapes[name][0] * math.prod(shapes[name][axis] for axis in axes) for name, axes in images.items())


def _candidates(shapes: Shapes, images: Mapping[str, range]) -> Iterator[dict[str, Shape]]:
    """Shapes with smaller images, the smallest first. Two axes differ in length where they can: that shows what was swapped."""
    found: dict[int, dict[str, Shape]] = {}
    for step in sorted({step for name in images for step in _STEPS[len(shapes[name])]}):
        for number in range(_MOST_TRIES):
            smaller = dict(shapes)
            for name, axes in images.items():
                sizes = list(shapes[name])
                for place, axis in enumerate(axes):
                    # As short as it may be, and further steps.
                    least = step + sizes[axis] % step
                    sizes[axis] = min(least + step * (number + place % 2), sizes[axis])
                smaller[name] = tuple(sizes)
            found.setdefault(sum(map(math.prod, smaller.values())), smaller)
    most = _SHARE * sum(map(math.prod, shapes.values()))
    yield from [found[elements] for elements in sorted(found) if elements <= most][:_MOST_TRIES]


def _is_large_enough(own: _At, other: _At) -> bool:
    """False where too little is left; raises ``NotTheSame`` for a node that may do something else there."""
    nodes = own.model.graph.node
    if len(list(all_nodes(own.model))) > len(nodes) or own.model.functions:
        raise NotTheSame("a graph within a node, or a function")
    opsets, is_large_enough = imported_opsets(own.model), True
    read = {name for node in nodes for name in node.input} | {value.name for value in own.model.graph.output}
    for node in nodes:
        names = [*filter(None, node.input), *read.intersection(node.output)]
        try:
            _require_same_node(node, names, own, other, opsets)
        except TooSmall:  # another node may say that nothing smaller helps
            is_large_enough = False
    return is_large_enough


def _require_same_node(node: onnx.NodeProto, names: Sequence[str], own: _At, other: _At, opsets: Mapping[str, int]) -> None:
    if all(own.elements(name) is not None and other.elements(name) is not None for name in node.output if name):
        return  # it reckons with sizes, which all participants do as they are
    differs = [name for name in names if own.shape(name) != other.shape(name)]
    if not differs and all(own.elements(name) == other.elements(name) for name in node.input if name):
        return
    if node.domain not in DEFAULT_DOMAINS:
        raise NotTheSame(node.op_type)
    for name in differs:
        if any(a != b and b < _POSITIONS for a, b in zip(own.shape(name), other.shape(name), strict=True)):
            raise TooSmall(name)
    asked = _Asked(node, attributes_of(node, opsets), own, other)
    rule = _RULES.get(node.op_type)
    if rule is not None:
        rule(asked)
    elif node.op_type not in _ANYWHERE:
        raise NotTheSame(node.op_type)
    if node.op_type in _OVER_POSITIONS:
        _require_reached(asked)


@dataclass(frozen=True)
class _Asked:
    """A node with its attributes, at the model's own shapes and at the others."""

    node: onnx.NodeProto
    attributes: Mapping[str, Any]
    own: _At
    other: _At

    def shapes(self, name: str) -> tuple[Shape, Shape]:
        return self.own.shape(name), self.other.shape(name)

    def require_equal_lengths(self, axis: int) -> None:
        """Nothing may differ along ``axis``."""
        for name in filter(None, (self.node.input[0], *self.node.output)):
            before, after = self.shapes(name)
            if before[axis] != after[axis]:
                raise NotTheSame(self.node.op_type)


def _along_one_axis(asked: _Asked) -> None:
    """Tensors are put together, or parts of one taken, along an axis that keeps its length."""
    axis = int(asked.attributes.get("axis") or 0)
    asked.require_equal_lengths(axis)
    for name in asked.node.input[1:] if asked.node.op_type == "Concat" else ():
        before, after = asked.shapes(name)
        if before[axis] != after[axis]:
            raise NotTheSame(asked.node.op_type)


def _sliced(asked: _Asked) -> None:
    """All is taken along axes that do not keep their length."""
    (x, other_x), (y, other_y) = asked.shapes(asked.node.input[0]), asked.shapes(asked.node.output[0])
    for before, after, taken, taken_after in zip(x, other_x, y, other_y, strict=True):
        if before != after and (taken != before or taken_after != after):
            raise NotTheSame("Slice")


def _by_constants(asked: _Asked) -> None:
    """By as much at both."""
    for name in filter(None, asked.node.input[1:]):
        if asked.own.elements(name) != asked.other.elements(name):
            raise NotTheSame(asked.node.op_type)


def _resized(asked: _Asked) -> None:
    """By the same factors, however they are said."""
    (x, other_x), (y, other_y) = asked.shapes(asked.node.input[0]), asked.shapes(asked.node.output[0])
    for before, after, made, made_after in zip(x, other_x, y, other_y, strict=True):
        if made * after != made_after * before:
            raise NotTheSame("Resize")


_RULES: Mapping[str, Callable[[_Asked], None]] = {
    "Concat": _along_one_axis,
    "Pad": _by_constants,
    "Resize": _resized,
    "Slice": _sliced,
    "Split": _along_one_axis,
    "Tile": _by_constants,
    "Upsample": _resized,
}


def _require_reached(asked: _Asked) -> None:
    """Every place of a kernel lies on data at some position, as it does at the model's own shapes."""
    node, attributes = asked.node, asked.attributes
    x, y = node.input[0], node.output[0]
    kernel = attributes.get("kernel_shape") or asked.own.shape(node.input[1])[2:]
    for place, size in enumerate(kernel):
        lengths = [(at.shape(x)[2 + place], at.shape(y)[2 + place]) for at in (asked.own, asked.other)]
        if lengths[0] != lengths[1]:
            before, after = (_reached(attributes, place, int(size), *each, node.op_type) for each in lengths)
            if not before <= after:
                raise TooSmall(node.op_type)


def _reached(attributes: Mapping[str, Any], place: int, kernel: int, size: int, made: int, operator: str) -> set[int]:
    """The places of a kernel that lie on data somewhere along an axis of ``size``, of which ``made`` positions are made."""
    stride, dilation = (_at(attributes.get(name), place, 1) for name in ("strides", "dilations"))
    few, many = (size, made) if operator == "ConvTranspose" else (made, size)
    reach = (kernel - 1) * dilation + 1
    automatic = attributes.get("auto_pad") or "NOTSET"
    begin = _at(attributes.get("pads"), place, 0)
    if automatic.startswith("SAME"):
        total = max((few - 1) * stride + reach - many, 0)
        begin = total // 2 if automatic == "SAME_UPPER" else total - total // 2
    starts = [position * stride - begin for position in range(few)]
    return {each for each in range(kernel) if any(0 <= start + each * dilation < many for start in starts)}


def _at(values: Sequence[int] | None, place: int, default: int) -> int:
    return int(values[place]) if values else default
