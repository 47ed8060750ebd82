"""symmetric-activations: every type and zero point, what stays, and the same numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest

from tests.models import operators, parse, random
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.refusals import Refusal
from tests.shapes.runs import IS_RECENT_RUNTIME
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.rules import symmetric_activations as rule

NAME = rule.RULE.name
F32 = np.float32
IN_FLOAT = ["Div", "Round", "Max", "Min", "Mul", "Relu"]


def model(
    scale: Any,
    zero: Any = None,
    dtype: Any = np.uint8,
    attributes: str = "",
    kind: str = "float",
    opset: int = 21,
    read: str = "y = Relu(d)",
    x: str = "[2, 4, 8]",
    **further: np.ndarray,
) -> onnx.ModelProto:
    """Data that are quantised and dequantised."""
    weights = {"s": np.asarray(scale), **further} | ({} if zero is None else {"z": np.asarray(zero, dtype)})
    tail = "" if zero is None else ", z"
    body = f"q = QuantizeLinear{attributes}(x, s{tail}) d = DequantizeLinear{attributes}(q, s{tail}) {read}"
    outputs = ", ".join(f"{kind}[] {name}" for name in ("y", "r") if f"{name} = " in read)
    return parse(f"g ({kind}{x} x) => ({outputs}) {{ {body} }}", weights, opset=opset, ir=10)


ROWS = np.linspace(0.01, 0.05, 4).astype(F32)
FORMS: dict[str, tuple[onnx.ModelProto, list[str]]] = {
    "uint8 around 128": (model(F32(0.02), 128), ["QuantizeLinear", "DequantizeLinear", "Relu"]),
    "uint8 around 128 by row": (model(ROWS, [128] * 4, attributes="<axis=1>"), ["QuantizeLinear", "DequantizeLinear", "Relu"]),
    "uint8 from 0": (model(F32(0.01), 0), IN_FLOAT),
    "uint8 by default": (model(F32(0.01)), IN_FLOAT),
    "uint8": (model(F32(0.02), 57), IN_FLOAT),
    "int8 from -128, which is a Relu too": (model(F32(0.01), -128, np.int8), IN_FLOAT),
    "int8 by row": (model(ROWS, [1, -2, 3, 0], np.int8, "<axis=1>"), IN_FLOAT),
    "int8 by row from the back": (model(ROWS, [1, -2, 3, 0], np.int8, "<axis=-2>"), IN_FLOAT),
    "uint16": (model(F32(0.0001), 32768, np.uint16), IN_FLOAT),
    "int16": (model(F32(0.0001), 0, np.int16), IN_FLOAT),
    "uint4": (model(F32(0.3), 3, ml_dtypes.uint4), IN_FLOAT),
    "opset 13": (model(F32(0.02), 57, opset=13), IN_FLOAT),
    "float16": (
        model(np.float16(0.02), 57, kind="float16"),
        ["Cast", "Div", "Round", "Max", "Min", "Mul", "Cast", "Relu"],
    ),
    "two readers": (
        model(F32(0.02), 57, read="e = DequantizeLinear(q, s, z) r = Neg(e) y = Relu(d)"),
        ["Div", "Round", "Max", "Min", "Mul", "Mul", "Neg", "Relu"],
    ),
    "another scale behind": (
        model(F32(0.02), 57, read="e = DequantizeLinear(q, t, z) y = Add(d, e)", t=F32(0.5)),
        ["Div", "Round", "Max", "Min", "Mul", "Mul", "Add"],
    ),
}
TAKEN = {
    "int8": model(F32(0.02), 0, np.int8),
    "int8 by row": model(ROWS, [0] * 4, np.int8, "<axis=1>"),
    "float8": model(F32(0.02), 0, ml_dtypes.float8_e4m3fn),
}


def feeds(source: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Data beyond both ends of every range, and ties."""
    kind = onnx.helper.tensor_dtype_to_np_dtype(source.graph.input[0].type.tensor_type.elem_type)
    values = random(2, 4, 8) * 4
    values[0, :, 0] = np.array([0.03, 0.01, -0.05, 0.005])
    return {"x": values.astype(kind)}


def assert_same(source: onnx.ModelProto, result: onnx.ModelProto, runner: Any = None) -> None:
    fed = feeds(source)
    wanted, got = ((runner.run(one, fed) if runner else evaluate_float64(one, fed).outputs) for one in (source, result))
    for name, value in wanted.items():
        assert np.array_equal(value, got[name])
        assert len(np.unique(value)) > 4


@pytest.mark.parametrize("case", FORMS)
def test_the_numbers_are_those_of_the_quantised_model(rewrite, runner, case):
    source, wanted = FORMS[case]
    result = rewrite(source, rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert operators(result.model) == wanted
    assert_same(source, result.model)
    # ONNX Runtime before 1.24 is a step off in half where it quantises next to a tie.
    if IS_RECENT_RUNTIME or case != "float16":
        assert_same(source, result.model, runner)
    onnx.checker.check_model(result.model, full_check=True)
    assert ("without the speed of int8" in result.outcome.changes[0].warning) == ("QuantizeLinear" not in wanted)


@pytest.mark.rtx
@pytest.mark.parametrize("case", FORMS)
def test_tensorrt_takes_the_result_and_computes_the_same(rewrite, case):
    from tests.tensorrt.network.harness import Bench

    source = FORMS[case][0]
    assert_same(source, Bench().parse(rewrite(source, rules=(rule.RULE,)).model))


@pytest.mark.parametrize("case", TAKEN)
def test_what_tensorrt_takes_stays_without_a_word(rewrite, case):
    result = rewrite(TAKEN[case], rules=(rule.RULE,))
    assert result.outcome.changes == []
    assert result.outcome.rejections == ()


REFUSALS = [
    Refusal(rule.quantises_to_integers, model(F32(0.02), 0, ml_dtypes.float8_e5m2), "quantises to float8e5m2"),
    Refusal(rule.scales_are_positive, model(F32(-0.02), 57), "scales that are not positive"),
    Refusal(
        rule.scales_lie_along_an_axis,
        model(np.full((2, 4, 2), 0.02, F32), np.full((2, 4, 2), 57), attributes="<axis=2, block_size=4>"),
        "has a scale for each block",
    ),
]
OTHERS = {
    "d is also used by": model(F32(0.02), 57, read="r = Identity(q) y = Relu(d)".replace("r = ", "v = ")),
    "has other zero points": model(F32(0.02), 57, read="e = DequantizeLinear(q, s, o) y = Add(d, e)", o=np.uint8(3)),
    "are computed at run time": model(
        F32(0.02), 57, read="t = ReduceMax<keepdims=0>(x) e = DequantizeLinear(q, t, z) y = Add(d, e)"
    ),
}


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


@pytest.mark.parametrize("reason", OTHERS)
def test_refuses_quantised_data_that_are_read_otherwise(rewrite, reason):
    result = rewrite(OTHERS[reason], rules=(rule.RULE,))
    assert result.outcome.changes == []
    assert reason.replace("d is", "q is") in result.reason(NAME)


def test_a_second_pass_changes_nothing(rewrite):
    assert rewrite(rewrite(FORMS["uint8"][0]).model).outcome.changes == []
