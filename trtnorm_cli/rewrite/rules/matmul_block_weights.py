"""Write ONNX Runtime's matrix product with weights of few bits as a product with dequantised weights.

    y = x · Wᵀ + b      W = s · (q − z),  a scale and a zero point for each block of a row

The integers less their zero points stay integers of 8 bits, behind a DequantizeLinear with a scale for each block. TensorRT
takes the operator with float16 data alone.
Source: MatMulNBits in the contributed operators of ONNX Runtime, 2023; Dettmers & Zettlemoyer 2023.
"""

from __future__ import annotations

import numpy as np
import onnx

from trtnorm_cli.rewrite.parts.arithmetic import data_type
from trtnorm_cli.rewrite.parts.dynamic_quantization import dequantised
from trtnorm_cli.rewrite.pattern import Const, Var, describe, op, optional
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, Rule

_BITS = (2, 4, 8)
_AXIS_SINCE = 13


def data_are_float32(m: Match) -> str | None:
    """its data are of float32."""
    return None if data_type(m) == onnx.TensorProto.FLOAT else f"the data of {describe(m.root)} are not float32"


def weights_are_in_blocks_of_a_row(m: Match) -> str | None:
    """weights have 2, 4 or 8 bits, in whole blocks, in the order of the rows."""
    bits, columns, block = (int(m.root.attrs.get(name, 4 if name == "bits" else 0)) for name in ("bits", "K", "block_size"))
    if bits not in _BITS:
        return f"the weights of {describe(m.root)} have {bits} bits"
    if m.has("order") and m.value("order").size:
        return f"{describe(m.root)} has an order of the columns (g_idx)"
    if block <= 0 or columns % block:
        return f"{describe(m.root)} has {columns} columns in blocks of {block}"
    return None


def _integers(m: Match) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Integers [rows · blocks, block], with a scale and a zero point for each of these."""
    bits, rows, columns, block = (int(m.root.attrs.get(name, 4)) for name in ("bits", "N", "K", "block_size"))
    blocks = columns // block
    stored = _unpacked(m.value("weight").reshape(rows * blocks, -1), bits)[:, :block]
    scales = m.value("scales").reshape(-1)
    if not m.has("zero"):
        return stored, scales, np.full(rows * blocks, 2 ** (bits - 1), np.float64)
    zero = m.value("zero")
    if zero.dtype == np.uint8:
        zero = _unpacked(zero.reshape(rows, -1), bits)[:, :blocks]
    return stored, scales, zero.astype(np.float64).reshape(-1)


def _unpacked(stored: np.ndarray, bits: int) -> np.ndarray:
    """Integers of ``bits`` bits from each byte, the lowest first."""
    per_byte = 8 // bits
    result = np.empty((stored.shape[0], stored.shape[1] * per_byte), np.uint8)
    for place in range(per_byte):
        result[:, place::per_byte] = (stored >> (bits * place)) & (2**bits - 1)
    return result


def with_dequantised_weights(m: Match) -> NewNode:
    rows, columns = int(m.root.attrs["N"]), int(m.root.attrs["K"])
    stored, scales, zeros = _integers(m)
    centred = stored.astype(np.float64) - zeros[:, None]
    is_integer = (centred == np.rint(centred)).all() and np.abs(centred).max(initial=0) <= np.iinfo(np.int8).max
    weight: NewNode | NewConstant
    if is_integer and m.opset >= _AXIS_SINCE:
        constants = (NewConstant("weight", centred.astype(np.int8)), NewConstant("scales", scales))
        blocks = NewNode("DequantizeLinear", constants, {"axis": 0}, role="dequantised")
        shape = NewConstant("rows", np.array([rows, columns], np.int64))
        weight = NewNode("Transpose", (NewNode("Reshape", (blocks, shape), role="rows"),), {"perm": [1, 0]}, role="transposed")
    else:
        values = dequantised(stored, scales[:, None], zeros[:, None]).reshape(rows, columns)
        weight = NewConstant("weight", np.ascontiguousarray(values.T))
    if not m.has("bias"):
        return NewNode("MatMul", (m.given("x"), weight), name=m.root.name, role="float")
    made = NewNode("MatMul", (m.given("x"), weight), role="float")
    return NewNode("Add", (made, m.given("bias")), name=m.root.name, role="biased")


RULE = Rule(
    name="matmul-block-weights",
    pattern=op(
        "MatMulNBits",
        Var("x"),
        Const("weight"),
        Const("scales"),
        optional(Const("zero")),
        optional(Const("order")),
        optional(Var("bias")),
        name="product",
        domain="com.microsoft",
    ),
    preconditions=(data_are_float32, weights_are_in_blocks_of_a_row),
    replacement=with_dequantised_weights,
    because="the operator, which TensorRT takes with float16 data alone, is a product with dequantised weights",
    float64_decides=True,
)
