"""matmul-block-weights: ONNX Runtime's matrix product with weights of few bits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from tests.models import operators, random
from tests.numerics import relative_error
from tests.rewrite.rules.contract import assert_refuses
from tests.rewrite.rules.quantised import by_onnxruntime, model
from tests.rewrite.rules.refusals import Refusal
from trtnorm_cli.evaluate.float64 import evaluate_float64
from trtnorm_cli.rewrite.rule import NewConstant
from trtnorm_cli.rewrite.rules import matmul_block_weights as rule

NAME = rule.RULE.name
ROWS, COLUMNS, BLOCK = 6, 64, 16
BLOCKS = COLUMNS // BLOCK


def product(bits: int = 4, zero: str = "", bias: bool = False, level: int = 0, opset: int = 17, **changed) -> onnx.ModelProto:
    """``zero`` is left out, ``packed`` or ``float``."""
    rng = np.random.default_rng(bits)
    held = {
        "w": rng.integers(0, 256, (ROWS, BLOCKS, BLOCK * bits // 8)).astype(np.uint8),
        "s": rng.uniform(0.01, 0.02, (ROWS, BLOCKS)).astype(np.float32),
        "z": rng.integers(0, 256, (ROWS, -(-BLOCKS * bits // 8))).astype(np.uint8),
        "b": random(ROWS, seed=3),
        "none": np.zeros(0, np.int32),
    }
    if zero == "float":
        held["z"] = rng.uniform(6, 9, (ROWS, BLOCKS)).astype(np.float32)
    inputs = "x, w, s" + (", z" if zero else ', ""' if bias else "") + (', "", b' if bias else "")
    sizes = {"K": COLUMNS, "N": ROWS, "bits": bits, "block_size": BLOCK, "accuracy_level": level, **changed}
    attributes = ", ".join(f"{name}={value}" for name, value in sizes.items())
    body = f"y = com.microsoft.MatMulNBits <{attributes}>({inputs})"
    return model(f"(float[2, 5, {COLUMNS}] x) => (float[] y) {{ {body} }}", held, opset)


def dequantised(made: onnx.ModelProto, bits: int, zero: str) -> np.ndarray:
    """Element by element, from the description of the operator."""
    held = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in made.graph.initializer}
    result = np.empty((ROWS, COLUMNS))
    for row in range(ROWS):
        for column in range(COLUMNS):
            block, place = divmod(column, BLOCK)
            byte, part = divmod(place * bits, 8)
            q = (int(held["w"][row, block, byte]) >> part) & (2**bits - 1)
            z = 2.0 ** (bits - 1)
            if zero == "float":
                z = float(held["z"][row, block])
            elif zero:
                byte, part = divmod(block * bits, 8)
                z = (int(held["z"][row, byte]) >> part) & (2**bits - 1)
            result[row, column] = (q - z) * float(held["s"][row, block])
    return result


@pytest.mark.parametrize("opset", [12, 17, 21])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("bits", "zero"), [(4, ""), (4, "packed"), (4, "float"), (8, ""), (8, "packed")])
def test_every_form(rewrite, bits, zero, bias, opset):
    before = product(bits, zero, bias, opset=opset)
    result = rewrite(before, rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert ("DequantizeLinear" in operators(result.model)) == (
        opset >= 13 and zero != "float" and (bits, zero) != (8, "packed")
    )
    x = random(2, 5, COLUMNS)
    wanted = x.astype(np.float64) @ dequantised(before, bits, zero).T + (random(ROWS, seed=3) if bias else 0)
    for made in (before, result.model):
        assert relative_error(wanted, evaluate_float64(made, {"x": x}).outputs["y"]) < 1e-6
    assert relative_error(by_onnxruntime(before, {"x": x})[0], by_onnxruntime(result.model, {"x": x})[0]) < 1e-5


def test_data_that_onnx_runtime_rounds_for_speed(rewrite):
    """With ``accuracy_level`` 4 it quantises them, which the operator does not ask for."""
    result = rewrite(product(level=4), rules=(rule.RULE,))
    assert result.rules == [NAME]
    assert "float64 only" in result.outcome.changes[0].check.evaluated_with


def test_a_wrong_scale_is_caught(rewrite):
    def wrong(m):
        made = rule.with_dequantised_weights(m)
        return replace(made, inputs=(made.inputs[0], NewConstant("weight", made.inputs[1].value * np.float32(1.0001))))

    result = rewrite(product(opset=12), rules=(replace(rule.RULE, replacement=wrong),))
    assert result.outcome.changes == []
    assert "in float64 the outputs differ" in result.outcome.failed[0].check.reason


HALF = model(
    "(float16[2, 64] x) => (float16[] y) { y = com.microsoft.MatMulNBits <K=64, N=6, bits=4, block_size=16>(x, w, s) }",
    {"w": np.zeros((ROWS, BLOCKS, 8), np.uint8), "s": np.ones((ROWS, BLOCKS), np.float16)},
)
REFUSALS = [
    Refusal(rule.data_are_float32, HALF, "are not float32"),
    Refusal(rule.weights_are_in_blocks_of_a_row, product(bits=3), "have 3 bits"),
    Refusal(rule.weights_are_in_blocks_of_a_row, product(block_size=48), "has 64 columns in blocks of 48"),
]


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.name)
def test_refuses(rewrite, case):
    assert_refuses(rewrite, case, rule.RULE)


def test_a_second_pass_changes_nothing(rewrite):
    twice = rewrite(rewrite(product()).model)
    assert twice.outcome.changes == []
