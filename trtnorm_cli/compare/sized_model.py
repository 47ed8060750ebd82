"""A model at one shape of its inputs or another: the sizes of its tensors, and the model as it is there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import count
from typing import Any

import numpy as np
import onnx

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.shapes import model_inputs
from trtnorm_cli.shapes.propagate import propagate
from trtnorm_cli.shapes.tensor import UNKNOWN, SymbolicTensor

Shape = tuple[int, ...]
Shapes = Mapping[str, Shape]

# Longer constants hold no sizes.
_MOST_SIZES = 64


class NotTheSame(Exception):
    """A model or a node that may do something else at other shapes, or of which that is not known."""


class SizedModel:
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
            if math.prod(tensor.dims) <= _MOST_SIZES:
                graph.initializer.append(tensor)
            else:
                graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))

    @cached_property
    def own(self) -> SizedTensors:
        return self._at(self._shapes, None)

    def at(self, smaller: Shapes) -> SizedTensors:
        """The model at other shapes; raises ``NotTheSame`` where its sizes do not fit together there."""
        found = self._at(smaller, _Restored(self.own))
        if found.broken:
            raise NotTheSame(found.broken[0])
        return found

    def _at(self, shapes: Shapes, restored: _Restored | None) -> SizedTensors:
        for value in self._given:
            dims, shape = value.type.tensor_type.shape.dim, shapes.get(value.name, ())
            if len(dims) != len(shape):
                raise NotTheSame(f"input {value.name} has another rank, or none is stated")
            for dim, size in zip(dims, shape, strict=True):
                dim.dim_value = size
        found = propagate(self._pinned, instead=restored)
        return SizedTensors(self._model, dict(found.tensors), found.broken, {} if restored is None else restored.targets)


class _Restored:
    """Reshapes that give a tensor the very shape that one before it has: ``targets`` are what they ask for at other shapes.

    A rewriting or TensorRT's parser knows the sizes of a file, and writes them as numbers.
    """

    def __init__(self, own: SizedTensors) -> None:
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


class SizedTensors:
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
        except (IndexError, NotTheSame, TypeError):  # malformed nodes are for others to name
            return 0


_PRODUCTS: Mapping[str, Callable[[Shape, Shape, Shape], int]] = {
    "Conv": lambda x, weight, y: math.prod(y) * math.prod(weight[1:]),
    "ConvTranspose": lambda x, weight, y: math.prod(x) * math.prod(weight[1:]),
    "Gemm": lambda x, weight, y: math.prod(x) * max(y[-1], 1),
    "MatMul": lambda x, weight, y: math.prod(y) * x[-1],
}
