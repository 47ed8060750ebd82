"""Match the nodes of two graphs: by what they compute from and what is made of them, and by their names where that is equal.

Merkle numbers of a node's past and of its future find what two graphs have in common on either side of a difference, in linear
time. What lies between two differences is found by its own surroundings (Weisfeiler-Lehman numbers of a small radius), by its
name, and from neighbours that are matched already.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence

from trtnorm_cli.light_dataclass import dataclass

# A node and the number of one of its outputs. What is no node's output has a negative number: see ``Outline``.
Source = tuple[int, int]
Numbers = list[int]

_RADII = (3, 2, 1)
_MOST_SKIPPED = 4
_MOST_NEIGHBOURS = 64


@dataclass(frozen=True)
class Outline:
    """A graph as it is matched: for each node its labels, its name, and where its inputs come from.

    ``labels`` are from the strictest to the loosest: nodes match whose labels of one kind are equal. A source below zero is no
    node: two graphs have the same number for what is the same to both, such as an input. ``results`` are the sources of the
    graph's outputs. ``is_heavy`` is true of nodes whose strictest label alone tells them apart from others, as weights do.
    """

    labels: tuple[Sequence[Hashable], ...]
    names: Sequence[str]
    inputs: Sequence[Sequence[Source]]
    results: Sequence[Source]
    is_heavy: Sequence[bool]

    def __len__(self) -> int:
        return len(self.names)


def match(first: Outline, second: Outline) -> dict[int, int]:
    """The nodes of ``second`` by those of ``first`` that are the same to both."""
    return _Matching(first, second).found()


class _Wired:
    """An outline with its consumers and an order in which each node comes after what it computes from."""

    def __init__(self, outline: Outline) -> None:
        self.outline = outline
        self.consumers: list[list[tuple[int, int, int]]] = [[] for _ in outline.names]
        for node, inputs in enumerate(outline.inputs):
            for place, (producer, port) in enumerate(inputs):
                if producer >= 0:
                    self.consumers[producer].append((node, place, port))
        self.results: list[list[tuple[int, int]]] = [[] for _ in outline.names]
        for number, (producer, port) in enumerate(outline.results):
            if producer >= 0:
                self.results[producer].append((port, number))
        self.order = self._in_order()

    def _in_order(self) -> list[int]:
        waiting = [sum(producer >= 0 for producer, _ in inputs) for inputs in self.outline.inputs]
        ready = deque(node for node, count in enumerate(waiting) if not count)
        order = []
        while ready:
            node = ready.popleft()
            order.append(node)
            for consumer, _, _ in self.consumers[node]:
                waiting[consumer] -= 1
                if not waiting[consumer]:
                    ready.append(consumer)
        return order

    def pasts(self, labels: Sequence[Hashable], numbers: dict[Hashable, int]) -> Numbers:
        """A number for each node that says what it is and what it is computed from."""
        found = [-1] * len(labels)
        for node in self.order:
            sources = tuple((found[p], port) if p >= 0 else (p, port, None) for p, port in self.outline.inputs[node])
            found[node] = numbers.setdefault((labels[node], sources), len(numbers))
        return found

    def futures(self, labels: Sequence[Hashable], numbers: dict[Hashable, int]) -> Numbers:
        """A number for each node that says what it is and what is made of it."""
        found = [-1] * len(labels)
        for node in reversed(self.order):
            uses = tuple(sorted((found[consumer], place, port) for consumer, place, port in self.consumers[node]))
            found[node] = numbers.setdefault((labels[node], uses, tuple(self.results[node])), len(numbers))
        return found

    def surroundings(self, labels: Sequence[Hashable], radius: int, numbers: dict[Hashable, int]) -> Numbers:
        """A number for each node that says what it is and what is within ``radius`` edges of it."""
        found = [numbers.setdefault(("label", label), len(numbers)) for label in labels]
        for _ in range(radius):
            found = [
                numbers.setdefault(
                    (
                        found[node],
                        tuple((found[p], port) if p >= 0 else (p, port, None) for p, port in self.outline.inputs[node]),
                        tuple(sorted((found[c], place, port) for c, place, port in self.consumers[node])),
                    ),
                    len(numbers),
                )
                for node in range(len(labels))
            ]
        return found


class _Matching:
    """Nodes that are matched so far."""

    def __init__(self, first: Outline, second: Outline) -> None:
        self.sides = _Wired(first), _Wired(second)
        self.pairs: dict[int, int] = {}
        self.back: dict[int, int] = {}
        self.fresh: deque[tuple[int, int]] = deque()

    def found(self) -> dict[int, int]:
        strict, *looser = range(len(self.sides[0].outline.labels))
        for level in (strict, *looser):
            self._by_context(level)
            if level == strict:
                self._spread(level)
                self._by_weights()
            self._spread(level)
            if level != strict:
                self._by_name()
                self._spread(level)
            self._by_surroundings(level)
            self._spread(level, skipping=True)
            if self._is_done():
                break
        return self.pairs

    def _is_done(self) -> bool:
        return len(self.pairs) == min(len(side.outline) for side in self.sides)

    def _labels(self, level: int) -> tuple[Sequence[Hashable], Sequence[Hashable]]:
        one, other = (side.outline.labels[level] for side in self.sides)
        return one, other

    def _by_context(self, level: int) -> None:
        """Match nodes of one past and one future, then those of one past or one future."""
        if self._is_done():
            return
        past: dict[Hashable, int] = {}
        future: dict[Hashable, int] = {}
        labels = self._labels(level)
        pasts = [side.pasts(own, past) for side, own in zip(self.sides, labels, strict=True)]
        futures = [side.futures(own, future) for side, own in zip(self.sides, labels, strict=True)]
        both = [list(zip(*numbers, strict=True)) for numbers in zip(pasts, futures, strict=True)]
        for numbers in (both, pasts, futures):
            self._pair_classes(numbers[0], numbers[1])

    def _by_weights(self) -> None:
        """Match nodes that nothing else has the weights of."""
        labels = self._labels(0)
        heavy = [
            [label if is_heavy else None for label, is_heavy in zip(own, side.outline.is_heavy, strict=True)]
            for side, own in zip(self.sides, labels, strict=True)
        ]
        self._pair_classes(heavy[0], heavy[1], only_single=True)

    def _by_name(self) -> None:
        """Match nodes of one name and one operator."""
        operators = self._labels(-1)
        keys = [
            [(name, operator) if name else None for name, operator in zip(side.outline.names, own, strict=True)]
            for side, own in zip(self.sides, operators, strict=True)
        ]
        self._pair_classes(keys[0], keys[1], only_single=True)

    def _by_surroundings(self, level: int) -> None:
        for radius in _RADII:
            if self._is_done():
                return
            numbers: dict[Hashable, int] = {}
            labels = self._labels(level)
            found = [side.surroundings(own, radius, numbers) for side, own in zip(self.sides, labels, strict=True)]
            if self._pair_classes(found[0], found[1], only_single=True):
                self._spread(level)

    def _pair_classes(self, first: Sequence[Hashable], second: Sequence[Hashable], only_single: bool = False) -> int:
        """Match nodes whose keys are equal. Where several have one key, names tell them apart, then their order."""
        before = len(self.pairs)
        classes: defaultdict[Hashable, tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
        for place, (keys, taken) in enumerate(((first, self.pairs), (second, self.back))):
            for node, key in enumerate(keys):
                if key is not None and node not in taken:
                    classes[key][place].append(node)
        for own, others in classes.values():
            if own and others and (not only_single or len(own) == len(others) == 1):
                self._pair_alike(own, others)
        return len(self.pairs) - before

    def _pair_alike(self, own: list[int], others: list[int]) -> None:
        if len(own) == len(others) == 1:
            self._pair(own[0], others[0])
            return
        names = self.sides[0].outline.names, self.sides[1].outline.names
        by_name: defaultdict[str, list[int]] = defaultdict(list)
        for node in reversed(others):
            by_name[names[1][node]].append(node)
        left = []
        for node in own:
            namesakes = by_name[names[0][node]]
            if names[0][node] and namesakes:
                self._pair(node, namesakes.pop())
            else:
                left.append(node)
        if len(own) == len(others):
            rest = sorted(node for namesakes in by_name.values() for node in namesakes)
            for node, other in zip(left, rest, strict=True):
                self._pair(node, other)

    def _pair(self, one: int, other: int) -> None:
        self.pairs[one], self.back[other] = other, one
        self.fresh.append((one, other))

    def _spread(self, level: int, skipping: bool = False) -> None:
        """Match the neighbours of what is matched that have one label, one edge away or behind a few that have no partner."""
        if self._is_done():
            self.fresh.clear()
        elif skipping:
            self.fresh.extend(self.pairs.items())
        while self.fresh:
            one, other = self.fresh.popleft()
            self._spread_from(one, other, level)
            if skipping:
                self._skip_from(one, other, level)

    def _spread_from(self, one: int, other: int, level: int) -> None:
        own, others = self._labels(level)
        inputs = [side.outline.inputs[node] for side, node in zip(self.sides, (one, other), strict=True)]
        for (mine, port), (theirs, their_port) in zip(*inputs, strict=False):
            if (
                mine >= 0
                and theirs >= 0
                and port == their_port
                and self._are_free(mine, theirs)
                and own[mine] == others[theirs]
            ):
                self._pair(mine, theirs)
        ahead = [self._free_consumers(place, node, level) for place, node in enumerate((one, other))]
        for key, mine_all in ahead[0].items():
            theirs_all = ahead[1].get(key, [])
            if len(mine_all) == len(theirs_all):
                self._pair_alike(mine_all, theirs_all)

    def _are_free(self, one: int, other: int) -> bool:
        return one not in self.pairs and other not in self.back

    def _free_consumers(self, place: int, node: int, level: int) -> dict[Hashable, list[int]]:
        """The consumers of ``node`` without a partner, by label and by the edge that leads to them."""
        labels, taken = self._labels(level)[place], (self.pairs, self.back)[place]
        found: defaultdict[Hashable, list[int]] = defaultdict(list)
        for consumer, at, port in self.sides[place].consumers[node][:_MOST_NEIGHBOURS]:
            if consumer not in taken and consumer not in found[labels[consumer], at, port]:
                found[labels[consumer], at, port].append(consumer)
        return dict(found)

    def _skip_from(self, one: int, other: int, level: int) -> None:
        labels = self._labels(level)
        for walk in (self._ahead, self._behind):
            mine, theirs = (list(walk(place, node)) for place, node in enumerate((one, other)))
            reached: dict[Hashable, int] = {}
            for node in theirs:
                reached.setdefault(labels[1][node], node)
            for node in mine:
                partner = reached.get(labels[0][node])
                if partner is not None and self._are_free(node, partner):
                    self._pair(node, partner)
                    break

    def _ahead(self, place: int, node: int) -> Iterator[int]:
        """Nodes without a partner on the single way that leads on from ``node``."""
        taken = (self.pairs, self.back)[place]
        for _ in range(_MOST_SKIPPED):
            ahead = self.sides[place].consumers[node][:_MOST_NEIGHBOURS]
            consumers = {consumer for consumer, _, _ in ahead if consumer not in taken}
            if len(consumers) != 1:
                return
            (node,) = consumers
            yield node

    def _behind(self, place: int, node: int) -> Iterator[int]:
        taken = (self.pairs, self.back)[place]
        for _ in range(_MOST_SKIPPED):
            behind = self.sides[place].outline.inputs[node]
            producers = {producer for producer, _ in behind if producer >= 0 and producer not in taken}
            if len(producers) != 1:
                return
            (node,) = producers
            yield node


def regions(first: Outline, second: Outline, pairs: dict[int, int]) -> list[tuple[list[int], list[int]]]:
    """The nodes without a partner, those together that are neighbours or stand in the same place of the two graphs."""
    sides = _Wired(first), _Wired(second)
    back = {other: one for one, other in pairs.items()}
    joined = _Joined()
    edges: dict[Hashable, tuple[set[int], set[int]]] = {}
    for place, (side, taken) in enumerate(zip(sides, (pairs, back), strict=True)):
        for node in range(len(side.outline)):
            if node in taken:
                continue
            joined.add((place, node))
            for key, neighbour in _edges(side, node, place, back):
                if neighbour is None:
                    edges.setdefault(key, (set(), set()))[place].add(node)
                elif neighbour not in taken:
                    joined.join((place, node), (place, neighbour))
    for own, others in edges.values():
        if len(own) == len(others) == 1:
            joined.join((0, min(own)), (1, min(others)))
    return [
        (sorted(node for place, node in group if place == 0), sorted(node for place, node in group if place == 1))
        for group in joined.groups()
    ]


def _edges(side: _Wired, node: int, place: int, back: dict[int, int]) -> Iterator[tuple[Hashable, int | None]]:
    """Each edge of ``node``: to a neighbour without a partner, or (None) to one that both graphs have, with a key for both."""
    for producer, port in side.outline.inputs[node]:
        if producer < 0:
            if producer > _CONSTANT:
                yield ("input", producer), None
            continue
        pair = producer if place == 0 else back.get(producer)
        yield ("behind", pair, port), None
        yield None, producer
    for consumer, at, _ in side.consumers[node]:
        pair = consumer if place == 0 else back.get(consumer)
        yield ("before", pair, at), None
        yield None, consumer
    for _, number in side.results[node]:
        yield ("result", number), None


# Sources below this are constants.
_CONSTANT = -(1 << 40)


class _Joined:
    """Sets that grow together."""

    def __init__(self) -> None:
        self._parent: dict[tuple[int, int], tuple[int, int]] = {}

    def add(self, one: tuple[int, int]) -> None:
        self._parent.setdefault(one, one)

    def _root(self, one: tuple[int, int]) -> tuple[int, int]:
        while self._parent[one] != one:
            self._parent[one] = self._parent[self._parent[one]]
            one = self._parent[one]
        return one

    def join(self, one: tuple[int, int], other: tuple[int, int]) -> None:
        self.add(other)
        self._parent[self._root(one)] = self._root(other)

    def groups(self) -> Iterable[list[tuple[int, int]]]:
        found: defaultdict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for one in self._parent:
            found[self._root(one)].append(one)
        return found.values()
