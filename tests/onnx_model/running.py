"""Two models fed with the same random numbers, in ONNX Runtime without its graph optimization."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime

Values = dict[str, np.ndarray]


def run_both(source: onnx.ModelProto, result: onnx.ModelProto) -> tuple[Values, Values]:
    """The outputs of the two models by name. Symbolic dimensions are 4."""
    feeds = random_feeds(source)
    return run(source, feeds), run(result, feeds)


def random_feeds(model: onnx.ModelProto) -> Values:
    rng = np.random.default_rng(0)
    weights = {tensor.name for tensor in model.graph.initializer}
    feeds = {}
    for value in model.graph.input:
        if value.name not in weights:
            tensor = value.type.tensor_type
            shape = [dim.dim_value if dim.HasField("dim_value") else 4 for dim in tensor.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
            feeds[value.name] = np.asarray(rng.standard_normal(shape) * 3).astype(dtype)
    return feeds


def run(model: onnx.ModelProto, feeds: Values) -> Values:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds), strict=True))
