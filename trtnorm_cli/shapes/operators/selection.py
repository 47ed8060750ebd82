"""Operators that pick, cut and pad."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from trtnorm_cli.shapes.condition import at_most, below, both, choice, equal, maximum, minimum
from trtnorm_cli.shapes.expression import Size, ceil_divide, floor_divide, lower_bound, modulo
from trtnorm_cli.shapes.node import Node, like, unknown_rank
from trtnorm_cli.shapes.tensor import SymbolicTensor, objects, tensor_of

INT64 = onnx.TensorProto.INT64
# Exporters write "to the end" as one of the largest integers.
_NO_END = 2**31 - 1


def gather(node: Node) -> list[SymbolicTensor]:
    source, indices = node.input(0), node.input(1)
    if source.shape is None or not source.shape:
        return [unknown_rank(source, None)]
    axis = node.axis(len(source.shape))
    numbers = indices.integers()
    picked = source.shape[axis]
    if numbers:
        _require_inside(node, numbers, axis, picked)
    elif indices.largest is not None:
        _require_largest_inside(node, indices.largest, axis, picked)
    if source.elements is not None and numbers is not None and all(-(n := len(source.elements)) <= i < n for i in numbers):
        positions = np.array(numbers, dtype=np.int64).reshape([int(str(s)) for s in indices.shape or ()])
        taken = np.take(source.elements, positions, axis=axis)
        if isinstance(taken, np.ndarray):
            return [tensor_of(source.dtype, taken)]
        return [tensor_of(source.dtype, objects([taken]).reshape(()))]
    if indices.shape is None:
        return [unknown_rank(source, None)]
    return [like(source, (*source.shape[:axis], *indices.shape, *source.shape[axis + 1 :]))]


def _require_inside(node: Node, indices: list[int], axis: int, size: Size | None) -> None:
    side = (f"dimension {axis} of {node.name_of(0)}", size)
    needed = max(max(indices) + 1, -min(indices))
    node.require_at_least(f"dimension {axis} must be at least {needed}, because of the indices", side, needed)


def _require_largest_inside(node: Node, largest: Size, axis: int, size: Size | None) -> None:
    if size is not None:
        sides = ((f"dimension {axis} of {node.name_of(0)}", size), ("the largest index", largest))
        node.require(below(largest, size), f"indices must lie inside of dimension {axis}", *sides)


def gather_elements(node: Node) -> list[SymbolicTensor]:
    return [like(node.input(0), node.input(1).shape) if node.input(1).shape else SymbolicTensor(node.input(0).dtype)]


def gather_nd(node: Node) -> list[SymbolicTensor]:
    source, indices = node.input(0), node.input(1)
    if source.shape is None or not indices.shape or not isinstance(indices.shape[-1], int):
        return [SymbolicTensor(source.dtype)]
    batch = int(node.attributes.get("batch_dims", 0))
    return [like(source, (*indices.shape[:-1], *source.shape[batch + indices.shape[-1] :]))]


def slice_(node: Node) -> list[SymbolicTensor]:
    source = node.input(0)
    if source.shape is None:
        return [like(source)]
    starts, ends, axes, steps = _slice_arguments(node, len(source.shape))
    result = list(source.shape)
    elements = source.elements
    for position, axis in enumerate(axes or ()):
        start, end, step = (part[position] if part is not None else None for part in (starts, ends, steps))
        result[axis] = _slice_length(source.shape[axis], start, end, step)
        if elements is not None:
            picked = _python_slice(start, end, step, elements.shape[axis])
            elements = None if picked is None else elements[(slice(None),) * axis + (picked,)]
    if axes is None:
        return [unknown_rank(source, len(result))]
    if elements is not None:
        return [tensor_of(source.dtype, elements)]
    return [like(source, tuple(result))]


def _python_slice(start: Any, end: Any, step: Any, size: int) -> slice | None:
    """The same elements as Python picks them, which begins nowhere where ONNX begins with the first element.

    None where they are not known.
    """
    if not (isinstance(start, int) and isinstance(end, int) and isinstance(step, int)) or step == 0:
        return None
    return slice(max(start, -size) if step < 0 else start, end, step)


def _slice_arguments(node: Node, rank: int) -> tuple[Any, Any, list[int] | None, Any]:
    def argument(index: int, name: str) -> list[Any] | None:
        return list(node.attributes[name]) if name in node.attributes else node.input(index).vector()

    starts, ends = argument(1, "starts"), argument(2, "ends")
    count = len(starts or ends or [])
    given = node.has(3) or "axes" in node.attributes
    axes = argument(3, "axes") if given else list(range(count))
    steps = argument(4, "steps") if node.has(4) else [1] * count
    if axes is None or not all(isinstance(axis, int) for axis in axes) or (not given and not count):
        return starts, ends, None, steps
    return starts, ends, [int(axis) % rank for axis in axes], steps


def _slice_length(size: Size | None, start: Any, end: Any, step: Any) -> Size | None:
    if size is None or start is None or end is None or not isinstance(step, int) or step == 0:
        return None
    first, last = _from_front(start, size), _from_front(end, size)
    if step > 0:
        first, last = minimum(maximum(first, 0), size), minimum(maximum(last, 0), size)
        return maximum(ceil_divide(last - first, step), 0)
    first, last = minimum(maximum(first, 0), size - 1), minimum(maximum(last, -1), size - 1)
    return maximum(ceil_divide(first - last, -step), 0)


def _from_front(index: Size, size: Size) -> Size:
    """An index counted from the front. Beyond the end, and before the beginning, is all the same."""
    if isinstance(index, int):
        if index >= _NO_END:
            return size
        return -1 if index <= -_NO_END else index + size if index < 0 else index
    low = lower_bound(index)
    return index if low is not None and low >= 0 else choice(below(index, 0), index + size, index)


def split(node: Node) -> list[SymbolicTensor]:
    source = node.input(0)
    count = len(node.proto.output)
    if source.shape is None:
        return [like(source) for _ in range(count)]
    axis = node.axis(len(source.shape))
    sizes = _split_sizes(node, source.shape[axis], axis, count)
    made = [like(source, (*source.shape[:axis], size, *source.shape[axis + 1 :])) for size in sizes]
    if source.elements is None or not all(isinstance(size, int) for size in sizes):
        return made
    borders = list(itertools.accumulate(size for size in sizes if isinstance(size, int)))[:-1]
    return [tensor_of(source.dtype, part) for part in np.split(source.elements, borders, axis=axis)]


def _split_sizes(node: Node, size: Size | None, axis: int, count: int) -> Sequence[Size | None]:
    side = (f"dimension {axis} of {node.name_of(0)}", size)
    if "split" in node.attributes or node.has(1):
        given = list(node.attributes["split"]) if "split" in node.attributes else node.input(1).vector()
        if given is None or len(given) != count or any(s is None for s in given):
            return [None] * count
        node.require_equal(f"dimension {axis} must be the sum of the parts", side, ("the sum", sum(given)))
        return given
    if size is None:
        return [None] * count
    if "num_outputs" in node.attributes:
        part = ceil_divide(size, count)
        last = size - part * (count - 1)
        demand = f"dimension {axis} must leave something for the last of {count} parts"
        node.require_at_least(demand, ("the last part", last), 1)
        return [*[part] * (count - 1), last]
    node.require(equal(modulo(size, count), 0), f"dimension {axis} must be divisible by {count}", side)
    return [floor_divide(size, count)] * count


def pad(node: Node) -> list[SymbolicTensor]:
    source = node.input(0)
    if source.shape is None:
        return [like(source)]
    given = node.attributes.get("pads", node.attributes.get("paddings"))
    pads = list(given) if given is not None else node.input(1).vector()
    axes = node.integers(3, "axes") if node.has(3) else list(range(len(source.shape)))
    if pads is None or axes is None or len(pads) != 2 * len(axes):
        return [unknown_rank(source, len(source.shape))]
    result = list(source.shape)
    reflects = node.attributes.get("mode", b"constant") in (b"reflect", "reflect")
    for position, axis in enumerate(a % len(result) for a in axes):
        before, after, size_ = pads[position], pads[position + len(axes)], source.shape[axis]
        if size_ is None or before is None or after is None:
            result[axis] = None
            continue
        side = (f"dimension {axis} of {node.name_of(0)}", size_)
        if reflects and not (before == 0 and after == 0):
            condition = both(at_most(before + 1, size_), at_most(after + 1, size_))
            node.require(
                condition, f"dimension {axis} must be larger than what is reflected", side, ("that", maximum(before, after))
            )
        result[axis] = size_ + before + after
        node.require_at_least(f"dimension {axis} must not be cut to less than nothing", ("what is left", result[axis]), 0)
    return [like(source, tuple(result))]


def top_k(node: Node) -> list[SymbolicTensor]:
    source = node.input(0)
    if source.shape is None:
        return [like(source), SymbolicTensor(INT64)]
    axis = node.axis(len(source.shape), -1)
    count = [int(node.attributes["k"])] if "k" in node.attributes else node.input(1).vector()
    k = count[0] if count else None
    size = source.shape[axis]
    if k is not None and size is not None:
        sides = ((f"dimension {axis} of {node.name_of(0)}", size), ("k", k))
        node.require(at_most(k, size), f"dimension {axis} must hold at least k elements", *sides)
    made = (*source.shape[:axis], k, *source.shape[axis + 1 :])
    return [like(source, made), SymbolicTensor(INT64, made)]


RULES: dict[str, Callable[[Node], list[SymbolicTensor]]] = {
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Slice": slice_,
    "Split": split,
    "Pad": pad,
    "TopK": top_k,
}
