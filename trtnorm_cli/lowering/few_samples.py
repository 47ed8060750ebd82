"""Few samples of a batch, where the model looks at each by itself.

Random samples of one kind say the same about ranges and about rounding, and each costs a run's time: of a batch of 32 two are
looked at. That samples do not see each other is tried. The first and the last one have to give alone what they give among those
beside them, which are up to eight. A sequence whose first axis is time fails there, unless each position is looked at alone.
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
# Samples among which they are looked at, half of them next to the first and half next to the last.
_SEEN = 8
# Rounding moves less, and what other samples do moves more where it matters.
_EQUAL = 1e-3


class FewSamples:
    """Takes samples off trials of ``model``. ``run`` gives its outputs, and raises ``RunFailed`` where it has none."""

    def __init__(self, model: onnx.ModelProto, run: Callable[[Arrays], Arrays]) -> None:
        self._run = run
        self._inputs = model_inputs(model)
        self._are_apart: dict[frozenset[str], bool] = {}

    def share(self, trial: Trial) -> float:
        """How much of ``trial`` is run at most, to know, where it may have few samples. Draws nothing."""
        batched = self._batched(trial.shapes)
        most = MOST_SAMPLES if self._are_apart.get(batched, False) else _SEEN
        return min(1.0, most / trial.shapes[min(batched)][0]) if batched and self._are_apart.get(batched, True) else 1.0

    def of(self, trial: Trial) -> Trial:
        """``trial`` with the first and the last of its samples, where these are looked at one by one; or as it is."""
        batched = self._batched(trial.shapes)
        if not batched:
            return trial
        feeds = trial.feeds
        if batched not in self._are_apart:
            self._are_apart[batched] = self._look_apart(feeds, batched)
        if not self._are_apart[batched]:
            return trial
        label = f"{trial.label}, {MOST_SAMPLES} of {len(feeds[min(batched)])} samples"
        return replace(trial, label=label, feeds=_samples(feeds, batched, [0, -1]))

    def are_of_one_kind(self, few: Trial, other: Trial) -> bool:
        """True where both have the same sizes, and the same numbers where these are no data: they may be sizes as well."""
        batched = self._batched(few.shapes, fewest=1)
        fixed = [name for name, value in few.feeds.items() if name not in batched and value.dtype.kind != "f"]
        return few.shapes == other.shapes and all(np.array_equal(few.feeds[name], other.feeds[name]) for name in fixed)

    def _batched(self, shapes: Mapping[str, tuple[int, ...]], fewest: int = MOST_SAMPLES + 1) -> frozenset[str]:
        """The inputs whose first axis alone may have another length; none where it is short, or another axis has it too."""
        leading = {
            name: kind.shape[0]
            for name, kind in self._inputs.items()
            if name in shapes and kind.shape and not isinstance(kind.shape[0], int)
        }
        inner = {size for kind in self._inputs.values() for size in (kind.shape or ())[1:] if isinstance(size, str)}
        lengths = {shapes[name][0] for name in leading}
        is_one_axis = len(set(leading.values())) == len(lengths) == 1 and inner.isdisjoint(leading.values())
        return frozenset(leading) if is_one_axis and min(lengths) >= fewest else frozenset()

    def _look_apart(self, feeds: Arrays, batched: frozenset[str]) -> bool:
        count = len(feeds[min(batched)])
        beside = list(range(count)) if count <= _SEEN else [*range(_SEEN // 2), *range(count - _SEEN // 2, count)]
        try:
            alone = [self._run(_samples(feeds, batched, [one])) for one in (0, -1)]
            among = self._run(_samples(feeds, batched, beside))
        except RunFailed:
            return False
        return all(_is_sample(place, len(beside), among, one) for place, one in zip((0, len(beside) - 1), alone, strict=True))


def _samples(feeds: Arrays, batched: frozenset[str], chosen: list[int]) -> Mapping[str, np.ndarray]:
    return {name: value[chosen] if name in batched else value for name, value in feeds.items()}


def _is_sample(place: int, count: int, among: Arrays, alone: Arrays) -> bool:
    """True where the sample at ``place`` of the outputs of ``count`` samples is what it is ``alone``."""
    if any(value.ndim == 0 or len(value) != count for value in among.values()):
        return False
    own = {name: value[[place]] for name, value in among.items()}
    if any(
        value.dtype.kind == "f" and not np.array_equal(np.isfinite(value), np.isfinite(alone[name]))
        for name, value in own.items()
    ):
        return False
    errors = output_errors(own, alone)
    return max([*errors.relative.values(), *errors.differing.values()], default=0.0) <= _EQUAL
