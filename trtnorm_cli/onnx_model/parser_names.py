"""The names by which TensorRT's parser, and so an engine, knows the nodes of a model."""

from __future__ import annotations

import onnx


def parser_name(node: onnx.NodeProto) -> str:
    """The node's own name, or where it has none ``node_of_`` and its first output."""
    return node.name or f"node_of_{next(iter(node.output), '')}"
