"""An independent judge: models evaluated in float64 by onnx.reference.

Two of its operators are wrong for what is tested here and are written out: ConvTranspose with groups, and the inference
BatchNormalization of opsets 7 to 13, which it computes with the statistics of the batch.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx.reference.op_run import OpRun

from trtnorm_cli.onnx_model.walk import all_nodes, all_tensors

FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)


class BatchNormalization(OpRun):  # type: ignore[misc]
    op_domain = ""

    def _run(self, x: Any, scale: Any, bias: Any, mean: Any, var: Any, epsilon: Any = None, **_: Any) -> Any:
        scale, bias, mean, var = (v.reshape(-1, *[1] * (x.ndim - 2)) for v in (scale, bias, mean, var))
        return ((x - mean) / np.sqrt(var + np.float64(np.float32(1e-5 if epsilon is None else epsilon))) * scale + bias,)


class ConvTranspose(OpRun):  # type: ignore[misc]
    op_domain = ""

    def _run(
        self, x: Any, w: Any, b: Any = None, auto_pad: Any = None, dilations: Any = None, group: Any = None,
        kernel_shape: Any = None, output_padding: Any = None, output_shape: Any = None, pads: Any = None, strides: Any = None,
    ) -> Any:  # fmt: skip
        return (conv_transpose(x, w, b, group or 1, strides, pads, dilations, output_padding),)


def conv_transpose(
    x: np.ndarray,
    w: np.ndarray,
    b: np.ndarray | None,
    group: int,
    strides: list[int] | None,
    pads: list[int] | None,
    dilations: list[int] | None,
    output_padding: list[int] | None,
) -> np.ndarray:
    """Each input element stamps the kernel, scaled by itself, onto the output."""
    rank = x.ndim - 2
    strides, dilations = strides or [1] * rank, dilations or [1] * rank
    pads, output_padding = pads or [0] * 2 * rank, output_padding or [0] * rank
    sizes = [
        (x.shape[2 + i] - 1) * strides[i] + (w.shape[2 + i] - 1) * dilations[i] + 1 + output_padding[i] for i in range(rank)
    ]
    out = np.zeros((x.shape[0], w.shape[1] * group, *sizes))
    c_in, c_out = x.shape[1] // group, w.shape[1]
    for g, at in itertools.product(range(group), np.ndindex(*w.shape[2:])):
        starts = [at[i] * dilations[i] for i in range(rank)]
        window = tuple(slice(s, s + (x.shape[2 + i] - 1) * strides[i] + 1, strides[i]) for i, s in enumerate(starts))
        taps = w[(slice(g * c_in, (g + 1) * c_in), slice(None), *at)]
        stamped = np.einsum("nc...,co->no...", x[:, g * c_in : (g + 1) * c_in], taps)
        out[(slice(None), slice(g * c_out, (g + 1) * c_out), *window)] += stamped
    cropped = out[(..., *(slice(pads[i], sizes[i] - pads[rank + i]) for i in range(rank)))]
    return cropped if b is None else cropped + b.reshape(-1, *[1] * rank)


def evaluate(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All graph outputs, with every floating tensor and cast raised to float64."""
    raised = onnx.ModelProto()
    raised.CopyFrom(model)
    for tensor in all_tensors(raised):
        if tensor.data_type in FLOATS:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(np.float64), tensor.name))
    for entry in raised.opset_import:
        entry.domain = "" if entry.domain == "ai.onnx" else entry.domain
    for node in all_nodes(raised):
        node.domain = "" if node.domain == "ai.onnx" else node.domain
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i in FLOATS:
                attribute.i = onnx.TensorProto.DOUBLE
    values = {k: v.astype(np.float64) if v.dtype.kind not in "iub" else v for k, v in feeds.items()}
    session = ReferenceEvaluator(raised, new_ops=[BatchNormalization, ConvTranspose])
    return dict(zip((o.name for o in model.graph.output), session.run(None, values), strict=True))


def feeds_for(model: onnx.ModelProto, pins: dict[str, tuple[int, ...]] | None = None, seed: int = 0) -> dict[str, Any]:
    """Standard normal values for every input; symbolic dimensions are 2 unless ``pins`` gives the whole shape."""
    rng = np.random.default_rng(seed)
    initializers = {tensor.name for tensor in model.graph.initializer}
    feeds: dict[str, Any] = {}
    for value in model.graph.input:
        if value.name in initializers:
            continue
        kind = value.type.tensor_type
        shape = (pins or {}).get(value.name) or tuple(d.dim_value or 2 for d in kind.shape.dim)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        feeds[value.name] = (
            rng.integers(0, 2, shape).astype(dtype) if dtype.kind in "iub" else rng.standard_normal(shape).astype(dtype)
        )
    return feeds


def worst_relative_error(
    before: onnx.ModelProto, after: onnx.ModelProto, pins: dict[str, tuple[int, ...]] | None = None, seed: int = 0
) -> float:
    """The largest difference of any output, relative to the largest value of its channel (axis 1).

    Channel by channel, so that a large channel does not hide what is wrong with a small one.
    """
    feeds = feeds_for(before, pins, seed)
    wanted, got = evaluate(before, feeds), evaluate(after, feeds)
    assert wanted.keys() == got.keys()
    return max(_channel_error(wanted[name], got[name]) for name in wanted)


def _channel_error(wanted: np.ndarray, got: np.ndarray) -> float:
    assert wanted.shape == got.shape
    assert wanted.size, "nothing was compared"
    axes = tuple(axis for axis in range(wanted.ndim) if axis != 1)
    difference, scale = np.abs(wanted - got).max(axis=axes), np.abs(wanted).max(axis=axes)
    return float(np.max(difference / np.maximum(scale, np.finfo(np.float64).tiny)))
