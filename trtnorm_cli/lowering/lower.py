"""Settle the precision of a rewriting.

The float32 rewriting is run on calibration inputs. What would overflow, vanish or lose a normalization stays float32; what is
then over the budget is found and raised. Where TensorRT is at hand, its own network of the converted model has the last word:
each of its layers is evaluated on the CPU and rounded to its type. This models the arithmetic of an engine, which may fuse
layers and keep more digits inside; it is no run of one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx

from trtnorm_cli.compare.participants import NetworkParticipant
from trtnorm_cli.compare.result import Trial
from trtnorm_cli.errors import NotCompared, ProfileError, RewriteError, TensorRTRefusal, TrtnormError
from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.lowering.calibration import Calibration, calibrated
from trtnorm_cli.lowering.settling import Settling, Unseen
from trtnorm_cli.lowering.unsteady import moved_by_rounding
from trtnorm_cli.onnx_model.load import LoadedModel, load_model
from trtnorm_cli.onnx_model.save import MAPPED_FROM, save_model
from trtnorm_cli.precision.convert import Typed
from trtnorm_cli.precision.output_errors import output_errors
from trtnorm_cli.precision.raising import has_low_types, raised
from trtnorm_cli.precision.search import Found, Search
from trtnorm_cli.profile.precision import PrecisionSettings
from trtnorm_cli.progress import each, stage
from trtnorm_cli.records.precision import OutputError, PrecisionRecord
from trtnorm_cli.rewrite.prepare import Prepared
from trtnorm_cli.rewrite.rewriting import Rewriting
from trtnorm_cli.scratch import Scratch, forget_evidence
from trtnorm_cli.tensorrt.network import UntranslatableNetwork

# Relative L2 by output and number of the inputs.
Errors = Mapping[tuple[str, int], float]
# The outputs that errors are measured against, by the number of the inputs.
Exact = Callable[[int], Mapping[str, np.ndarray]]

# TensorRT's network may round at other places than the model: how often the budget is made tighter for it, and by how much.
_ROUNDS, _TIGHTER = 3, 0.7
_FLOAT = onnx.TensorProto.FLOAT


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


def lowered(prepared: Prepared, rewriting: Rewriting, settings: PrecisionSettings, means: Means) -> Lowered:
    """``rewriting`` in the precision of ``settings``.

    Raises ``RewriteError`` or ``ProfileError`` where no conversion keeps the budget, ``UsageProblem`` for calibration inputs
    that do not fit, and what TensorRT's parser raises.
    """
    wide = written(rewriting, means.scratch / "float32.onnx")
    with OrtRunner(memory_bytes=means.memory_bytes) as runner:
        calibration = calibrated(prepared, wide, means.seed, runner)
        lowering = _Lowering(prepared, rewriting, settings, means, wide, calibration, runner)
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
    with Scratch("trtnorm-precision-") as folder:
        found = lowered(prepared, rewriting, settings, Means(folder, seed))
    return found.rewriting, found.record


@dataclass(frozen=True)
class _Lowering:
    prepared: Prepared
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
        is_users = self.calibration.is_users
        unseen = None if is_users else Unseen(self.calibration, self.means.seed)
        worst = None
        with Search(self.rewriting, self.settings, feeds, is_users, self.runner) as search:
            settling = Settling(search, self.calibration, unseen)
            for _ in range(_ROUNDS):
                try:
                    made = self._accepted(search, settling, limit)
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

    def _accepted(self, search: Search, settling: Settling, limit: float) -> Lowered:
        """A conversion that TensorRT's parser takes: nodes that it refuses in the low type stay float32."""
        while True:
            try:
                with stage("settle", unit="runs"):
                    found = settling.found(limit)
                return self._made(found, settling.trials, search.exact)
            except TensorRTRefusal as error:
                if not search.refuse(error.nodes, error.summary):
                    raise
                forget_evidence(error)

    def to_float32(self) -> Lowered:
        """The rewriting in float32 wherever it was half or bfloat16."""
        wide = raised(self.rewriting.model, self.rewriting.folder, self.settings.io)
        found = Found(Typed(wide.model, wide.shelves), {}, frozenset(), 0)
        made = self._made(found, self.calibration.trials, self.calibration.exact.__getitem__)
        worst = made.record.worst
        if worst is not None and worst.error > self.settings.limit:
            raise _over_budget(self.settings, worst)
        return made

    def _made(self, found: Found, trials: Sequence[Trial], exact: Exact) -> Lowered:
        """A conversion with TensorRT's network of it, where that is wanted, and the errors of both against ``exact``."""
        shelves = (*self.rewriting.shelves, *found.typed.shelves)
        typed = replace(self.rewriting, model=found.typed.model, shelves=shelves)
        record = self._record(found, trials)
        if self.means.parsed is None:
            return Lowered(typed, record, self.wide)
        try:
            with stage("network"):
                network = self.means.parsed(written(typed, self.means.scratch / "typed.onnx"))
            errors = self._network_errors(network, {at: trials[at] for at in self._settled(found)}, exact)
            unsteady = self._unsteady(errors, trials)
            judged = {at: error for at, error in errors.items() if at not in unsteady}
            record = self._record(found, trials, judged)
            notes = [_unjudged(name, trials[at].label, error) for (name, at), error in unsteady.items()]
            return Lowered(typed, replace(record, notes=(*record.notes, *notes)), self.wide, network)
        except UntranslatableNetwork as error:
            why_not: TrtnormError = error
            note = f"{error.summary} ({error.where})"
        except RunFailed as error:
            note = f"TensorRT's network does not run in ONNX Runtime: {error}"
            why_not = NotCompared(note)
        return Lowered(typed, replace(record, notes=(*record.notes, note)), self.wide, why_not=why_not)

    def _settled(self, found: Found) -> list[int]:
        """The numbers of the inputs that ``found`` was settled on."""
        return list(dict.fromkeys(at for _, at in found.errors)) or list(range(len(self.calibration.trials)))

    def _network_errors(self, network: NetworkParticipant, trials: Mapping[int, Trial], exact: Exact) -> Errors:
        """The error of each floating output of TensorRT's network. What is finite on one side alone is infinitely wrong."""
        found = {}
        kinds, nodes = network.inputs(), len(network.model.graph.node)
        for (number, trial), told in each("network-errors", list(trials.items()), "inputs"):
            told.at(trial.label)
            feeds = {name: _as(value, kinds[name].dtype) for name, value in trial.feeds.items() if name in kinds}
            outputs = self.runner.begin(network.path, feeds, hold=True, nodes=nodes).results()[0]
            for name, error in output_errors(exact(number), outputs).judged.items():
                found[name, number] = error
        return found

    def _unsteady(self, errors: Errors, trials: Sequence[Trial]) -> Errors:
        """The errors of rounding in float32 alone, where these and ``errors`` are over the budget.

        So it is between two scores of 1e9 that are equal. No precision is to blame for that.
        """
        over = {(name, at) for (name, at), error in errors.items() if error > self.settings.limit}
        if has_low_types(self.rewriting.model):
            return {}
        moved = {at: moved_by_rounding(self.wide, trials[at].feeds) for at in {at for _, at in over}}
        return {(name, at): moved[at][name] for name, at in over if moved[at].get(name, 0.0) > self.settings.limit}

    def _record(self, found: Found, trials: Sequence[Trial], network: Errors = MappingProxyType({})) -> PrecisionRecord:
        def labelled(emulated: Errors, network: Errors) -> Iterator[OutputError]:
            for name, at in dict.fromkeys([*emulated, *network]):
                yield OutputError(name, trials[at].label, emulated.get((name, at)), network.get((name, at)))

        return PrecisionRecord(
            type=self.settings.type,
            io=self.settings.io,
            max_error=self.settings.limit if math.isfinite(self.settings.limit) else None,
            low=len(found.low),
            casts=found.typed.casts,
            kept=found.typed.kept,
            constants=found.typed.masks,
            errors=tuple(labelled(found.errors, network)),
            unseen=tuple(labelled(found.unseen, {})),
            scaled=found.scaled,
            calibration=tuple(trials[at].label for at in self._settled(found)),
            data=dict(self.calibration.data),
            evaluations=found.evaluations,
            seed=self.means.seed,
            notes=(*self.calibration.notes, *found.notes, *self._nothing_low(found), *self._unreached(found)),
        )

    def _nothing_low(self, found: Found) -> Iterator[str]:
        """The remark that the model is as it was, as some quantised ones, where rounding moves ties to other steps."""
        if self.settings.type != "fp32" and found.typed.kept and not found.low:
            yield (
                f"no node is in {self.settings.type}, as the error budget or TensorRT leaves none: precision: as-written "
                "builds the same engine sooner. --explain says why of each node"
            )

    def _unreached(self, found: Found) -> Iterator[str]:
        """The remark on floating outputs that rounding does not move at all: saturated ones, whose errors say nothing."""
        floats = {value.name for value in self.rewriting.model.graph.output if value.type.tensor_type.elem_type == _FLOAT}
        errors = [*found.errors.items(), *found.unseen.items()]
        moved = {name for (name, _), error in errors if error > 0}
        still = [name for name in dict.fromkeys(name for (name, _), _ in errors) if name in floats - moved]
        if found.low and still and not self.calibration.is_users:
            yield (
                f"no rounding moves {', '.join(still)} at any of these inputs, so that errors say nothing there. Give your own "
                "inputs with precision: {data: …}"
            )


def written(rewriting: Rewriting, path: Path) -> LoadedModel:
    """``rewriting`` saved in the file ``path``, as it is read again."""
    save_model(rewriting.model, path, rewriting.folder, MAPPED_FROM)
    return load_model(path)


def _as(value: np.ndarray, onnx_type: int) -> np.ndarray:
    return value.astype(onnx.helper.tensor_dtype_to_np_dtype(onnx_type), copy=False)


def _unjudged(name: str, at: str, error: float) -> str:
    return f"{name} at {at} is not judged: rounding alone moves it by {error:.1e} in float32 too"


def _over_budget(settings: PrecisionSettings, worst: OutputError) -> RewriteError:
    return RewriteError(
        f"TensorRT's network in {settings.type} is off by {worst.error:.1e}, and max_error is {settings.limit:g}",
        f"output {worst.output} at {worst.at}",
        "allow more with precision: {max_error: …}, or build with precision: as-written and report this model",
    )
