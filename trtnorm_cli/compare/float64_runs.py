"""Participants in float64: each is read once, and what several of them compute alike is computed once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trtnorm_cli.compare.participants import OnnxParticipant
from trtnorm_cli.evaluate.float64 import (
    Float64Model,
    Known,
    Perturbation,
    Reference,
    ReferenceUnavailable,
    Ties,
    Watch,
    evaluate_float64,
)


class Float64Runs:
    """The evaluations of a comparison, each of at most ``budget_s`` seconds."""

    def __init__(self, budget_s: float) -> None:
        self.budget_s = budget_s
        self._models: dict[str, Float64Model] = {}
        self._rates: dict[str, float] = {}

    def evaluate(
        self,
        participant: OnnxParticipant,
        feeds: Mapping[str, np.ndarray],
        watch: Watch | None = None,
        known: Known | None = None,
        perturbation: Perturbation | None = None,
        ties: Ties | None = None,
    ) -> Reference:
        """The participant in float64; raises ``ReferenceUnavailable`` where that is not possible or takes too long."""
        elements = max(sum(array.size for array in feeds.values()), 1)
        predicted = self._rates.get(participant.label, 0.0) * elements
        if predicted > self.budget_s:
            raise ReferenceUnavailable(f"it would take about {predicted:.0f} s, the budget is {self.budget_s:g} s")
        model = self.model(participant)
        found = evaluate_float64(model, feeds, None, self.budget_s, perturbation, watch, known, ties)
        if perturbation is None:
            self._rates[participant.label] = found.seconds / elements
        return found

    def model(self, participant: OnnxParticipant) -> Float64Model:
        """The participant's model; raises ``ReferenceUnavailable`` where it cannot be raised to float64."""
        name = str(participant.path)
        if name not in self._models:
            self._models[name] = Float64Model(participant.model, participant.path.absolute().parent)
        return self._models[name]
