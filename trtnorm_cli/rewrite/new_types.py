"""Types and shapes of the tensors that a replacement adds, so that the next rule can ask for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from trtnorm_cli.onnx_model.functions import add_functions
from trtnorm_cli.onnx_model.inference import infer_types
from trtnorm_cli.onnx_model.shapes import TensorType, declared_types
from trtnorm_cli.rewrite.realise import Realised

# Constants up to this many elements may be shapes, whose values shape inference needs; of larger ones it needs the shape.
_SHAPE_ELEMENTS = 64


def inferred_types(
    realised: Realised, types: Mapping[str, TensorType], opsets: Iterable[onnx.OperatorSetIdProto]
) -> dict[str, TensorType]:
    """The types of what the new nodes make, as far as ONNX shape inference can tell."""
    small = {name: value for name, value in realised.constants.items() if value.size <= _SHAPE_ELEMENTS}
    large = [_large(name, value) for name, value in realised.constants.items() if name not in small]
    taken = [_value_info(name, types[name]) for name in realised.taken if name in types and types[name].dtype]
    graph = onnx.helper.make_graph(
        [node.proto() for node in realised.nodes],
        "replacement",
        [*taken, *large],
        [onnx.helper.make_empty_tensor_value_info(name) for name in realised.outputs],
        [numpy_helper.from_array(value, name) for name, value in small.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=list(opsets))
    add_functions(model, realised.functions)
    try:
        found = declared_types(infer_types(model, data_prop=True))
    except onnx.shape_inference.InferenceError:
        return {}
    made = {name for node in realised.nodes for name in node.outputs}
    return {name: kind for name, kind in found.items() if name in made and kind.dtype}


def _large(name: str, value: np.ndarray) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)


def _value_info(name: str, kind: TensorType) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, kind.dtype, kind.shape)
