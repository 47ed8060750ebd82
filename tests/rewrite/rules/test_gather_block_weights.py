"""gather-block-weights: ONNX Runtime's look-up in a table of few bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.models import operators
from tests.numerics import relative_error
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.quantised import by_onnxruntime, model
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.rule import NewConstant
from trtnorm_cli.rewrite.rules import gather_block_weights as rule

NAME = rule.RULE.name
ROWS, COLUMNS, BLOCK = 10, 64, 16
BLOCKS = COLUMNS // BLOCK
INDICES = np.array([[0, 9, 3], [-1, 5, 5]])


def look_up(bits: int = 4, zero: bool = False, opset: int = 17, scale: type = np.float32, **changed: int) -> onnx.ModelProto:
    """A table of bytes, each with as many integers as fit."""
    rng = np.random.default_rng(bits)
    held = {
        "t": rng.integers(0, 256, (ROWS, COLUMNS * bits // 8)).astype(np.uint8),
        "s": rng.uniform(0.01, 0.02, (ROWS, BLOCKS)).astype(scale),
        "z": rng.integers(0, 256, (ROWS, -(-BLOCKS * bits // 8))).astype(np.uint8),
    }
    settings = ", ".join(f"{name} = {value}" for name, value in {"bits": bits, "block_size": BLOCK, **changed}.items())
    kind = "float" if scale is np.float32 else "float16"
    body = f"y = com.microsoft.GatherBlockQuantized <{settings}> (t, i, s{', z' if zero else ''})"
    return model(f"(int64[2, 3] i) => ({kind}[] y) {{ {body} }}", held if zero else {n: held[n] for n in "ts"}, opset)


def table_of(made: onnx.ModelProto, bits: int) -> np.ndarray:
    """Element by element, from the description of the operator."""
    held = {tensor.name: numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
    result = np.empty((ROWS, COLUMNS))
    for row in range(ROWS):
        for column in range(COLUMNS):
            byte, part = divmod(column * bits, 8)
            q, block = (int(held["t"][row, byte]) >> part) & (2**bits - 1), column // BLOCK
            z = 2 ** (bits - 1)
            if "z" in held:
                byte, part = divmod(block * bits, 8)
                z = (int(held["z"][row, byte]) >> part) & (2**bits - 1)
            result[row, column] = (q - z) * float(held["s"][row, block])
    return result


@pytest.mark.parametrize("opset", [12, 17])
@pytest.mark.parametrize(("bits", "zero"), [(2, True), (4, False), (4, True), (8, False), (8, True)])
def test_every_form(rewrite, bits, zero, opset):
    before = look_up(bits, zero, opset)
    result = rewrite(before, rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert ("DequantizeLinear" in operators(result.model)) == (opset >= 13 and (bits, zero) != (8, True))
    wanted = table_of(before, bits)[INDICES]
    for made in (before, result.model):
        assert relative_error(wanted, evaluate_float64(made, {"i": INDICES}).outputs["y"]) < 1e-6
        np.testing.assert_allclose(by_onnxruntime(made, {"i": INDICES})[0], wanted, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("kind", [onnx.TensorProto.INT4, onnx.TensorProto.UINT4])
def test_a_table_of_four_bits_along_other_axes(rewrite, kind):
    """Its default zero point is 0, and blocks may go along the axis that is not looked up."""
    rng = np.random.default_rng(1)
    low = -8 if kind == onnx.TensorProto.INT4 else 0
    values = rng.integers(low, low + 16, (40, 6))
    scales = rng.uniform(0.5, 1, (3, 6)).astype(np.float32)
    body = "y = com.microsoft.GatherBlockQuantized <block_size = 16, gather_axis = 1, quantize_axis = 0> (t, i, s)"
    before = model(f"(int64[2] i) => (float[] y) {{ {body} }}", {"s": scales}, 21)
    before.ir_version = 10
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind)
    before.graph.initializer.append(numpy_helper.from_array(values.astype(dtype), "t"))
    result = rewrite(before, rules=(rule.RULE,))
    assert operators(result.model) == ["Gather"]
    i = np.array([5, 0])
    wanted = (values * scales[np.arange(40) // 16])[:, i]
    for made in (before, result.model):
        np.testing.assert_allclose(by_onnxruntime(made, {"i": i})[0], wanted, rtol=1e-6)


def test_a_wrong_scale_is_caught(rewrite):
    def wrong(m):
        made = rule.look_up(m)
        return replace(made, inputs=(NewConstant("table", made.inputs[0].value * np.float32(1.0001)), made.inputs[1]))

    result = rewrite(look_up(opset=12), rules=(replace(rule.RULE, replacement=wrong),))
    assert result.outcome.changes == []
    assert len(result.outcome.failed) == 1


FLOAT8 = model(
    "(int64[2] i) => (float[] y) { y = com.microsoft.GatherBlockQuantized <block_size = 16> (t, i, s) }",
    {"s": np.ones((4, 1), np.float32)}, 21,
)  # fmt: skip
FLOAT8.ir_version = 10
FLOAT8.graph.initializer.append(
    numpy_helper.from_array(np.ones((4, 16)).astype(onnx.helper.tensor_dtype_to_np_dtype(onnx.TensorProto.FLOAT8E4M3FN)), "t")
)
REFUSALS = [
    Refusal(rule.table_is_of_integers, FLOAT8, "is of float8_e4m3fn"),
    Refusal(rule.table_is_of_integers, look_up(bits=1), "has 1 bits"),
    Refusal(rule.scales_fit_the_table, look_up(scale=np.float16), "are not float32"),
    Refusal(rule.scales_fit_the_table, look_up(block_size=32), "has scales of [10, 4] for a table of [10, 64] in blocks of 32"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


def test_a_second_pass_changes_nothing(rewrite):
    assert rewrite(rewrite(look_up()).model).outcome.changes == []
