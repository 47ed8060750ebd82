"""dequantised-inputs: integers of 8 bits from outside, what stays, and the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from tests.models import operators, parse
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.rules import dequantised_inputs as rule

NAME = rule.RULE.name
F32 = np.float32


def model(
    kind: str, scale: Any, zero: Any = None, attributes: str = "", out: str = "float", opset: int = 21
) -> onnx.ModelProto:
    weights = {"s": np.asarray(scale)} | ({} if zero is None else {"z": np.asarray(zero, kind)})
    tail = "" if zero is None else ", z"
    body = f"d = DequantizeLinear{attributes}(x, s{tail}) y = Relu(d)"
    return parse(f"g ({kind}[2, 3, 4] x) => ({out}[] y) {{ {body} }}", weights, opset=opset, ir=10)


ROWS = np.array([0.1, 0.2, 0.3], F32)
FORMS: dict[str, tuple[onnx.ModelProto, list[str]]] = {
    "bytes": (model("uint8", F32(1 / 255)), ["Cast", "Mul", "Relu"]),
    "bytes around 128": (model("uint8", F32(0.02), 128), ["Cast", "Sub", "Mul", "Relu"]),
    "bytes by channel": (model("uint8", ROWS, [1, 2, 3], "<axis=1>"), ["Cast", "Sub", "Mul", "Relu"]),
    "int8 with a zero point": (model("int8", F32(0.02), -5), ["Cast", "Sub", "Mul", "Relu"]),
    "float16": (model("uint8", np.float16(0.02), 3, out="float16"), ["Cast", "Sub", "Mul", "Cast", "Relu"]),
    "opset 13": (model("uint8", F32(0.02), 128, opset=13), ["Cast", "Sub", "Mul", "Relu"]),
}


def assert_same(source: onnx.ModelProto, result: onnx.ModelProto) -> None:
    kind = onnx.helper.tensor_dtype_to_np_dtype(source.graph.input[0].type.tensor_type.elem_type)
    fed = {"x": np.arange(24).reshape(2, 3, 4).astype(np.uint8).view(kind) * 9}
    wanted, got = (evaluate_float64(one, fed).outputs["y"] for one in (source, result))
    assert np.max(np.abs(wanted - got)) <= 2e-7 * np.max(wanted)


@pytest.mark.parametrize("case", FORMS)
def test_the_numbers_are_those_of_the_model(rewrite, case):
    source, wanted = FORMS[case]
    result = rewrite(source)
    assert result.rules == [NAME]
    assert operators(result.model) == wanted
    assert_same(source, result.model)


@pytest.mark.rtx
@pytest.mark.parametrize("case", FORMS)
def test_tensorrt_takes_the_result_and_computes_the_same(rewrite, case):
    from tests.tensorrt.network.harness import Bench

    source = FORMS[case][0]
    assert_same(source, Bench().parse(rewrite(source).model))


def test_what_tensorrt_takes_stays_without_a_word(rewrite):
    result = rewrite(model("int8", F32(0.02), 0), rules=(rule.RULE,))
    assert result.outcome.changes == []
    assert result.outcome.rejections == ()


@pytest.mark.parametrize("declared", [False, True])
def test_stored_integers_are_no_inputs(rewrite, declared):
    source = parse(
        "g (float[2, 3] x) => (float[] y) { d = DequantizeLinear(q, s, z) y = Add(x, d) }",
        {"q": np.arange(3, dtype=np.uint8), "s": F32(0.1), "z": np.uint8(1)},
    )
    if declared:
        source.graph.value_info.append(onnx.helper.make_tensor_value_info("q", onnx.TensorProto.UINT8, [3]))
    result = rewrite(source, rules=(rule.RULE,))
    assert (result.outcome.changes, result.outcome.rejections) == ([], ())


REFUSALS = [
    Refusal(rule.data_have_eight_bits, model("int16", F32(0.02), 3), "are int16"),
    Refusal(rule.scales_are_finite, model("uint8", F32(np.inf)), "not all finite"),
    Refusal(
        rule.scales_lie_along_an_axis,
        model("uint8", np.full((2, 3, 2), 0.02, F32), None, "<axis=2, block_size=2>"),
        "a scale for each block",
    ),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


def test_a_second_pass_changes_nothing(rewrite):
    assert rewrite(rewrite(FORMS["bytes"][0]).model).outcome.changes == []
