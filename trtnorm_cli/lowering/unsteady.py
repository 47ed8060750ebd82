"""Find how far rounding in float32 alone moves the outputs of a model: no precision is to blame for that."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trtnorm_cli.compare.calibration import NoiseRuns
from trtnorm_cli.compare.float64_runs import Float64Runs
from trtnorm_cli.compare.participants import loaded_participant
from trtnorm_cli.evaluate.float64 import Perturbation, Reference, ReferenceUnavailable, Watch
from trtnorm_cli.evaluate.float64.perturbation import Moves
from trtnorm_cli.onnx_model.load import LoadedModel

_RUNS, _LONGEST_S = 2, 30.0


def moved_by_rounding(model: LoadedModel, feeds: Mapping[str, np.ndarray]) -> dict[str, float]:
    """The relative L2 by output that rounding each result of ``model`` to float32 moves it by.

    Evaluates it in float64 with drawn roundings. Nothing is known where that cannot be done in half a minute a run.
    """
    participant, exact = loaded_participant(model), Float64Runs(_LONGEST_S)

    def evaluate(perturbation: Perturbation, watch: Watch) -> Reference:
        return exact.evaluate(participant, feeds, watch, perturbation=perturbation)

    try:
        truth = exact.evaluate(participant, feeds).outputs
    except ReferenceUnavailable:
        return {}
    noise = NoiseRuns(evaluate, truth, float(np.finfo(np.float32).eps), Moves.ARITHMETIC).noise(_RUNS)
    return {name: max(one.relative_l2 for one in distances) for name, distances in noise.outputs.items()}
