"""Attributes that are written out because others have other values for them where they are left out.

Selu: TensorRT's parser takes 1.6732 and 1.0507, the defaults of opset 1, which opset 6 made exact (measured with tensorrt-rtx
1.7.1).
STFT: ONNX's shape inference takes 0 for onesided, whose default is 1, and gives the result twice as many bins (onnx 1.23).
"""

from __future__ import annotations

from collections import Counter

import onnx_ir as ir

from trtnorm_cli.onnx_model.ir_walk import every_node

_SINCE_OPSET = 6
_DEFAULTS = {
    "Selu": (ir.AttrFloat32("alpha", 1.67326319217681884765625), ir.AttrFloat32("gamma", 1.05070102214813232421875)),
    "STFT": (ir.AttrInt64("onesided", 1),),
}


def write_out_defaults(model: ir.Model, counts: Counter[str]) -> None:
    """Give nodes the attributes that the specification would give them."""
    if model.opset_imports.get("", 0) < _SINCE_OPSET:
        return
    for node in every_node(model.graph):
        for default in _DEFAULTS.get(node.op_type, ()) if node.domain == "" else ():
            if default.name not in node.attributes:
                node.attributes[default.name] = default
                counts["attributes written out"] += 1
