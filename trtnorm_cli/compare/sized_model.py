"""A model at one shape of its inputs or another."""

from __future__ import annotations

import math
from collections.abc import Iterable, Set
from functools import cached_property

import numpy as np
import onnx

from trtnorm_cli.compare.restored_sizes import Restored
from trtnorm_cli.compare.sized_tensors import NotTheSame, Shapes, SizedTensors
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.shapes import model_inputs
from trtnorm_cli.shapes.propagate import propagate

# Longer constants hold no sizes.
_MOST_SIZES = 64
# These ask for the sizes of a tensor.
_ASKING = frozenset(("Shape", "Size"))


class SizesDoNotFit(NotTheSame):
    """Shapes at which a node's demands on the sizes of its inputs are not met. They may be at larger ones."""


class TooFewToChooseFrom(SizesDoNotFit):
    """Shapes at which there are fewer positions than a TopK wants, which are so many ``times`` as many."""

    def __init__(self, words: str, times: float) -> None:
        super().__init__(words)
        self.times = times


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
        nodes = (node for node in self._model.graph.node if node.output and node.domain in DEFAULT_DOMAINS)
        asking = [node for node in nodes if node.op_type in _ASKING]
        known = {name: elements for node in asking for name in node.output if (elements := self.own.elements(name)) is not None}
        if self._decided_by(known.keys()) - self._constant <= self.own.say_sizes:
            return None
        copy = onnx.ModelProto()
        copy.CopyFrom(self._model)
        for node in copy.graph.node:
            if node.op_type in _ASKING and node.output and node.output[0] in known:
                sizes = np.array(known[node.output[0]], np.int64)
                value = onnx.numpy_helper.from_array(sizes if node.op_type == "Shape" else sizes.reshape(()))
                node.CopyFrom(onnx.helper.make_node("Constant", [], list(node.output), node.name, value=value))
        return SizedModel(copy, self._shapes, is_pinned=True)

    def at(self, smaller: Shapes) -> SizedTensors:
        """The model at other shapes; raises ``SizesDoNotFit`` where its sizes do not fit together there."""
        found = self._at(smaller, Restored(self.own, self._constant))
        if found.broken:
            choosing = [node for node in self._choosing if not found.unmet.isdisjoint(node.output)]
            if choosing and found.unmet <= {name for node in choosing for name in node.output}:
                raise TooFewToChooseFrom(found.broken[0], max(map(found.times_as_many, choosing)))
            raise SizesDoNotFit(found.broken[0])
        return found

    def _at(self, shapes: Shapes, restored: Restored | None) -> SizedTensors:
        for value in self._given:
            dims, shape = value.type.tensor_type.shape.dim, shapes.get(value.name, ())
            if len(dims) != len(shape):
                raise NotTheSame(f"input {value.name} has another rank, or none is stated")
            for dim, size in zip(dims, shape, strict=True):
                dim.dim_value = size
        found = propagate(self._pinned, instead=restored, ends_at=lambda node: restored is not None and node.op_type != "TopK")
        changes = None if restored is None else restored.changes
        return SizedTensors(self._model, dict(found.tensors), self._constant, changes, found.broken, found.unmet)

    @cached_property
    def _choosing(self) -> list[onnx.NodeProto]:
        return [node for node in self._model.graph.node if node.op_type == "TopK"]

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
