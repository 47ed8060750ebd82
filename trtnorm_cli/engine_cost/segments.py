"""Two engines of one model held against each other, part by part.

Kernels of the two are joined where they come from common ONNX nodes, and so are the nodes that a change took away or brought
along. What is joined is a segment: at its borders both engines hand on the same tensors, so that the times of its two sides can
be compared. A kernel without nodes, a transposition say, belongs to what it stands between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from trtnorm_cli.engine_cost.engine import COMPILED_ON_DEVICE
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.records.cost import KernelCost
from trtnorm_cli.records.engine_parts import CompiledLayer, Kernel

# Which of the two engines, and a kernel's place in it, or a node's name.
_Key = Hashable


# Times that are nearer than this are equal. Equal builds are the same to the byte, and so are their estimates; but the same
# work in other kernels may differ by as much, because a roofline lets memory and arithmetic overlap in each kernel alone.
_TOLD_APART = 0.001


def are_told_apart(one: float, other: float) -> bool:
    """True for times that the model of cost means to be different."""
    return abs(one - other) > _TOLD_APART * max(one, other)


@dataclass(frozen=True)
class Side:
    """One of the engines: its kernels, and the estimate of each."""

    kernels: Sequence[CompiledLayer]
    costs: Sequence[KernelCost]


@dataclass(frozen=True)
class Sums:
    """Kernels taken together: microseconds, launches, and how many are compiled where the engine runs."""

    us: float = 0.0
    launches: int = 0
    compiled: int = 0

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.us + other.us, self.launches + other.launches, self.compiled + other.compiled)

    def __sub__(self, other: Sums) -> Sums:
        return Sums(self.us - other.us, self.launches - other.launches, self.compiled - other.compiled)

    def differs(self, other: Sums) -> bool:
        """True where it is other work, or the model of cost tells the two apart."""
        return self.launches != other.launches or are_told_apart(self.us, other.us)


@dataclass(frozen=True)
class Segment:
    """``sites`` of changes that are decided together, with the sums of both sides."""

    sites: tuple[str, ...]
    changed: Sums
    unchanged: Sums


def segments(
    changed: Side, unchanged: Side, sites: Mapping[str, Iterable[str]], joined: Iterable[Iterable[str]] = ()
) -> list[Segment]:
    """The segments that have sites.

    ``sites`` has for each site nodes of either model, and ``joined`` further nodes that belong together.
    """
    groups = _Groups()
    for names in joined:
        groups.join([("node", name) for name in names])
    for site, names in sites.items():
        groups.join([("site", site), *(("node", name) for name in names)])
    sides = (changed, unchanged)
    for index, side in enumerate(sides):
        _join_kernels(groups, index, side)
    _join_altered(groups, sides, sites)
    _join_touching(groups, sides)
    found: dict[_Key, list[str]] = {}
    for site in sites:
        found.setdefault(groups.of(("site", site)), []).append(site)
    sums = [_sums(groups, index, side) for index, side in enumerate(sides)]
    return [Segment(tuple(names), *(one.get(group, Sums()) for one in sums)) for group, names in found.items()]


def _join_kernels(groups: _Groups, index: int, side: Side) -> None:
    producers = _producers(side)
    read = {tensor.name for kernel in side.kernels if isinstance(kernel, Kernel) for tensor in kernel.inputs}
    for at, kernel in enumerate(side.kernels):
        if not isinstance(kernel, Kernel):
            continue
        groups.join([(index, at), *(("node", name) for name in kernel.onnx_nodes)])
        for tensor in kernel.inputs:
            producer = producers.get(tensor.name)
            if producer is not None and not (_has_nodes(side.kernels[producer]) and kernel.onnx_nodes):
                groups.join([(index, at), (index, producer)])
        if not kernel.onnx_nodes and not any(tensor.name in read for tensor in kernel.outputs):
            # The sizes that the next kernel is launched with, as a rule.
            following = next((after for after in range(at + 1, len(side.kernels)) if _has_nodes(side.kernels[after])), at)
            groups.join([(index, at), (index, following)])


def _join_altered(groups: _Groups, sides: Sequence[Side], sites: Iterable[str]) -> None:
    """Join to the sites around it whatever differs between the engines and has no site of its own.

    A change can cost its neighbours: the kernel of a bias that moved away also brought the data into the layout of the product
    behind it, which then gets there by kernels of its own. So a border is one only where both engines are the same beyond it.
    Of the sites around, those count whose own kernels differ, where there are such.
    """
    differing = _differing(groups, sides)
    decided = {groups.of(("site", site)) for site in sites}
    around: dict[_Key, set[_Key]] = {}
    for index, side in enumerate(sides):
        for first, second in _neighbours(groups, index, side):
            around.setdefault(first, set()).add(second)
            around.setdefault(second, set()).add(first)
    for altered in _connected(differing - decided, around):
        beside = decided & {neighbour for group in altered for neighbour in around.get(group, ())}
        groups.join([*(beside & differing or beside), *altered])


def _join_touching(groups: _Groups, sides: Sequence[Side]) -> None:
    """Join neighbours that both differ, where one does not hand on as many tensors in both engines.

    A kernel may write its result a second time, in the layout that a change behind it wants. That is a cost of that change.
    """
    while touching := list(_touching(groups, sides)):
        for pair in touching:
            groups.join(pair)


def _touching(groups: _Groups, sides: Sequence[Side]) -> Iterator[tuple[_Key, _Key]]:
    differing = _differing(groups, sides)
    one, other = (_handed_on(groups, index, side) for index, side in enumerate(sides))
    for index, side in enumerate(sides):
        for writer, reader in _neighbours(groups, index, side):
            if writer != reader and {writer, reader} <= differing and one[writer] != other[writer]:
                yield writer, reader


def _handed_on(groups: _Groups, index: int, side: Side) -> Counter[_Key]:
    """How many tensors each group writes for others."""
    producers, handed_on = _producers(side), set[tuple[_Key, str]]()
    for at, kernel in enumerate(side.kernels):
        for tensor in kernel.inputs if isinstance(kernel, Kernel) else ():
            producer = producers.get(tensor.name)
            if producer is not None and (writer := groups.of((index, producer))) != groups.of((index, at)):
                handed_on.add((writer, tensor.name))
    return Counter(writer for writer, _ in handed_on)


def _differing(groups: _Groups, sides: Sequence[Side]) -> set[_Key]:
    one, other = (_sums(groups, index, side) for index, side in enumerate(sides))
    return {group for group in {*one, *other} if one.get(group, Sums()).differs(other.get(group, Sums()))}


def _connected(nodes: set[_Key], around: Mapping[_Key, set[_Key]]) -> Iterator[list[_Key]]:
    """The parts of ``nodes`` that hang together."""
    left = set(nodes)
    while left:
        found = [left.pop()]
        for node in found:
            reached = around.get(node, set()) & left
            left -= reached
            found += reached
        yield found


def _neighbours(groups: _Groups, index: int, side: Side) -> Iterator[tuple[_Key, _Key]]:
    """Pairs of groups of which one reads what the other writes."""
    producers = _producers(side)
    for at, kernel in enumerate(side.kernels):
        for tensor in kernel.inputs if isinstance(kernel, Kernel) else ():
            if (producer := producers.get(tensor.name)) is not None:
                yield groups.of((index, producer)), groups.of((index, at))


def _producers(side: Side) -> dict[str, int]:
    return {tensor.name: at for at, one in enumerate(side.kernels) if isinstance(one, Kernel) for tensor in one.outputs}


def _has_nodes(kernel: CompiledLayer) -> bool:
    return isinstance(kernel, Kernel) and bool(kernel.onnx_nodes)


def sums_of(side: Side) -> Sums:
    """All kernels of an engine."""
    return sum(map(_sums_of_kernel, side.kernels, side.costs), Sums())


def _sums_of_kernel(kernel: CompiledLayer, cost: KernelCost) -> Sums:
    return Sums(cost.us, 1, int(kernel.type == COMPILED_ON_DEVICE))


def _sums(groups: _Groups, index: int, side: Side) -> dict[_Key, Sums]:
    sums: dict[_Key, Sums] = {}
    for at, (kernel, cost) in enumerate(zip(side.kernels, side.costs, strict=True)):
        group = groups.of((index, at))
        sums[group] = sums.get(group, Sums()) + _sums_of_kernel(kernel, cost)
    return sums


class _Groups:
    """Disjoint sets."""

    def __init__(self) -> None:
        self._parent: dict[_Key, _Key] = {}

    def of(self, key: _Key) -> _Key:
        path = []
        while (parent := self._parent.setdefault(key, key)) != key:
            path.append(key)
            key = parent
        for one in path:
            self._parent[one] = key
        return key

    def join(self, keys: Sequence[_Key]) -> None:
        for key in keys[1:]:
            self._parent[self.of(key)] = self.of(keys[0])
