"""Settle the precision of a rewriting.

The float32 rewriting is run on calibration inputs. What would overflow, vanish or lose a normalization stays float32; what is
then over the budget is found and raised. Where TensorRT is at hand, its own network of the converted model has the last word:
each of its layers is evaluated on the CPU and rounded to its type. This models the arithmetic of an engine, which may fuse
layers and keep more digits inside; it is no run of one.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from trtnorm_cli.compare.participants import NetworkParticipant
from trtnorm_cli.errors import NotCompared, ProfileError, RewriteError, TensorRTRefusal, TrtnormError
from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.lowering.calibration import Calibration, calibrated
from trtnorm_cli.onnx_model.load import LoadedModel, load_model
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.precision.convert import Typed
from trtnorm_cli.precision.output_errors import output_errors
from trtnorm_cli.precision.raising import raised
from trtnorm_cli.precision.search import Found, Search
from trtnorm_cli.profile.precision import PrecisionSettings
from trtnorm_cli.records.precision import OutputError, PrecisionRecord
from trtnorm_cli.rewrite.prepare import Prepared
from trtnorm_cli.rewrite.rewriting import Rewriting
from trtnorm_cli.tensorrt.evidence import forget_evidence
from trtnorm_cli.tensorrt.network import UntranslatableNetwork

# Relative L2 by output and label of the inputs.
Errors = Mapping[tuple[str, str], float]
# The outputs that errors are measured against, by the number of the inputs.
Exact = Callable[[int], Mapping[str, np.ndarray]]

# TensorRT's network may round at other places than the model: how often the budget is made tighter for it, and by how much.
_ROUNDS, _TIGHTER = 3, 0.7


@dataclass(frozen=True)
class Lowered:
    """A rewriting whose ``model`` is in the precision that the build profile asks for, and TensorRT's network of it.

    ``wide`` is the rewriting before that, in a file. ``why_not`` says why there is no network.
    """

    rewriting: Rewriting
    record: PrecisionRecord
    wide: LoadedModel
    network: NetworkParticipant | None = None
    why_not: TrtnormError | None = None

    def known_network(self) -> NetworkParticipant:
        """TensorRT's network; raises the reason where there is none."""
        if self.network is None:
            raise self.why_not or NotCompared("TensorRT was not asked")
        return self.network


@dataclass(frozen=True)
class Means:
    """The means of a conversion: the folder ``scratch``, at most ``memory_bytes`` for each run, and TensorRT's parser.

    Random inputs are drawn from ``seed``. ``parsed`` makes TensorRT's network of a model; None where that is not wanted.
    """

    scratch: Path
    seed: int = 0
    memory_bytes: int | None = None
    parsed: Callable[[LoadedModel], NetworkParticipant] | None = None


def settings_of(prepared: Prepared) -> PrecisionSettings | None:
    """The precision that the build profile asks for; None where the model keeps the types that it has."""
    settings = None if prepared.profile is None else prepared.profile.precision
    return None if settings is None or settings.type == "as-written" else settings


def lowered(prepared: Prepared, rewriting: Rewriting, settings: PrecisionSettings, means: Means) -> Lowered:
    """``rewriting`` in the precision of ``settings``.

    Raises ``RewriteError`` or ``ProfileError`` where no conversion keeps the budget, ``UsageProblem`` for calibration inputs
    that do not fit, and what TensorRT's parser raises.
    """
    wide = written(rewriting, means.scratch / "float32.onnx")
    with OrtRunner(memory_bytes=means.memory_bytes) as runner:
        calibration = calibrated(prepared, wide, means.seed, runner)
        lowering = _Lowering(rewriting, settings, means, wide, calibration, runner)
        try:
            return lowering.to_float32() if settings.type == "fp32" else lowering.to_low()
        except RunFailed as error:
            why = (
                f"the model cannot be run with its results rounded to {settings.type}, so no precision can be settled: {error}"
            )
            raise RewriteError(why, str(prepared.loaded.path), "build it as it is, and report this model") from error


def lowered_alone(
    prepared: Prepared, rewriting: Rewriting, settings: PrecisionSettings, seed: int = 0
) -> tuple[Rewriting, PrecisionRecord]:
    """``rewriting`` in the precision of ``settings``, settled without TensorRT."""
    with tempfile.TemporaryDirectory(prefix="trtnorm-precision-") as folder:
        found = lowered(prepared, rewriting, settings, Means(Path(folder), seed))
    return found.rewriting, found.record


@dataclass(frozen=True)
class _Lowering:
    rewriting: Rewriting
    settings: PrecisionSettings
    means: Means
    wide: LoadedModel
    calibration: Calibration
    runner: OrtRunner

    def to_low(self) -> Lowered:
        """The rewriting in half precision or bfloat16. The budget is made tighter until TensorRT's network keeps it."""
        if not self.calibration.trials:
            where = "\n".join([str(self.wide.path.name), *self.calibration.notes])
            raise RewriteError("the model ran on none of the calibration inputs, so no precision can be settled", where)
        feeds, limit = [trial.feeds for trial in self.calibration.trials], self.settings.limit
        worst = None
        with Search(self.rewriting, self.settings, feeds, self.calibration.is_users, self.runner) as search:
            for _ in range(_ROUNDS):
                try:
                    made = self._accepted(search, limit)
                except ProfileError:
                    if worst is None:
                        raise
                    break  # tighter than what can be held, and TensorRT's network is off by too much without
                worst = made.record.worst
                if worst is None or worst.error <= self.settings.limit:
                    return made
                limit *= _TIGHTER * self.settings.limit / worst.error
        assert worst is not None, "there was a round"
        raise _over_budget(self.settings, worst)

    def _accepted(self, search: Search, limit: float) -> Lowered:
        """A conversion that TensorRT's parser takes: nodes that it refuses in the low type stay float32."""
        while True:
            try:
                return self._made(search.found(limit), search.exact)
            except TensorRTRefusal as error:
                if not search.refuse(error.nodes, error.summary):
                    raise
                forget_evidence(error)

    def to_float32(self) -> Lowered:
        """The rewriting in float32 wherever it was half or bfloat16."""
        wide = raised(self.rewriting.model, self.rewriting.folder, self.settings.io)
        made = self._made(Found(Typed(wide.model, wide.shelves), {}, 0, 0), self.calibration.exact.__getitem__)
        worst = made.record.worst
        if worst is not None and worst.error > self.settings.limit:
            raise _over_budget(self.settings, worst)
        return made

    def _made(self, found: Found, exact: Exact) -> Lowered:
        """A conversion with TensorRT's network of it, where that is wanted, and the errors of both against ``exact``."""
        shelves = (*self.rewriting.shelves, *found.typed.shelves)
        typed = replace(self.rewriting, model=found.typed.model, shelves=shelves)
        if self.means.parsed is None:
            return Lowered(typed, self._record(found, {}), self.wide)
        try:
            network = self.means.parsed(written(typed, self.means.scratch / "typed.onnx"))
            return Lowered(typed, self._record(found, self._network_errors(network, exact)), self.wide, network)
        except UntranslatableNetwork as error:
            return Lowered(typed, self._record(found, {}, f"{error.summary} ({error.where})"), self.wide, why_not=error)
        except RunFailed as error:
            why_not = NotCompared(f"TensorRT's network does not run in ONNX Runtime: {error}")
            return Lowered(typed, self._record(found, {}, why_not.summary), self.wide, why_not=why_not)

    def _network_errors(self, network: NetworkParticipant, exact: Exact) -> Errors:
        """The error of each floating output of TensorRT's network. What is finite on one side alone is infinitely wrong."""
        found = {}
        kinds = network.inputs()
        for number, trial in enumerate(self.calibration.trials):
            feeds = {name: _as(value, kinds[name].dtype) for name, value in trial.feeds.items() if name in kinds}
            outputs = self.runner.begin(network.path, feeds, hold=True).results()[0]
            for name, error in output_errors(exact(number), outputs).judged.items():
                found[name, trial.label] = error
        return found

    def _record(self, found: Found, network: Errors, *notes: str) -> PrecisionRecord:
        labels = [trial.label for trial in self.calibration.trials]
        emulated = {(name, labels[index]): error for (name, index), error in found.errors.items()}
        errors = [
            OutputError(name, at, emulated.get((name, at)), network.get((name, at)))
            for name, at in dict.fromkeys([*emulated, *network])
        ]
        return PrecisionRecord(
            type=self.settings.type,
            io=self.settings.io,
            max_error=self.settings.limit if math.isfinite(self.settings.limit) else None,
            low=found.low,
            casts=found.typed.casts,
            kept=found.typed.kept,
            constants=found.typed.masks,
            errors=tuple(errors),
            calibration=tuple(labels),
            data=dict(self.calibration.data),
            evaluations=found.evaluations,
            seed=self.means.seed,
            notes=(*self.calibration.notes, *found.notes, *notes),
        )


def written(rewriting: Rewriting, path: Path) -> LoadedModel:
    """``rewriting`` saved in the file ``path``, as it is read again."""
    save_model(rewriting.model, path, rewriting.folder)
    return load_model(path)


def _as(value: np.ndarray, onnx_type: int) -> np.ndarray:
    return value.astype(onnx.helper.tensor_dtype_to_np_dtype(onnx_type), copy=False)


def _over_budget(settings: PrecisionSettings, worst: OutputError) -> RewriteError:
    return RewriteError(
        f"TensorRT's network in {settings.type} is off by {worst.error:.1e}, and max_error is {settings.limit:g}",
        f"output {worst.output} at {worst.at}",
        "allow more with precision: {max_error: …}, or build with precision: as-written and report this model",
    )
