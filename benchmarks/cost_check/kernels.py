"""Kernels in Triton whose way of working is known: one block a row, and a transposition through tiles."""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl


@triton.jit
def _block_a_row(x_ptr, y_ptr, length, BLOCK: tl.constexpr):  # noqa: N803
    """Read a row twice: once for its mean and mean square, once to normalize it."""
    start = tl.program_id(0).to(tl.int64) * length
    total = tl.zeros([BLOCK], dtype=tl.float32)
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for offset in range(0, length, BLOCK):
        place = offset + tl.arange(0, BLOCK)
        value = tl.load(x_ptr + start + place, mask=place < length, other=0.0).to(tl.float32)
        total += value
        squares += value * value
    mean = tl.sum(total) / length
    scale = tl.rsqrt(tl.sum(squares) / length - mean * mean + 1e-5)
    for offset in range(0, length, BLOCK):
        place = offset + tl.arange(0, BLOCK)
        value = tl.load(x_ptr + start + place, mask=place < length, other=0.0).to(tl.float32)
        tl.store(y_ptr + start + place, ((value - mean) * scale).to(y_ptr.dtype.element_ty), mask=place < length)


@triton.jit
def _two_reductions(x_ptr, y_ptr, length, BLOCK: tl.constexpr):  # noqa: N803
    """Read a row three times: for its mean, for the mean square around it, and to normalize it."""
    start = tl.program_id(0).to(tl.int64) * length
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for offset in range(0, length, BLOCK):
        place = offset + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + start + place, mask=place < length, other=0.0).to(tl.float32)
    mean = tl.sum(total) / length
    squares = tl.zeros([BLOCK], dtype=tl.float32)
    for offset in range(0, length, BLOCK):
        place = offset + tl.arange(0, BLOCK)
        value = tl.load(x_ptr + start + place, mask=place < length, other=0.0).to(tl.float32) - mean
        squares += tl.where(place < length, value * value, 0.0)
    scale = tl.rsqrt(tl.sum(squares) / length + 1e-5)
    for offset in range(0, length, BLOCK):
        place = offset + tl.arange(0, BLOCK)
        value = tl.load(x_ptr + start + place, mask=place < length, other=0.0).to(tl.float32)
        tl.store(y_ptr + start + place, ((value - mean) * scale).to(y_ptr.dtype.element_ty), mask=place < length)


@triton.jit
def _held_row(x_ptr, y_ptr, length, BLOCK: tl.constexpr):  # noqa: N803
    """Read a row once and keep it in registers."""
    start = tl.program_id(0).to(tl.int64) * length
    place = tl.arange(0, BLOCK)
    value = tl.load(x_ptr + start + place, mask=place < length, other=0.0).to(tl.float32)
    mean = tl.sum(value) / length
    centred = tl.where(place < length, value - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred) / length + 1e-5)
    tl.store(y_ptr + start + place, (centred * scale).to(y_ptr.dtype.element_ty), mask=place < length)


@triton.jit
def _tiled(x_ptr, y_ptr, rows, columns, TILE: tl.constexpr):  # noqa: N803
    """Transpose each matrix of a batch, a square tile a block."""
    image = tl.program_id(1).to(tl.int64) * rows * columns
    across = tl.cdiv(columns, TILE)
    row = tl.program_id(0) // across * TILE + tl.arange(0, TILE)
    column = tl.program_id(0) % across * TILE + tl.arange(0, TILE)
    inside = (row[:, None] < rows) & (column[None, :] < columns)
    tile = tl.load(x_ptr + image + row[:, None].to(tl.int64) * columns + column[None, :], mask=inside)
    out = y_ptr + image + column[:, None].to(tl.int64) * rows + row[None, :]
    tl.store(out, tl.trans(tile), mask=(column[:, None] < columns) & (row[None, :] < rows))


def block_a_row(warps: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A row normalization by one block of ``warps`` a row, four elements a thread at a time."""

    def run(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        block = warps * 32 * (16 // x.element_size())
        _block_a_row[(x.shape[0],)](x, y, x.shape[1], BLOCK=block, num_warps=warps)
        return y

    return run


def two_reductions(x: torch.Tensor) -> torch.Tensor:
    """A row normalization by one block of 1024 threads a row, four elements a thread at a time."""
    y = torch.empty_like(x)
    _two_reductions[(x.shape[0],)](x, y, x.shape[1], BLOCK=4096, num_warps=32)
    return y


def held_row(x: torch.Tensor) -> torch.Tensor:
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    _held_row[(x.shape[0],)](x, y, x.shape[1], BLOCK=block, num_warps=max(4, min(32, block // 256)))
    return y


def tiled_transpose(x: torch.Tensor) -> torch.Tensor:
    """The same tensor in the other layout, nchw or nhwc."""
    n, c, h, w = x.shape
    last = x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()
    y = torch.empty_like(x, memory_format=torch.contiguous_format if last else torch.channels_last)
    rows, columns = (h * w, c) if last else (c, h * w)
    grid = (triton.cdiv(rows, 64) * triton.cdiv(columns, 64), n)
    _tiled[grid](x, y, rows, columns, TILE=64, num_warps=8)
    return y


def function_of(form: str) -> Callable[[torch.Tensor], torch.Tensor]:
    forms = {
        "triton4": block_a_row(4),
        "triton32": block_a_row(32),
        "triton_two": two_reductions,
        "triton_held": held_row,
        "triton": tiled_transpose,
    }
    return forms[form]
