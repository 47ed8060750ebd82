"""Attributes that are written out because TensorRT's parser has other values for them where they are left out.

Selu: it takes 1.6732 and 1.0507, the defaults of opset 1, which opset 6 made exact (measured with tensorrt-rtx 1.7.1).
"""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from trtnorm_cli.onnx_model.ir_walk import every_node

_SINCE_OPSET = 6
_DEFAULTS = {"Selu": {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}}


def write_out_defaults(model: ir.Model, counts: Counter[str]) -> None:
    """Give nodes the attributes that the specification would give them."""
    if model.opset_imports.get("", 0) < _SINCE_OPSET:
        return
    for node in every_node(model.graph):
        for name, value in _DEFAULTS.get(node.op_type, {}).items() if node.domain == "" else ():
            if name not in node.attributes:
                node.attributes[name] = ir.AttrFloat32(name, value)
                counts["attributes written out"] += 1
