"""The network that TensorRT's parser made of a model, as an ONNX model that can be run and compared."""

from __future__ import annotations

from trtnorm_cli.tensorrt.network.launch import NetworkTranslation, network_of
from trtnorm_cli.tensorrt.network.problems import UntranslatableLayer, UntranslatableNetwork

__all__ = ["NetworkTranslation", "UntranslatableLayer", "UntranslatableNetwork", "network_of"]
