"""The number of elements of each tensor between kernels, also where the builder's list leaves sizes open.

The compiler names some tensors after those of the model and makes others of its own: with the same sizes, flattened,
transposed, padded, side by side with others, or a part of such a one. An open tensor is therefore looked up by its name, then
among the tensors of the ONNX nodes that its kernel comes from, then held against what the kernel reads and writes besides, and
then looked up among what its readers' nodes read.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence

from trtnorm_cli.engine_cost.facts import ModelFacts
from trtnorm_cli.records.engine_parts import Kernel, KernelTensor, Sizes

# What the compiler appends to a name.
_SUFFIX = re.compile(r"(?:\.\d+)?(?:_\d+)?_myl\d+$")
# A tensor is told from its neighbours, which may be told later than itself.
_PASSES = 2

Key = tuple[str, Sizes]


def key_of(tensor: KernelTensor) -> Key:
    """A kernel may read a part of a tensor, under the name of the whole."""
    return tensor.name, tensor.shape


def element_counts(kernels: Sequence[Kernel], facts: ModelFacts) -> dict[Key, int]:
    """The elements of each tensor by its name and shape in the list of kernels. One that cannot be told is left out."""
    search = _Search(facts, kernels)
    for _ in range(_PASSES):
        for kernel in kernels:
            for tensor in (*kernel.inputs, *kernel.outputs):
                search.find(kernel, tensor)
    return search.known


class _Search:
    """The tensors that were told so far."""

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

    def find(self, kernel: Kernel, tensor: KernelTensor) -> None:
        key = key_of(tensor)
        if key in self.known:
            return
        if -1 not in tensor.shape:
            self.known[key] = math.prod(tensor.shape)
            return
        is_written = tensor in kernel.outputs
        for count in self._counts(kernel, tensor, is_written):
            self.known[key] = count
            return

    def _counts(self, kernel: Kernel, tensor: KernelTensor, is_written: bool) -> Iterator[int]:
        yield from _fitting(tensor, self._shapes([tensor.name, _SUFFIX.sub("", tensor.name)]))
        nodes = self.facts.named(kernel.onnx_nodes) if is_written else []
        leaving = [name for node in nodes for name in node.output if self._is_read_outside(name, kernel)]
        yield from _fitting(tensor, self._shapes(leaving))
        within = [name for node in nodes for name in (*node.output, *node.input) if name not in self.facts.constants]
        yield from _fitting(tensor, self._shapes(within))
        beside = [one for one in (*kernel.inputs, *kernel.outputs, *self.views[tensor.name]) if key_of(one) in self.known]
        yield from _likened(tensor, [(one.shape, self.known[key_of(one)]) for one in beside if -1 in one.shape])
        multiples = [*self._shapes([_SUFFIX.sub("", tensor.name), *leaving, *within])]
        yield from _multiples(tensor, [math.prod(shape) for shape in multiples])
        yield from _multiples(tensor, [self.known[key_of(one)] for one in kernel.inputs if key_of(one) in self.known])
        behind = [node for reader in self.readers.get(tensor.name, ()) for node in self.facts.named(reader.onnx_nodes)]
        read = self._shapes(name for node in behind for name in node.input if name not in self.facts.constants)
        yield from _fitting(tensor, read)
        yield from _multiples(tensor, [math.prod(shape) for shape in read])

    def _is_read_outside(self, name: str, kernel: Kernel) -> bool:
        return any(reader not in kernel.onnx_nodes for reader in self.facts.readers.get(name, ("",)))

    def _shapes(self, names: Iterable[str]) -> list[Sizes]:
        return [shape for name in dict.fromkeys(names) if (shape := self.facts.shape(name)) is not None]


def _fitting(tensor: KernelTensor, shapes: Iterable[Sizes]) -> Iterator[int]:
    """The elements of shapes with every known size in its place."""
    for shape in shapes:
        if len(tensor.shape) == len(shape) and all(a in (-1, b) for a, b in zip(tensor.shape, shape, strict=True)):
            yield math.prod(shape)


def _likened(tensor: KernelTensor, others: Iterable[tuple[Sizes, int]]) -> Iterator[int]:
    """The elements where the open sizes are those of another tensor, which has them at the same axes."""
    for shape, count in others:
        if len(shape) == len(tensor.shape) and all((a == -1) == (b == -1) for a, b in zip(tensor.shape, shape, strict=True)):
            known = _known_product(shape)
            if known and count % known == 0:
                yield count // known * _known_product(tensor.shape)


def _multiples(tensor: KernelTensor, counts: Iterable[int]) -> Iterator[int]:
    """Counts of elements that the tensor may have in another shape."""
    known = _known_product(tensor.shape)
    for count in counts:
        if known and count >= known and count % known == 0:
            yield count


def _known_product(shape: Sizes) -> int:
    return math.prod(size for size in shape if size >= 0)
