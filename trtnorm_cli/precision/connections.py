"""The connections of the top graph of a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import onnx

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.walk import tensors_read


class Connections:
    """The connections of the top graph of a model."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.producers = {name: node for node in model.graph.node for name in node.output if name}
        self.positions = {name: i for i, node in enumerate(model.graph.node) for name in node.output if name}
        self.outputs = {value.name for value in model.graph.output}
        self.consumers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in dict.fromkeys(tensors_read(node)):
                self.consumers.setdefault(name, []).append(node)

    def between(self, source: str, output: str, borders: frozenset[str]) -> list[onnx.NodeProto]:
        """The nodes on the ways from ``source`` to ``output`` that do not cross ``borders``; none where there is no way."""
        behind = self._behind(source, output)
        nodes, seen, waiting = [], {source, *borders}, [output]
        while waiting:
            name = waiting.pop()
            producer = self.producers.get(name)
            if name in seen or name not in behind or producer is None:
                continue
            seen.update(producer.output)
            nodes.append(producer)
            waiting.extend(tensors_read(producer))
        return nodes

    def _behind(self, source: str, output: str) -> set[str]:
        """The tensors that depend on ``source`` and come no later than ``output``."""
        last, found, waiting = self.positions.get(output, -1), {source}, [source]
        while waiting:
            for node in self.consumers.get(waiting.pop(), ()):
                new = [name for name in node.output if name and name not in found and self.positions[name] <= last]
                found.update(new)
                waiting.extend(new)
        return found

    def upstream(self, names: Iterable[str], passes: Callable[[onnx.NodeProto], bool]) -> list[onnx.NodeProto]:
        """The nodes that ``names`` come from, as far back as all between ``passes``."""
        found: dict[int, onnx.NodeProto] = {}
        waiting = list(names)
        while waiting:
            producer = self.producers.get(waiting.pop())
            if producer is not None and id(producer) not in found and passes(producer):
                found[id(producer)] = producer
                waiting.extend(tensors_read(producer))
        return list(found.values())


def is_operator(node: onnx.NodeProto, *operators: str) -> bool:
    """True of a node that is one of ONNX's own ``operators``."""
    return node.op_type in operators and node.domain in DEFAULT_DOMAINS
