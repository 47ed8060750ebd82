"""Translate a parsed TensorRT network into an ONNX model with the same meaning.

Every layer becomes standard ONNX operators whose last node carries the layer's name, tensors keep TensorRT's names where
these are unique, and inputs keep their symbolic dimensions. A layer without a translation is an error, never left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from onnx import ModelProto, TensorProto, ValueInfoProto, helper

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.tensorrt.network import (
    attention,
    convolution,
    detection,
    elementwise,
    fill,
    indexing,
    matrix,
    normalization,
    pooling,
    quantization,
    reduce,
    resampling,
    shape,
    slicing,
)
from trtnorm_cli.tensorrt.network.context import LayerContext, Scope
from trtnorm_cli.tensorrt.network.control import conditional, loop
from trtnorm_cli.tensorrt.network.graph import Constants, GraphWriter, Names
from trtnorm_cli.tensorrt.network.places import Places
from trtnorm_cli.tensorrt.network.problems import UntranslatableLayer
from trtnorm_cli.tensorrt.network.reading import Layer, Network, Tensor, read_network
from trtnorm_cli.tensorrt.network.structure import ControlRegion, Structure

#: The operator set that is written: the newest that ONNX Runtime 1.20 and onnx 1.18 both know in full.
OPSET = 21
IR_VERSION = 10
#: The first with 4-bit floats, and its format, for networks that have some.
_OPSET_OF_FLOAT4, _IR_VERSION_OF_FLOAT4 = 23, 11

Result = str | list[str]

#: What TensorRT puts between the entries of a layer's metadata.
_METADATA_SEPARATOR = "\x1e"

#: How each layer type is written. Loops and conditionals are more than a layer: see ``control``.
TRANSLATIONS: dict[str, Callable[[LayerContext], Result]] = {
    "ACTIVATION": elementwise.activation,
    "ASSERTION": fill.assertion,
    "ATTENTION_INPUT": attention.attention_input,
    "ATTENTION_OUTPUT": attention.attention_output,
    "CAST": elementwise.cast,
    "CONCATENATION": shape.concatenation,
    "CONDITIONAL_INPUT": elementwise.cast,
    "CONSTANT": elementwise.constant,
    "CONVOLUTION": convolution.convolution,
    "CUMULATIVE": reduce.cumulative,
    "DECONVOLUTION": convolution.deconvolution,
    "DEQUANTIZE": quantization.dequantize,
    "EINSUM": matrix.einsum,
    "ELEMENTWISE": elementwise.elementwise,
    "FILL": fill.fill,
    "GATHER": indexing.gather,
    "GRID_SAMPLE": resampling.grid_sample,
    "IDENTITY": elementwise.cast,
    "KV_CACHE_UPDATE": attention.key_value_cache_update,
    "LRN": normalization.local_response_normalization,
    "MATRIX_MULTIPLY": matrix.matrix_multiply,
    "NMS": detection.non_maximum_suppression,
    "NON_ZERO": reduce.non_zero,
    "NORMALIZATION": normalization.normalization,
    "ONE_HOT": indexing.one_hot,
    "PADDING": shape.padding,
    "PARAMETRIC_RELU": elementwise.parametric_relu,
    "POOLING": pooling.pooling,
    "QUANTIZE": quantization.quantize,
    "RAGGED_SOFTMAX": matrix.ragged_softmax,
    "REDUCE": reduce.reduce,
    "RESIZE": resampling.resize,
    "REVERSE_SEQUENCE": indexing.reverse_sequence,
    "ROTARY_EMBEDDING": attention.rotary_embedding,
    "SCALE": normalization.scale,
    "SCATTER": indexing.scatter,
    "SELECT": elementwise.select,
    "SHAPE": shape.shape,
    "SHUFFLE": shape.shuffle,
    "SLICE": slicing.slice_layer,
    "SOFTMAX": matrix.softmax,
    "SQUEEZE": shape.squeeze,
    "TOPK": reduce.top_k,
    "UNARY": elementwise.unary,
    "UNSQUEEZE": shape.unsqueeze,
}

#: Boundary layers of loops and conditionals, which ``control`` writes together.
CONTROL = frozenset({"CONDITION", "CONDITIONAL_OUTPUT", "ITERATOR", "LOOP_OUTPUT", "RECURRENCE", "TRIP_LIMIT"})

#: Layer types that standard ONNX cannot state, and why.
UNTRANSLATABLE = {
    "DIST_COLLECTIVE": "it exchanges data between devices",
    "DYNAMIC_QUANTIZE": "it quantizes in blocks to float4 or with float8 scales, for which ONNX opset 21 has no operator",
    "MOE": "TensorRT does not hand out the weights and routing of its mixture-of-experts layer",
    "PLUGIN": "a plugin's code cannot be read",
    "PLUGIN_V2": "a plugin's code cannot be read",
    "PLUGIN_V3": "a plugin's code cannot be read",
}


@dataclass(frozen=True)
class Translation:
    """An ONNX model of a network, and what is worth saying about it.

    ``layer_types`` is the type of every layer of the network in order, ``weight_bytes`` the size of all initializers in it, and
    ``notes`` are the choices that TensorRT's documentation left open, each with the layer it concerns.
    """

    model: ModelProto
    layer_types: tuple[str, ...]
    weight_bytes: int
    notes: tuple[str, ...]


def translate(network: Any, trt: Any) -> ModelProto:
    """The ONNX model of ``network``, an ``INetworkDefinition``. ``trt`` is the module that made it.

    Raises ``UntranslatableLayer`` for the first layer without a translation, which names the others too.
    """
    return translate_network(network, trt).model


def translate_network(network: Any, trt: Any, places: Places | None = None) -> Translation:
    """The same, with what there is to say about it. Weights that stand in one of ``places`` are left there."""
    translator = Translator(read_network(network, trt), trt, places)
    model = translator.write()
    kinds = tuple(layer.kind for layer in translator.network.layers)
    return Translation(model, kinds, translator.constants.raw_bytes, tuple(translator.notes))


class Translator:
    """The writer of one network, which ``control`` calls for the bodies of loops and conditionals."""

    def __init__(self, network: Network, trt: Any, places: Places | None = None) -> None:
        self.network = network
        self.structure = Structure(network)
        self.notes: list[str] = []
        self._trt = trt
        self._names = Names()
        # The graph is filled in place: every other way copies all weights once more.
        tensors = (*network.inputs, *(tensor for layer in network.layers for tensor in layer.outputs))
        needs_float4 = any(tensor.onnx_type == TensorProto.FLOAT4E2M1 for tensor in tensors)
        self._model = ModelProto(ir_version=_IR_VERSION_OF_FLOAT4 if needs_float4 else IR_VERSION, producer_name="trtnorm")
        self._model.opset_import.add(domain="", version=_OPSET_OF_FLOAT4 if needs_float4 else OPSET)
        self.constants = Constants(self._names, self._model.graph, places)
        self._refusals: list[UntranslatableLayer] = []
        self._reserved = self._reserve_names()
        self._claimed: set[str] = set()

    def _reserve_names(self) -> dict[Tensor, str]:
        """The names of the network's inputs and outputs, which are reserved first because they must not change."""
        inner = [tensor for layer in self.network.layers for tensor in layer.outputs]
        ordered = dict.fromkeys([*self.network.inputs, *self.network.outputs, *inner])
        return {tensor: self._names.unique(tensor.name or "tensor") for tensor in ordered}

    def write(self) -> ModelProto:
        """The whole network as a model. Raises ``UntranslatableLayer``."""
        writer, scope = GraphWriter(self._names, Names(), self.constants), Scope()
        for tensor in self.network.inputs:
            scope.bind(tensor, self._reserved[tensor])
        self.emit(self.network.layers, writer, scope)
        if self._refusals:
            first = self._refusals[0]
            raise UntranslatableLayer(first.layer, first.type, first.reason, tuple(self._refusals[1:]))
        graph = self._model.graph
        graph.name = self.network.name or "network"
        graph.node.extend(writer.nodes)
        graph.input.extend(self._info(tensor, self._reserved[tensor]) for tensor in self.network.inputs)
        graph.output.extend(self._info(tensor, self._reserved[tensor]) for tensor in self.network.outputs)
        ends = {info.name for info in (*graph.input, *graph.output)}
        graph.value_info.extend(info for info in writer.value_info if info.name not in ends)
        return self._model

    def emit(self, layers: Collection[Layer], writer: GraphWriter, scope: Scope) -> None:
        """Write layers, and the loops and conditionals among them, into a graph."""
        for unit in self.structure.schedule(layers):
            mark = len(writer.nodes)
            try:
                if isinstance(unit, ControlRegion):
                    (loop if unit.is_loop else conditional)(self, unit, writer, scope)
                else:
                    self.bind(unit, self._translated(unit, writer, scope), writer, scope, mark)
            except UntranslatableLayer as refusal:
                self._refusals.append(refusal)
                self._stand_in(unit, scope)

    def _translated(self, layer: Layer, writer: GraphWriter, scope: Scope) -> list[str]:
        if layer.kind not in TRANSLATIONS:
            known = "a boundary of no loop or conditional" if layer.kind in CONTROL else "this layer type is not known"
            raise layer.refused(UNTRANSLATABLE.get(layer.kind, known))
        result = TRANSLATIONS[layer.kind](self.context(layer, writer, scope))
        return [result] if isinstance(result, str) else result

    def _stand_in(self, unit: Layer | ControlRegion, scope: Scope) -> None:
        """Let the translation go on past a refusal, to name every layer that is refused."""
        for layer in unit.exits if isinstance(unit, ControlRegion) else (unit,):
            for tensor in layer.outputs:
                scope.bind(tensor, self._reserved[tensor])

    def context(self, layer: Layer, writer: GraphWriter, scope: Scope) -> LayerContext:
        """The context that the translation of a layer works with."""
        return LayerContext(layer, writer, scope, self._trt, self.notes)

    def bind(self, layer: Layer, results: list[str], writer: GraphWriter, scope: Scope, mark: int) -> None:
        """Make the results the layer's outputs, under TensorRT's names, for the layers that follow."""
        names = []
        for tensor, result in zip(layer.outputs, results, strict=False):
            name = self._claim(tensor)
            is_end = tensor in self.network.outputs
            if not writer.rename_since(mark, result, name) and (is_end or not self.constants.rename(result, name)):
                writer.rename_since(mark, writer.node("Identity", [result], layer.name)[0], name)
            scope.bind(tensor, name)
            writer.value_info.append(self._info(tensor, name))
            names.append(name)
        writer.label_since(mark, layer.name, names, self.origin(layer))

    def _claim(self, tensor: Tensor) -> str:
        """The tensor's own name the first time. A layer in two branches or two iterations needs others."""
        name = self._reserved[tensor]
        if name in self._claimed:
            return self._names.unique(name)
        self._claimed.add(name)
        return name

    @staticmethod
    def origin(layer: Layer) -> dict[str, str]:
        """The origin of a node, with TensorRT's layer, its type, and the ONNX nodes that its metadata names."""
        properties = {"trt.layer": layer.name, "trt.type": layer.kind}
        parts = (getattr(layer.handle, "metadata", None) or "").split(_METADATA_SEPARATOR)
        nodes = [found[1] for found in (re.fullmatch(r"\[ONNX Layer: (.*)\]", part) for part in parts) if found]
        return {**properties, "onnx.node": "\n".join(nodes)} if nodes else properties

    @staticmethod
    def _info(tensor: Tensor, name: str) -> ValueInfoProto:
        return helper.make_tensor_value_info(name, tensor.onnx_type, _symbolic_shape(tensor))


def _symbolic_shape(tensor: Tensor) -> list[int | str | None] | None:
    if tensor.shape is None:
        return None
    return [d if d >= 0 else (tensor.handle.get_dimension_name(i) or None) for i, d in enumerate(tensor.shape)]
