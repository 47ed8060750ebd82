"""The refusal of a translation, for a layer whose semantics standard ONNX cannot state."""

from __future__ import annotations

from trtnorm_cli.errors import TensorRTRefusal


class UntranslatableLayer(Exception):
    """A TensorRT layer has no exact counterpart in standard ONNX.

    ``layer`` is TensorRT's layer name, ``type`` its ``LayerType`` name, ``reason`` one sentence. ``others`` holds further
    layers of the same network that cannot be translated either, in network order.
    """

    def __init__(self, layer: str, type: str, reason: str, others: tuple[UntranslatableLayer, ...] = ()) -> None:
        super().__init__(f"layer '{layer}' ({type}) cannot be translated: {reason}")
        self.layer = layer
        self.type = type
        self.reason = reason
        self.others = others


class UntranslatableNetwork(TensorRTRefusal):
    """TensorRT parsed the model, but its network holds layers that cannot be stated in standard ONNX."""
