"""Few samples of a batch, where the model looks at each by itself.

Random samples of one kind say the same about ranges and about rounding, and each costs a run's time: of a batch of 32 two are
looked at. That samples do not see each other is tried. The first and the last one have to give alone what they give together. A
sequence whose first axis is time fails there, unless its positions are looked at one by one as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import onnx

from trtnorm_cli.compare.result import Trial
from trtnorm_cli.evaluate.ort_runner import RunFailed
from trtnorm_cli.onnx_model.shapes import model_inputs
from trtnorm_cli.precision.output_errors import Arrays, output_errors

MOST_SAMPLES = 2
# Rounding moves less, and what other samples do moves more where it matters.
_EQUAL = 1e-3


class FewSamples:
    """Takes samples off trials of ``model``. ``run`` gives its outputs, and raises ``RunFailed`` where it has none."""

    def __init__(self, model: onnx.ModelProto, run: Callable[[Arrays], Arrays]) -> None:
        self._run = run
        self._inputs = model_inputs(model)
        self._are_apart: dict[frozenset[str], bool] = {}

    def of(self, trial: Trial) -> Trial:
        """``trial`` with the first and the last of its samples, where these are looked at one by one; or as it is."""
        feeds = trial.feeds
        batched = self._batched(feeds)
        if not batched:
            return trial
        if batched not in self._are_apart:
            self._are_apart[batched] = self._look_apart(feeds, batched)
        if not self._are_apart[batched]:
            return trial
        samples = len(feeds[min(batched)])
        label = f"{trial.label}, {MOST_SAMPLES} of {samples} samples"
        return replace(trial, label=label, feeds=_samples(feeds, batched, [0, -1]))

    def _batched(self, feeds: Arrays) -> frozenset[str]:
        """The inputs whose first axis alone may have another length; none where it is short, or another axis has it too."""
        leading = {
            name: kind.shape[0]
            for name, kind in self._inputs.items()
            if name in feeds and kind.shape and not isinstance(kind.shape[0], int)
        }
        inner = {size for kind in self._inputs.values() for size in (kind.shape or ())[1:] if isinstance(size, str)}
        lengths = {len(feeds[name]) for name in leading}
        is_one_axis = len(set(leading.values())) == len(lengths) == 1 and inner.isdisjoint(leading.values())
        return frozenset(leading) if is_one_axis and min(lengths) > MOST_SAMPLES else frozenset()

    def _look_apart(self, feeds: Arrays, batched: frozenset[str]) -> bool:
        try:
            alone = [self._run(_samples(feeds, batched, [one])) for one in (0, -1)]
            together = self._run(_samples(feeds, batched, [0, -1]))
        except RunFailed:
            return False
        return all(_is_sample(place, together, one) for place, one in enumerate(alone))


def _samples(feeds: Arrays, batched: frozenset[str], chosen: list[int]) -> Mapping[str, np.ndarray]:
    return {name: value[chosen] if name in batched else value for name, value in feeds.items()}


def _is_sample(place: int, together: Arrays, alone: Arrays) -> bool:
    """True where the sample at ``place`` of the outputs ``together`` is what it is ``alone``."""
    if any(value.ndim == 0 or len(value) != MOST_SAMPLES for value in together.values()):
        return False
    errors = output_errors({name: value[[place]] for name, value in together.items()}, alone)
    return max([*errors.relative.values(), *errors.differing.values()], default=0.0) <= _EQUAL
