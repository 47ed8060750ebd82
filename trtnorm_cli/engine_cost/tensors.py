"""The number of elements of each tensor between kernels, also where the builder's list leaves sizes open.

The compiler names some tensors after those of the model and makes others of its own: with the same sizes, flattened,
transposed, padded, side by side with others, or a part of such a one. An open tensor is therefore looked up by its name, then
among the tensors of the ONNX nodes that its kernel comes from, then held against what the kernel reads and writes besides and
against other views of itself, and then looked up among what its readers' nodes read. A number in its name marks an operand of
what makes the tensor of that name, so such a name says little.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from trtnorm_cli.engine_cost.facts import ModelFacts
from trtnorm_cli.records.engine_parts import Kernel, KernelTensor, Sizes

# What the compiler appends to a name, and to that of an operand.
_SUFFIX = re.compile(r"(?:\.\d+)?_myl\d+$")
_OPERAND_SUFFIX = re.compile(r"(?:\.\d+)?(?:_\d+)?_myl\d+$")
# A tensor is told from its neighbours, which may be told later than itself.
_PASSES = 2

Key = tuple[str, Sizes]


def key_of(tensor: KernelTensor) -> Key:
    """A kernel may read a part of a tensor, under the name of the whole."""
    return tensor.name, tensor.shape


def element_counts(kernels: Sequence[Kernel], facts: ModelFacts) -> dict[Key, int]:
    """The elements of each tensor by its name and shape in the list of kernels. One that cannot be told is left out."""
    search = _Search(facts, kernels)
    for way in (search.by_name, search.by_reader, search.by_likeness, search.by_multiples):
        for _ in range(_PASSES):
            for kernel in kernels:
                for tensor in (*kernel.inputs, *kernel.outputs):
                    search.find(kernel, tensor, way)
    return search.known


class _Search:
    """The tensors that were told so far, and ways to tell more, the surest first."""

    def __init__(self, facts: ModelFacts, kernels: Sequence[Kernel]) -> None:
        self.facts = facts
        self.known: dict[Key, int] = {}
        self.readers: dict[str, list[Kernel]] = {}
        self.views: dict[str, list[KernelTensor]] = {}
        for kernel in kernels:
            for tensor in kernel.inputs:
                self.readers.setdefault(tensor.name, []).append(kernel)
            for tensor in (*kernel.inputs, *kernel.outputs):
                self.views.setdefault(tensor.name, []).append(tensor)
                if -1 not in tensor.shape:
                    self.known[key_of(tensor)] = math.prod(tensor.shape)

    def find(self, kernel: Kernel, tensor: KernelTensor, way: Callable[[Kernel, KernelTensor], Iterator[int]]) -> None:
        key = key_of(tensor)
        if key not in self.known and (count := next(way(kernel, tensor), None)) is not None:
            self.known[key] = count

    def by_name(self, kernel: Kernel, tensor: KernelTensor) -> Iterator[int]:
        """A tensor of the model of that name, or what the kernel's nodes hand on."""
        leaving = self._leaving(kernel, tensor)
        yield from _fitting(tensor, self._named(tensor))
        if len(kernel.outputs) == 1:
            yield from _stacked(tensor, leaving)
        yield from _fitting(tensor, leaving)
        if len(kernel.outputs) == len(leaving) == 1 and len(tensor.shape) > 1:
            yield from _multiples(tensor, map(math.prod, leaving))

    def by_reader(self, kernel: Kernel, tensor: KernelTensor) -> Iterator[int]:
        """A tensor that the nodes of its readers need, or one that the kernel's own nodes have among themselves."""
        yield from _fitting(tensor, self._entering(tensor))
        yield from _fitting(tensor, self._within(kernel, tensor))

    def by_likeness(self, kernel: Kernel, tensor: KernelTensor) -> Iterator[int]:
        """Another view of it, or a tensor beside it with the same open sizes; or one with some axes in one."""
        views = self._told(self.views[tensor.name])
        yield from (count for shape, count in views if _in_some_order(shape) == _in_some_order(tensor.shape))
        yield from _likened(tensor, views)
        for shapes in (self._named(tensor), self._leaving(kernel, tensor), self._entering(tensor)):
            yield from _flattened(tensor, shapes)
        yield from _likened(tensor, self._told((*kernel.inputs, *kernel.outputs)))
        yield from _flattened(tensor, self._within(kernel, tensor))

    def by_multiples(self, kernel: Kernel, tensor: KernelTensor) -> Iterator[int]:
        """As many elements as something near it has, in other sizes. Counters are made of nothing, one a channel."""
        if not kernel.inputs:
            yield from (math.prod(shape[:2]) for shape in self._within(kernel, tensor) if len(shape) > 1 == len(tensor.shape))
        operands = self._shapes([_OPERAND_SUFFIX.sub("", tensor.name)])
        yield from _multiples(tensor, [count for _, count in self._told(self.views[tensor.name])])
        yield from _fitting(tensor, operands)
        own = (*self._named(tensor), *self._leaving(kernel, tensor), *operands, *self._within(kernel, tensor))
        yield from _multiples(tensor, map(math.prod, own))
        yield from _multiples(tensor, [count for _, count in self._told(kernel.inputs)])
        yield from _multiples(tensor, map(math.prod, self._entering(tensor)))

    def _told(self, tensors: Iterable[KernelTensor]) -> list[tuple[Sizes, int]]:
        return [(one.shape, self.known[key_of(one)]) for one in tensors if key_of(one) in self.known]

    def _named(self, tensor: KernelTensor) -> list[Sizes]:
        return self._shapes([tensor.name, _SUFFIX.sub("", tensor.name)])

    def _leaving(self, kernel: Kernel, tensor: KernelTensor) -> list[Sizes]:
        nodes = self.facts.named(kernel.onnx_nodes) if tensor in kernel.outputs else []
        return self._shapes(name for node in nodes for name in node.output if self._is_read_outside(name, kernel))

    def _within(self, kernel: Kernel, tensor: KernelTensor) -> list[Sizes]:
        nodes = self.facts.named(kernel.onnx_nodes) if tensor in kernel.outputs else []
        names = (name for node in nodes for name in (*node.output, *node.input))
        return self._shapes(name for name in names if name not in self.facts.constants)

    def _entering(self, tensor: KernelTensor) -> list[Sizes]:
        """The tensors that the nodes of its readers read of others, constants left out."""
        names: list[str] = []
        for reader in self.readers.get(tensor.name, ()):
            nodes = self.facts.named(reader.onnx_nodes)
            made = {name for node in nodes for name in node.output}
            names += [name for node in nodes for name in node.input if name not in made and name not in self.facts.constants]
        return self._shapes(names)

    def _is_read_outside(self, name: str, kernel: Kernel) -> bool:
        return any(reader not in kernel.onnx_nodes for reader in self.facts.readers.get(name, ("",)))

    def _shapes(self, names: Iterable[str]) -> list[Sizes]:
        return [shape for name in dict.fromkeys(names) if (shape := self.facts.shape(name)) is not None]


def _fitting(tensor: KernelTensor, shapes: Iterable[Sizes]) -> list[int]:
    """The elements of shapes with every known size in its place. Convolutions along one axis get a second one of size 1.

    A size that is open is seldom 1: a variance fits where the data goes, too.
    """
    found = []
    for shape in shapes:
        given = tensor.shape[:-1] if len(tensor.shape) == len(shape) + 1 == 4 and tensor.shape[-1] == 1 else tensor.shape
        if len(given) == len(shape) and all(a in (-1, b) for a, b in zip(given, shape, strict=True)):
            ones = sum(a == -1 and b == 1 for a, b in zip(given, shape, strict=True))
            found.append((ones, math.prod(shape)))
    return [count for _, count in sorted(found, key=lambda one: one[0])]


def _flattened(tensor: KernelTensor, shapes: Iterable[Sizes]) -> Iterator[int]:
    """The elements of shapes that end in the known sizes, where those are the last ones."""
    known = tuple(size for size in tensor.shape if size >= 0)
    if _known_product(known) > 1 and tensor.shape[-len(known) :] == known:
        yield from (math.prod(shape) for shape in shapes if shape[-len(known) :] == known)


def _in_some_order(shape: Sizes) -> list[int]:
    return sorted(size for size in shape if size != 1)


def _stacked(tensor: KernelTensor, shapes: Sequence[Sizes]) -> Iterator[int]:
    """The elements of products of one size that one kernel makes, side by side along the first axis."""
    counts = [math.prod(shape) for shape in shapes]
    if len(counts) > 1 and tensor.shape[0] == len(counts) and len(set(counts)) == 1:
        yield sum(counts)


def _likened(tensor: KernelTensor, others: Iterable[tuple[Sizes, int]]) -> Iterator[int]:
    """The elements where the open sizes are those of another tensor, which has them at the same axes."""
    for shape, count in others:
        if -1 in shape and _open_axes(shape) == _open_axes(tensor.shape):
            known = _known_product(shape)
            if known and count % known == 0:
                yield count // known * _known_product(tensor.shape)


def _open_axes(shape: Sizes) -> list[bool]:
    return [size == -1 for size in shape]


def _multiples(tensor: KernelTensor, counts: Iterable[int]) -> Iterator[int]:
    """Counts of elements that the tensor may have in another shape."""
    known = _known_product(tensor.shape)
    for count in counts:
        if known and count >= known and count % known == 0:
            yield count


def _known_product(shape: Sizes) -> int:
    return math.prod(size for size in shape if size >= 0)
