"""The ranges of a model's tensors in float32 over calibration inputs, and what rounding them to a low type costs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

import numpy as np
import onnx

from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.save import MAPPED_FROM, save_model
from trtnorm_cli.onnx_model.shapes import TensorType, pinned_types
from trtnorm_cli.precision.float_graph import SAME_VALUES, FloatGraph, is_op
from trtnorm_cli.precision.instruments import Instruments
from trtnorm_cli.precision.low_types import LowType
from trtnorm_cli.precision.names import free_prefix
from trtnorm_cli.precision.output_errors import Arrays
from trtnorm_cli.precision.plan import key_of
from trtnorm_cli.precision.units import Unit
from trtnorm_cli.record import Record
from trtnorm_cli.scratch import Scratch

# What is divided by, or what a logarithm or a root is taken of: there the error of each single element counts.
_DELICATE = (("Div", 1), ("Reciprocal", 0), ("Log", 0), ("Sqrt", 0))
_SOFTMAX_TAKES_ONE_AXIS = 13
# No row is as long, so that no sum is too large for a type that reaches further.
_LONGEST_ROW = 1e12
_WITH_VARIANCE = frozenset({"LayerNorm", "RMSNorm", "InstanceNorm", "GroupNorm", "MeanVarianceNorm"})


@dataclass(frozen=True)
class TensorRange(Record):
    """The values of one tensor over all inputs.

    ``largest`` is the largest magnitude, ``smallest`` the smallest above zero (of 4096 elements at equal distances, where
    there are more). ``rounding`` is the relative L2 error of rounding the tensor to the type, in the worst run; it is infinite
    where values overflow. ``element`` is the worst relative error of a single element, where that counts. ``is_finite`` is
    false where the tensor has infinities or NaN in float32 already: its other numbers say nothing then.
    """

    largest: float
    smallest: float
    rounding: float
    element: float = 0.0
    is_finite: bool = True


@dataclass(frozen=True)
class VarianceRange(Record):
    """The variance that a normalization divides by, over all inputs.

    ``smallest`` is the smallest variance of a row (mean square, of an RMS normalization), held against ``epsilon``. ``worst``
    and ``mean`` are the relative error of a normalized row that rounding the data costs: in the worst row, and over all.
    """

    smallest: float
    epsilon: float
    worst: float
    mean: float


@dataclass(frozen=True)
class Ranges(Record):
    """All measurements: by tensor, by the key of a long softmax its largest Σ exp, and by the output of a norm its variance."""

    tensors: Mapping[str, TensorRange] = field(default_factory=dict)
    sums: Mapping[str, float] = field(default_factory=dict)
    variances: Mapping[str, VarianceRange] = field(default_factory=dict)
    runs: int = 0

    @property
    def largest(self) -> tuple[str, float]:
        """The tensor with the largest magnitude, and that; of those that are finite."""
        finite = {name: one.largest for name, one in self.tensors.items() if one.is_finite}
        return max(finite.items(), key=lambda item: item[1], default=("", 0.0))


def measured_ranges(
    model: onnx.ModelProto,
    folder: Path | None,
    types: Mapping[str, TensorType],
    units: Iterable[Unit],
    low: LowType,
    feeds: Sequence[Arrays],
    runner: OrtRunner,
) -> Ranges:
    """The ranges over all ``feeds``; see :func:`ranges_of_each`."""
    return ranges_of_each(model, folder, types, units, low, [feeds], runner).of_lists[0]


@dataclass(frozen=True)
class Measured:
    """The ranges over each of several lists of inputs, and what the model gave for each of all the inputs."""

    of_lists: Sequence[Ranges]
    outputs: Sequence[Arrays]


def ranges_of_each(
    model: onnx.ModelProto,
    folder: Path | None,
    types: Mapping[str, TensorType],
    units: Iterable[Unit],
    low: LowType,
    lists: Sequence[Sequence[Arrays]],
    runner: OrtRunner,
) -> Measured:
    """The ranges over each list of inputs, from one run for each input, in which the graph itself measures its tensors.

    Raises ``RunFailed`` where ONNX Runtime does not run the model.
    """
    instrumented = InstrumentedModel(model, types, units, low, _sizes(model, [*itertools.chain(*lists)]))
    with Scratch("trtnorm-ranges-") as work:
        file = work / "model.onnx"
        save_model(instrumented.model, file, folder, MAPPED_FROM)
        runs = runner.run_many(file, itertools.chain(*lists))  # its session holds the weights once more, and is closed
    names, left = [value.name for value in model.graph.output], iter(runs)
    ranges = [instrumented.ranges(list(itertools.islice(left, len(feeds)))) if feeds else Ranges() for feeds in lists]
    return Measured(ranges, [{name: run[name] for name in names} for run in runs])


class InstrumentedModel:
    """``model`` with nodes and outputs that measure its tensors. ``sizes`` are as ``Instruments`` wants them."""

    def __init__(
        self,
        model: onnx.ModelProto,
        types: Mapping[str, TensorType],
        units: Iterable[Unit],
        low: LowType,
        sizes: Mapping[str, int] | None = None,
    ) -> None:
        self._graph, self._low = FloatGraph(model, types), low
        self._sources = _sources(self._graph)
        instruments = Instruments(self._graph, low, free_prefix(model, "trtnorm.range"), sizes or {})
        self._tensors = {name: instruments.measure(name, self._is_delicate(name)) for name in self._measured()}
        summing = {key_of(node): node for node in model.graph.node if self._sums_much(node)}
        self._sums = {key: instruments.softmax_sum(node, self._softmax_axes(node)) for key, node in summing.items()}
        self._units = {unit.output: unit for unit in units if self._has_variance(unit)}
        self._variances = {
            unit.output: instruments.variance(unit, unit.axes or (), unit.groups) for unit in self._units.values()
        }
        self.model = self._around(model, instruments)

    def _around(self, model: onnx.ModelProto, instruments: Instruments) -> onnx.ModelProto:
        made = onnx.ModelProto()
        made.CopyFrom(model)
        made.graph.node.extend(instruments.nodes)
        made.graph.initializer.extend(instruments.constants)
        made.graph.output.extend(onnx.ValueInfoProto(name=name) for name in instruments.results)
        return made

    def _measured(self) -> list[str]:
        """The tensors with values of their own, in the order in which they are made."""
        made = [name for node in self._graph.model.graph.node for name in node.output if name]
        return [
            name
            for name in (*self._graph.inputs, *made)
            if self._graph.is_float(name) and not self._graph.is_constant(name) and self._sources[name] == name
        ]

    def _is_delicate(self, name: str) -> bool:
        readers = self._graph.consumers.get(name, ())
        return any(is_op(node, op) and node.input[at] == name for node in readers for op, at in _DELICATE)

    def _sums_much(self, node: onnx.NodeProto) -> bool:
        """True for a softmax whose rows may be longer than the largest number of the type: each element adds up to 1."""
        if not is_op(node, "Softmax", "LogSoftmax") or not self._graph.is_float(node.output[0]):
            return False
        kind = self._graph.types.get(node.output[0])
        if kind is None or kind.shape is None:
            return False
        sizes = [kind.shape[axis] for axis in self._softmax_axes(node)]
        numbers = [size for size in sizes if isinstance(size, int)]
        return (len(numbers) < len(sizes) and self._low.largest < _LONGEST_ROW) or math.prod(numbers) > self._low.largest

    def _softmax_axes(self, node: onnx.NodeProto) -> tuple[int, ...]:
        """One axis, or below opset 13 all from one on."""
        rank = self._graph.rank(node.output[0]) or 1
        by_axis = self._graph.opset >= _SOFTMAX_TAKES_ONE_AXIS
        axis = next((a.i for a in node.attribute if a.name == "axis"), -1 if by_axis else 1) % rank
        return (axis,) if by_axis else tuple(range(axis, rank))

    def _has_variance(self, unit: Unit) -> bool:
        has_rows = unit.axes is not None or unit.groups is not None
        return unit.kind in _WITH_VARIANCE and has_rows and self._graph.is_float(unit.data)

    def ranges(self, runs: Sequence[Arrays]) -> Ranges:
        """The measurements of all runs together."""
        found = {
            name: _tensor_range([run[result] for run in runs], self._low, self._is_delicate(name))
            for name, result in self._tensors.items()
        }
        tensors = {name: found[source] for name, source in self._sources.items() if source in found}
        sums = {key: max(_softmax_sum(run[result]) for run in runs) for key, result in self._sums.items()}
        variances = {
            output: _variance_range([run[result] for run in runs], self._units[output].epsilon or 0.0)
            for output, result in self._variances.items()
        }
        return Ranges(tensors, sums, variances, len(runs))


def _sizes(model: onnx.ModelProto, feeds: Sequence[Arrays]) -> dict[str, int]:
    """The number of elements of each tensor at the largest of the inputs; 0 where it may have none, at the smallest."""
    if not feeds:
        return {}
    ordered = sorted(feeds, key=lambda feed: sum(value.size for value in feed.values()))
    least, most = ({name: value.shape for name, value in feed.items()} for feed in (ordered[0], ordered[-1]))
    small = {name: _size(kind) for name, kind in pinned_types(model, least).items()}
    large = small if least == most else {name: _size(kind) for name, kind in pinned_types(model, most).items()}
    made = {name for node in model.graph.node for name in node.output if name}
    return {name: large.get(name, 0) if small.get(name, 0) else 0 for name in {*made, *least}}


def _size(kind: TensorType) -> int:
    """The number of elements; 0 where shape inference does not tell."""
    sizes = [size if isinstance(size, int) else 0 for size in kind.shape or ()]
    return 0 if kind.shape is None else math.prod(sizes)


def _sources(graph: FloatGraph) -> dict[str, str]:
    """For every tensor the one that has its values: where a node only moves them, its first input."""
    found: dict[str, str] = {name: name for name in (*graph.inputs, *graph.initializers)}
    for node in graph.model.graph.node:
        moves = is_op(node, *SAME_VALUES) and node.input[0] in found
        for i, name in enumerate(node.output):
            if name:
                found[name] = found[node.input[0]] if moves and i == 0 else name
    return found


def _tensor_range(runs: Sequence[np.ndarray], low: LowType, delicate: bool) -> TensorRange:
    largest, lowest, squares, errors = np.array([run[:4] for run in runs], np.float64).T
    sample = np.abs(np.concatenate([run[4 + delicate :] for run in runs]))
    magnitude = float(np.max(np.maximum(np.abs(largest), np.abs(lowest))))
    if np.isnan(squares).any() or not math.isfinite(magnitude):
        return TensorRange(math.inf, math.nan, math.nan, is_finite=False)
    if magnitude > low.largest:
        rounding = math.inf
    elif np.isinf(squares).any():  # finite numbers of which float32 cannot hold the squares
        rounding = low.half_ulp
    else:
        rounding = float(np.max(np.sqrt(errors / np.maximum(squares, np.finfo(np.float64).tiny))))
    element = max(float(run[4]) for run in runs) if delicate else 0.0
    return TensorRange(magnitude, float(np.min(sample, initial=np.inf, where=sample > 0)), rounding, element)


def _softmax_sum(run: np.ndarray) -> float:
    largest = float(run[0])
    return 1.0 / largest if largest > 0 else 0.0


def _variance_range(runs: Sequence[np.ndarray], epsilon: float) -> VarianceRange:
    smallest, worst, mean, share = np.asarray(runs, np.float64).T
    with np.errstate(invalid="ignore", divide="ignore"):
        relative = np.sqrt(np.where(mean > 0, mean / share, 0.0))
    return VarianceRange(float(np.min(smallest)), epsilon, float(np.sqrt(np.max(worst))), float(np.max(relative)))
