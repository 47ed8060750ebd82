"""Convolutions of any number of spatial axes: the windows are copied into a matrix and multiplied (im2col)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from trtnorm_cli.cores import usable_cores
from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, NotImplementedHere, one
from trtnorm_cli.evaluate.float64.kernels.windows import Windows, same_padding, windows_of
from trtnorm_cli.evaluate.float64.kernels.working_memory import MOST_ELEMENTS, copied, working_memory

MATRIX_ELEMENTS = 1 << 19
"""The window matrix is made for as many output positions at a time as fit into this many elements (4 MiB)."""
LEAST_COLUMNS = 64
"""It is made for so many all the same: each product reads the whole weight."""
WHOLE_ELEMENTS = 1 << 21
"""The same where windows of one element lie in order, and nothing is copied (16 MiB): a weight is raised for each block."""
WORTH_THREADS = 1 << 27
"""A convolution of fewer multiply-adds is done before threads have started."""
MOST_THREADS = 8
"""Each has a window matrix of its own."""
RAISED_ELEMENTS = 1 << 16
"""A weight in a lower type is raised in pieces of so many elements (512 KiB): the product reads them from the cache."""
RAISED_FOR_MANY = 1 << 20
"""The same where a piece is multiplied by more than ``FEW_COLUMNS``: products of few rows cost more than the raising."""
FEW_COLUMNS = 8

Block = tuple[tuple[slice, ...], int, int]
"""Output positions: their places on the first axes, and the first and the last of them among all, in order."""
Place = tuple[int, Block]
"""Output positions of a sample."""


def convolution(x: np.ndarray, weight: np.ndarray, windows: Windows, group: int) -> np.ndarray:
    """Cross-correlation of ``x`` [N, C, ...] with ``weight`` [M, C/group, kernel...]; [N, M, output...].

    ``weight`` may be of a lower type than ``x``: its numbers are taken exactly.
    """
    batch, maps = len(x), len(weight)
    weight, windows = _on_data(x, weight, windows)
    matrix = weight.reshape(group, maps // group, -1)
    positions, row = math.prod(windows.output), math.prod(windows.output[1:])
    window = x.shape[1] * math.prod(windows.kernel)
    if batch > 1 and batch * window * positions <= MATRIX_ELEMENTS:
        return _all_samples(matrix, windows.view(windows.padded(x, 0.0, _padding)), windows)
    result = np.empty((batch, maps, *windows.output), x.dtype)
    planes = result.reshape(batch, group, maps // group, positions)
    in_order = math.prod((*windows.kernel, *windows.strides)) == 1
    most = max((WHOLE_ELEMENTS if in_order else MATRIX_ELEMENTS) // max(window, 1), LEAST_COLUMNS)
    if batch * positions > most and matrix.dtype != x.dtype:
        matrix = copied(matrix, "weight", x.dtype)
    with _workers(weight.size * positions * batch, batch * math.ceil(positions / most)) as each:
        for first, last in _slabs(x, windows):
            part = windows.rows(first, last)
            view = part.view(part.padded(x, 0.0, _padding))
            each(
                partial(_fill, matrix, view, planes[..., first * row : last * row]),
                list(itertools.product(range(batch), _blocks(part.output, most))),
            )
    return result


def _on_data(x: np.ndarray, weight: np.ndarray, windows: Windows) -> tuple[np.ndarray, Windows]:
    """The part of a kernel that lies on data at any position; the rest is multiplied by padding.

    Of a dilation of 36 that is the middle of it on a small image, where the padding is many times as large as that.
    """
    elements = windows.on_data(x.shape[2:])
    where: tuple[Any, ...] = (..., *elements)
    part = weight[where]
    if part.shape == weight.shape or not np.isfinite(weight).all():  # what is infinite is no number beside padding
        return weight, windows
    return part, windows.of_elements(elements)


def _padding(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    return working_memory("padded", shape, dtype)


def _slabs(x: np.ndarray, windows: Windows) -> Iterator[tuple[int, int]]:
    """The output's first axis in parts whose padded inputs have room in working memory, unless these overlap too much."""
    (length, *_), (reach, *rest), stride = windows.output, windows.reach(), windows.strides[0]
    extent = reach - (length - 1) * stride
    fitting = MOST_ELEMENTS // max(math.prod((*x.shape[:2], *rest)), 1)
    step = (fitting - extent) // stride + 1
    if fitting >= reach or step * stride < extent:
        step = max(length, 1)
    return ((first, min(first + step, length)) for first in range(0, length, step))


def _fill(matrix: np.ndarray, view: np.ndarray, planes: np.ndarray, place: tuple[int, Block]) -> None:
    """Put the products of ``matrix`` [G, M/G, K] with some windows of a sample into their ``planes`` [N, G, M/G, ...]."""
    sample, (part, first, last) = place
    block = view[sample][(slice(None),) * (view.ndim // 2) + part]
    shape = (len(matrix), matrix.shape[2], last - first)
    columns = block.reshape(shape) if view.flags.c_contiguous else copied(block, "columns", block.dtype).reshape(shape)
    with np.errstate(all="ignore"):  # a thread does not inherit it
        _multiply(matrix, columns, planes[sample, :, :, first:last])


def _blocks(output: Sequence[int], most: int) -> list[Block]:
    """Output positions of ``output`` sizes in order, up to ``most`` at a time, or one of the last axis."""
    axis, inner = len(output) - 1, 1
    while axis > 0 and inner * output[axis] <= most:
        inner *= output[axis]
        axis -= 1
    rows = max(1, most // max(inner, 1))
    found: list[Block] = []
    for number, place in enumerate(itertools.product(*map(range, output[:axis]))):
        for start in range(0, output[axis], rows):
            stop, before = min(start + rows, output[axis]), number * output[axis]
            part = (*(slice(at, at + 1) for at in place), slice(start, stop))
            found.append((part, (before + start) * inner, (before + stop) * inner))
    return found


def _all_samples(matrix: np.ndarray, view: np.ndarray, windows: Windows) -> np.ndarray:
    """The convolution of all samples in one product, so that a weight is read and raised once."""
    group, maps, inner = matrix.shape
    batch, positions = view.shape[0], windows.output
    together = np.moveaxis(view, 0, 1 + len(windows.kernel))
    columns = copied(together, "columns", view.dtype).reshape(group, inner, -1)
    result = np.empty((group, maps, columns.shape[2]), view.dtype)
    with np.errstate(all="ignore"):
        _multiply(matrix, columns, result)
    return np.moveaxis(result.reshape(group * maps, batch, *positions), 1, 0)


def _multiply(matrix: np.ndarray, columns: np.ndarray, result: np.ndarray) -> None:
    """Put ``matrix`` [G, M, K] times ``columns`` [G, K, N] into ``result``, in the type of ``columns``."""
    if matrix.dtype == columns.dtype:
        np.matmul(matrix, columns, out=result)
        return
    groups, maps, inner = matrix.shape
    elements = RAISED_ELEMENTS if columns.shape[2] <= FEW_COLUMNS else RAISED_FOR_MANY
    rows = max(1, elements // max(inner, 1))
    wide = max(1, rows // max(maps, 1))
    for group, row in itertools.product(range(0, groups, wide), range(0, maps, rows)):
        part = slice(group, group + wide), slice(row, row + rows)
        np.matmul(copied(matrix[part], "weight", columns.dtype), columns[part[0]], out=result[part])


@contextmanager
def _workers(multiply_adds: int, blocks: int) -> Iterator[Callable[[Callable[[Place], None], Sequence[Place]], None]]:
    """Does some work at many places: of a large convolution on all cores, as NumPy leaves Python's lock meanwhile."""

    def one_by_one(work: Callable[[Place], None], places: Sequence[Place]) -> None:
        for place in places:
            work(place)

    cores = min(usable_cores(), blocks, MOST_THREADS)
    if cores == 1 or multiply_adds < WORTH_THREADS:
        yield one_by_one
        return
    with ThreadPoolExecutor(cores) as pool:

        def beside(work: Callable[[Place], None], places: Sequence[Place]) -> None:
            for done in [pool.submit(work, place) for place in places]:
                done.result()

        yield beside


def conv(call: Call) -> np.ndarray:
    x, weight, bias = call.x, call.inputs[1], call.input(2)
    windows = windows_of(call, x.shape[2:], weight.shape[2:])
    return _with_bias(convolution(x, weight, windows, call["group"]), bias)


def conv_transpose(call: Call) -> np.ndarray:
    """The transpose of the matrix that a convolution is: every input element adds a scaled kernel to the output."""
    x, weight, bias = call.x, call.inputs[1], call.input(2)
    group, spatial = call["group"], x.ndim - 2
    kernel, sizes = weight.shape[2:], x.shape[2:]
    strides = tuple(call["strides"] or (1,) * spatial)
    dilations = tuple(call["dilations"] or (1,) * spatial)
    extra = tuple(call["output_padding"] or (0,) * spatial)
    full = tuple(
        (n - 1) * s + (k - 1) * d + 1 + e for n, s, k, d, e in zip(sizes, strides, kernel, dilations, extra, strict=True)
    )
    begin, output = _transposed_geometry(call, sizes, strides, full)
    buffer = np.zeros((x.shape[0], weight.shape[1] * group, *map(_reach, begin, output, full)), x.dtype)
    matrix = weight.reshape(group, x.shape[1] // group, -1).transpose(0, 2, 1)
    columns = np.matmul(matrix, x.reshape(x.shape[0], group, x.shape[1] // group, math.prod(sizes)))
    _add_windows(buffer, columns.reshape(*buffer.shape[:2], *kernel, *sizes), strides, dilations)
    cut: tuple[Any, ...] = (..., *(slice(b, b + o) for b, o in zip(begin, output, strict=True)))
    return _with_bias(buffer[cut], bias)


def _add_windows(buffer: np.ndarray, columns: np.ndarray, strides: tuple[int, ...], dilations: tuple[int, ...]) -> None:
    """Add windows [N, C, kernel..., windows...] to where they lie in ``buffer`` [N, C, ...]."""
    spatial = buffer.ndim - 2
    kernel, counts = columns.shape[2 : 2 + spatial], columns.shape[2 + spatial :]
    for offset in itertools.product(*map(range, kernel)):
        place = zip(offset, dilations, strides, counts, strict=True)
        target: tuple[Any, ...] = (..., *(slice(o * d, o * d + (n - 1) * s + 1, s) for o, d, s, n in place))
        source: tuple[Any, ...] = (slice(None), slice(None), *offset)
        buffer[target] += columns[source]


def col2im(call: Call) -> np.ndarray:
    """Adds the blocks [N, C·block, L] up in an image [N, C, image_shape...]."""
    image, block = (tuple(int(n) for n in call.inputs[i]) for i in (1, 2))
    spatial = len(image)
    strides, dilations = (tuple(call[name] or (1,) * spatial) for name in ("strides", "dilations"))
    pads = tuple(call["pads"] or (0,) * 2 * spatial)
    padded = [n + b + e for n, b, e in zip(image, pads[:spatial], pads[spatial:], strict=True)]
    counts = [(n - (k - 1) * d - 1) // s + 1 for n, k, d, s in zip(padded, block, dilations, strides, strict=True)]
    columns = call.x.reshape(call.x.shape[0], -1, *block, *counts)
    buffer = np.zeros((*columns.shape[:2], *padded), call.x.dtype)
    _add_windows(buffer, columns, strides, dilations)
    inside: tuple[Any, ...] = (..., *(slice(b, b + n) for b, n in zip(pads[:spatial], image, strict=True)))
    return buffer[inside]


def _reach(begin: int, output: int, full: int) -> int:
    return max(begin + output, full)


def _transposed_geometry(
    call: Call, sizes: tuple[int, ...], strides: tuple[int, ...], full: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The elements cut at the begin of each axis, and the output's sizes."""
    spatial, mode = len(sizes), call["auto_pad"] or "NOTSET"
    wanted = call["output_shape"]
    if wanted is None and mode in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(sizes, strides, strict=True)]
        if any(f < w for f, w in zip(full, wanted, strict=True)):
            raise NotImplementedHere(f"{mode} with a kernel smaller than its stride: implementations disagree")
    if wanted is not None:
        wanted = tuple(wanted)[-spatial:]
        total = [max(f - w, 0) for f, w in zip(full, wanted, strict=True)]
        return same_padding(total, mode)[0], wanted
    pads = tuple(call["pads"] or (0,) * 2 * spatial) if mode == "NOTSET" else (0,) * 2 * spatial
    begin = pads[:spatial]
    return begin, tuple(f - b - e for f, b, e in zip(full, begin, pads[spatial:], strict=True))


def _with_bias(y: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """``y``, which nobody else has, with the bias added to it."""
    if bias is not None:
        y += bias.reshape((-1,) + (1,) * (y.ndim - 2))
    return y


KERNELS: dict[str, Kernel] = {"Col2Im": one(col2im), "Conv": one(conv), "ConvTranspose": one(conv_transpose)}
