"""Participants in float64: each is read once, and what several of them compute alike is computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import onnx

from trtnorm_cli.compare.participants import OnnxParticipant
from trtnorm_cli.compare.sized_model import SizedModel
from trtnorm_cli.compare.sized_tensors import NotTheSame
from trtnorm_cli.evaluate.float64 import (
    Evaluation,
    Float64Model,
    FreeValues,
    Known,
    Perturbation,
    Reference,
    ReferenceUnavailable,
    SameProducts,
    Ties,
    Watch,
)
from trtnorm_cli.progress import stage


class NotWanted(Exception):
    """An evaluation that is not wanted any more."""


class Float64Runs:
    """The evaluations of a comparison, each of at most ``budget_s`` seconds, and wanted while ``is_wanted`` is true."""

    def __init__(self, budget_s: float) -> None:
        self.budget_s = budget_s
        self._models: dict[int, tuple[onnx.ModelProto, Float64Model]] = {}
        self._rates: dict[str, float] = {}
        self.is_wanted: Callable[[], bool] | None = None

    @contextmanager
    def while_wanted(self, is_wanted: Callable[[], bool]) -> Iterator[None]:
        """A block in which ``evaluate`` raises ``NotWanted`` once ``is_wanted`` is false."""
        self.is_wanted = is_wanted
        try:
            yield
        finally:
            self.is_wanted = None

    def evaluate(
        self,
        participant: OnnxParticipant,
        feeds: Mapping[str, np.ndarray],
        watch: Watch | None = None,
        known: Known | None = None,
        perturbation: Perturbation | None = None,
    ) -> Reference:
        """The participant in float64, as ``evaluate_float64`` has it.

        Raises ``ReferenceUnavailable`` where that is not possible or takes too long.
        """
        watch = watch if self.is_wanted is None else _while(self.is_wanted, watch)
        evaluation = self.begin(participant, feeds, watch, known, perturbation)
        with stage("float64" if perturbation is None else "noise", evaluation.remaining, "nodes") as told:
            evaluation.go_on(told)
        return self.end(participant, feeds, evaluation, perturbation)

    def begin(
        self,
        participant: OnnxParticipant,
        feeds: Mapping[str, np.ndarray],
        watch: Watch | None = None,
        known: Known | None = None,
        perturbation: Perturbation | None = None,
        ties: Ties | None = None,
        kept: Set[str] | None = None,
        free_values: FreeValues | SameProducts | None = None,
        gives_up_early: bool = False,
    ) -> Evaluation:
        """The same as ``evaluate``, of which no node was evaluated yet.

        One that has all products to compute ``gives_up_early`` where they are far too many.
        """
        predicted = self._rates.get(participant.label, 0.0) * _elements(feeds)
        if predicted > self.budget_s:
            raise ReferenceUnavailable(f"it would take about {predicted:.0f} s, the budget is {self.budget_s:g} s")
        model, budget_s = self.model(participant), self.budget_s
        work = partial(_work, participant.model, feeds) if gives_up_early else None
        return Evaluation(model, feeds, None, budget_s, perturbation, watch, known, ties, kept, free_values, work)

    def end(
        self,
        participant: OnnxParticipant,
        feeds: Mapping[str, np.ndarray],
        evaluation: Evaluation,
        perturbation: Perturbation | None = None,
    ) -> Reference:
        """The outputs of an evaluation that was begun and is done."""
        found = evaluation.reference()
        if perturbation is None and evaluation.free_values is None:
            self._rates[participant.label] = found.seconds / _elements(feeds)
        return found

    def model(self, participant: OnnxParticipant) -> Float64Model:
        """The participant's model; raises ``ReferenceUnavailable`` where it cannot be raised to float64."""
        # A file may be another model's by now, and what was read of it stays here so that nothing else is taken for it.
        key = id(participant.model)
        if key not in self._models:
            self._models[key] = participant.model, Float64Model(participant.model, participant.path.absolute().parent)
        return self._models[key][1]


def _work(model: onnx.ModelProto, feeds: Mapping[str, np.ndarray]) -> int:
    """The multiply-adds of convolutions and products, as far as their sizes are known."""
    try:
        return SizedModel(model, {name: array.shape for name, array in feeds.items()}).own.work()
    except NotTheSame:  # an input whose rank is not stated
        return 0


def _elements(feeds: Mapping[str, np.ndarray]) -> int:
    return max(sum(array.size for array in feeds.values()), 1)


def _while(is_wanted: Callable[[], bool], watch: Watch | None) -> Watch:
    """``watch``, which ends the evaluation at the first node after it is not wanted any more."""

    def watched(name: str, value: Any) -> Any:
        if not is_wanted():
            raise NotWanted
        return value if watch is None else watch(name, value)

    return watched
