"""Reshape as far as a scale and shift is concerned: which axes of the one shape hold the elements of which of the other.

A reshape keeps the order of elements, so wherever the products of leading (or trailing) sizes agree, the two shapes fall apart
into blocks that correspond. Sizes may be symbols; equal symbols are equal sizes.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.shapes import format_shape
from trtnorm_cli.rewrite.scale_shift.affine import Affine, CannotMove

Shape = Sequence[int | str | None]


@dataclass(frozen=True)
class Block:
    """Neighbouring axes ``first`` of the one shape that hold the elements of ``second`` of the other.

    ``proven`` is False for what is left over when sizes are not known.
    """

    first: range
    second: range
    proven: bool


def regroup(given: Affine, first: Shape, second: Shape, owner: str) -> Affine:
    """The scale and shift of a tensor of shape ``second`` that holds the elements of one of shape ``first``, in order.

    Raises ``CannotMove`` when the values of an axis end up mixed with elements of an axis of unknown size.
    """
    wide: list[int] = [1] * len(first)
    narrow: list[int] = [1] * len(second)
    for block in _blocks(first, second):
        if all(given.shape[axis] == 1 for axis in block.first):
            continue
        sizes = [first[axis] for axis in block.first], [second[axis] for axis in block.second]
        if not block.proven or not all(isinstance(size, int) for part in sizes for size in part):
            raise CannotMove(
                f"{owner} mixes channels with axes of unknown size: {format_shape(first)} to {format_shape(second)}"
            )
        for axis in block.first:
            wide[axis] = _known(first[axis])
        for axis in block.second:
            narrow[axis] = _known(second[axis])
    try:
        return given.moved(lambda values: np.broadcast_to(values, wide).reshape(narrow))
    except ValueError:
        raise CannotMove(f"scale and shift of shape {list(given.shape)} do not fit {format_shape(first)} at {owner}") from None


def _known(size: int | str | None) -> int:
    assert isinstance(size, int), "the block's sizes are known"
    return size


def _blocks(first: Shape, second: Shape) -> list[Block]:
    if 0 in first or 0 in second:
        return [Block(range(len(first)), range(len(second)), False)]
    leading = _leading(first, second)
    i, j = (leading[-1].first.stop, leading[-1].second.stop) if leading else (0, 0)
    rest, other = first[i:], second[j:]
    trailing = [
        Block(_mirrored(b.first, len(first)), _mirrored(b.second, len(second)), True) for b in _leading(rest[::-1], other[::-1])
    ]
    k, m = (trailing[-1].first.start, trailing[-1].second.start) if trailing else (len(first), len(second))
    rests = _product(first[i:k]), _product(second[j:m])
    return [*leading, Block(range(i, k), range(j, m), None not in rests and rests[0] == rests[1]), *trailing]


def _mirrored(axes: range, rank: int) -> range:
    return range(rank - axes.stop, rank - axes.start)


def _leading(first: Shape, second: Shape) -> list[Block]:
    """Blocks from the left, as far as the products of sizes can be compared."""
    found: list[Block] = []
    i = j = 0
    while i < len(first) and j < len(second):
        size = _shortest_block(first[i:], second[j:])
        if size is None:
            break
        found.append(Block(range(i, i + size[0]), range(j, j + size[1]), True))
        i, j = i + size[0], j + size[1]
    return found


def _shortest_block(first: Shape, second: Shape) -> tuple[int, int] | None:
    """How many axes of each hold the same elements, one at least; None when that cannot be told."""
    i = j = 1
    while i <= len(first) and j <= len(second):
        one, two = _product(first[:i]), _product(second[:j])
        if one is None or two is None:
            return None
        if one == two:
            return i, j
        lacks = _symbols(two) - _symbols(one), _symbols(one) - _symbols(two)
        if lacks[0] or (not lacks[1] and one[0] < two[0]):
            i += 1
        if lacks[1] or (not lacks[0] and two[0] < one[0]):
            j += 1
    return None


def _symbols(product: tuple[int, tuple[str, ...]]) -> Counter[str]:
    return Counter(product[1])


def _product(sizes: Shape) -> tuple[int, tuple[str, ...]] | None:
    """The product of sizes: a number and the symbols that multiply it; None when a size is not known."""
    if None in sizes:
        return None
    return math.prod(s for s in sizes if isinstance(s, int)), tuple(sorted(s for s in sizes if isinstance(s, str)))
