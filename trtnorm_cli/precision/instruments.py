"""Nodes that measure the tensors of a model inside its graph, so that no tensor has to be brought out.

ONNX Runtime executes depth first from the last node without consumers to the first. So what measures the first tensor is put
last: then each tensor is measured as soon as it is made, and can be let go. In the order of the graph all of them would live
to the end. The nodes of one measurement are inside an If: ONNX Runtime plans the memory of a graph in a time that grows with
the square of its tensors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.helper import make_graph, make_node

from trtnorm_cli.precision.float_graph import FloatGraph
from trtnorm_cli.precision.low_types import LowType
from trtnorm_cli.precision.rounding import Rounding
from trtnorm_cli.precision.units import Unit

# Axes of reductions are an input from this opset on, and so are the bounds of Slice.
_AXES_ARE_AN_INPUT, _SLICE_TAKES_INPUTS = 18, 10
_BRANCHES_MAY_DIFFER = 11
_SAMPLE = 1 << 12
_NEVER_ZERO = 1e-30


class Instruments:
    """Measurements of tensors of ``graph`` as further nodes. ``results`` are the names of what they give, each a vector.

    ``sizes`` are the numbers of elements as far as they are known, and 0 for a tensor that may have none.
    """

    def __init__(self, graph: FloatGraph, low: LowType, prefix: str, sizes: Mapping[str, int]) -> None:
        self._graph, self._prefix, self._sizes = graph, prefix, sizes
        self._rounding = Rounding(low, graph.opset, prefix)
        self._constants: dict[str, onnx.TensorProto] = {}
        self._measuring: list[onnx.NodeProto] = []
        self._nodes: list[onnx.NodeProto] = []
        self._count = 0
        self.results: list[str] = []

    @property
    def nodes(self) -> list[onnx.NodeProto]:
        """A node for each measurement, that of what is made first at the end."""
        return self._measuring[::-1]

    @property
    def constants(self) -> list[onnx.TensorProto]:
        """The constants that the nodes read beside the tensors of the graph."""
        return [*self._constants.values(), *self._rounding.constants.values()]

    def measure(self, name: str, delicate: bool) -> str:
        """The result with largest, lowest, Σx² and Σ(rounded x − x)², then a sample of the elements.

        Of a ``delicate`` tensor the largest relative error of an element comes before the sample.
        """
        x = self._flat(name)
        error = self._op("Sub", self._rounded(x), x)
        found = [self._over(operator, x) for operator in ("ReduceMax", "ReduceMin", "ReduceSumSquare")]
        found.append(self._over("ReduceSumSquare", error))
        if delicate:
            magnitude = self._op("Max", self._op("Abs", x), self._scalar(_NEVER_ZERO))
            found.append(self._over("ReduceMax", self._op("Div", self._op("Abs", error), magnitude)))
        return self._result([*found, self._sample(name, x)])

    def softmax_sum(self, node: onnx.NodeProto, axes: Sequence[int]) -> str:
        """The result with the smallest of the largest values of a row that ``node``, a softmax over ``axes``, makes: 1 / Σ."""
        largest = self._over("ReduceMax", node.output[0], axes)
        if node.op_type == "LogSoftmax":
            largest = self._op("Exp", largest)
        return self._result([self._over("ReduceMin", self._flat(largest))])

    def variance(self, unit: Unit, axes: Sequence[int], groups: int | None) -> str:
        """The result with the smallest variance of a row, and what rounding costs: the largest and the mean over the rows.

        What it costs is the mean square of the error, without its own mean where the norm takes the mean away, over the
        variance and epsilon: the square of the relative error of the normalized row.
        """
        x = unit.data
        if groups is not None:
            x, axes = self._op("Reshape", x, self._ints([0, groups, -1])), (2,)
        centred = "RMS" not in unit.kind
        error = self._op("Sub", self._rounded(x), x)
        spread, moved = (self._mean_square(value, axes, centred) for value in (x, error))
        enough = self._op("Add", spread, self._scalar(max(unit.epsilon or 0.0, _NEVER_ZERO)))
        cost = self._op("Div", moved, enough)
        share = self._op("Div", spread, enough)
        spread, cost, share = (self._flat(value) for value in (spread, cost, share))
        means = [self._over("ReduceMean", value) for value in (cost, share)]
        return self._result([self._over("ReduceMin", spread), self._over("ReduceMax", cost), *means])

    def _mean_square(self, x: str, axes: Sequence[int], centred: bool) -> str:
        if centred:
            x = self._op("Sub", x, self._over("ReduceMean", x, axes))
        return self._over("ReduceMean", self._op("Mul", x, x), axes)

    def _over(self, operator: str, x: str, axes: Sequence[int] = (0,)) -> str:
        if self._graph.opset >= _AXES_ARE_AN_INPUT:
            return self._op(operator, x, self._ints(axes), keepdims=1)
        return self._op(operator, x, axes=list(axes), keepdims=1)

    def _rounded(self, x: str) -> str:
        result = self._name()
        self._nodes += self._rounding.nodes(x, result)
        return result

    def _sample(self, name: str, flat: str) -> str:
        """At most so many elements at equal distances, and in a small tensor all."""
        step = max(1, -(-self._sizes.get(name, 1) // _SAMPLE))
        if self._graph.opset < _SLICE_TAKES_INPUTS:
            return self._op("Slice", flat, axes=[0], starts=[0], ends=[_SAMPLE])
        everything = (self._ints([0]), self._ints([_SAMPLE * step]), self._ints([0]), self._ints([step]))
        return self._op("Slice", flat, *everything)

    def _flat(self, name: str) -> str:
        """A vector; with a zero at its end where it may have no elements, for ONNX Runtime finds no largest of nothing."""
        flat = self._op("Reshape", name, self._ints([-1]))
        if self._sizes.get(name, 1) > 0:
            return flat
        return self._op("Concat", flat, self._zeros(), axis=0)

    def _result(self, vectors: Sequence[str]) -> str:
        inner = self._op("Concat", *vectors, axis=0)
        measuring = make_graph(self._nodes, "measuring", [], [onnx.ValueInfoProto(name=inner)])
        if self._graph.opset < _BRANCHES_MAY_DIFFER:  # in shape
            idle = make_graph(self._nodes, "never", [], [onnx.ValueInfoProto(name=inner)])
        else:
            self._nodes = []
            nothing = self._op("Identity", self._zeros())
            idle = make_graph(self._nodes, "idle", [], [onnx.ValueInfoProto(name=nothing)])
        self._nodes = []
        result = self._name()
        always = self._constant(np.asarray(True))
        self._measuring.append(make_node("If", [always], [result], then_branch=measuring, else_branch=idle))
        self.results.append(result)
        return result

    def _op(self, operator: str, *inputs: str, **attributes: object) -> str:
        result = self._name()
        self._nodes.append(make_node(operator, list(inputs), [result], **attributes))
        return result

    def _name(self) -> str:
        self._count += 1
        return f"{self._prefix}{self._count}"

    def _ints(self, values: Sequence[int]) -> str:
        return self._constant(np.asarray(values, np.int64))

    def _scalar(self, value: float) -> str:
        return self._constant(np.asarray(value, np.float32))

    def _zeros(self) -> str:
        return self._constant(np.zeros(1, np.float32))

    def _constant(self, value: np.ndarray) -> str:
        name = f"{self._prefix}c/{value.dtype}/{value.shape}/{value.tolist()}"
        self._constants[name] = numpy_helper.from_array(value, name)
        return name
