"""Names of dimensions that name nothing: what exporters and scripts write for a size that they do not know.

Two dimensions of one name are equal, and TensorRT enforces that, across inputs as well. So a word for "unknown" that stands
twice must not reach it: ``[?, 3, ?, ?]`` is no statement about height and width.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx

from trtnorm_cli.onnx_model.walk import all_graphs

# ``?`` is Paddle2ONNX's and many scripts'; ``None`` onnxmltools' and keras2onnx's (Python's None as text); ``unk__7`` is
# tf2onnx's and ONNX shape inference's; ``unk`` and ``-1`` stand in files that scripts have edited. Numbered names of others,
# such as ``p2o.DynamicDimension.0`` or ``x_dynamic_axes_1``, are given once to each dimension and may stay.
_PLACEHOLDER = re.compile(r"[^\w]*|_+|-\d+|none|null|nan|unk|unk__\d+|unknown|undefined|__dynamic_dimension__", re.IGNORECASE)


def names_nothing(name: str) -> bool:
    """True for an empty name and for words that say that a size is unknown."""
    return _PLACEHOLDER.fullmatch(name.strip()) is not None


def without_placeholders(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` itself, or where dimensions have such names or negative sizes, a copy in which they have none."""
    if not any(True for _ in _placeholders(model)):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for dim in list(_placeholders(copy)):
        dim.Clear()
    return copy


def placeholders_of_inputs(model: onnx.ModelProto) -> dict[str, dict[int, str]]:
    """Such names by input and axis."""
    found: dict[str, dict[int, str]] = {}
    for value in model.graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if dim.dim_param and names_nothing(dim.dim_param):
                found.setdefault(value.name, {})[axis] = dim.dim_param
    return found


def _placeholders(model: onnx.ModelProto) -> Iterator[onnx.TensorShapeProto.Dimension]:
    for value in _values(model):
        if value.type.HasField("tensor_type"):
            for dim in value.type.tensor_type.shape.dim:
                if (dim.HasField("dim_param") and names_nothing(dim.dim_param)) or dim.dim_value < 0:
                    yield dim


def _values(model: onnx.ModelProto) -> Iterator[onnx.ValueInfoProto]:
    for graph in all_graphs(model.graph):
        yield from graph.input
        yield from graph.output
        yield from graph.value_info
    for function in model.functions:
        yield from function.value_info
