"""Shapes as expressions, held against what ONNX Runtime computes at given sizes."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort

from trtnorm_cli.onnx_model.shapes import model_inputs
from trtnorm_cli.shapes.evaluate import values_at
from trtnorm_cli.shapes.propagate import propagate


def ints(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


# Older ones compute something where a reflection is longer than the data, for one.
IS_RECENT_RUNTIME = tuple(map(int, ort.__version__.split(".")[:2])) >= (1, 24)


def run(model: onnx.ModelProto, sizes: dict[str, int]) -> dict[str, np.ndarray] | None:
    """Every tensor of the model as ONNX Runtime computes it; None where it cannot."""
    found = propagate(model)
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.output[:]
    names = [name for node in model.graph.node for name in node.output if name and found.tensors[name].items is None]
    copy.graph.output.extend(onnx.helper.make_tensor_value_info(n, found.tensors[n].dtype, None) for n in names)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = ort.InferenceSession(copy.SerializeToString(), options)
    rng = np.random.default_rng(0)
    feeds = {}
    for name, kind in model_inputs(model).items():
        shape = [size if isinstance(size, int) else sizes[size] for size in kind.shape or ()]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.dtype)
        feeds[name] = rng.integers(0, 2, shape).astype(dtype)
        if f"{name}.values[0]" in sizes:
            count = int(np.prod(shape))
            feeds[name] = np.array([sizes[f"{name}.values[{i}]"] for i in range(count)], dtype).reshape(shape)
    try:
        return dict(zip(names, session.run(names, feeds), strict=True))
    except Exception:
        return None


def agree(model: onnx.ModelProto, *points: dict[str, int]) -> list[bool]:
    """Check every tensor's shape and known elements at each point; returns where the model runs.

    It must run exactly where no constraint is broken; a window that does not fit is no error to ONNX Runtime, though.
    """
    found = propagate(model)
    runs = []
    for sizes in points:
        computed = run(model, sizes)
        broken = [c for c in found.constraints if not c.holds(sizes)]
        if any("kernel" in constraint.demand for constraint in broken):
            computed = None
        if not IS_RECENT_RUNTIME and any("reflected" in constraint.demand for constraint in broken):
            computed = None
        assert (computed is None) == bool(broken), (sizes, broken)
        runs.append(computed is not None)
        for name, value in (computed or {}).items():
            tensor = found.tensors[name]
            assert tensor.shape is not None, name
            known = [(d, s) for d, s in zip(tensor.shape, value.shape, strict=True) if d is not None]
            assert values_at([d for d, _ in known], sizes) == [s for _, s in known], name
            if tensor.elements is not None and tensor.floating is None:
                pairs = [(e, v) for e, v in zip(tensor.elements.flat, value.flat, strict=True) if e is not None]
                assert values_at([e for e, _ in pairs], sizes) == [int(v) for _, v in pairs], name
    return runs
