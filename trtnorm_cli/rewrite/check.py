"""Prove one change: cut out what is replaced and its replacement, run both on the same inputs, and compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import onnx
import onnx_graphsurgeon as gs
from onnx import numpy_helper

from trtnorm_cli.compare.float64 import ReferenceUnavailable, evaluate_float64
from trtnorm_cli.compare.metrics import distance
from trtnorm_cli.compare.runner import OrtRunner, RunFailed
from trtnorm_cli.compare.tolerance import epsilon
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.rewrite.realise import Realised
from trtnorm_cli.rewrite.rule import Check, Match

# Above this many elements an input of a cut-out is run at a smaller batch.
_LARGE_INPUT = 1 << 24
# Rounding the replacement's constants to the storage type moves the exact result by a few units in the last place.
_STORAGE_ROUNDINGS = 8


@dataclass(frozen=True)
class Judge:
    """Compares before and after at the shapes in ``pinned``, in ONNX Runtime and in float64."""

    runner: OrtRunner
    pinned: Mapping[str, TensorType]
    seed: int = 0

    def __call__(self, match: Match, realised: Realised) -> Check:
        failed = partial(self._failed, match)
        inputs = _region_inputs(match, realised)
        unknown = [t.name for t in inputs if not self._pinned(t)]
        if unknown:
            return failed(f"the shape of {', '.join(unknown)} is not known, so nothing can be compared")
        feeds = self._feeds(inputs)
        before, after = _before(match, inputs, self.pinned), _after(match, realised, inputs, self.pinned)
        return self._compare(match, before, after, feeds)

    def _pinned(self, tensor: gs.Tensor) -> bool:
        kind = self.pinned.get(tensor.name)
        return kind is not None and kind.is_static

    def _storage(self, match: Match, feeds: Mapping[str, np.ndarray]) -> np.dtype:
        """The type of what is computed; where it is not known, that of the inputs."""
        kind = self.pinned.get(match.output.name)
        if kind is not None and kind.dtype:
            return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.dtype))
        return next((feed.dtype for feed in feeds.values()), np.dtype(np.float32))

    def _feeds(self, inputs: Iterable[gs.Tensor]) -> dict[str, np.ndarray]:
        rng = np.random.default_rng(self.seed)
        return {t.name: _random(rng, self.pinned[t.name]) for t in inputs}

    def _compare(self, match: Match, before: onnx.ModelProto, after: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> Check:
        name = match.output.name
        storage = self._storage(match, feeds)
        exact_tolerance = _STORAGE_ROUNDINGS * epsilon(storage)
        try:
            wanted = evaluate_float64(before, feeds).outputs[name]
            exact = evaluate_float64(after, feeds).outputs[name]
        except ReferenceUnavailable as error:
            return self._failed(match, f"it cannot be evaluated in float64: {error}")
        float64_rel = distance(wanted, exact).relative_max
        run_rel, ran = self._run(before, after, feeds, name)
        tolerance = max(match.rule.tolerance, 16 * epsilon(storage))
        passed = float64_rel <= exact_tolerance and (run_rel is None or run_rel <= tolerance)
        reason = "" if passed else self._reason(float64_rel, exact_tolerance, run_rel, tolerance)
        return Check(
            max_abs=(float64_rel if run_rel is None else run_rel) * float(np.max(np.abs(wanted), initial=0.0)),
            max_rel=run_rel if run_rel is not None else float64_rel,
            tolerance=tolerance,
            float64_rel=float64_rel,
            float64_tolerance=exact_tolerance,
            seed=self.seed,
            shapes={key: list(value.shape) for key, value in feeds.items()},
            evaluated_with=ran,
            passed=passed,
            reason=reason,
        )

    def _run(
        self, before: onnx.ModelProto, after: onnx.ModelProto, feeds: dict[str, np.ndarray], name: str
    ) -> tuple[float | None, str]:
        """Relative difference in ONNX Runtime; None where it has no kernel for what stood there before."""
        try:
            wanted = self.runner.run(before, feeds)[name]
        except RunFailed as error:
            return None, f"float64 only; ONNX Runtime does not run the original: {error.reason}"
        try:
            got = self.runner.run(after, feeds)[name]
        except RunFailed as error:
            return float("inf"), f"ONNX Runtime does not run the replacement: {error.reason}"
        return distance(wanted, got).relative_max, "ONNX Runtime and float64"

    @staticmethod
    def _reason(exact: float, exact_tolerance: float, run: float | None, tolerance: float) -> str:
        if not exact <= exact_tolerance:
            return f"in float64 the outputs differ by {exact:.2e} of the largest value, allowed is {exact_tolerance:.2e}"
        return f"in ONNX Runtime the outputs differ by {run:.2e} of the largest value, allowed is {tolerance:.2e}"

    def _failed(self, match: Match, reason: str) -> Check:
        return Check(
            max_abs=float("nan"),
            max_rel=float("nan"),
            tolerance=match.rule.tolerance,
            float64_rel=None,
            float64_tolerance=None,
            seed=self.seed,
            shapes={},
            evaluated_with="nothing",
            passed=False,
            reason=reason,
        )


def _random(rng: np.random.Generator, kind: TensorType) -> np.ndarray:
    """Standard normal values for floating types, small integers and booleans for the others."""
    shape = _affordable(tuple(int(size) for size in kind.shape or () if size is not None))
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.dtype)
    if dtype == np.bool_:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if np.issubdtype(dtype, np.integer):
        return rng.integers(0, 4, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _affordable(shape: tuple[int, ...]) -> tuple[int, ...]:
    if np.prod(shape, dtype=np.int64) > _LARGE_INPUT and len(shape) > 1:
        return (1, *shape[1:])
    return shape


def _region_inputs(match: Match, realised: Realised) -> list[gs.Tensor]:
    """Run-time tensors that enter the matched nodes or the replacement, without repeats."""
    inner = {id(tensor) for node in match.bound.nodes.values() for tensor in node.outputs}
    entering = [t for node in reversed(match.bound.nodes.values()) for t in node.inputs] + list(realised.taken.values())
    found: dict[str, gs.Tensor] = {}
    for tensor in entering:
        if tensor.name and id(tensor) not in inner and not match.surgery.is_constant(tensor):
            found.setdefault(tensor.name, tensor)
    return list(found.values())


def _before(match: Match, inputs: list[gs.Tensor], pinned: Mapping[str, TensorType]) -> onnx.ModelProto:
    nodes = [_node_proto(match, node) for node in reversed(match.bound.nodes.values())]
    return _region(match, nodes, inputs, {}, pinned)


def _node_proto(match: Match, node: gs.Node) -> onnx.NodeProto:
    """The node as the file has it, without further outputs: the driver has made sure that nobody uses them."""
    from onnx_graphsurgeon.exporters.onnx_exporter import OnnxExporter

    source = match.surgery.protos.get(id(node)) or OnnxExporter.export_node(node)
    result = onnx.NodeProto()
    result.CopyFrom(source)
    del result.output[1:]
    return result


def _after(match: Match, realised: Realised, inputs: list[gs.Tensor], pinned: Mapping[str, TensorType]) -> onnx.ModelProto:
    return _region(match, [node.proto() for node in realised.nodes], inputs, realised.constants, pinned)


def _region(
    match: Match,
    nodes: list[onnx.NodeProto],
    inputs: list[gs.Tensor],
    constants: Mapping[str, np.ndarray],
    pinned: Mapping[str, TensorType],
) -> onnx.ModelProto:
    """A model of ``nodes`` alone, with the constants they read."""
    initializers = {name: numpy_helper.from_array(value, name) for name, value in constants.items()}
    known = {t.name: t for node in match.bound.nodes.values() for t in node.inputs}
    for node in nodes:
        for name in node.input:
            tensor = known.get(name)
            if name not in initializers and tensor is not None and match.surgery.is_constant(tensor):
                initializers[name] = numpy_helper.from_array(match.surgery.constant(tensor), name)
    graph = onnx.helper.make_graph(
        nodes,
        "region",
        [_value_info(tensor.name, pinned) for tensor in inputs],
        [onnx.helper.make_empty_tensor_value_info(match.output.name)],
        list(initializers.values()),
    )
    source = match.surgery.source
    model = onnx.helper.make_model(graph, opset_imports=list(source.opset_import))
    model.ir_version = max(source.ir_version, 4)
    return model


def _value_info(name: str, pinned: Mapping[str, TensorType]) -> onnx.ValueInfoProto:
    return onnx.helper.make_tensor_value_info(name, pinned[name].dtype, None)
