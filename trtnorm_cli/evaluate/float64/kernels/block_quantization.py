"""ONNX Runtime's operators on weights of 2, 4 or 8 bits, which have a scale for each block of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, NotImplementedHere, one


def unpacked(stored: np.ndarray, bits: int) -> np.ndarray:
    """Unsigned integers of ``bits`` bits from the bytes of the last axis, the lowest bits first."""
    parts = [(stored >> shift) & (2**bits - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(*stored.shape[:-1], -1)


def matmul_nbits(call: Call) -> np.ndarray:
    """x · Wᵀ (+ bias), W of N rows and K columns."""
    x, stored, scales, zero, order, bias = (call.input(index) for index in range(6))
    if order is not None and order.size:
        raise NotImplementedHere("an order of the columns (g_idx)")
    rows, columns, bits, block = call["N"], call["K"], call["bits"] or 4, call["block_size"]
    blocks = -(-columns // block)
    q = unpacked(stored.reshape(rows, blocks, -1), bits)[..., :block].astype(np.float64)
    weight = (q - _zeros(zero, rows, blocks, bits)) * np.asarray(scales, np.float64).reshape(rows, blocks, 1)
    y = np.matmul(x, weight.reshape(rows, -1)[:, :columns].T)
    return y if bias is None else y + bias


def _zeros(zero: np.ndarray | None, rows: int, blocks: int, bits: int) -> Any:
    if zero is None:
        return float(2 ** (bits - 1))
    values = unpacked(zero.reshape(rows, -1), bits)[:, :blocks] if zero.dtype == np.uint8 else zero
    return values.astype(np.float64).reshape(rows, blocks, 1)


CONTRIBUTED: dict[str, Kernel] = {"MatMulNBits": one(matmul_nbits)}
