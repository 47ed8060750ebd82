"""The axes of what only moves elements: Reshape, Flatten, Concat, Split, Slice and Gather.

A Reshape leaves an axis as it is where as many elements lie before it and behind it as before. Such an axis may be shortened.
Where axes become one, or one is split, the longest of them may be, and the whole with it, if both sides of a change move their
elements in the same steps. Elsewhere two ways to group them might be the same at the short lengths: 12 heads of 64 channels and
96 x 2 x 4 are, with 8 for 64. All others keep their length. A constant that states the length of a shortened axis is stated
anew.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from trtnorm_cli.rewrite.proof.axes import NotShortened
from trtnorm_cli.rewrite.proof.lengths import Length, Stated, value_of
from trtnorm_cli.rewrite.proof.use import Tensor, Use

_WHATEVER_IS_THERE = (1 << 31) - 1


def reshaped(use: Use) -> Tensor:
    x, target = use.given(0), use.numbers[1]
    if target is None:
        raise NotShortened
    copies = not use.attributes.get("allowzero", 0)
    sizes: list[int] = []
    for place, entry in enumerate(target):
        size = value_of(entry, use.axes.sizes)
        sizes.append(use.axes.sizes[x[place]] if size == 0 and copies else size)
    rest = math.prod(size for size in sizes if size != -1)
    sizes = [math.prod(use.sizes(x)) // max(rest, 1) if size == -1 else size for size in sizes]
    made = _regrouped(use, x, sizes)
    for place, entry in enumerate(target):
        number = value_of(entry, use.axes.sizes)
        if isinstance(entry, Length):
            use.axes.same([made[place], entry.axis])
        elif number == 0 and copies:
            use.axes.same([made[place], x[place]])
        elif number > 1 and isinstance(entry, Stated):
            use.states(entry, made[place])
        elif number > 1:
            use.axes.keep([made[place]])
    return made


def flattened(use: Use) -> Tensor:
    x, axis = use.given(0), int(use.attributes.get("axis", 1))
    sizes = use.sizes(x)
    return _regrouped(use, x, [math.prod(sizes[:axis]), math.prod(sizes[axis:])])


def _regrouped(use: Use, x: Tensor, sizes: Sequence[int]) -> Tensor:
    """The axes of ``x`` where they go on as they are, and new ones that keep their length."""
    before = use.sizes(x)
    if math.prod(before) != math.prod(sizes):
        raise NotShortened
    made = [use.axes.made(size) for size in sizes]
    for old, new in _groups(before, sizes):
        ours, theirs = [x[place] for place in old], [made[place] for place in new]
        if len(old) == len(new) == 1:
            made[new[0]] = ours[0]
        elif not use.axes.may_split or len(set(ours)) < len(ours) or min(len(old), len(new)) > 1:
            use.axes.keep([*ours, *theirs])
        elif len(old) == 1:
            _split_into(use, ours[0], theirs)
        else:
            _split_into(use, theirs[0], ours)
    return made


def _split_into(use: Use, whole: int, parts: Sequence[int]) -> None:
    """Shorten the longest of the ``parts`` of an axis with the ``whole``, if at all."""
    longest = max(parts, key=use.axes.sizes.__getitem__)
    use.axes.keep(axis for axis in parts if axis != longest)
    use.axes.link(whole, longest, use.axes.sizes[whole] // use.axes.sizes[longest])


def _groups(before: Sequence[int], after: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """The places of axes that hold the same elements, axes of length one left out, in the smallest groups there are."""
    old = [place for place, size in enumerate(before) if size != 1]
    new = [place for place, size in enumerate(after) if size != 1]
    while old and new:
        first, second = [old.pop(0)], [new.pop(0)]
        while (a := math.prod(before[i] for i in first)) != (b := math.prod(after[i] for i in second)):
            if not (old if a < b else new):
                raise NotShortened
            (first if a < b else second).append((old if a < b else new).pop(0))
        yield first, second


def concatenated(use: Use) -> Tensor:
    given = [use.given(index) for index in range(len(use.inputs))]
    rank = len(given[0])
    joined = int(use.attributes["axis"]) % rank
    use.axes.keep(tensor[joined] for tensor in given)
    whole = sum(use.axes.sizes[tensor[joined]] for tensor in given)
    return [
        use.axes.fixed([whole])[0] if place == joined else _equal(use, [tensor[place] for tensor in given])
        for place in range(rank)
    ]


def _equal(use: Use, axes: Sequence[int]) -> int:
    if len({use.axes.sizes[axis] for axis in axes}) != 1:
        raise NotShortened
    return use.axes.same(axes)


def split(use: Use) -> list[Tensor]:
    x = use.given(0)
    axis = int(use.attributes.get("axis", 0)) % len(x)
    use.axes.keep([x[axis]])
    size, parts = use.axes.sizes[x[axis]], use.outputs
    stated = use.integers("split", 1)
    if stated is None:
        each = -(-size // parts)
        stated = [min(each, size - each * place) for place in range(parts)]
    if len(stated) != parts or sum(stated) != size:
        raise NotShortened
    return [[*x[:axis], *use.axes.fixed([part]), *x[axis + 1 :]] for part in stated]


def sliced(use: Use) -> Tensor:
    x = list(use.given(0))
    starts, ends = use.integers("starts", 1), use.integers("ends", 2)
    if starts is None or ends is None:
        raise NotShortened
    places, steps = use.integers("axes", 3), use.integers("steps", 4)
    places = list(range(len(starts))) if places is None else places
    for start, end, place, step in zip(starts, ends, places, steps or [1] * len(starts), strict=True):
        if (start, step) == (0, 1) and end >= _WHATEVER_IS_THERE:
            continue
        use.axes.keep([x[place]])
        taken = len(range(*slice(start, end, step).indices(use.axes.sizes[x[place]])))
        x[place] = use.axes.fixed([taken])[0]
    return x


def gathered(use: Use) -> Tensor:
    x, indices = use.given(0), use.values[1]
    axis = int(use.attributes.get("axis", 0)) % len(x)
    if indices is None:
        raise NotShortened
    use.axes.keep([x[axis]])
    return [*x[:axis], *use.axes.fixed(indices.shape), *x[axis + 1 :]]
