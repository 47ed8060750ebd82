"""Operators that rearrange and repeat elements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trtnorm_cli.shapes.condition import different, equal, is_choice
from trtnorm_cli.shapes.expression import Size, floor_divide, modulo, product_of
from trtnorm_cli.shapes.node import Node, like, unknown_rank
from trtnorm_cli.shapes.tensor import MOST_ELEMENTS, Shape, SymbolicTensor, tensor_of


def reshape(node: Node) -> list[SymbolicTensor]:
    source = node.input(0)
    stated = tuple(node.attributes["shape"]) if "shape" in node.attributes else node.input(1).as_shape()
    if stated is None:
        return [SymbolicTensor(source.dtype)]
    copied = [] if int(node.attributes.get("allowzero", 0)) else [axis for axis, size in enumerate(stated) if size == 0]
    wanted = [_copied(source.shape, axis) if axis in copied else size for axis, size in enumerate(stated)]
    made = _reshaped(node, source, wanted, copied)
    return [_with_elements(source, made)]


def _copied(source: Shape | None, axis: int) -> Size | None:
    return source[axis] if source is not None and axis < len(source) else None


def _reshaped(node: Node, source: SymbolicTensor, wanted: list[Any], copied: list[int]) -> Shape:
    """The shape of ``source`` when it gets the sizes ``wanted``, which on the axes ``copied`` are its own."""
    guesses = [axis for axis, size in enumerate(wanted) if isinstance(size, int) and size == -1]
    # A size that is -1 or 0 at some values would be read differently there.
    wanted = [None if is_choice(s) else s for s in wanted]
    # What is copied is the same on both sides, also where it is not known.
    left_out = {axis for axis in copied if wanted[axis] is None}
    sizes = None if source.shape is None else [size for axis, size in enumerate(source.shape) if axis not in left_out]
    asked = [size for axis, size in enumerate(wanted) if axis not in (*guesses, *left_out)]
    if sizes is None or None in sizes or None in asked:
        return tuple(None if axis in guesses else size for axis, size in enumerate(wanted))
    have, others = _without_common(sizes, asked)
    sides = (("the input has", have), ("its shape asks for", others))
    if not guesses:
        node.require(equal(have, others), "the number of elements must stay the same", *_elements_sides(*sides))
        return tuple(wanted)
    if others == 0:
        return tuple(None if axis in guesses else size for axis, size in enumerate(wanted))
    for axis, size in enumerate(wanted):
        if size is not None:
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
    if source.shape is None:
        return [unknown_rank(source, 2)]
    axis = node.axis(len(source.shape), 1)
    return [like(source, (like(source, source.shape[:axis]).size, like(source, source.shape[axis:]).size))]


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
    source = node.input(0)
    result = node.broadcast([(node.name_of(0), source.shape), ("its shape", node.input(1).as_shape())])
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


RULES: dict[str, Callable[[Node], list[SymbolicTensor]]] = {
    "Reshape": reshape,
    "Flatten": flatten,
    "Squeeze": squeeze,
    "Unsqueeze": unsqueeze,
    "Transpose": transpose,
    "Concat": concat,
    "Expand": expand,
    "Tile": tile,
    "DepthToSpace": depth_to_space,
    "SpaceToDepth": space_to_depth,
}
