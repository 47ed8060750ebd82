"""Cut out what a change replaces, and what it puts there, as models of their own.

Weights stay beside the model: they are fed by reference, not copied into it. So regions that are equal but for their weights
are the same model, and ONNX Runtime opens it once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import numpy_helper

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.functions import add_functions
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.onnx_model.walk import subgraphs
from trtnorm_cli.onnx_model.wire import FilePart
from trtnorm_cli.rewrite.proof.shape_sources import ShapeSources
from trtnorm_cli.rewrite.realise import Realised
from trtnorm_cli.rewrite.rule import Match

# Operators that read weights while they run. Others may ask for constants: scales that decide sizes, steps of a quantisation.
_TAKES_WEIGHTS = frozenset((
    "Add", "BatchNormalization", "Conv", "ConvTranspose", "Div", "Gemm", "GroupNormalization", "Identity",
    "InstanceNormalization", "LayerNormalization", "MatMul", "Max", "Min", "Mul", "PRelu", "Pow", "RMSNormalization",
    "Reciprocal", "SimplifiedLayerNormalization", "Sqrt", "Sub", "Sum",
))  # fmt: skip
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)


T = TypeVar("T")
Place = Callable[[], "FilePart | None"]


@dataclass(frozen=True)
class Region:
    """``model`` computes the outputs from fed tensors and ``weights``, which are inputs of it, too.

    ``places`` say where files have weights. To ask for one of the replacement's waits until it is written.
    """

    model: onnx.ModelProto
    weights: Mapping[str, np.ndarray] = field(default_factory=dict)
    places: Mapping[str, Place] = field(default_factory=dict)

    def whole(self) -> onnx.ModelProto:
        """A model that holds its weights itself."""
        result = onnx.ModelProto()
        result.CopyFrom(self.model)
        fed = [value for value in self.model.graph.input if value.name not in self.weights]
        del result.graph.input[:]
        result.graph.input.extend(fed)
        result.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in self.weights.items())
        return result

    @cached_property
    def canonical(self) -> Canonical:
        return _canonical(self.model)

    def restating(self, constants: Mapping[str, np.ndarray]) -> Region:
        """The region with other values for some constants that are in its model, by their canonical names."""
        if not constants:
            return self
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        for tensor in model.graph.initializer:
            name = self.canonical.names.get(tensor.name, "")
            if name in constants:
                tensor.CopyFrom(numpy_helper.from_array(constants[name], tensor.name))
        return Region(model, self.weights, self.places)


@dataclass(frozen=True)
class Canonical:
    """A region's model without what does not matter to its meaning. ``names`` maps the region's tensors to this model's."""

    model: onnx.ModelProto
    names: Mapping[str, str]

    @cached_property
    def source(self) -> bytes:
        return self.model.SerializeToString(deterministic=True)

    def fed(self, values: Mapping[str, T]) -> dict[str, T]:
        return {self.names[name]: value for name, value in values.items()}


def original_region(match: Match, realised: Realised, shapes: ShapeSources, kinds: Mapping[str, TensorType]) -> Region:
    """The nodes that ``match`` replaces, which compute what the replacement has to."""
    nodes = [_node_proto(match, node) for node in reversed(match.nodes)]
    return _region(match, nodes, shapes, realised.outputs, {}, kinds)


def new_region(match: Match, realised: Realised, shapes: ShapeSources, kinds: Mapping[str, TensorType]) -> Region:
    """The nodes that come instead."""
    nodes = [node.proto() for node in realised.nodes]
    region = _region(match, nodes, shapes, realised.outputs, realised.constants, kinds)
    add_functions(region.model, realised.functions)
    return region


def _node_proto(match: Match, node: gs.Node) -> onnx.NodeProto:
    """The node as the file has it, without further outputs unless the rule replaces them: nobody uses them."""
    result = onnx.NodeProto()
    result.CopyFrom(_whole_proto(match, node))
    if match.extent is None and not match.rule.replaces_further_outputs:
        del result.output[1:]
    return result


def _whole_proto(match: Match, node: gs.Node) -> onnx.NodeProto:
    from onnx_graphsurgeon.exporters.onnx_exporter import OnnxExporter

    return match.surgery.protos.get(id(node)) or OnnxExporter.export_node(node)


def _region(
    match: Match,
    nodes: list[onnx.NodeProto],
    shapes: ShapeSources,
    outputs: Sequence[str],
    constants: Mapping[str, np.ndarray],
    kinds: Mapping[str, TensorType],
) -> Region:
    """``nodes``, what computes shapes for them, and the constants they read."""
    nodes = [*(_whole_proto(match, node) for node in shapes.nodes), *nodes]
    values, places = _constants(match, nodes, shapes, constants)
    wanted = _wanted_as_constants(nodes, values)
    fed = {name for name, value in values.items() if name not in wanted and _may_be_fed(value)}
    initializers = {name: numpy_helper.from_array(value, name) for name, value in values.items() if name not in fed}
    for node in nodes:
        _own_statistics(node, initializers)
    graph = onnx.helper.make_graph(
        nodes,
        "region",
        [
            *(onnx.helper.make_tensor_value_info(name, kind.dtype, None) for name, kind in kinds.items()),
            *(_weight_info(name, values[name]) for name in values if name in fed),
        ],
        [onnx.helper.make_empty_tensor_value_info(name) for name in outputs],
        list(initializers.values()),
    )
    source = match.surgery.source
    model = onnx.helper.make_model(graph, opset_imports=list(source.opset_import))
    model.ir_version = max(source.ir_version, 4)
    weights = {name: value for name, value in values.items() if name in fed}
    return Region(model, weights, {name: places[name] for name in weights})


def _constants(
    match: Match, nodes: Iterable[onnx.NodeProto], shapes: ShapeSources, constants: Mapping[str, np.ndarray]
) -> tuple[dict[str, np.ndarray], dict[str, Place]]:
    """The values of the constants that ``nodes`` read, and where they are in files.

    ``constants`` are those that the replacement brings along.
    """
    values = dict(constants)
    places: dict[str, Place] = {name: partial(match.surgery.begun_place, name) for name in constants}
    known = {t.name: t for node in (*match.nodes, *shapes.nodes) for t in node.inputs}
    for node in nodes:
        for name in node.input:
            tensor = known.get(name)
            if name not in values and tensor is not None and match.surgery.is_constant(tensor):
                value = match.surgery.constant(tensor)
                if value is not None:
                    values[name] = value
                    places[name] = partial(match.surgery.place, tensor)
    return values, places


def _may_be_fed(value: np.ndarray) -> bool:
    return value.size >= 2 and onnx.helper.np_dtype_to_tensor_dtype(value.dtype) in _FLOATS


def _wanted_as_constants(nodes: Iterable[onnx.NodeProto], read: Iterable[str]) -> set[str]:
    """Those of ``read`` that an operator reads which asks for constants. A node with a body may read any of them."""
    wanted: set[str] = set()
    for node in nodes:
        if any(True for _ in subgraphs(node)):
            return set(read)
        if node.op_type not in _TAKES_WEIGHTS or node.domain not in DEFAULT_DOMAINS:
            wanted.update(node.input)
        elif node.op_type == "BatchNormalization" and len(node.output) > 1:  # in training mode it writes into its statistics
            wanted.update(node.input[3:])
    return wanted


def _weight_info(name: str, value: np.ndarray) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def _own_statistics(node: onnx.NodeProto, initializers: dict[str, onnx.TensorProto]) -> None:
    """Give a BatchNormalization in training mode a mean and variance of its own.

    ONNX Runtime (1.31 was tried) writes the running statistics into their initializers while it runs, before it reads scale
    and bias, which may be the same initializers.
    """
    if node.op_type != "BatchNormalization" or len(node.output) < 2:
        return
    for index in (3, 4):
        if node.input[index] in initializers:
            own = onnx.TensorProto()
            own.CopyFrom(initializers[node.input[index]])
            own.name = f"trtnorm.statistics.{index}/{node.output[0]}"
            initializers[own.name] = own
            node.input[index] = own.name


def _canonical(model: onnx.ModelProto) -> Canonical:
    """``model`` with tensors numbered in the order in which nodes read and make them, and nothing said about shapes.

    Where a node has a body, names stay: a body may read any of them.
    """
    graph = model.graph
    keeps = any(True for node in graph.node for _ in subgraphs(node))
    names: dict[str, str] = {"": ""}
    ordered = [
        *(n for node in graph.node for n in (*node.input, *node.output)),
        *(v.name for v in (*graph.input, *graph.output)),
    ]
    for name in ordered:
        names.setdefault(name, name if keeps else f"t{len(names)}")
    result = onnx.ModelProto(ir_version=model.ir_version, opset_import=model.opset_import, functions=model.functions)
    result.graph.name = "region"
    for node in graph.node:
        made = result.graph.node.add(op_type=node.op_type, domain=node.domain, attribute=node.attribute)
        made.input.extend(names[name] for name in node.input)
        made.output.extend(names[name] for name in node.output)
    for value in sorted(graph.input, key=lambda value: names[value.name]):
        kind = value.type.tensor_type.elem_type
        result.graph.input.append(onnx.helper.make_tensor_value_info(names[value.name], kind, None))
    for value in graph.output:
        result.graph.output.append(onnx.helper.make_empty_tensor_value_info(names[value.name]))
    for tensor in graph.initializer:
        result.graph.initializer.add().CopyFrom(tensor)
        result.graph.initializer[-1].name = names.get(tensor.name, tensor.name)
    result.graph.initializer.sort(key=lambda tensor: tensor.name)
    return Canonical(result, names)
