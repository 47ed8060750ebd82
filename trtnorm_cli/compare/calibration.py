"""The noise floor of a network: how far its outputs move when nothing but roundings changes."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from trtnorm_cli.compare.inner_tensors import InnerTensors, SliceDistances
from trtnorm_cli.evaluate.float64 import ReferenceUnavailable, evaluate_float64
from trtnorm_cli.evaluate.float64.perturbation import Perturbation, digest
from trtnorm_cli.evaluate.float64.raising import raised_array
from trtnorm_cli.evaluate.metrics import Distance, distance
from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed
from trtnorm_cli.evaluate.tolerance import epsilon

RUNS = 4
Arrays = Mapping[str, np.ndarray]
Noise = dict[str, list[Distance]]


def constant_noise(model: Path, feeds: Arrays, truth: Arrays, ulp: float, budget_s: float, kept: Container[bytes]) -> Noise:
    """Distances from ``truth`` of float64 runs whose constants, but for those ``kept``, were rounded otherwise.

    Empty where they cannot be run.
    """
    return _noise(model, feeds, truth, budget_s, lambda seed: Perturbation(ulp / 2, seed, arithmetic=False, kept=kept))


def arithmetic_noise(model: Path, feeds: Arrays, truth: Arrays, ulp: float, budget_s: float) -> Noise:
    """Distances from ``truth`` of float64 runs in which everything was rounded; empty where they cannot be run."""
    return _noise(model, feeds, truth, budget_s, lambda seed: Perturbation(ulp / 2, seed, arithmetic=True))


def inner_noise(
    model: Path, feeds: Arrays, reference: InnerTensors, ulp: float, budget_s: float, kept: Container[bytes]
) -> list[dict[str, dict[int, np.ndarray]]]:
    """Distances of every slice of every inner tensor in float64 runs whose constants were rounded otherwise."""
    runs = []
    for seed in range(RUNS):
        distances = SliceDistances(reference, 0.0)
        perturbation = Perturbation(ulp / 2, seed, arithmetic=False, kept=kept)
        try:
            evaluate_float64(model, feeds, budget_s=budget_s, perturbation=perturbation, watch=distances.watch)
        except ReferenceUnavailable:
            return []
        runs.append(distances.found)
    return runs


def _noise(model: Path, feeds: Arrays, truth: Arrays, budget_s: float, draw: Callable[[int], Perturbation]) -> Noise:
    noise: Noise = {name: [] for name in truth}
    for seed in range(RUNS):
        try:
            found = evaluate_float64(model, feeds, budget_s=budget_s, perturbation=draw(seed)).outputs
        except ReferenceUnavailable:
            return {}
        for name, value in found.items():
            noise[name].append(distance(truth[name], value))
    return noise


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

    Roundings inside the network fall out anew in each run. Empty where one cannot be run.
    """
    noise: Noise = {name: [] for name in native}
    rng = np.random.default_rng(0)
    moved = [{name: _moved(value, ulp / 2, rng) for name, value in feeds.items()} for _ in range(RUNS)]
    try:
        runs = runner.run_many(model, moved)
    except RunFailed:
        return {}
    for run in runs:
        for name, value in run.items():
            noise[name].append(distance(native[name], value))
    return noise


def _moved(value: np.ndarray, half_ulp: float, rng: np.random.Generator) -> np.ndarray:
    if epsilon(value.dtype) == 0:
        return value
    factor = 1 + 2 * max(half_ulp, epsilon(value.dtype) / 2) * rng.choice((-1.0, 1.0), value.shape)
    return (value.astype(np.float64) * factor).astype(value.dtype)
