"""A model in which some tensors are held as a power of two of themselves."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.helper import make_attribute, make_node

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.normalization_nodes import DEFAULT_EPSILON
from trtnorm_cli.onnx_model.shelf import Shelf
from trtnorm_cli.onnx_model.stored import tensor_array
from trtnorm_cli.onnx_model.walk import tensors_read
from trtnorm_cli.precision.float_graph import FloatGraph
from trtnorm_cli.precision.names import free_prefix
from trtnorm_cli.precision.scaling.exponents import Scaling, saturates
from trtnorm_cli.precision.scaling.relations import Kind, Relation

# Sigmoid, Tanh and the like have reached their bounds here, and a bound in the type times a power of two is no larger.
_SATURATED = 2.0**10
_BOUNDS_ARE_INPUTS = 11
Part = TypeVar("Part", onnx.TensorProto, onnx.ValueInfoProto)


@dataclass(frozen=True)
class ScaledModel:
    """A scaled model. It refers to values on the ``shelf`` and must not outlive that."""

    model: onnx.ModelProto
    shelf: Shelf


def scaled_model(graph: FloatGraph, folder: Path | None, scaling: Scaling) -> ScaledModel:
    """The model of ``graph`` under ``scaling``: constants take factors in, and what needs a tensor as it was gets that."""
    return _Writer(graph, folder, scaling).written()


class _Writer:
    def __init__(self, graph: FloatGraph, folder: Path | None, scaling: Scaling) -> None:
        self._graph, self._folder, self._scaling = graph, folder, scaling
        self._prefix = free_prefix(graph.model, "trtnorm.scaled")
        self._shelf = Shelf()
        self._constants: dict[str, onnx.TensorProto] = {}
        self._nodes: list[onnx.NodeProto] = []

    def written(self) -> ScaledModel:
        for node, relation in zip(self._graph.model.graph.node, self._scaling.relations, strict=True):
            self._nodes.append(self._node(node, relation))
            for name in node.output:
                if name in self._scaling.restored:
                    self._restore(name)
        made = onnx.ModelProto()
        made.CopyFrom(self._graph.model)
        del made.graph.node[:]
        made.graph.node.extend(self._nodes)
        made.graph.initializer.extend(self._constants.values())
        self._drop_unread(made)
        return ScaledModel(made, self._shelf)

    def _node(self, node: onnx.NodeProto, relation: Relation) -> onnx.NodeProto:
        made = onnx.NodeProto()
        made.CopyFrom(node)
        before = max((self._scaling.of(node.input[place]) for place in relation.data), default=0)
        behind = max((self._scaling.of(name) for name in node.output if name), default=0)
        factors = {
            **dict.fromkeys(relation.weights, before - behind),
            **dict.fromkeys(relation.biases, -behind),
            **dict.fromkeys(relation.means, -before),
        }
        for place, exponent in factors.items():
            if exponent:
                made.input[place] = self._constant(node.input[place], exponent)
        for place, name in enumerate(node.input):
            if place not in relation.data and name in self._scaling.restored:
                made.input[place] = self._restored(name)
        if relation.kind is Kind.NORMALIZED and before:
            self._scale_epsilon(made, -2 * before)
        return made

    def _constant(self, name: str, exponent: int) -> str:
        """The constant ``name`` times a power of two."""
        made = f"{self._prefix}{name}/2^{exponent}"
        if made not in self._constants:
            tensor = self._graph.constant(name)
            assert tensor is not None, "relations have constants that are stored"
            value = np.ldexp(np.asarray(tensor_array(tensor, self._folder), np.float32), exponent)
            shelved = self._shelf.put(value, made)
            self._constants[made] = numpy_helper.from_array(value, made) if shelved is None else shelved.tensor
        return made

    def _scale_epsilon(self, node: onnx.NodeProto, exponent: int) -> None:
        epsilon = next((attribute.f for attribute in node.attribute if attribute.name == "epsilon"), DEFAULT_EPSILON)
        kept = [attribute for attribute in node.attribute if attribute.name != "epsilon"]
        del node.attribute[:]
        node.attribute.extend([*kept, make_attribute("epsilon", float(np.ldexp(epsilon, exponent)))])

    def _restored(self, name: str) -> str:
        return f"{self._prefix}{name}"

    def _restore(self, name: str) -> None:
        """Bring a tensor back to its size. Where that only saturates what reads it, it is bounded first, and fits."""
        source, exponent = name, self._scaling.of(name)
        if saturates(self._graph, name):
            source = f"{self._prefix}{name}/bounded"
            self._nodes.append(self._bounded(name, source, _SATURATED * 2.0**-exponent))
        made = self._restored(name)
        self._nodes.append(make_node("Mul", [source, self._number(2.0**exponent)], [made], name=made))

    def _bounded(self, name: str, made: str, bound: float) -> onnx.NodeProto:
        if self._graph.opset < _BOUNDS_ARE_INPUTS:
            return make_node("Clip", [name], [made], name=made, min=-bound, max=bound)
        return make_node("Clip", [name, self._number(-bound), self._number(bound)], [made], name=made)

    def _number(self, value: float) -> str:
        name = f"{self._prefix}{value:g}"
        self._constants[name] = numpy_helper.from_array(np.array(value, np.float32), name)
        return name

    def _drop_unread(self, model: onnx.ModelProto) -> None:
        """Take out the initializers that nothing reads any more, and what is stated of them."""
        unread = _read(self._graph.model) - _read(model)
        tensors = [_copy(tensor) for tensor in model.graph.initializer if tensor.name not in unread]
        inputs = [_copy(value) for value in model.graph.input if value.name not in unread]
        del model.graph.initializer[:], model.graph.input[:]
        model.graph.initializer.extend(tensors)
        model.graph.input.extend(inputs)


def _read(model: onnx.ModelProto) -> set[str]:
    return {*(name for node in model.graph.node for name in tensors_read(node)), *(value.name for value in model.graph.output)}


def _copy(part: Part) -> Part:
    return type(part).FromString(part.SerializeToString())
