"""Inputs, outputs and layers of a parsed network as JSON values."""

from __future__ import annotations

from typing import Any


def describe_network(network: Any, trt: Any) -> dict[str, Any]:
    """Inputs, outputs and layers of a parsed network as JSON values. Unknown shapes are None."""
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    return {
        "inputs": tuple(describe_tensor(network.get_input(i)) for i in range(network.num_inputs)),
        "outputs": tuple(describe_tensor(network.get_output(i)) for i in range(network.num_outputs)),
        "layers": tuple(describe_layer(layer, trt) for layer in layers),
    }


def describe_layer(layer: Any, trt: Any) -> dict[str, Any]:
    outputs = [layer.get_output(index) for index in range(layer.num_outputs)]
    described = {
        "name": layer.name,
        "type": layer.type.name,
        "outputs": [describe_tensor(tensor) for tensor in outputs if tensor is not None],
    }
    weights = kernel_type(layer, trt)
    return described if weights is None else {**described, "weights": weights}


def kernel_type(layer: Any, trt: Any) -> str | None:
    """The type of the weights that a convolution holds; None where they are a tensor, and for other layers."""
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


def describe_tensor(tensor: Any) -> dict[str, Any]:
    try:
        shape: list[int] | None = [int(size) for size in tensor.shape]
    except ValueError:  # TensorRT reports a rank of -1 for a shape that it cannot compute
        shape = None
    return {"name": tensor.name, "dtype": tensor.dtype.name, "shape": shape}
