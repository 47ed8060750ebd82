"""Let attention be compiled from primitive kernels where TensorRT has no kernel for it as a whole."""

from __future__ import annotations

from typing import Any

from trtnorm_cli.tensorrt.backend import Backend


def allow_decomposition(network: Any, backend: Backend) -> None:
    """Mark every ``IAttention`` of a parsed network as decomposable.

    The ONNX parser leaves that off, and the build of an Attention node whose head size, type or mask has no kernel of its own
    then fails. With it, such a node becomes products and a softmax. One that has a kernel keeps it.
    """
    if not backend.can("attention"):
        return
    trt = backend.trt
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        if layer.type == trt.LayerType.ATTENTION_INPUT:
            # The bindings hand out every layer as an ILayer; only its own class knows the attention.
            layer.__class__ = trt.IAttentionInputLayer
            layer.attention.decomposable = True
