"""The TensorRT network as a participant: what TensorRT's parser made of a model, as an ONNX model that can be run."""

from __future__ import annotations

from .launch import NetworkTranslation, network_of
from .problems import UntranslatableLayer, UntranslatableNetwork

__all__ = ["NetworkTranslation", "UntranslatableLayer", "UntranslatableNetwork", "network_of"]
