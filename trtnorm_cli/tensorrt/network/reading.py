"""Read an ``INetworkDefinition`` into plain Python objects.

TensorRT returns every layer as the base class ``ILayer``. It is given its own class here, so that its parameters can be read.
Tensors and layers are told apart by object, because TensorRT allows names to repeat.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.tensorrt.network.datatypes import ONNX_TYPE
from trtnorm_cli.tensorrt.network.problems import UntranslatableLayer

#: ``LayerType`` name -> the class of ``tensorrt`` that holds the layer's parameters.
LAYER_CLASS = {
    "ACTIVATION": "IActivationLayer",
    "ASSERTION": "IAssertionLayer",
    "ATTENTION_INPUT": "IAttentionInputLayer",
    "ATTENTION_OUTPUT": "IAttentionOutputLayer",
    "CAST": "ICastLayer",
    "CONCATENATION": "IConcatenationLayer",
    "CONDITION": "IConditionLayer",
    "CONDITIONAL_INPUT": "IIfConditionalInputLayer",
    "CONDITIONAL_OUTPUT": "IIfConditionalOutputLayer",
    "CONSTANT": "IConstantLayer",
    "CONVOLUTION": "IConvolutionLayer",
    "CUMULATIVE": "ICumulativeLayer",
    "DECONVOLUTION": "IDeconvolutionLayer",
    "DEQUANTIZE": "IDequantizeLayer",
    "DIST_COLLECTIVE": "IDistCollectiveLayer",
    "DYNAMIC_QUANTIZE": "IDynamicQuantizeLayer",
    "EINSUM": "IEinsumLayer",
    "ELEMENTWISE": "IElementWiseLayer",
    "FILL": "IFillLayer",
    "GATHER": "IGatherLayer",
    "GRID_SAMPLE": "IGridSampleLayer",
    "IDENTITY": "IIdentityLayer",
    "ITERATOR": "IIteratorLayer",
    "KV_CACHE_UPDATE": "IKVCacheUpdateLayer",
    "LOOP_OUTPUT": "ILoopOutputLayer",
    "LRN": "ILRNLayer",
    "MATRIX_MULTIPLY": "IMatrixMultiplyLayer",
    "MOE": "IMoELayer",
    "NMS": "INMSLayer",
    "NON_ZERO": "INonZeroLayer",
    "NORMALIZATION": "INormalizationLayer",
    "ONE_HOT": "IOneHotLayer",
    "PADDING": "IPaddingLayer",
    "PARAMETRIC_RELU": "IParametricReLULayer",
    "PLUGIN_V2": "IPluginV2Layer",
    "PLUGIN_V3": "IPluginV3Layer",
    "POOLING": "IPoolingLayer",
    "QUANTIZE": "IQuantizeLayer",
    "RAGGED_SOFTMAX": "IRaggedSoftMaxLayer",
    "RECURRENCE": "IRecurrenceLayer",
    "REDUCE": "IReduceLayer",
    "RESIZE": "IResizeLayer",
    "REVERSE_SEQUENCE": "IReverseSequenceLayer",
    "ROTARY_EMBEDDING": "IRotaryEmbeddingLayer",
    "SCALE": "IScaleLayer",
    "SCATTER": "IScatterLayer",
    "SELECT": "ISelectLayer",
    "SHAPE": "IShapeLayer",
    "SHUFFLE": "IShuffleLayer",
    "SLICE": "ISliceLayer",
    "SOFTMAX": "ISoftMaxLayer",
    "SQUEEZE": "ISqueezeLayer",
    "TOPK": "ITopKLayer",
    "TRIP_LIMIT": "ITripLimitLayer",
    "UNARY": "IUnaryLayer",
    "UNSQUEEZE": "IUnsqueezeLayer",
}


@dataclass(eq=False)
class Tensor:
    """A tensor of the network.

    ``shape`` has -1 for a dimension known at run time only, and is None where TensorRT cannot tell.
    """

    handle: Any
    name: str
    dtype: str
    shape: tuple[int, ...] | None
    producer: Layer | None = None

    @property
    def onnx_type(self) -> int:
        """The ONNX element type."""
        return ONNX_TYPE[self.dtype]


@dataclass(eq=False)
class Layer:
    """A layer of the network. ``kind`` is its ``LayerType`` name, ``handle`` the object of its own class."""

    index: int
    kind: str
    name: str
    handle: Any
    inputs: tuple[Tensor | None, ...] = ()
    outputs: tuple[Tensor, ...] = ()

    def refused(self, reason: str) -> UntranslatableLayer:
        """The error that says why this layer cannot be translated."""
        return UntranslatableLayer(self.name, self.kind, reason)


@dataclass
class Network:
    """Layers in TensorRT's order, and the tensors at the network's ends."""

    name: str
    layers: list[Layer]
    inputs: list[Tensor]
    outputs: list[Tensor]
    _tensors: dict[int, Tensor] = field(default_factory=dict)

    def tensor(self, handle: Any) -> Tensor | None:
        """The tensor of an ``ITensor`` that belongs to this network."""
        return self._tensors.get(id(handle))


def read_network(network: Any, trt: Any) -> Network:
    """Read every layer and tensor of ``network``, an ``INetworkDefinition`` of the module ``trt``."""
    known: dict[int, Tensor] = {}

    def tensor(handle: Any) -> Tensor | None:
        if handle is None:
            return None
        if id(handle) not in known:
            known[id(handle)] = Tensor(handle, handle.name, handle.dtype.name, _shape_of(handle))
        return known[id(handle)]

    inputs = [tensor(network.get_input(i)) for i in range(network.num_inputs)]
    layers = [_read_layer(network.get_layer(i), i, trt, tensor) for i in range(network.num_layers)]
    outputs = [tensor(network.get_output(i)) for i in range(network.num_outputs)]
    _require_types(layers)
    present = [[t for t in ends if t is not None] for ends in (inputs, outputs)]
    return Network(network.name or "", layers, present[0], present[1], known)


def _read_layer(handle: Any, index: int, trt: Any, tensor: Any) -> Layer:
    # Subclasses shadow `type` (an activation's is its ActivationType), and a layer read before may have its class already.
    kind = trt.ILayer.type.fget(handle).name
    if kind in LAYER_CLASS and hasattr(trt, LAYER_CLASS[kind]):
        handle.__class__ = getattr(trt, LAYER_CLASS[kind])
    layer = Layer(index, kind, handle.name, handle)
    layer.inputs = tuple(tensor(handle.get_input(i)) for i in range(handle.num_inputs))
    layer.outputs = tuple(tensor(handle.get_output(i)) for i in range(handle.num_outputs))
    for output in layer.outputs:
        output.producer = layer
    return layer


def dims_of(dims: Any) -> tuple[int, ...] | None:
    """The numbers of a ``Dims``, or None where a layer has none.

    Older releases say that with one of rank -1 without a length.
    """
    try:
        return None if dims is None else tuple(int(size) for size in dims) if len(dims) >= 0 else None
    except ValueError:
        return None


def _shape_of(handle: Any) -> tuple[int, ...] | None:
    try:
        shape = handle.shape
        return tuple(int(d) for d in shape) if len(shape) >= 0 else None
    except (RuntimeError, ValueError, TypeError):
        return None


def _require_types(layers: list[Layer]) -> None:
    for layer in layers:
        for tensor in (*layer.inputs, *layer.outputs):
            if tensor is not None and tensor.dtype not in ONNX_TYPE:
                raise layer.refused(f"tensor '{tensor.name}' has the type {tensor.dtype}, which ONNX lacks")
