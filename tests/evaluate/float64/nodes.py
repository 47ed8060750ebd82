"""One-node models for the tests: evaluated in float64, and by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper

from trtnorm_cli.evaluate.float64 import evaluate_float64


def node_model(
    op_type: str, inputs: Sequence[Any], attributes: Mapping[str, Any], opset: int, outputs: int = 1
) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of one node, and its feeds; None stands for an input that is left out."""
    names = [f"i{k}" if value is not None else "" for k, value in enumerate(inputs)]
    feeds = {name: np.asarray(value) for name, value in zip(names, inputs, strict=True) if name}
    node = helper.make_node(op_type, names, [f"o{k}" for k in range(outputs)], "node", **attributes)
    declared = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in feeds.items()
    ]
    graph = helper.make_graph([node], "g", declared, [onnx.ValueInfoProto(name=name) for name in node.output])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), feeds


def in_float64(op_type: str, inputs: Sequence[Any], opset: int = 21, outputs: int = 1, **attributes: Any) -> Any:
    """The outputs of one node in float64; the array itself if there is one."""
    model, feeds = node_model(op_type, inputs, attributes, opset, outputs)
    values = list(evaluate_float64(model, feeds).outputs.values())
    return values[0] if outputs == 1 else values


def assert_close(actual: Any, expected: Any, tolerance: float) -> None:
    """The largest difference is below ``tolerance`` times the largest expected magnitude; shapes and NaN agree."""
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    expected = expected.astype(np.float64)
    scale = np.abs(expected[np.isfinite(expected)]).max(initial=1e-30)
    np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=0, atol=tolerance * scale)
