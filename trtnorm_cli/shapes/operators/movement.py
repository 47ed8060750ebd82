"""Operators that move elements: reshape, cut, join, repeat."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from trtnorm_cli.shapes import floating
from trtnorm_cli.shapes.expression import (
    Expr,
    Size,
    at_most,
    below,
    both,
    ceil_divide,
    choice,
    different,
    equal,
    floor_divide,
    is_choice,
    lower_bound,
    maximum,
    minimum,
    modulo,
    product_of,
)
from trtnorm_cli.shapes.node import Node, like, unknown_rank
from trtnorm_cli.shapes.tensor import MOST_ELEMENTS, Shape, SymbolicTensor, objects, tensor_of, vector_of

INT64 = onnx.TensorProto.INT64
# Exporters write "to the end" as one of the largest integers.
_NO_END = 2**31 - 1


def shape(node: Node) -> list[SymbolicTensor]:
    source = node.input(0).shape
    if source is None:
        return [SymbolicTensor(INT64, (None,))]
    start, end = node.attributes.get("start", 0), node.attributes.get("end")
    return [vector_of(source[start:end])]


def size(node: Node) -> list[SymbolicTensor]:
    elements = np.empty((), dtype=object)
    elements[()] = node.input(0).size
    return [SymbolicTensor(INT64, (), elements)]


def constant_of_shape(node: Node) -> list[SymbolicTensor]:
    value = node.attributes.get("value")
    dtype = int(value.data_type) if value is not None else int(onnx.TensorProto.FLOAT)
    sizes = node.input(0).vector()
    if sizes is None:
        return [SymbolicTensor(dtype)]
    made = SymbolicTensor(dtype, tuple(sizes))
    filled = 0 if value is None else onnx.numpy_helper.to_array(value).reshape(-1)[0].item()
    known = all(isinstance(s, int) for s in sizes)
    if not known or not made.holds_sizes or int(np.prod(sizes, dtype=np.float64)) > MOST_ELEMENTS:
        return [made]
    number = float(filled) if made.floating else int(filled)
    return [tensor_of(dtype, np.full(sizes, number, dtype=object))]


def range_(node: Node) -> list[SymbolicTensor]:
    dtype = node.input(0).dtype
    ends = [node.input(i).vector() for i in range(3)]
    if any(end is None or len(end) != 1 or end[0] is None for end in ends):
        return [SymbolicTensor(dtype, (None,))]
    start, limit, step = (end[0] for end in ends if end is not None)
    if node.input(0).floating:
        return [SymbolicTensor(dtype, (_float_range(start, limit, step),))]
    if isinstance(start, int) and isinstance(limit, int) and isinstance(step, int) and step:
        values = range(start, limit, step)
        return [vector_of(list(values), dtype) if len(values) <= MOST_ELEMENTS else SymbolicTensor(dtype, (len(values),))]
    if not isinstance(step, int) or step == 0:
        return [SymbolicTensor(dtype, (None,))]
    count = ceil_divide(limit - start, step) if step > 0 else ceil_divide(start - limit, -step)
    counts_up = step > 0 and isinstance(start, int) and start >= 0
    return [SymbolicTensor(dtype, (maximum(count, 0),), largest=start + (count - 1) * step if counts_up else None)]


def _float_range(start: object, limit: object, step: object) -> Size | None:
    """How many numbers a Range of floating-point numbers has, where all three are whole."""
    first, last, by = floating.whole(start), floating.whole(limit), floating.whole(step)
    if first is None or last is None or not isinstance(by, int) or by <= 0:
        return None
    return maximum(ceil_divide(last - first, by), 0)


def reshape(node: Node) -> list[SymbolicTensor]:
    source = node.input(0)
    wanted = list(node.attributes["shape"]) if "shape" in node.attributes else node.input(1).vector()
    if wanted is None:
        length = node.input(1).shape
        return [unknown_rank(source, length[0] if length and isinstance(length[0], int) else None)]
    if not int(node.attributes.get("allowzero", 0)):
        wanted = [_copied(source.shape, axis) if size == 0 else size for axis, size in enumerate(wanted)]
    made = _reshaped(node, source, wanted)
    return [_with_elements(source, made)]


def _copied(source: Shape | None, axis: int) -> Size | None:
    return source[axis] if source is not None and axis < len(source) else None


def _reshaped(node: Node, source: SymbolicTensor, wanted: list[Any]) -> Shape:
    guesses = [axis for axis, size in enumerate(wanted) if isinstance(size, int) and size == -1]
    # A size that is -1 or 0 at some values would be read differently there.
    wanted = [None if is_choice(s) else s for s in wanted]
    if source.shape is None or any(size is None for size in wanted) or any(s is None for s in source.shape):
        return tuple(None if axis in guesses else size for axis, size in enumerate(wanted))
    have, others = _without_common(source.shape, [size for axis, size in enumerate(wanted) if axis not in guesses])
    sides = (("the input has", have), ("its shape asks for", others))
    if not guesses:
        node.require(equal(have, others), "the number of elements must stay the same", *_elements_sides(*sides))
        return tuple(wanted)
    if others == 0:
        return tuple(None if axis in guesses else size for axis, size in enumerate(wanted))
    for axis, size in enumerate(wanted):
        text = f"dimension {axis} must not be 0, or what -1 stands for cannot be told"
        node.require(different(size, 0), text, ("it", size))
    node.require(
        equal(modulo(have, others), 0), "the number of elements must be divisible by what -1 leaves", *_elements_sides(*sides)
    )
    left = floor_divide(have, others)
    return tuple(left if axis in guesses else size for axis, size in enumerate(wanted))


def _elements_sides(*sides: tuple[str, Size]) -> list[tuple[str, Size]]:
    """Without the sizes that both have in common."""
    return [(f"what {name}", value) for name, value in sides]


def _without_common(have: Sequence[Size | None], wanted: Sequence[Size]) -> tuple[Size, Size]:
    """The two products without the factors that stand in both."""
    left = list(have)
    right = []
    for factor in wanted:
        if factor in left and not isinstance(factor, int):
            left.remove(factor)
        else:
            right.append(factor)
    return product_of(f for f in left if f is not None), product_of(right)


def flatten(node: Node) -> list[SymbolicTensor]:
    source = node.input(0)
    if source.shape is None or any(s is None for s in source.shape):
        return [unknown_rank(source, 2)]
    axis = node.axis(len(source.shape), 1)
    known = [s for s in source.shape if s is not None]
    return [like(source, (product_of(known[:axis]), product_of(known[axis:])))]


def squeeze(node: Node) -> list[SymbolicTensor]:
    source = node.input(0)
    axes = node.integers(1, "axes")
    if source.shape is None or (axes is None and (node.has(1) or not all(isinstance(s, int) for s in source.shape))):
        return [unknown_rank(source, None)]
    rank = len(source.shape)
    chosen = {a % rank for a in axes} if axes is not None and rank else {i for i, s in enumerate(source.shape) if s == 1}
    for axis in sorted(chosen):
        side = (f"dimension {axis} of {node.name_of(0)}", source.shape[axis])
        node.require_equal(f"dimension {axis} must be 1 to be removed", side, ("what it takes", 1))
    kept = tuple(s for i, s in enumerate(source.shape) if i not in chosen)
    return [_with_elements(source, kept)]


def unsqueeze(node: Node) -> list[SymbolicTensor]:
    source, axes = node.input(0), node.integers(1, "axes")
    if source.shape is None or axes is None:
        return [unknown_rank(source, None)]
    rank = len(source.shape) + len(axes)
    new = {a % rank for a in axes}
    sizes = iter(source.shape)
    return [_with_elements(source, tuple(1 if axis in new else next(sizes) for axis in range(rank)))]


def _with_elements(source: SymbolicTensor, made: Shape) -> SymbolicTensor:
    """The same elements in a shape of as many."""
    if source.elements is None or not all(isinstance(s, int) for s in made):
        return like(source, made)
    sizes = [s for s in made if isinstance(s, int)]
    if int(np.prod(sizes)) != source.elements.size:
        return like(source, made)
    return SymbolicTensor(source.dtype, made, source.elements.reshape(sizes))


def transpose(node: Node) -> list[SymbolicTensor]:
    source = node.input(0)
    if source.shape is None:
        return [like(source)]
    order = list(node.attributes.get("perm", range(len(source.shape))[::-1]))
    if len(order) != len(source.shape):
        return [unknown_rank(source, len(order))]
    elements = None if source.elements is None else np.transpose(source.elements, order)
    return [SymbolicTensor(source.dtype, tuple(source.shape[axis] for axis in order), elements)]


def concat(node: Node) -> list[SymbolicTensor]:
    inputs = node.inputs()
    rank = next((t.rank for t in inputs if t.rank is not None), None)
    dtype = next((t.dtype for t in inputs if t.dtype), 0)
    if rank is None:
        return [SymbolicTensor(dtype)]
    axis = node.axis(rank, 1)
    result = [_concat_axis(node, position, axis) for position in range(rank)]
    arrays = [t.elements for t in inputs]
    if all(array is not None for array in arrays):
        return [tensor_of(dtype, np.concatenate([array for array in arrays if array is not None], axis=axis))]
    return [SymbolicTensor(dtype, tuple(result))]


def _concat_axis(node: Node, position: int, axis: int) -> Size | None:
    sizes = [
        (node.name_of(i), t.shape[position] if t.shape is not None and position < len(t.shape) else None)
        for i, t in enumerate(node.inputs())
    ]
    if position == axis:
        values = [value for _, value in sizes]
        return None if any(v is None for v in values) else sum(v for v in values if v is not None)
    first = next(((n, v) for n, v in sizes if v is not None), None)
    if first is None:
        return None
    known: Size | None = first[1]
    for name, value in sizes:
        a = (f"that of {first[0]}", first[1])
        found = node.require_equal(f"dimension {position} of its inputs must be equal", a, (f"that of {name}", value))
        known = found if isinstance(found, int) else known
    return known


def expand(node: Node) -> list[SymbolicTensor]:
    source, target = node.input(0), node.input(1).vector()
    if target is None:
        return [like(source, None) if source.shape is None else SymbolicTensor(source.dtype)]
    result = node.broadcast([(node.name_of(0), source.shape), ("its shape", tuple(target))])
    if source.elements is not None and result is not None and all(isinstance(s, int) for s in result):
        sizes = [s for s in result if isinstance(s, int)]
        if int(np.prod(sizes)) <= MOST_ELEMENTS:
            return [tensor_of(source.dtype, np.broadcast_to(source.elements, sizes).copy())]
    return [SymbolicTensor(source.dtype, result)]


def tile(node: Node) -> list[SymbolicTensor]:
    source, repeats = node.input(0), node.input(1).vector()
    if source.shape is None or repeats is None or len(repeats) != len(source.shape):
        return [unknown_rank(source, source.rank)]
    pairs = list(zip(source.shape, repeats, strict=True))
    made = tuple(None if s is None or r is None else s * r for s, r in pairs)
    counts = [r for r in repeats if isinstance(r, int)]
    if source.elements is not None and len(counts) == len(repeats) and source.elements.size * np.prod(counts) <= MOST_ELEMENTS:
        return [tensor_of(source.dtype, np.tile(source.elements, counts))]
    return [like(source, made)]


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
        plain = all(isinstance(v, int) for v in (start, end, step)) and step != 0
        if elements is not None:
            index = (slice(None),) * axis + (slice(start, _end_of(end, step), step),)
            elements = elements[index] if plain else None
    if axes is None:
        return [unknown_rank(source, len(result))]
    if elements is not None:
        return [tensor_of(source.dtype, elements)]
    return [like(source, tuple(result))]


def _end_of(end: Any, step: Any) -> Any:
    """ONNX counts from the end for a negative end as Python does; below any size it means before the first element."""
    return None if isinstance(end, int) and end <= -_NO_END and isinstance(step, int) and step < 0 else end


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
        return [*[part] * (count - 1), size - part * (count - 1)]
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


def depth_to_space(node: Node) -> list[SymbolicTensor]:
    source, block = node.input(0), int(node.attributes["blocksize"])
    if source.rank != 4 or source.shape is None:
        return [unknown_rank(source, 4)]
    batch, channels, *plane = source.shape
    if channels is not None:
        side = (f"dimension 1 of {node.name_of(0)}", channels)
        node.require(equal(modulo(channels, block * block), 0), f"channels must be divisible by {block * block}", side)
    fewer = None if channels is None else floor_divide(channels, block * block)
    return [like(source, (batch, fewer, *(None if s is None else s * block for s in plane)))]


def space_to_depth(node: Node) -> list[SymbolicTensor]:
    source, block = node.input(0), int(node.attributes["blocksize"])
    if source.rank != 4 or source.shape is None:
        return [unknown_rank(source, 4)]
    batch, channels, *plane = source.shape
    for axis, s in enumerate(plane, 2):
        if s is not None:
            side = (f"dimension {axis} of {node.name_of(0)}", s)
            node.require(equal(modulo(s, block), 0), f"dimension {axis} must be divisible by {block}", side)
    more = None if channels is None else channels * block * block
    return [like(source, (batch, more, *(None if s is None else floor_divide(s, block) for s in plane)))]


def one_hot(node: Node) -> list[SymbolicTensor]:
    indices, depth = node.input(0), node.input(1).vector()
    dtype = node.input(2).dtype
    if indices.shape is None:
        return [SymbolicTensor(dtype)]
    rank = len(indices.shape) + 1
    axis = node.axis(rank, -1)
    classes = depth[0] if depth and isinstance(depth[0], (int, Expr)) and not node.input(1).floating else None
    return [SymbolicTensor(dtype, (*indices.shape[:axis], classes, *indices.shape[axis:]))]


def top_k(node: Node) -> list[SymbolicTensor]:
    source = node.input(0)
    if source.shape is None:
        return [like(source), SymbolicTensor(INT64)]
    axis = node.axis(len(source.shape), -1)
    count = [int(node.attributes["k"])] if "k" in node.attributes else node.input(1).vector()
    k = count[0] if count else None
    side = (f"dimension {axis} of {node.name_of(0)}", source.shape[axis])
    if k is not None:
        node.require_at_least(f"dimension {axis} must hold at least k elements", side, k)
    made = (*source.shape[:axis], k, *source.shape[axis + 1 :])
    return [like(source, made), SymbolicTensor(INT64, made)]


def non_zero(node: Node) -> list[SymbolicTensor]:
    return [SymbolicTensor(INT64, (node.input(0).rank, None))]


def eye_like(node: Node) -> list[SymbolicTensor]:
    return [like(node.input(0), dtype=int(node.attributes.get("dtype", 0)) or None)]


RULES: dict[str, Callable[[Node], list[SymbolicTensor]]] = {
    "Shape": shape,
    "Size": size,
    "ConstantOfShape": constant_of_shape,
    "Range": range_,
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Transpose": transpose,
    "Concat": concat,
    "Expand": expand,
    "Tile": tile,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "Slice": slice_,
    "Split": split,
    "Pad": pad,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
    "OneHot": one_hot,
    "TopK": top_k,
    "NonZero": non_zero,
    "EyeLike": eye_like,
}
