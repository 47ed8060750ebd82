"""Find where two models part: the first tensor that both know by name and that differs, and who computes it.

Tensors are visited in the reference's order of execution. Rewriting keeps the names of the tensors around a change, and
TensorRT's parser names a layer's output after the ONNX tensor, so that most tensors of a model have a partner.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx

from trtnorm_cli.evaluate.float64 import ReferenceUnavailable, evaluate_float64
from trtnorm_cli.evaluate.metrics import distance
from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed
from trtnorm_cli.evaluate.tolerance import EXACT_ULPS, epsilon
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.onnx_model.shapes import TensorType, declared_types
from trtnorm_cli.onnx_model.walk import subgraphs

Feeds = Mapping[str, np.ndarray]
Outputs = dict[str, np.ndarray]
_MOST_NAMED = 6


@dataclass(frozen=True)
class Region:
    """The nodes between tensors that still agree (``inputs``) and the first that does not (``output``)."""

    nodes: tuple[onnx.NodeProto, ...]
    inputs: tuple[str, ...]
    output: str

    def text(self) -> str:
        """Operators with their names, in order, and how many more there are."""
        shown = [f"{node.op_type} {node.name}".strip() for node in self.nodes[:_MOST_NAMED]]
        more = len(self.nodes) - len(shown)
        return ", ".join(shown) + (f" and {more} more" if more else "") or "nothing: it is passed on"


@dataclass(frozen=True)
class Blame:
    """The first difference. ``before`` is the largest error among the tensors that feed it, ``after`` its own."""

    tensor: str
    before: float
    after: float
    bound: float
    reference: Region
    candidate: Region
    values: Outputs
    rank: int

    @property
    def node(self) -> str:
        """The reference's node that computes the tensor, with its operator."""
        last = self.reference.nodes[-1]
        return f"{last.name or last.output[0]} ({last.op_type})"


@dataclass(frozen=True)
class Side:
    """A model with the inputs to run it on."""

    model: onnx.ModelProto
    path: Path
    feeds: Feeds


@dataclass(frozen=True)
class Sides:
    """The two models. ``outputs`` pairs output names, for models that name them differently."""

    reference: Side
    candidate: Side
    outputs: Mapping[str, str]

    def partners(self) -> dict[str, str]:
        """Tensors of the reference's main graph in execution order, with the candidate's tensor that stands for each."""
        theirs = {name for node in self.candidate.model.graph.node for name in node.output if name}
        pairs: dict[str, str] = {}
        for node in self.reference.model.graph.node:
            for name in node.output:
                partner = self.outputs.get(name, name)
                if name and partner in theirs:
                    pairs[name] = partner
        return pairs


def find_blame(sides: Sides, bound: float, runner: OrtRunner, budget_s: float) -> Blame | None:
    """The first tensor that differs by more than ``bound``, or by more than its type's rounding if that is less.

    Evaluated in float64, or in ONNX Runtime where that is not possible. None when no tensor with a partner differs.
    """
    pairs = sides.partners()
    wanted, got, exact = _values(sides, pairs, runner, budget_s)
    errors = {name: _error(wanted[name], got[theirs]) for name, theirs in pairs.items() if name in wanted and theirs in got}
    for name in errors:
        limit = min(bound, EXACT_ULPS * _epsilon_of(sides.reference.model, wanted[name])) if exact else bound
        if errors[name] > limit:
            good = {n: pairs[n] for n, error in errors.items() if error <= limit}
            ours = _region(sides.reference.model, name, good.keys() | sides.reference.feeds.keys())
            theirs = _region(sides.candidate.model, pairs[name], {*good.values(), *sides.candidate.feeds})
            return Blame(
                tensor=name,
                before=max((errors[n] for n in ours.inputs if n in errors), default=0.0),
                after=errors[name],
                bound=limit,
                reference=ours,
                candidate=theirs,
                values=_entering(sides, good, wanted, (*ours.inputs, *theirs.inputs)),
                rank=wanted[name].ndim,
            )
    return None


def _entering(sides: Sides, good: Mapping[str, str], wanted: Outputs, inputs: Iterable[str]) -> Outputs:
    """The values that enter the two regions: inputs of the models, and tensors that agree, in the reference's values."""
    agreeing = {theirs: wanted[ours] for ours, theirs in good.items()}
    known = {**agreeing, **wanted, **sides.candidate.feeds, **sides.reference.feeds}
    return {name: np.asarray(known[name]) for name in inputs if name in known}


def _values(sides: Sides, pairs: Mapping[str, str], runner: OrtRunner, budget_s: float) -> tuple[Outputs, Outputs, bool]:
    """Values of both sides, and whether they are those of float64."""
    reference, candidate = sides.reference, sides.candidate
    ours, theirs = list(pairs), list(pairs.values())
    try:
        wanted = evaluate_float64(reference.path, reference.feeds, ours, budget_s).outputs
        got = evaluate_float64(candidate.path, candidate.feeds, theirs, budget_s).outputs
        return wanted, got, True
    except ReferenceUnavailable:
        pass
    try:
        return (
            runner.run(reference.path, reference.feeds, ours),
            runner.run(candidate.path, candidate.feeds, theirs),
            False,
        )
    except RunFailed:
        return {}, {}, False


def _error(wanted: np.ndarray, got: np.ndarray) -> float:
    """Distance without regard to axes of length one, which TensorRT adds and removes."""
    if isinstance(wanted, list) or isinstance(got, list):
        return 0.0
    if wanted.size != got.size:
        return float("inf")
    return distance(wanted.ravel(), got.ravel()).largest


def _epsilon_of(model: onnx.ModelProto, value: np.ndarray) -> float:
    """The rounding that constants of the model's main type have suffered; integers must agree exactly."""
    if value.dtype.kind not in "f":
        return 0.0
    kinds = [t.data_type for t in model.graph.initializer if _is_floating(t.data_type)]
    if not kinds:
        return epsilon(np.dtype(np.float32))
    return max(epsilon(onnx.helper.tensor_dtype_to_np_dtype(kind)) for kind in set(kinds))


def _is_floating(data_type: int) -> bool:
    floating = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16, onnx.TensorProto.DOUBLE)
    return data_type in floating


def _region(model: onnx.ModelProto, output: str, stop: set[str]) -> Region:
    """The nodes between the tensors in ``stop`` and ``output``, in order of execution."""
    producers = {name: node for node in model.graph.node for name in node.output if name}
    wanted: set[int] = set()
    inputs: dict[str, None] = {}
    todo = [output]
    while todo:
        name = todo.pop()
        node = producers.get(name)
        if node is None or (name in stop and name != output):
            if name in stop:
                inputs[name] = None
            continue
        if id(node) not in wanted:
            wanted.add(id(node))
            todo.extend(_reads(node))
    return Region(tuple(node for node in model.graph.node if id(node) in wanted), tuple(inputs), output)


def _reads(node: onnx.NodeProto) -> Iterable[str]:
    yield from (name for name in node.input if name)
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from _reads(inner)
        yield from (value.name for value in graph.output)


def save_regions(blame: Blame, sides: Sides, stem: Path) -> list[Path]:
    """Write the region of either side and the values that enter it, so that the difference can be shown on its own.

    The three files are ``<stem>.reference.onnx``, ``<stem>.candidate.onnx`` and ``<stem>.npz``.
    """
    reference, candidate = sides.reference, sides.candidate
    types = {**declared_types(candidate.model), **declared_types(reference.model)}
    dtype = types[blame.tensor].dtype if blame.tensor in types else onnx.TensorProto.FLOAT
    values = {name: _in_type(value, types.get(name)) for name, value in blame.values.items()}
    files = [stem.with_name(f"{stem.name}.{side}.onnx") for side in ("reference", "candidate")]
    for file, side, region in zip(files, (reference, candidate), (blame.reference, blame.candidate), strict=True):
        save_model(_model_of(region, side.model, values, dtype, blame.rank), file, side.path.parent)
    data = stem.with_name(f"{stem.name}.npz")
    np.savez(data, **values)  # type: ignore[arg-type]
    return [*files, data]


def _in_type(value: np.ndarray, kind: TensorType | None) -> np.ndarray:
    """A value computed in float64 in the type that the model declares for it, float32 where it declares none."""
    if value.dtype.kind != "f":
        return value
    declared = np.dtype(np.float32) if kind is None else onnx.helper.tensor_dtype_to_np_dtype(kind.dtype)
    return value.astype(declared)


def _model_of(region: Region, model: onnx.ModelProto, values: Outputs, dtype: int, rank: int) -> onnx.ModelProto:
    read = {name for node in region.nodes for name in _reads(node)}
    initializers = [tensor for tensor in model.graph.initializer if tensor.name in read]
    constants = {tensor.name for tensor in initializers}
    inputs = [_value_info(name, values[name]) for name in region.inputs if name in values and name not in constants]
    output = onnx.helper.make_tensor_value_info(region.output, dtype, [None] * rank)
    graph = onnx.helper.make_graph(list(region.nodes), "difference", inputs, [output], initializers)
    made = onnx.helper.make_model(graph, opset_imports=list(model.opset_import), functions=list(model.functions))
    made.ir_version = max(model.ir_version, 4)
    return made


def _value_info(name: str, value: np.ndarray) -> onnx.ValueInfoProto:
    dtype = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
    return onnx.helper.make_tensor_value_info(name, dtype, [None] * value.ndim)


def blamed_rule(blame: Blame, changes: Sequence[Mapping[str, object]]) -> str | None:
    """The rule whose change made a node of the candidate's region, or None."""
    names = {node.name for node in blame.candidate.nodes}
    for change in changes:
        added = change["added"]
        if isinstance(added, list | tuple) and names & set(added):
            return str(change["rule"])
    return None
