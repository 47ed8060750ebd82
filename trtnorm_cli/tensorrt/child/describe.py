"""Inputs, outputs and layers of a parsed network as records."""

from __future__ import annotations

from typing import Any

from trtnorm_cli.records.engine_parts import NetworkLayer, NetworkTensor


def inputs_of(network: Any) -> tuple[NetworkTensor, ...]:
    return tuple(describe_tensor(network.get_input(index)) for index in range(network.num_inputs))


def outputs_of(network: Any) -> tuple[NetworkTensor, ...]:
    return tuple(describe_tensor(network.get_output(index)) for index in range(network.num_outputs))


def layers_of(network: Any, trt: Any) -> tuple[NetworkLayer, ...]:
    return tuple(_layer(network.get_layer(index), trt) for index in range(network.num_layers))


def _layer(layer: Any, trt: Any) -> NetworkLayer:
    outputs = [layer.get_output(index) for index in range(layer.num_outputs)]
    tensors = tuple(describe_tensor(tensor) for tensor in outputs if tensor is not None)
    return NetworkLayer(layer.name, layer.type.name, tensors, kernel_type(layer, trt))


def kernel_type(layer: Any, trt: Any) -> str | None:
    """The type of the weights that a convolution holds, or None where they are a tensor, and for other layers."""
    classes = {trt.LayerType.CONVOLUTION: trt.IConvolutionLayer, trt.LayerType.DECONVOLUTION: trt.IDeconvolutionLayer}
    own = classes.get(layer.type)
    if own is None:
        return None
    layer.__class__ = own  # TensorRT hands out every layer as its base class
    weights = layer.kernel  # a NumPy array, or trt.Weights for the types that NumPy does not have
    if weights.size == 0:
        return None
    kind = weights.dtype if isinstance(weights.dtype, trt.DataType) else trt.DataType(trt.Weights(weights).dtype)
    return str(kind.name)


def describe_tensor(tensor: Any) -> NetworkTensor:
    try:
        shape = tuple(int(size) for size in tensor.shape)
    except ValueError:  # TensorRT reports a rank of -1 for a shape that it cannot compute
        shape = None
    return NetworkTensor(tensor.name, tensor.dtype.name, shape)
