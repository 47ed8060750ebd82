"""The model that an engine was built of, as far as the cost of its kernels depends on it: nodes by name, and sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.parser_names import parser_name
from trtnorm_cli.onnx_model.walk import all_nodes
from trtnorm_cli.records.engine_parts import NetworkLayer, Sizes
from trtnorm_cli.shapes.evaluate import values_at
from trtnorm_cli.shapes.propagate import propagate
from trtnorm_cli.shapes.symbols import axis_symbol

_RANDOM = frozenset({"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli"})


@dataclass(frozen=True)
class ModelFacts:
    """Nodes by the names that TensorRT knows them by, the sizes of tensors, the names of constants, and who reads a tensor.

    A tensor whose sizes are not known is not in ``shapes``. What is computed from constants alone is one, too.
    """

    nodes: Mapping[str, onnx.NodeProto]
    shapes: Mapping[str, Sizes]
    constants: frozenset[str] = frozenset()
    readers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def shape(self, tensor: str) -> Sizes | None:
        return self.shapes.get(tensor)

    def named(self, names: Iterable[str]) -> list[onnx.NodeProto]:
        """The nodes of these names that the model has."""
        return [node for name in names if (node := self.nodes.get(name)) is not None]


def model_facts(model: onnx.ModelProto, sizes: Mapping[str, int], layers: Iterable[NetworkLayer] = ()) -> ModelFacts:
    """The facts about ``model`` where the symbols of its inputs have ``sizes``, as ``shapes.propagate`` names them.

    ``layers`` are those of the network that TensorRT's parser made of it: where none of their sizes is open, nothing is worked
    out again.
    """
    nodes = {parser_name(node): node for node in all_nodes(model)}
    readers: dict[str, list[str]] = {}
    for name, node in nodes.items():
        for tensor in node.input:
            readers.setdefault(tensor, []).append(name)
    constants = _constants(model.graph)
    shapes = {one.name: tuple(one.dims) for one in model.graph.initializer}
    known = _closed(layers)
    # No layer has the inputs of the model among its outputs.
    shapes.update({**_of_inputs(model, sizes), **known} if known is not None else _worked_out(model, sizes))
    return ModelFacts(nodes, shapes, constants, {tensor: tuple(names) for tensor, names in readers.items()})


def _constants(graph: onnx.GraphProto) -> frozenset[str]:
    given = {value.name for value in graph.input}
    found = {one.name for one in graph.initializer if one.name not in given}
    for node in graph.node:
        if node.op_type not in _RANDOM and all(name in found for name in node.input if name):
            found.update(name for name in node.output if name)
    return frozenset(found)


def _closed(layers: Iterable[NetworkLayer]) -> dict[str, Sizes] | None:
    """The sizes of the tensors of a network; None where one is open, or none is known."""
    found: dict[str, Sizes] = {}
    for layer in layers:
        for tensor in layer.outputs:
            if tensor.shape is None or any(size < 0 for size in tensor.shape):
                return None
            found[tensor.name] = tensor.shape
    return found or None


def _of_inputs(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, Sizes]:
    found: dict[str, Sizes] = {}
    for value in model.graph.input:
        dims = value.type.tensor_type.shape.dim
        known = [
            dim.dim_value if dim.HasField("dim_value") else sizes.get(dim.dim_param or axis_symbol(value.name, axis), -1)
            for axis, dim in enumerate(dims)
        ]
        if -1 not in known and value.type.tensor_type.HasField("shape"):
            found[value.name] = tuple(known)
    return found


def _worked_out(model: onnx.ModelProto, sizes: Mapping[str, int]) -> dict[str, Sizes]:
    found: dict[str, Sizes] = {}
    known = {name: tensor.shape for name, tensor in propagate(model).tensors.items() if tensor.shape is not None}
    open_sizes = [size for shape in known.values() for size in shape if size is not None]
    values = iter(values_at(open_sizes, sizes))
    for name, shape in known.items():
        numbers = tuple(None if size is None else next(values) for size in shape)
        if all(number is not None and number >= 0 for number in numbers):
            found[name] = tuple(number for number in numbers if number is not None)
    return found
