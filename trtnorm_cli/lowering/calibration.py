"""The inputs that a precision is settled on, with what the model computes of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from trtnorm_cli.compare.participants import loaded_participant
from trtnorm_cli.compare.result import Trial
from trtnorm_cli.compare.settings import Settings
from trtnorm_cli.compare.trials import Trials, trials_of
from trtnorm_cli.evaluate.ort_runner import OrtRunner, RunFailed
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.lowering.few_samples import FewSamples
from trtnorm_cli.onnx_model.load import LoadedModel
from trtnorm_cli.onnx_model.shapes import model_inputs
from trtnorm_cli.progress import each
from trtnorm_cli.rewrite.prepare import Prepared

# A run at larger shapes is left out where it would take longer, going by a smaller one.
_LONGEST_RUN_S = 30.0


@dataclass(frozen=True)
class Calibration:
    """The inputs of the runs with what the model makes of each, the smallest first; and what is to be said of them.

    ``seconds`` are those of the runs. ``data`` says by input where its values came from, ``is_users`` whether the user brought
    them. ``redrawn`` draws the random inputs at a place in ``trials`` from another seed; None where there are none.
    """

    trials: tuple[Trial, ...]
    exact: tuple[Mapping[str, np.ndarray], ...]
    seconds: tuple[float, ...]
    data: dict[str, str]
    is_users: bool
    redrawn: Callable[[int, int], Trial | None]
    notes: tuple[str, ...] = ()


def calibrated(prepared: Prepared, model: LoadedModel, seed: int, runner: OrtRunner) -> Calibration:
    """The user's inputs, or random ones at min, opt and max, as far as ``model`` runs on them in reasonable time.

    Of random ones few samples are taken. Raises ``UsageProblem`` for inputs of the user's that do not fit.
    """
    data = None if prepared.profile is None else prepared.profile.calibration_data
    drawn = drawn_trials(prepared, seed)
    runs, notes = _Runs(model, runner, are_random=data is None), list(drawn.notes)
    for trial, told in each("calibrate", sorted(drawn.trials, key=lambda trial: trial.elements), "inputs"):
        told.at(trial.label)
        why_not = runs.add(trial)
        if why_not is not None:
            notes.append(f"{trial.label}: not calibrated at, {why_not}")

    def redrawn(place: int, other_seed: int) -> Trial | None:
        label = runs.drawn_as[place]
        found = next((trial for trial in drawn_trials(prepared, other_seed).trials if trial.label == label), None)
        return found and runs.few(found)

    made = (tuple(runs.trials), tuple(runs.exact), tuple(runs.seconds))
    return Calibration(*made, drawn.inputs, data is not None, redrawn, tuple(notes))


def drawn_trials(prepared: Prepared, seed: int) -> Trials:
    """The user's inputs, or random ones at min, opt and max of each optimization profile."""
    data = None if prepared.profile is None else prepared.profile.calibration_data
    chosen = Settings(seed=seed, data=data, in_between=0)
    return trials_of(loaded_participant(prepared.original), prepared.profile, chosen, prepared.proof)


def require_fitting_data(prepared: Prepared) -> None:
    """Raise ``UsageProblem`` where the user's calibration inputs do not fit the model."""
    profile = prepared.profile
    if profile is not None and profile.calibration_data is not None and profile.precision.type != "as-written":
        drawn_trials(prepared, seed=0)


def known_feeds(model: LoadedModel, trial: Trial) -> Mapping[str, np.ndarray]:
    """The inputs of ``trial`` that ``model`` has."""
    known = model_inputs(model.proto)
    return {name: value for name, value in trial.feeds.items() if name in known}


class _Runs:
    """The model's runs, each at larger inputs than the one before. ``drawn_as`` are the labels that these were drawn with."""

    def __init__(self, model: LoadedModel, runner: OrtRunner, are_random: bool) -> None:
        self._model, self._runner, self._are_random = model, runner, are_random
        self._seconds_per_element = 0.0
        self._samples = FewSamples(model.proto, lambda feeds: self._run(feeds).outputs)
        self._last: _Run | None = None
        self.trials: list[Trial] = []
        self.drawn_as: list[str] = []
        self.exact: list[Mapping[str, np.ndarray]] = []
        self.seconds: list[float] = []

    def few(self, trial: Trial) -> Trial:
        """``trial`` with the inputs that the model has, and of random ones few samples."""
        known = replace(trial, feeds=known_feeds(self._model, trial))
        return self._samples.of(known) if self._are_random else known

    def add(self, trial: Trial) -> str | None:
        """Run the model on ``trial``, unless random inputs of its sizes are there; the reason where that cannot be."""
        share = self._samples.share(trial) if self._are_random else 1.0
        if self._seconds_per_element * trial.elements * share > _LONGEST_RUN_S:
            return f"a run would take longer than {_LONGEST_RUN_S:g} s"
        few = self.few(trial)
        if few.label != trial.label and any(self._samples.are_of_one_kind(few, other) for other in self.trials):
            return None
        if self._seconds_per_element * few.elements > _LONGEST_RUN_S:
            return f"a run would take longer than {_LONGEST_RUN_S:g} s"
        try:
            run = self._run(few.feeds)
        except RunFailed as error:
            return str(error)
        self._seconds_per_element = run.seconds / max(few.elements, 1)
        self.trials.append(few)
        self.drawn_as.append(trial.label)
        self.exact.append(run.outputs)
        self.seconds.append(run.seconds)
        return None

    def _run(self, feeds: Mapping[str, np.ndarray]) -> _Run:
        """A run, or the last one where the inputs are the same."""
        if self._last is None or not self._last.is_of(feeds):
            asked = self._runner.begin(self._model.path, feeds, hold=True)
            self._last = _Run(feeds, asked.results()[0], asked.computing_s)
        return self._last


@dataclass(frozen=True)
class _Run:
    """The outputs of the model for ``feeds``, and the seconds that it computed."""

    feeds: Mapping[str, np.ndarray]
    outputs: Mapping[str, np.ndarray]
    seconds: float

    def is_of(self, feeds: Mapping[str, np.ndarray]) -> bool:
        return feeds.keys() == self.feeds.keys() and all(np.array_equal(feeds[name], self.feeds[name]) for name in feeds)
