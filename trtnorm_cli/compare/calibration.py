"""The noise floor of a network: how far its outputs move when nothing but roundings changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pathlib import Path

import numpy as np

from trtnorm_cli.compare.inner_tensors import InnerTensors, SliceDistances
from trtnorm_cli.evaluate.float64 import Reference, ReferenceUnavailable, Watch
from trtnorm_cli.evaluate.float64.perturbation import Constant, Moves, Perturbation
from trtnorm_cli.evaluate.metrics import Distance, distance
from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed
from trtnorm_cli.evaluate.tolerance import epsilon
from trtnorm_cli.light_dataclass import dataclass

RUNS = 4
# So many runs are looked at, one number after the other, until they decide.
STEPS = (1, 2, RUNS)
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Noise:
    """Distances of perturbed runs from the truth: of each output, and by run of every slice of the inner tensors."""

    outputs: Mapping[str, list[Distance]] = field(default_factory=dict)
    inner: Sequence[Mapping[str, Mapping[int, np.ndarray]]] = ()


@dataclass
class NoiseRuns:
    """Perturbed runs of a model, as many as were asked for.

    ``evaluate`` makes one, ``truth`` are the outputs without perturbation, ``ulp`` is the unit of the roundings. The tensors
    ``names`` of ``inner`` are looked at as well. Constants of which ``kept``
    is true stay. ``decides`` is that of the perturbations.
    """

    evaluate: Callable[[Perturbation, Watch], Reference]
    truth: Arrays
    ulp: float
    moves: Moves
    kept: Callable[[Constant], bool] | None = None
    inner: InnerTensors = field(default_factory=InnerTensors)
    names: frozenset[str] = frozenset()
    decides: bool = False
    _outputs: dict[str, list[Distance]] = field(default_factory=dict)
    _slices: list[Mapping[str, Mapping[int, np.ndarray]]] = field(default_factory=list)
    _impossible: bool = False

    def noise(self, runs: int) -> Noise:
        """The noise of so many runs, or of more where these were made before; nothing where one cannot be made."""
        while len(self._slices) < runs and not self._impossible:
            self._run(len(self._slices))
        return Noise() if self._impossible else Noise(self._outputs, self._slices)

    def _run(self, seed: int) -> None:
        moved = SliceDistances(self.inner, 0.0, self.names)
        try:
            found = self.evaluate(Perturbation(self.ulp / 2, seed, self.moves, self.kept, self.decides), moved.watch)
        except ReferenceUnavailable:
            self._impossible = True
            return
        for name, value in found.outputs.items():
            self._outputs.setdefault(name, []).append(distance(self.truth[name], value))
        self._slices.append(moved.found)


class RunNoise:
    """Distances of runs from each other whose floating inputs differ by half a unit, where float64 is out of reach.

    Roundings inside the network fall out anew in each run.
    """

    def __init__(self, runner: OrtRunner, model: Path, feeds: Arrays, native: Arrays, ulp: float) -> None:
        self._runner, self._model, self._feeds, self._native, self._ulp = runner, model, feeds, native, ulp
        self._rng = np.random.default_rng(0)
        self._found: dict[str, list[Distance]] = {name: [] for name in native}
        self._made, self._impossible = 0, False

    def noise(self, runs: int) -> Noise:
        """The noise of so many runs, or of more where these were made before; nothing where one cannot be made."""
        missing = range(self._made, runs)
        moved = [{name: _moved(value, self._ulp / 2, self._rng) for name, value in self._feeds.items()} for _ in missing]
        if moved and not self._impossible:
            self._run(moved)
        return Noise() if self._impossible else Noise(self._found)

    def _run(self, moved: list[dict[str, np.ndarray]]) -> None:
        try:
            found = self._runner.run_many(self._model, moved)
        except RunFailed:
            self._impossible = True
            return
        self._made += len(found)
        for run in found:
            for name, value in run.items():
                self._found[name].append(distance(self._native[name], value))


def _moved(value: np.ndarray, half_ulp: float, rng: np.random.Generator) -> np.ndarray:
    if epsilon(value.dtype) == 0:
        return value
    factor = 1 + 2 * max(half_ulp, epsilon(value.dtype) / 2) * rng.choice((-1.0, 1.0), value.shape)
    return (value.astype(np.float64) * factor).astype(value.dtype)
