"""Clean a model and judge the result: what it must keep, and what it computes in ONNX Runtime without optimization."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime

from trtnorm_cli.onnx_model.clean import Cleaning, clean
from trtnorm_cli.onnx_model.stored import tensor_array

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


def cleaned(model: onnx.ModelProto) -> Cleaning:
    """``clean(model)``, after the promises that hold for every model are checked."""
    before = model.SerializeToString(deterministic=True)
    result = clean(model)
    assert model.SerializeToString(deterministic=True) == before, "the input was changed"
    assert list(result.model.graph.output) == list(model.graph.output)
    weights = {tensor.name for tensor in model.graph.initializer}
    assert list(result.model.graph.input) == [value for value in model.graph.input if value.name not in weights]
    assert [e.version for e in result.model.opset_import if not e.domain] == [
        e.version for e in model.opset_import if e.domain in ("", "ai.onnx")
    ]
    again = clean(result.model)
    assert again.model == result.model
    assert again.counts == {}
    return result


def same_values(model: onnx.ModelProto) -> Cleaning:
    """``cleaned(model)``, which must compute the same in ONNX Runtime."""
    result = cleaned(model)
    wanted, got = run_both(model, result.model)
    for name in wanted:
        np.testing.assert_array_equal(got[name], wanted[name], err_msg=name)
    return result


def initializers(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: tensor_array(tensor) for tensor in model.graph.initializer}


def assert_same(source: onnx.ModelProto, result: onnx.ModelProto, feeds: dict[str, np.ndarray] | None = None) -> None:
    feeds = random_feeds(source) if feeds is None else feeds
    wanted, got = run(source, feeds), run(result, feeds)
    for name in wanted:
        np.testing.assert_allclose(got[name], wanted[name], rtol=2e-6, atol=1e-6, err_msg=name)
