"""Normalizations that ONNX Runtime contributes, in float64 against ONNX Runtime itself, and by definition where it has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.evaluate.float64.nodes import assert_close
from trtnorm_cli.evaluate.float64 import UnsupportedOperator, evaluate_float64
from trtnorm_cli.evaluate.ort_runner import OrtRunner

RNG = np.random.default_rng(0)
X, SKIP = (RNG.standard_normal((2, 5, 8)).astype(np.float32) for _ in range(2))
SCALE, SHIFT, BIAS = (RNG.standard_normal(8).astype(np.float32) for _ in range(3))


def node_model(op: str, inputs: list[Any], outputs: list[str], domain: str, **attributes: Any):
    names = [f"i{i}" if value is not None else "" for i, value in enumerate(inputs)]
    feeds = {name: value for name, value in zip(names, inputs, strict=True) if name}
    node = helper.make_node(op, names, outputs, "node", domain=domain, **attributes)
    declared = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape) for n, v in feeds.items()]
    results = [helper.make_tensor_value_info(name, 1, None) for name in outputs if name]
    graph = helper.make_graph([node], "g", declared, results)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8), feeds


MICROSOFT = "com.microsoft"
CASES = {
    "simplified": ("SimplifiedLayerNormalization", [X, SCALE], ["y"], "", {"epsilon": 1e-3}),
    "simplified, defaults, both outputs": ("SimplifiedLayerNormalization", [X, SCALE], ["y", "d"], "", {}),
    "simplified, axis 1": ("SimplifiedLayerNormalization", [X, np.tile(SCALE, (5, 1))], ["y"], "", {"axis": 1}),
    "skip": ("SkipLayerNormalization", [X, SKIP, SCALE, SHIFT], ["y"], MICROSOFT, {"epsilon": 1e-3}),
    "skip, default epsilon": ("SkipLayerNormalization", [X * 1e-6, SKIP * 1e-6, SCALE, SHIFT], ["y"], MICROSOFT, {}),
    "skip, bias": ("SkipLayerNormalization", [X, SKIP, SCALE, SHIFT, BIAS], ["y", "", "", "q"], MICROSOFT, {"epsilon": 1e-3}),
    "skip, bias, no shift": ("SkipLayerNormalization", [X, SKIP, SCALE, None, BIAS], ["y"], MICROSOFT, {"epsilon": 1e-3}),
    "skip, no shift": ("SkipLayerNormalization", [X, SKIP, SCALE], ["y"], MICROSOFT, {"epsilon": 1e-3}),
    "skip simplified": ("SkipSimplifiedLayerNormalization", [X, SKIP, SCALE], ["y"], MICROSOFT, {"epsilon": 1e-3}),
    "skip simplified, default epsilon": (
        "SkipSimplifiedLayerNormalization",
        [X * 1e-6, SKIP * 1e-6, SCALE],
        ["y"],
        MICROSOFT,
        {},
    ),
    "skip simplified, bias": (
        "SkipSimplifiedLayerNormalization",
        [X, SKIP, SCALE, BIAS],
        ["y", "", "", "q"],
        MICROSOFT,
        {"epsilon": 1e-3},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_as_onnxruntime_has_it(case):
    op, inputs, outputs, domain, attributes = CASES[case]
    model, feeds = node_model(op, inputs, outputs, domain, **attributes)
    with OrtRunner(timeout_s=30, threads=1) as runner:
        wanted = runner.run(model, feeds)
    reference = evaluate_float64(model, feeds)
    for name, value in wanted.items():
        assert_close(reference.outputs[name], value, 1e-5)
    assert list(reference.evaluated_with.values()) == ["trtnorm: NumPy, two passes"]


@pytest.mark.parametrize("silu", [0, 1])
@pytest.mark.parametrize("last", [0, 1])
def test_group_norm_has_no_kernel_on_the_cpu(silu, last):
    x = RNG.standard_normal((2, 5, 3, 8) if last else (2, 8, 5, 3)).astype(np.float32)
    attributes = {"groups": 4, "activation": silu, "channels_last": last, "epsilon": 1e-3}
    model, feeds = node_model("GroupNorm", [x, SCALE, SHIFT], ["y"], MICROSOFT, **attributes)
    data = np.moveaxis(x.astype(np.float64), -1, 1) if last else x.astype(np.float64)
    grouped = data.reshape(2, 4, -1)
    y = (grouped - grouped.mean(2, keepdims=True)) / np.sqrt(grouped.var(2, keepdims=True) + np.float32(1e-3))
    y = y.reshape(data.shape) * SCALE.reshape(-1, 1, 1) + SHIFT.reshape(-1, 1, 1)
    y = y * (1 / (1 + np.exp(-y))) if silu else y
    assert_close(evaluate_float64(model, feeds).outputs["y"], np.moveaxis(y, 1, -1) if last else y, 1e-12)


def test_group_norm_of_other_ranks_is_refused():
    model, feeds = node_model("GroupNorm", [X, SCALE, SHIFT], ["y"], MICROSOFT, groups=4)
    with pytest.raises(UnsupportedOperator, match="3 axes: the operator knows 4"):
        evaluate_float64(model, feeds)


def test_default_axes_of_three_axes_are_those_that_exist():
    """As ONNX Runtime reads them."""
    model, feeds = node_model("MeanVarianceNormalization", [X], ["y"], "")
    with OrtRunner(timeout_s=30, threads=1) as runner:
        assert_close(evaluate_float64(model, feeds).outputs["y"], runner.run(model, feeds)["y"], 1e-5)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.uint16, np.int16])
def test_quantization_in_onnxruntime_s_own_domain_is_that_of_onnx(dtype):
    """Its quantiser writes 16 bits there, which QuantizeLinear of ONNX has from opset 21 on."""
    scales = np.array([0.1, 0.3], np.float32)
    zeros = np.array([3, 7], dtype)
    data = np.arange(-12, 12, dtype=np.float32).reshape(3, 2, 4) / 2
    for op, x in (("QuantizeLinear", data), ("DequantizeLinear", np.arange(24).reshape(3, 2, 4).astype(dtype))):
        model, feeds = node_model(op, [x, scales, zeros], ["y"], MICROSOFT, axis=1)
        model.graph.output[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(
            np.dtype(dtype if op == "QuantizeLinear" else np.float32)
        )
        with OrtRunner(timeout_s=30, threads=1) as runner:
            wanted = runner.run(model, feeds)["y"]
        assert_close(evaluate_float64(model, feeds).outputs["y"].astype(np.float64), wanted.astype(np.float64), 1e-6)
