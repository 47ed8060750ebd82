"""Write a Scan that TensorRT does not take as its iterations, one after the other, or give it a state.

TensorRT refuses a Scan without a state, and builds no InstanceNormalization or GroupNormalization inside of one. Iteration t
of a Scan computes its body on the t-th slice of every scanned input, counted from the end where the direction is 1, and on the
states that iteration t - 1 left; scanned outputs are stacked (Scan-9 and -11 in the ONNX operator specification).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import numpy as np
import onnx
from onnx import NodeProto, helper, numpy_helper

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS, default_opset
from trtnorm_cli.onnx_model.shapes import TensorType, declared_types
from trtnorm_cli.onnx_model.walk import nodes_within, subgraphs

# More would make a network that takes minutes to build.
MOST_ITERATIONS, MOST_NODES = 64, 10_000
_SINCE, _AXES_ARE_AN_INPUT = 9, 13
_REFUSED_INSIDE = frozenset(("InstanceNormalization", "GroupNormalization"))


def without_refused_scans(model: onnx.ModelProto) -> tuple[onnx.ModelProto, int, int]:
    """A copy of ``model`` in which Scans of the main graph that TensorRT refuses are unrolled, or have a state.

    Returns it with the numbers of both; ``model`` itself where there is nothing to do. The lengths of the scanned axes are read
    from the types that it states.
    """
    opset = default_opset(model.opset_import)
    if opset < _SINCE or not any(map(_is_refused, model.graph.node)):
        return model, 0, 0
    result = onnx.ModelProto()
    result.CopyFrom(model)
    types = declared_types(model)
    types.update({tensor.name: TensorType(tensor.data_type, tuple(tensor.dims)) for tensor in model.graph.initializer})
    nodes, unrolled, stateful = list(result.graph.node), 0, 0
    del result.graph.node[:]
    for node in nodes:
        scan = _Scan.of(node, result.graph, opset) if _is_refused(node) else None
        length = None if scan is None else scan.length(types)
        if scan is not None and length is not None and 0 < length <= MOST_ITERATIONS and scan.size * length <= MOST_NODES:
            result.graph.node.extend(scan.unrolled(length))
            unrolled += 1
        else:
            if scan is not None and scan.states == 0:
                scan.add_state()
                stateful += 1
            result.graph.node.append(node)
    return (result, unrolled, stateful) if unrolled or stateful else (model, 0, 0)


def _is_refused(node: NodeProto) -> bool:
    if node.op_type != "Scan" or node.domain not in DEFAULT_DOMAINS:
        return False
    scanned = next((attribute.i for attribute in node.attribute if attribute.name == "num_scan_inputs"), 0)
    inside = nodes_within(inner for graph in subgraphs(node) for inner in graph.node)
    return len(node.input) == scanned or any(inner.op_type in _REFUSED_INSIDE for inner in inside)


@dataclass
class _Scan:
    """One Scan of ``graph``. ``states`` is how many of its inputs and outputs are states; the others are scanned."""

    node: NodeProto
    graph: onnx.GraphProto
    body: onnx.GraphProto
    opset: int
    states: int
    lists: Mapping[str, list[int]]
    prefix: str
    nodes: list[NodeProto] = field(default_factory=list)

    @classmethod
    def of(cls, node: NodeProto, graph: onnx.GraphProto, opset: int) -> _Scan:
        body = next(attribute.g for attribute in node.attribute if attribute.name == "body")
        scanned = next(attribute.i for attribute in node.attribute if attribute.name == "num_scan_inputs")
        lists = {attribute.name: list(attribute.ints) for attribute in node.attribute}
        name = node.name or next(filter(None, node.output), "scan")
        return cls(node, graph, body, opset, len(node.input) - scanned, lists, name)

    @property
    def size(self) -> int:
        """How many nodes one iteration comes to."""
        return sum(1 for _ in nodes_within(self.body.node)) + len(self.node.input) + len(self.node.output)

    def length(self, types: Mapping[str, TensorType]) -> int | None:
        """The number of iterations, where a scanned input states it."""
        for number, name in enumerate(self.node.input[self.states :]):
            shape = types[name].shape if name in types else None
            if shape is not None and isinstance(size := shape[self._axis("scan_input_axes", number)], int):
                return size
        return None

    def _axis(self, name: str, number: int) -> int:
        return self.lists.get(name, [])[number] if self.lists.get(name) else 0

    def unrolled(self, length: int) -> list[NodeProto]:
        """The iterations; initializers of the body go to the graph."""
        held = {tensor.name: f"{self.prefix}/{tensor.name}" for tensor in self.body.initializer}
        for tensor in self.body.initializer:
            copy = self.graph.initializer.add()
            copy.CopyFrom(tensor)
            copy.name = held[tensor.name]
        state = list(self.node.input[: self.states])
        stacked: list[list[str]] = [[] for _ in self.body.output[self.states :]]
        for step in range(length):
            results = self._iteration(step, length, state, held)
            state = results[: self.states]
            for parts, result in zip(stacked, results[self.states :], strict=True):
                parts.append(result)
        for result, output in zip(state, self.node.output, strict=False):
            if output:
                self._add("Identity", [result], output)
        for number, output in enumerate(self.node.output[self.states :]):
            if output:
                self._stack(stacked[number], number, output)
        return self.nodes

    def _iteration(self, step: int, length: int, state: list[str], held: Mapping[str, str]) -> list[str]:
        """Add one run of the body; returns its results."""
        prefix = f"{self.prefix}/{step}"
        given = [value.name for value in self.body.input]
        names = {**held, **dict(zip(given, state, strict=False))}
        for number, name in enumerate(self.node.input[self.states :]):
            reverse = self.lists.get("scan_input_directions", [])[number : number + 1] == [1]
            place = self._constant(f"{prefix}/index_{number}", np.array(length - 1 - step if reverse else step))
            names[given[self.states + number]] = f"{prefix}/slice_{number}"
            axis = self._axis("scan_input_axes", number)
            self._add("Gather", [name, place], f"{prefix}/slice_{number}", axis=axis)
        own = {name for node in nodes_within(self.body.node) for name in node.output if name}
        inner = {name for node in nodes_within(self.body.node) for g in subgraphs(node) for name in _declared(g)}
        names.update({name: f"{prefix}/{name}" for name in own | inner})
        for node in self.body.node:
            copy = NodeProto()
            copy.CopyFrom(node)
            _rename(copy, names)
            copy.name = f"{prefix}/{node.name}" if node.name else ""
            self.nodes.append(copy)
        return [names.get(value.name, value.name) for value in self.body.output]

    def _stack(self, parts: list[str], number: int, output: str) -> None:
        axis = self._axis("scan_output_axes", number)
        if self.lists.get("scan_output_directions", [])[number : number + 1] == [1]:
            parts = parts[::-1]
        raised = [f"{output}/{step}" for step in range(len(parts))]
        for part, name in zip(parts, raised, strict=True):
            if self.opset < _AXES_ARE_AN_INPUT:
                self._add("Unsqueeze", [part], name, axes=[axis])
            else:
                self._add("Unsqueeze", [part, self._constant(f"{name}/axis", np.array([axis]))], name)
        self._add("Concat", raised, output, axis=axis)

    def add_state(self) -> None:
        """Give the Scan a state that it hands through; nobody reads it."""
        zero = self._constant(f"{self.prefix}/state", np.array(0.0, np.float32))
        before, after = (helper.make_tensor_value_info(f"{self.prefix}/state_{w}", 1, []) for w in ("in", "out"))
        self.node.input.insert(0, zero)
        self.node.output.insert(0, f"{self.prefix}/state_left")
        self.body.input.insert(0, before)
        self.body.output.insert(0, after)
        self.body.node.append(helper.make_node("Identity", [before.name], [after.name]))

    def _constant(self, name: str, value: np.ndarray) -> str:
        self.graph.initializer.append(numpy_helper.from_array(value, name))
        return name

    def _add(self, operator: str, inputs: list[str], output: str, **attributes: object) -> None:
        self.nodes.append(helper.make_node(operator, inputs, [output], name="", **attributes))


def _declared(graph: onnx.GraphProto) -> set[str]:
    """Inputs and initializers of a graph inside the body: like everything in it, they are renamed."""
    return {value.name for value in graph.input} | {tensor.name for tensor in graph.initializer}


def _rename(node: NodeProto, names: Mapping[str, str]) -> None:
    """Rename the tensors of ``node`` and of its subgraphs, in place."""
    for within in nodes_within([node]):
        for field_ in (within.input, within.output):
            renamed = [names.get(name, name) for name in field_]
            del field_[:]
            field_.extend(renamed)
        for graph in subgraphs(within):
            del graph.value_info[:]
            for value in (*graph.input, *graph.output, *graph.initializer):
                value.name = names.get(value.name, value.name)
