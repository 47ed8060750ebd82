"""Dynamically quantised models and what their float forms are held against."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper, parser

from tests.numerics import relative_error
from tests.shapes.runs import IS_RECENT_RUNTIME
from trtnorm_cli.profile.rewriting import RewriteSettings

FLOATS = RewriteSettings(dynamic_quantization="float")
AS_WRITTEN = "the build profile says dynamic_quantization: as-written"


def model(graph: str, weights: dict[str, np.ndarray], opset: int = 17) -> onnx.ModelProto:
    """``graph`` in text form, in which both domains are known."""
    made = parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}, "com.microsoft" : 1]> g {graph}')
    made.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items())
    return made


def quantised(weights: np.ndarray, dtype: type, axis: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """``weights`` in 8 bits with their scale and zero point, of all or of each row along ``axis``.

    Signed ones use 7 bits: on processors without VNNI, ONNX Runtime's products of unsigned with signed bytes saturate else.
    """
    others = None if axis is None else tuple(i for i in range(weights.ndim) if i != axis)
    low, high = weights.min(axis=others, keepdims=True), weights.max(axis=others, keepdims=True)
    least, most = (0, 255) if dtype == np.uint8 else (-64, 63)
    scale = (np.maximum(high, 0) - np.minimum(low, 0)) / (most - least)
    zero = np.clip(np.rint(least - np.minimum(low, 0) / scale), least, most)
    stored = np.clip(np.rint(weights / scale) + zero, least, most).astype(dtype)
    shape = () if axis is None else (-1,)
    return stored, scale.astype(np.float32).reshape(shape), zero.astype(dtype).reshape(shape)


def by_onnxruntime(made: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """What ONNX Runtime makes of a model; skips the test where an older one has no kernel for its form."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    try:
        return onnxruntime.InferenceSession(made.SerializeToString(), options).run(None, feeds)  # type: ignore[no-any-return]
    except Exception as error:
        if IS_RECENT_RUNTIME:
            raise
        pytest.skip(f"ONNX Runtime before 1.24 does not run it: {str(error)[:80]}")


def cost_of_rounding(before: onnx.ModelProto, after: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> float:
    """How far ``after`` is from what ONNX Runtime makes of ``before``, the worst output."""
    pairs = zip(by_onnxruntime(before, feeds), by_onnxruntime(after, feeds), strict=True)
    return max(relative_error(a, b) for a, b in pairs)
