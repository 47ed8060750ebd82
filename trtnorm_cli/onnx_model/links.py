"""Who makes each tensor of a graph, and who reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx

from trtnorm_cli.light_dataclass import dataclass


@dataclass(frozen=True)
class Links:
    """The maker and the readers of each tensor of one graph, those that stand in the file, and the results.

    A node that reads a tensor twice is one of its readers once.
    """

    makers: Mapping[str, onnx.NodeProto]
    readers: Mapping[str, Sequence[onnx.NodeProto]]
    constants: Mapping[str, onnx.TensorProto]
    results: frozenset[str]

    @staticmethod
    def of(graph: onnx.GraphProto) -> Links:
        """The links of ``graph``, without those of its subgraphs."""
        makers: dict[str, onnx.NodeProto] = {}
        readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            makers |= dict.fromkeys(node.output, node)
            for name in set(node.input):
                readers.setdefault(name, []).append(node)
        constants = {tensor.name: tensor for tensor in graph.initializer}
        return Links(makers, readers, constants, frozenset(result.name for result in graph.output))

    def only_reader(self, name: str) -> onnx.NodeProto | None:
        """The one node that reads ``name``; None where there are several or none, and for a result."""
        following = self.readers.get(name, ())
        return following[0] if len(following) == 1 and name not in self.results else None
