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


def gather_block_quantized(call: Call) -> np.ndarray:
    """Rows of a table with a scale for each block; indices outside of it make zeros."""
    stored, indices, scales, zero = (call.input(index) for index in range(4))
    bits, block, axis = (_attribute(call, *pair) for pair in (("bits", 4), ("block_size", 128), ("quantize_axis", 1)))
    is_packed = stored.dtype == np.uint8
    if not is_packed and stored.dtype.name not in ("int4", "uint4"):
        raise NotImplementedHere(f"a table of {stored.dtype.name}")
    q, z = (part if part is None or not is_packed else unpacked(part, bits) for part in (stored, zero))
    if z is None:
        z = np.full(scales.shape, 2 ** (bits - 1) if is_packed else 0)
    of_block = np.arange(q.shape[axis]) // block
    z = z[..., : scales.shape[-1]].astype(np.float64)
    table = (q.astype(np.float64) - np.take(z, of_block, axis)) * np.take(np.asarray(scales, np.float64), of_block, axis)
    gathered = _attribute(call, "gather_axis", 0) % table.ndim
    size = table.shape[gathered]
    is_inside = (indices >= -size) & (indices < size)
    taken = np.take(table, np.where(is_inside, indices, 0).astype(np.int64), gathered)
    return np.where(is_inside.reshape(is_inside.shape + (1,) * (table.ndim - gathered - 1)), taken, 0.0)


def _attribute(call: Call, name: str, default: int) -> int:
    value = call[name]
    return default if value is None else int(value)


CONTRIBUTED: dict[str, Kernel] = {
    "GatherBlockQuantized": one(gather_block_quantized),
    "MatMulNBits": one(matmul_nbits),
}
