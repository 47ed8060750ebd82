"""Where a sliding window goes: padding and output sizes, the same for convolutions and pooling."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from trtnorm_cli.evaluate.float64.kernels.call import Call, NotImplementedHere
from trtnorm_cli.light_dataclass import dataclass

# Gives an array of a shape and type, whatever is in it.
Memory = Callable[[tuple[int, ...], np.dtype], np.ndarray]


@dataclass(frozen=True)
class Windows:
    """One entry per spatial axis; ``begin`` and ``end`` are the declared padding, ``output`` the number of windows."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begin: tuple[int, ...]
    end: tuple[int, ...]
    output: tuple[int, ...]

    def padded(self, x: np.ndarray, value: float, memory: Memory = np.empty) -> np.ndarray:
        """``x`` [N, C, ...] with ``value`` around it, as far as the windows reach; what they do not reach is cut.

        It is a view of ``x`` where nothing is padded, and lies in ``memory`` otherwise.
        """
        reach = self.reach()
        source, target = [slice(None)] * 2, [slice(None)] * 2
        for size, begin, length in zip(x.shape[2:], self.begin, reach, strict=True):
            first = min(max(begin, 0), length)
            last = max(min(begin + size, length), first)
            target.append(slice(first, last))
            source.append(slice(first - begin, last - begin) if first < last else slice(0))
        if all((part.start, part.stop) == (0, length) for part, length in zip(target[2:], reach, strict=True)):
            return x[tuple(source)]
        result = memory((*x.shape[:2], *reach), x.dtype)
        for axis, part in enumerate(target[2:], 2):
            for border in (slice(part.start), slice(part.stop, None)):
                where: tuple[slice, ...] = (*(slice(None),) * axis, border)
                result[where] = value
        result[tuple(target)] = x[tuple(source)]
        return result

    def reach(self) -> tuple[int, ...]:
        """The elements from the first to the last that a window has, by axis."""
        axes = zip(self.output, self.strides, self.kernel, self.dilations, strict=True)
        return tuple((o - 1) * s + (k - 1) * d + 1 for o, s, k, d in axes)

    def on_data(self, sizes: Sequence[int]) -> tuple[slice, ...]:
        """The elements of a window, by axis, that lie on data of these ``sizes`` for any window; all where none does."""
        axes = zip(sizes, self.kernel, self.strides, self.dilations, self.begin, self.output, strict=True)
        return tuple(_on_data(*axis) for axis in axes)

    def of_elements(self, elements: Sequence[slice]) -> Windows:
        """Windows of these ``elements`` alone, each where it was."""
        moved = (b - part.start * d for b, part, d in zip(self.begin, elements, self.dilations, strict=True))
        return replace(self, kernel=tuple(part.stop - part.start for part in elements), begin=tuple(moved))

    def rows(self, first: int, last: int) -> Windows:
        """Those of the first axis from ``first`` up to ``last``."""
        begin = self.begin[0] - first * self.strides[0]
        return replace(self, begin=(begin, *self.begin[1:]), output=(last - first, *self.output[1:]))

    def elements(self, padded: np.ndarray) -> Iterator[tuple[tuple[int, ...], np.ndarray]]:
        """Each offset within the window, and the elements [N, C, output...] that all windows have there."""
        for offset in itertools.product(*map(range, self.kernel)):
            steps = zip(offset, self.dilations, self.strides, self.output, strict=True)
            where: tuple[Any, ...] = (..., *(slice(o * d, o * d + (n - 1) * s + 1, s) for o, d, s, n in steps))
            yield offset, padded[where]

    def view(self, padded: np.ndarray) -> np.ndarray:
        """All windows without a copy, [N, C, kernel..., output...]."""
        steps = padded.strides[2:]
        inner = tuple(step * d for step, d in zip(steps, self.dilations, strict=True))
        outer = tuple(step * s for step, s in zip(steps, self.strides, strict=True))
        shape = (*padded.shape[:2], *self.kernel, *self.output)
        return np.lib.stride_tricks.as_strided(padded, shape, (*padded.strides[:2], *inner, *outer), writeable=False)


def _on_data(size: int, kernel: int, stride: int, dilation: int, begin: int, output: int) -> slice:
    found = []
    for element in range(kernel):
        place = element * dilation - begin
        first = -(-max(-place, 0) // stride)
        if first < output and place + first * stride < size:
            found.append(element)
    return slice(found[0], found[-1] + 1) if found else slice(0, kernel)


def windows_of(call: Call, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> Windows:
    """The windows of a Conv or pooling node over an input with the spatial ``sizes``."""
    rank = len(sizes)
    strides = tuple(call["strides"] or (1,) * rank)
    dilations = tuple(call["dilations"] or (1,) * rank)
    extents = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    mode = call["auto_pad"] or "NOTSET"
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        output = tuple(-(-size // s) for size, s in zip(sizes, strides, strict=True))
        total = [max((o - 1) * s + e - n, 0) for o, s, e, n in zip(output, strides, extents, sizes, strict=True)]
        begin, end = same_padding(total, mode)
        return Windows(kernel, strides, dilations, begin, end, output)
    pads = tuple(call["pads"] or (0,) * 2 * rank) if mode == "NOTSET" else (0,) * 2 * rank
    begin, end = pads[:rank], pads[rank:]
    counts = [
        tuple(
            _count(n + b + e, extent, s, n + b, ceil)
            for n, b, e, extent, s in zip(sizes, begin, end, extents, strides, strict=True)
        )
        for ceil in (False, True)
    ]
    if mode == "VALID" and call["ceil_mode"] and counts[0] != counts[1]:
        raise NotImplementedHere("VALID with ceil_mode: implementations disagree about the size")
    return Windows(kernel, strides, dilations, begin, end, counts[bool(call["ceil_mode"])])


def _count(size: int, extent: int, stride: int, start_limit: int, ceil: bool) -> int:
    """Rounded up, a window that would start in the padding at the end is left out."""
    if size < extent:
        raise ValueError(f"the window spans {extent} elements and the padded input has {size}")
    if not ceil:
        return (size - extent) // stride + 1
    count = -((extent - size) // stride) + 1
    return count - 1 if (count - 1) * stride >= start_limit else count


def same_padding(total: list[int], mode: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The odd element goes to the end with SAME_UPPER, to the begin otherwise."""
    small, large = tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    return (small, large) if mode == "SAME_UPPER" else (large, small)
