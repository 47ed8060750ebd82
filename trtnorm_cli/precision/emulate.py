"""A float32 model in which every node can be computed in the low type, by a switch, on the CPU.

A node that is switched to low has its inputs, constants and outputs rounded to the type, really: by Cast there and back. In
between it computes in float32, as tensor cores, TensorRT's normalization layers, softmax and reductions do: products are
added in float32 and the result is rounded once. A normalization in pieces is rounded behind each piece. TensorRT fuses
further and may keep more between two nodes of one kernel: this is a model of its arithmetic, not a run.
A float32 MatMul or Conv alone between low nodes counts as low, for TensorRT makes it a low kernel with low weights.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto
from onnx.helper import make_graph, make_node, make_tensor_value_info

from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.onnx_model.save import MAPPED_FROM, save_model
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.onnx_model.stored import tensor_array, tensor_bytes
from trtnorm_cli.precision.float_graph import EXACT, FloatGraph, LoneProducts
from trtnorm_cli.precision.low_types import LowType
from trtnorm_cli.precision.names import free_prefix
from trtnorm_cli.precision.output_errors import Arrays, OutputErrors, output_errors, worst
from trtnorm_cli.precision.plan import InputsAndOutputs, key_of
from trtnorm_cli.precision.rounding import Rounding
from trtnorm_cli.progress import current
from trtnorm_cli.scratch import Scratch

# Split wants to be told how many outputs it has.
_SPLIT_COUNTS = 18
# Larger constants are weights, and no masks.
_LARGEST_MASK_BYTES = 1 << 26
_MASK_OPERATORS = frozenset({"Add", "Sub", "Mul", "Where", "Max", "Min", "Clip", "Expand", "Tile", "Pad", "Concat", "Gather"})


class Emulator:
    """Runs a model with some of its nodes computed in ``low``, over one list of inputs; a context manager.

    ``order`` are the keys of the nodes that can be low, in the order of execution. ``evaluations`` counts runs with one of the
    ``feeds``. There is one session, however many of them: which nodes are low is an input. It lives in ``runner``'s child.
    Raises ``RunFailed`` as the runner does.
    """

    def __init__(
        self,
        model: onnx.ModelProto,
        folder: Path | None,
        types: Mapping[str, TensorType],
        low: LowType,
        feeds: Sequence[Arrays],
        runner: OrtRunner,
        io: InputsAndOutputs = "keep",
    ) -> None:
        self.low, self.evaluations, self._io, self._runner = low, 0, io, runner
        switched = SwitchedModel(model, folder, types, low)
        self.order, self.keys, self._switches = tuple(switched.keys), frozenset(switched.keys), switched.switches
        self._feeds = [dict(feed) for feed in feeds]
        self._lone = LoneProducts(FloatGraph(model, types))
        self._work = Scratch("trtnorm-emulated-")
        self._file, self._nodes = self._work.path / "model.onnx", len(switched.model.graph.node)
        self._references: dict[int, Arrays] = {}
        self._known: dict[tuple[frozenset[str], int], OutputErrors] = {}
        try:
            save_model(switched.model, self._file, folder, MAPPED_FROM)
        except BaseException:
            self._work.remove()
            raise

    def __enter__(self) -> Emulator:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the model's files; may be called twice."""
        self._work.remove()

    def add(self, feeds: Iterable[Arrays]) -> list[int]:
        """Take further inputs; the numbers that they have from here on."""
        first = len(self._feeds)
        self._feeds += [dict(feed) for feed in feeds]
        return list(range(first, len(self._feeds)))

    def errors(self, low: Collection[str], feeds: Collection[int] | None = None) -> OutputErrors:
        """The errors of the outputs when the nodes with these keys are low, the largest over all inputs or some of them."""
        return worst(self.errors_by_feed(low, feeds))

    def errors_by_feed(self, low: Collection[str], feeds: Collection[int] | None = None) -> list[OutputErrors]:
        """The same for each of the inputs."""
        chosen = self.keys & frozenset(low)
        wanted = range(len(self._feeds)) if feeds is None else feeds
        return [self._errors_of(chosen, index) for index in wanted]

    def cost_of(self, feed: int) -> int:
        """The cost of a run with these inputs, relative to the others: the number of their elements."""
        return sum(value.size for value in self._feeds[feed].values())

    def _errors_of(self, low: frozenset[str], index: int) -> OutputErrors:
        low |= self._lone.undone(low)
        if (low, index) not in self._known:
            reference = self.reference(index)
            if low or self._io == "low":
                self.evaluations += 1
                current().advance()
                found = self._given(self._run(self._feeds[index], low))
            else:
                found = reference
            self._known[low, index] = output_errors(reference, found)
        return self._known[low, index]

    def reference(self, index: int) -> Arrays:
        """The outputs in float32 for one of the inputs."""
        if index not in self._references:
            self._references[index] = self._once(self._feeds[index], frozenset())
        return self._references[index]

    def _run(self, feed: Arrays, low: frozenset[str]) -> Arrays:
        if self._io == "low":
            feed = {name: self._rounded(value) for name, value in feed.items()}
        return self._once(feed, low)

    def _once(self, feed: Arrays, low: frozenset[str]) -> Arrays:
        switches = {self._switches: np.array([key in low for key in self.order])} if self.order else {}
        return self._runner.begin(self._file, {**feed, **switches}, hold=True, nodes=self._nodes).results()[0]

    def _given(self, outputs: Arrays) -> Arrays:
        return {name: self._rounded(value) for name, value in outputs.items()} if self._io == "low" else outputs

    def _rounded(self, value: np.ndarray) -> np.ndarray:
        return self.low.rounded(value).astype(np.float32) if value.dtype == np.float32 else value


class SwitchedModel:
    """``model`` with a switch for each node that can be low: an element of the input ``switches``, in the order of ``keys``."""

    def __init__(self, model: onnx.ModelProto, folder: Path | None, types: Mapping[str, TensorType], low: LowType) -> None:
        self._graph, self._folder, self._low = FloatGraph(model, types), folder, low
        self._prefix = free_prefix(model, "trtnorm.low")
        self._rounding = Rounding(low, self._graph.opset, self._prefix)
        self._beyond: dict[str, bool] = {}
        self.switches = f"{self._prefix}switches"
        self.keys: list[str] = []
        nodes = [self._switched(node) if self._graph.can_be_low(node) else node for node in model.graph.node]
        self.model = self._around(model, nodes)

    def _around(self, model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
        made = onnx.ModelProto()
        made.CopyFrom(model)
        del made.graph.node[:]
        if self.keys:
            count = {"num_outputs": len(self.keys)} if self._graph.opset >= _SPLIT_COUNTS else {}
            made.graph.node.append(make_node("Split", [self.switches], [*map(self._switch, self.keys)], axis=0, **count))
            made.graph.input.append(make_tensor_value_info(self.switches, TensorProto.BOOL, [len(self.keys)]))
        made.graph.node.extend(nodes)
        made.graph.initializer.extend(self._rounding.constants.values())
        return made

    def _switch(self, key: str) -> str:
        return f"{self._prefix}is/{key}"

    def _switched(self, node: onnx.NodeProto) -> onnx.NodeProto:
        """An If in the place of ``node``: with everything rounded, or as it is."""
        key = key_of(node)
        self.keys.append(key)
        branches = {"then_branch": self._rounded(node, key), "else_branch": self._plain(node, key)}
        chosen = make_node("If", [self._switch(key)], [name for name in node.output if name], **branches)
        chosen.name = node.name
        return chosen

    def _plain(self, node: onnx.NodeProto, key: str) -> onnx.GraphProto:
        inner = onnx.NodeProto()
        inner.CopyFrom(node)
        inner.output[:] = [name and f"{self._prefix}as/{name}" for name in node.output]
        return make_graph([inner], f"{key}/as", [], [onnx.ValueInfoProto(name=name) for name in inner.output if name])

    def _rounded(self, node: onnx.NodeProto, key: str) -> onnx.GraphProto:
        inner = onnx.NodeProto()
        inner.CopyFrom(node)
        nodes: list[onnx.NodeProto] = []
        for i, name in enumerate(self._graph.float_inputs(node)):
            rounded = f"{self._prefix}in/{key}/{i}"
            nodes += self._rounding.nodes(name, rounded, saturated=self._is_mask(node, name))
            inner.input[:] = [rounded if one == name else one for one in inner.input]
        inner.output[:] = [name and f"{self._prefix}made/{name}" for name in node.output]
        nodes.append(inner)
        given = list(inner.output)
        if node.op_type not in EXACT:
            for i, name in enumerate(node.output):
                if name and self._graph.is_float(name):
                    given[i] = f"{self._prefix}low/{name}"
                    nodes += self._rounding.nodes(inner.output[i], given[i])
        return make_graph(nodes, f"{key}/low", [], [onnx.ValueInfoProto(name=name) for name in given if name])

    def _is_mask(self, node: onnx.NodeProto, name: str) -> bool:
        """True for a constant beyond the type's range in an operator that masks: it becomes the type's largest instead."""
        if node.op_type not in _MASK_OPERATORS:
            return False
        if name not in self._beyond:
            tensor = self._graph.constant(name)
            self._beyond[name] = tensor is not None and self._reaches_beyond(tensor)
        return self._beyond[name]

    def _reaches_beyond(self, tensor: onnx.TensorProto) -> bool:
        if tensor.data_type != TensorProto.FLOAT or tensor_bytes(tensor) > _LARGEST_MASK_BYTES:
            return False
        return bool(np.max(np.abs(tensor_array(tensor, self._folder)), initial=0.0) > self._low.largest)
