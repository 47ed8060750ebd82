"""The order of the two convolutions whose results a residual block adds.

Each is one kernel, and the addition goes into one of the two. TensorRT for RTX gives it to the one that runs last, and of two
branches that is the one whose first node stands later in the file. Exporters write the shortcut behind the block. But the
convolution there waits for memory as it is, where that of the block computes meanwhile, so that the addition costs less in it.
With BatchNormalizations in it the engine does not depend on the order (docs/folding_and_kernels.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import onnx

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS


def shortcuts_first(model: onnx.ModelProto) -> None:
    """Move the convolution of each shortcut in front of the block beside it. The nodes stay in a topological order."""
    nodes = model.graph.node
    sizes = {weight.name: tuple(weight.dims) for weight in model.graph.initializer}
    readers = _readers(model.graph)
    places = [(at, 1) for at in range(len(nodes))]
    for added in added_convolutions(model.graph):
        lighter, heavier = sorted(added, key=lambda at: _operations_a_byte(nodes[at], sizes))
        beside = readers[nodes[lighter].input[0]]
        if heavier not in beside and min(beside) < lighter:
            places[lighter] = min(beside), 0
    ordered = iter(places)
    nodes.sort(key=lambda _: next(ordered))


def _readers(graph: onnx.GraphProto) -> dict[str, list[int]]:
    readers: dict[str, list[int]] = {}
    for at, node in enumerate(graph.node):
        for name in set(node.input):
            readers.setdefault(name, []).append(at)
    return readers


def added_convolutions(graph: onnx.GraphProto) -> Iterator[tuple[int, int]]:
    """The pairs of convolutions of known weights whose results are only there to be added, by their places in the file."""
    nodes, readers = graph.node, _readers(graph)
    makers = {name: at for at, node in enumerate(nodes) for name in node.output}
    weights = {weight.name for weight in graph.initializer}
    shown = {result.name for result in graph.output}

    def convolution(name: str) -> int | None:
        """The convolution whose result nothing but the addition reads. An activated one cannot take the addition in."""
        at = makers.get(name)
        if at is None or len(readers[name]) > 1 or name in shown or nodes[at].domain not in DEFAULT_DOMAINS:
            return None
        node = nodes[at]
        return at if node.op_type == "Conv" and weights.issuperset(node.input[1:]) else None

    for addition in nodes:
        if addition.op_type != "Add" or addition.domain not in DEFAULT_DOMAINS:
            continue
        first, second = map(convolution, addition.input)
        if first is not None and second is not None and first != second:
            yield first, second


def _operations_a_byte(conv: onnx.NodeProto, sizes: Mapping[str, Sequence[int]]) -> float:
    """The multiplications for each number that is read or written, of so many positions that weights count as nothing."""
    made, read, *kernel = sizes[conv.input[1]]
    attributes = {attribute.name: attribute for attribute in conv.attribute}
    groups = attributes["group"].i if "group" in attributes else 1
    strides = math.prod(attributes["strides"].ints) if "strides" in attributes else 1
    return made * read * math.prod(kernel) / max(read * groups * strides + made, 1)
