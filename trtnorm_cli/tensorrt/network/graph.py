"""Write ONNX graphs node by node, with unique names and shared constants."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, ValueInfoProto, helper

from trtnorm_cli.onnx_model.stored import refer
from trtnorm_cli.tensorrt.network.datatypes import onnx_type_of_array
from trtnorm_cli.tensorrt.network.places import Places
from trtnorm_cli.tensorrt.network.weights import TensorValues, values_of


class Names:
    """Names that are given out once each. ONNX wants names unique over a graph and all bodies inside it."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def unique(self, wanted: str) -> str:
        """``wanted`` if it is free, else ``wanted`` with a number."""
        name = wanted
        while not name or name in self._taken:
            self._next[wanted] = self._next.get(wanted, 0) + 1
            name = f"{wanted}__{self._next[wanted]}"
        self._taken.add(name)
        return name


class Constants:
    """The initializers of ``graph``, the model's own. Bodies of loops and conditionals read them from there.

    What stands in one of ``places`` is left there.
    """

    def __init__(self, names: Names, graph: GraphProto, places: Places | None = None) -> None:
        self._names = names
        self._graph = graph
        self._places = places
        self._by_value: dict[tuple[int, tuple[int, ...], bytes], str] = {}
        self._shared: set[str] = set()
        self.raw_bytes = 0

    def add(self, values: TensorValues, dims: Sequence[int], wanted: str) -> str:
        """Store ``values`` under a name close to ``wanted`` and return the name."""
        return self.store(values, dims, self._names.unique(wanted))

    def store(self, values: TensorValues, dims: Sequence[int], name: str) -> str:
        """Store ``values`` under exactly ``name``, which the caller reserved."""
        tensor = self._graph.initializer.add(name=name, data_type=values.onnx_type, dims=list(dims))
        entries = None if self._places is None else self._places.entries(values)
        if entries is None:
            tensor.raw_data = values.raw
            self.raw_bytes += len(values.raw)
        else:
            refer(tensor, entries)
        return name

    def rename(self, old: str, new: str) -> bool:
        """Rename the newest initializer if it is ``old`` and not shared. Returns False otherwise."""
        tensors = self._graph.initializer
        if not tensors or tensors[-1].name != old or old in self._shared:
            return False
        tensors[-1].name = new
        return True

    def array(self, array: np.ndarray, wanted: str) -> str:
        """Store a small array that the translation itself needs. Equal arrays share one initializer."""
        onnx_type = onnx_type_of_array(array)
        key = (onnx_type, array.shape, array.tobytes())
        if key not in self._by_value:
            self._by_value[key] = self.add(values_of(array), array.shape, wanted)
            self._shared.add(self._by_value[key])
        return self._by_value[key]


class GraphWriter:
    """The nodes of one graph, which is the model's own, or the body of a loop or a conditional."""

    def __init__(self, tensor_names: Names, node_names: Names, constants: Constants) -> None:
        self.tensor_names = tensor_names
        self.constants = constants
        self.nodes: list[NodeProto] = []
        self.value_info: list[ValueInfoProto] = []
        self._node_names = node_names

    def body(self) -> GraphWriter:
        """A writer for a graph inside this one."""
        return GraphWriter(self.tensor_names, self._node_names, self.constants)

    def node(self, op: str, inputs: Sequence[str], wanted: str, outputs: int = 1, **attributes: Any) -> list[str]:
        """Append a node whose fresh output names, close to ``wanted``, are returned."""
        fresh = [self.tensor_names.unique(f"{wanted}/{op}") for _ in range(outputs)]
        self.nodes.append(helper.make_node(op, list(inputs), fresh, **attributes))
        return fresh

    def take_out(self, inputs: Collection[str], operators: Collection[str]) -> GraphWriter:
        """Remove the nodes with one of ``operators`` that read nothing of this graph, and give them back.

        ``inputs`` are the inputs of this graph.
        """
        local = {*inputs, *(name for node in self.nodes for name in node.output)}
        taken = self.body()
        for node in self.nodes:
            if node.op_type in operators and local.isdisjoint(node.input):
                taken.nodes.append(node)
                local.difference_update(node.output)
        made = {name for node in taken.nodes for name in node.output}
        taken.value_info = [info for info in self.value_info if info.name in made]
        self.nodes = [node for node in self.nodes if made.isdisjoint(node.output)]
        self.value_info = [info for info in self.value_info if info.name not in made]
        return taken

    def rename_since(self, first_node: int, old: str, new: str) -> bool:
        """Rename a tensor produced by the nodes from ``first_node`` on. Returns False when none of them produces it."""
        recent = self.nodes[first_node:]
        if not any(old in node.output for node in recent):
            return False
        for node in recent:
            _replace(node.input, old, new)
            _replace(node.output, old, new)
        return True

    def label_since(self, first_node: int, name: str, results: Collection[str], properties: dict[str, str]) -> None:
        """Name the nodes from ``first_node`` on. The last one that makes a result is ``name``, and helpers get a suffix."""
        recent = self.nodes[first_node:]
        main = next((node for node in reversed(recent) if set(results) & set(node.output)), recent[-1] if recent else None)
        for node in recent:
            node.name = self._node_names.unique(name if node is main else f"{name}/{node.op_type}")
            for key, value in properties.items():
                node.metadata_props.add(key=key, value=value)


def _replace(field: Any, old: str, new: str) -> None:
    for i, name in enumerate(field):
        if name == old:
            field[i] = new
