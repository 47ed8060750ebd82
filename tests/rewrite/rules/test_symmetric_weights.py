"""symmetric-weights: every type and layout, the integers that come instead, and the same numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.models import operators, parse, random
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.rules import symmetric_weights as rule

NAME = rule.RULE.name
RNG = np.random.default_rng(0)
F32 = np.float32


def whole(low: int, high: int, *shape: int, dtype: Any) -> np.ndarray:
    return RNG.integers(low, high + 1, shape).astype(dtype)


def model(
    q: np.ndarray, scale: Any, zero: Any = None, attributes: str = "", opset: int = 21, reader: str = ""
) -> onnx.ModelProto:
    """A product, or what ``reader`` says, with the weight w = (q − zero) · scale."""
    weights = {"q": q, "s": np.asarray(scale)} | ({} if zero is None else {"z": np.asarray(zero, q.dtype)})
    tail = "" if zero is None else ", z"
    conv = q.ndim == 4
    x = "float[1, 4, 6, 6] x" if conv else "float[3, 8] x"
    reader = reader or ("y = Conv(x, w)" if conv else "y = MatMul(x, w)")
    return parse(
        f"g ({x}) => (float[] y) {{ w = DequantizeLinear{attributes}(q, s{tail}) {reader} }}", weights, opset=opset, ir=10
    )


def dequantised(result: onnx.ModelProto) -> tuple[np.ndarray, np.ndarray]:
    """Integers and scales of the only DequantizeLinear."""
    (node,) = [node for node in result.graph.node if node.op_type == "DequantizeLinear"]
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in result.graph.initializer}
    assert len(node.input) == 2
    return found[node.input[0]], found[node.input[1]]


COLUMNS = np.linspace(0.01, 0.05, 5).astype(F32)
INTEGERS: dict[str, tuple[onnx.ModelProto, type]] = {
    "uint8 around 128": (model(whole(0, 255, 8, 5, dtype=np.uint8), F32(0.1), 128), np.int8),
    "uint8 by channel": (model(whole(1, 100, 8, 5, dtype=np.uint8), COLUMNS, [1, 2, 3, 4, 5], "<axis=1>"), np.int8),
    "uint8 without a zero point": (model(whole(0, 127, 8, 5, dtype=np.uint8), F32(0.1)), np.int8),
    "int8 with a zero point": (model(whole(-100, 100, 8, 5, dtype=np.int8), F32(0.1), 7), np.int8),
    "int16 of few values": (model(whole(-100, 100, 8, 5, dtype=np.int16), F32(0.1), 0), np.int8),
    "uint4 around 8 in blocks": (
        model(
            whole(0, 15, 8, 5, dtype=ml_dtypes.uint4), np.full((2, 5), 0.1, F32), np.full((2, 5), 8), "<axis=0, block_size=4>"
        ),
        ml_dtypes.int4,
    ),
    "uint4 around 3": (model(whole(0, 15, 8, 5, dtype=ml_dtypes.uint4), F32(0.1), 3), np.int8),
    "a negative scale": (model(whole(-100, 100, 8, 5, dtype=np.int8), -COLUMNS, None, "<axis=1>"), np.int8),
    "a scale of 0": (model(whole(-100, 100, 8, 5, dtype=np.int8), COLUMNS - COLUMNS[0], None, "<axis=1>"), np.int8),
    "int4 of a convolution": (model(whole(-8, 7, 5, 4, 3, 3, dtype=ml_dtypes.int4), COLUMNS, None, "<axis=0>"), np.int8),
    "opset 13": (model(whole(1, 100, 8, 5, dtype=np.uint8), COLUMNS, [1, 2, 3, 4, 5], "<axis=1>", opset=13), np.int8),
}
FLOATS = {
    "int8 from -128 with a zero point": model(np.array([[-128, 127] * 4] * 5, np.int8).T, F32(0.1), 1),
    "uint8 far from its zero point": model(whole(0, 255, 8, 5, dtype=np.uint8), F32(0.1), 5),
    "int16": model(whole(-30000, 30000, 8, 5, dtype=np.int16), F32(0.001), 0),
    "float8 of five bits": model((random(8, 5) * 9).astype(ml_dtypes.float8_e5m2), F32(0.1)),
    "blocks along the channels of a convolution": model(
        whole(-8, 7, 5, 4, 3, 3, dtype=ml_dtypes.int4), np.full((5, 2, 3, 3), 0.1, F32), None, "<axis=1, block_size=2>"
    ),
}
TAKEN = {
    "int8": model(whole(-127, 127, 8, 5, dtype=np.int8), COLUMNS, np.zeros(5), "<axis=1>"),
    "int4": model(whole(-8, 7, 8, 5, dtype=ml_dtypes.int4), F32(0.1), 0),
    "float8": model(random(8, 5).astype(ml_dtypes.float8_e4m3fn), F32(0.1)),
}


def assert_same(source: onnx.ModelProto, result: onnx.ModelProto, tolerance: float) -> None:
    shape = [d.dim_value for d in source.graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": np.random.default_rng(1).normal(size=shape).astype(F32)}
    wanted, got = (evaluate_float64(one, feeds).outputs["y"] for one in (source, result))
    assert np.max(np.abs(wanted - got)) <= tolerance * np.max(np.abs(wanted))


@pytest.mark.parametrize("case", INTEGERS)
def test_signed_integers_of_the_same_value_where_they_fit(rewrite, case):
    source, dtype = INTEGERS[case]
    result = rewrite(source, rules=(rule.RULE,))
    assert result.rules == [NAME]
    integers, scale = dequantised(result.model)
    assert integers.dtype == dtype
    assert np.all(scale > 0)
    assert result.outcome.changes[0].warning == ""
    assert_same(source, result.model, 0)
    onnx.checker.check_model(result.model, full_check=True)


@pytest.mark.parametrize("case", FLOATS)
def test_floats_where_no_integers_fit(rewrite, case):
    result = rewrite(FLOATS[case], rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert "DequantizeLinear" not in operators(result.model)
    assert "floats again" in result.outcome.changes[0].warning
    assert_same(FLOATS[case], result.model, 2e-7)


@pytest.mark.parametrize("case", TAKEN)
def test_what_tensorrt_takes_stays_without_a_word(rewrite, case):
    result = rewrite(TAKEN[case], rules=(rule.RULE,))
    assert result.outcome.changes == []
    assert result.outcome.rejections == ()


@pytest.mark.rtx
@pytest.mark.parametrize("case", [*INTEGERS, *FLOATS])
def test_tensorrt_takes_the_result_and_computes_the_same(rewrite, case):
    from tests.tensorrt.network.harness import Bench

    source = FLOATS[case] if case in FLOATS else INTEGERS[case][0]
    assert_same(source, Bench().parse(rewrite(source, rules=(rule.RULE,)).model), 2e-7)


BYTES = whole(0, 255, 8, 5, dtype=np.uint8)
REFUSALS = [
    Refusal(rule.scales_are_finite, model(BYTES, F32(np.inf), 128), "not all finite"),
    Refusal(
        rule.scales_fit_the_data, model(BYTES, np.ones(4, F32), None, "<axis=1>"), "has scales or zero points of shape [4]"
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


def test_a_second_pass_changes_nothing(rewrite):
    assert rewrite(rewrite(INTEGERS["uint8 around 128"][0]).model).outcome.changes == []


def test_weights_with_a_second_reader_change_for_both(rewrite):
    source = model(BYTES, F32(0.1), 128, reader="a = MatMul(x, w) b = MatMul(x, w) y = Add(a, b)")
    result = rewrite(source, rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert_same(source, result.model, 0)
