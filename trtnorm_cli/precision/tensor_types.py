"""The types of a model's tensors, those included that rules have added."""

from __future__ import annotations

from collections.abc import Mapping

import onnx

from trtnorm_cli.onnx_model.infer import sound_types
from trtnorm_cli.onnx_model.light_copy import light_copy
from trtnorm_cli.onnx_model.shapes import TensorType


def complete_types(model: onnx.ModelProto, types: Mapping[str, TensorType]) -> dict[str, TensorType]:
    """``types`` with those of tensors that it leaves out: what rules have added is not stated in the model."""
    missing = any(name and name not in types for node in model.graph.node for name in node.output)
    tables = sound_types(light_copy(model), data_prop=False) if missing else None
    found = tables[0] if tables else {}
    return {**{name: kind for name, kind in found.items() if kind.dtype}, **types}
