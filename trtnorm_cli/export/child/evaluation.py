"""Run the module on inputs at the sizes of the build profile, which gives what the exported model has to compute."""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from trtnorm_cli.evaluate.tensor_files import TensorFile, read_tensor, write_tensor
from trtnorm_cli.export.child.arguments import Call, named_results
from trtnorm_cli.export.child.examples import InputValues, dtype_name, to_array, to_tensor
from trtnorm_cli.export.child.sizes.dimensions import Requested, nearest_size
from trtnorm_cli.export.child.sizes.guards import Sizes
from trtnorm_cli.export.child.sizes.solver import Assumption
from trtnorm_cli.export.request import TrialRecord
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.dims import CORNERS
from trtnorm_cli.progress import each

# A second copy of the module in float64 is made below this many bytes of parameters.
_FLOAT64_BYTES = 512 << 20
# Runs shorter than this are timed twice.
_SHORT_S = 1.0
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Point:
    """Sizes of the dimensions at which to compare, and what they are called."""

    label: str
    sizes: Mapping[str, int]
    optional: bool = False


def points(requested: Requested, assumptions: Sequence[Assumption], in_between: int, seed: int) -> list[Point]:
    """min, opt and max of every dimension together, each once, and the sizes at which an assumption of the trace fails.

    ``in_between`` random sizes follow, which the module may refuse.
    """
    found: dict[tuple[int, ...], Point] = {}
    for corner, label in enumerate(CORNERS):
        sizes = {name: nearest_size(d.asked[corner], d.sizes) for name, d in requested.dimensions.items()}
        found.setdefault(tuple(sizes.values()), Point(label, sizes))
    for number, assumption in enumerate(assumptions, 1):
        opt = {name: dimension.opt for name, dimension in requested.dimensions.items()}
        sizes = {**opt, **assumption.sizes}
        found.setdefault(tuple(sizes.values()), Point(f"assumption {number}", sizes, optional=True))
    rng = np.random.default_rng(seed)
    for number in range(in_between if requested.dimensions else 0):
        sizes = {name: _random_size(dimension.sizes, rng) for name, dimension in requested.dimensions.items()}
        found.setdefault(tuple(sizes.values()), Point(f"random {number + 1}", sizes, optional=True))
    return list(found.values())


def _random_size(sizes: Sizes, rng: np.random.Generator) -> int:
    m = sizes.multiple_of
    return int(rng.integers(-(-sizes.low // m), sizes.high // m + 1)) * m


class ModuleRunner:
    """Runs a module on named arrays, in its own types and in float64."""

    def __init__(self, module: nn.Module, call: Call) -> None:
        self.module, self.call = module, call
        self._double: nn.Module | None = None

    def run(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray]:
        """The module's results by name."""
        return _run(self.module, self.call.with_tensors(tensors))

    def exact(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, np.ndarray] | None:
        """The results in float64, or None where the module cannot be computed so."""
        try:
            call = self.call.with_tensors({name: _doubled(t) for name, t in {**self.call.tensors(), **tensors}.items()})
            return _run(self._in_float64(), call)
        except Exception:  # a module may fix its types, and then raises whatever it likes
            return None

    def _in_float64(self) -> nn.Module:
        if self._double is None:
            size = sum(t.numel() * t.element_size() for t in (*self.module.parameters(), *self.module.buffers()))
            if size > _FLOAT64_BYTES:
                raise MemoryError("too large for a second copy")
            self._double = copy.deepcopy(self.module).double()
        return self._double


def _run(module: nn.Module, call: Call) -> dict[str, np.ndarray]:
    with torch.no_grad():
        return {name: to_array(tensor) for name, tensor in named_results(module(*call.args, **call.kwargs), call).items()}


def _doubled(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.dtype in _FLOATS else tensor


@dataclass(frozen=True)
class Feeds:
    """The inputs of trials, drawn as ``data`` says, with the values that were ``given`` where their sizes fit."""

    requested: Requested
    values: InputValues

    def at(self, point: Point) -> dict[str, torch.Tensor]:
        return {name: self.values.drawn(held, held.sized(point.sizes)) for name, held in self.requested.inputs.items()}


@dataclass(frozen=True)
class Trials:
    """Runs of the module, and a line for each that was left out."""

    records: tuple[TrialRecord, ...] = ()
    skipped: tuple[str, ...] = ()

    def __add__(self, other: Trials) -> Trials:
        return Trials(self.records + other.records, self.skipped + other.skipped)


@dataclass
class Evaluation:
    """Runs trials, smallest first, and leaves out those that would take longer than the budget."""

    runner: ModuleRunner
    folder: Path
    budget_s: float
    seconds: float = 0.0

    def at_points(self, feeds: Feeds, where: Sequence[Point]) -> Trials:
        """One record for each point whose run fits the budget."""
        rate, before, trials, requested = 0.0, 1, Trials(), feeds.requested
        # The module ran before, at the sizes of the trace: libraries are loaded, and its first time here is a fair one.
        for point, told in each("run-module", sorted(where, key=lambda p: _elements(requested, p)), "inputs"):
            told.at(point.label)
            elements = _elements(requested, point)
            # Attention and correlation grow with the square; between two points 1.5 is a cautious middle.
            predicted = rate * (elements / before) ** 1.5
            if predicted > self.budget_s:
                trials += Trials(
                    skipped=(f"{point.label}: the module was not run, one run would take about {predicted:.0f} s",)
                )
                continue
            trials += self.one(point.label, feeds.at(point), point.optional)
            rate, before = self.seconds, max(elements, 1)
        return trials

    def one(self, label: str, feeds: Mapping[str, torch.Tensor], optional: bool = False) -> Trials:
        """Run the module once. An optional run that the module refuses is skipped."""
        try:
            results, self.seconds = self._timed(feeds)
        except Exception as error:
            if not optional:
                raise
            return Trials(skipped=(f"{label}: the module itself does not run there ({type(error).__name__})",))
        # In float64 everything takes about twice as long.
        exact = self.runner.exact(feeds) if 2 * self.seconds <= self.budget_s else None
        record = TrialRecord(
            label,
            self._written(label, "feed", {name: to_array(tensor) for name, tensor in feeds.items()}),
            self._written(label, "native", results),
            None if exact is None else self._written(label, "exact", exact),
            optional,
        )
        return Trials((record,))

    def _timed(self, feeds: Mapping[str, torch.Tensor]) -> tuple[dict[str, np.ndarray], float]:
        """The results, and the seconds of the faster of two runs where one is short. A first run is mostly preparation."""
        start = time.perf_counter()
        results = self.runner.run(feeds)
        first = time.perf_counter()
        if first - start > _SHORT_S:
            return results, first - start
        self.runner.run(feeds)
        return results, min(first - start, time.perf_counter() - first)

    def _written(self, label: str, kind: str, arrays: Mapping[str, np.ndarray]) -> dict[str, TensorFile]:
        stem = "".join(char if char.isalnum() else "_" for char in label)
        return {n: write_tensor(self.folder / f"{stem}-{kind}-{i}", array) for i, (n, array) in enumerate(arrays.items())}


def _elements(requested: Requested, point: Point) -> int:
    return sum(int(np.prod(held.sized(point.sizes), dtype=np.int64)) for held in requested.inputs.values())


def read_feeds(folder: Path, records: Mapping[str, TensorFile]) -> dict[str, torch.Tensor]:
    return {name: to_tensor(read_tensor(folder, record)) for name, record in records.items()}


__all__ = ["Evaluation", "ModuleRunner", "Point", "dtype_name", "points", "read_feeds"]
