"""The noise floor of a network: how far its outputs move when nothing but roundings changes."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from trtnorm_cli.compare.inner_tensors import InnerTensors, SliceDistances
from trtnorm_cli.evaluate.float64 import ReferenceUnavailable, evaluate_float64
from trtnorm_cli.evaluate.float64.perturbation import Moves, Perturbation, digest
from trtnorm_cli.evaluate.float64.raising import raised_array
from trtnorm_cli.evaluate.metrics import Distance, distance
from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed
from trtnorm_cli.evaluate.tolerance import epsilon

RUNS = 4
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Noise:
    """Distances of perturbed runs from the truth: of each output, and by run of every slice of the inner tensors."""

    outputs: Mapping[str, list[Distance]] = field(default_factory=dict)
    inner: Sequence[Mapping[str, Mapping[int, np.ndarray]]] = ()


@dataclass(frozen=True)
class NoiseSource:
    """The model whose noise is measured in units of ``ulp``, with its inputs and its outputs in float64.

    ``budget_s`` bounds each run.
    """

    model: Path
    feeds: Arrays
    truth: Arrays
    ulp: float
    budget_s: float


def constant_noise(source: NoiseSource, inner: InnerTensors, kept: Container[bytes]) -> Noise:
    """Float64 runs whose constants, but for those ``kept``, were rounded otherwise; nothing where they cannot be run."""
    return _noise(source, inner, lambda seed: Perturbation(source.ulp / 2, seed, Moves.CONSTANTS, kept))


def arithmetic_noise(source: NoiseSource) -> Noise:
    """Float64 runs in which everything was rounded, for the outputs alone; nothing where they cannot be run."""
    return _noise(source, InnerTensors(), lambda seed: Perturbation(source.ulp / 2, seed, Moves.ARITHMETIC))


def function_noise(source: NoiseSource) -> Noise:
    """Float64 runs in which functions were approximated, for the outputs alone; nothing where they cannot be run."""
    return _noise(source, InnerTensors(), lambda seed: Perturbation(source.ulp / 2, seed, Moves.FUNCTIONS))


def _noise(source: NoiseSource, inner: InnerTensors, draw: Callable[[int], Perturbation]) -> Noise:
    outputs: dict[str, list[Distance]] = {name: [] for name in source.truth}
    slices = []
    for seed in range(RUNS):
        moved = SliceDistances(inner, 0.0)
        try:
            found = evaluate_float64(
                source.model, source.feeds, budget_s=source.budget_s, perturbation=draw(seed), watch=moved.watch
            ).outputs
        except ReferenceUnavailable:
            return Noise()
        for name, value in found.items():
            outputs[name].append(distance(source.truth[name], value))
        slices.append(moved.found)
    return Noise(outputs, slices)


def stored_constants(model: onnx.ModelProto, folder: Path) -> frozenset[bytes]:
    """Digests of the floating constants that ``model`` holds."""
    tensors = [*model.graph.initializer, *(a.t for node in model.graph.node for a in node.attribute if a.HasField("t"))]
    arrays = (raised_array(numpy_helper.to_array(_detached(tensor), str(folder))) for tensor in tensors)
    return frozenset(digest(array) for array in arrays if array.dtype == np.float64)


def _detached(tensor: onnx.TensorProto) -> onnx.TensorProto:
    """A copy of what is stored elsewhere: reading would keep the data in the model."""
    if tensor.data_location != onnx.TensorProto.EXTERNAL:
        return tensor
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    return copy


def run_noise(runner: OrtRunner, model: Path, feeds: Arrays, native: Arrays, ulp: float) -> Noise:
    """Distances of runs from each other whose floating inputs differ by half a unit, where float64 is out of reach.

    Roundings inside the network fall out anew in each run. Nothing where one cannot be run.
    """
    noise: dict[str, list[Distance]] = {name: [] for name in native}
    rng = np.random.default_rng(0)
    moved = [{name: _moved(value, ulp / 2, rng) for name, value in feeds.items()} for _ in range(RUNS)]
    try:
        runs = runner.run_many(model, moved)
    except RunFailed:
        return Noise()
    for run in runs:
        for name, value in run.items():
            noise[name].append(distance(native[name], value))
    return Noise(noise)


def _moved(value: np.ndarray, half_ulp: float, rng: np.random.Generator) -> np.ndarray:
    if epsilon(value.dtype) == 0:
        return value
    factor = 1 + 2 * max(half_ulp, epsilon(value.dtype) / 2) * rng.choice((-1.0, 1.0), value.shape)
    return (value.astype(np.float64) * factor).astype(value.dtype)
