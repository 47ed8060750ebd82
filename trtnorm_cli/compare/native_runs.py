"""Runs in ONNX Runtime, which go on in its process while this one evaluates in float64."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from trtnorm_cli.compare.participants import OnnxParticipant
from trtnorm_cli.compare.result import Outputs
from trtnorm_cli.evaluate.model_file import resized
from trtnorm_cli.evaluate.ort_runner import AskedRuns, OrtRunner, RunFailed
from trtnorm_cli.progress import stage

# Sessions of larger models are closed after each run: they hold their weights once more.
_MOST_HELD_BYTES = 1 << 27


class NativeRuns:
    """Asks for runs and waits for them in the same order; ``used_s`` are the processor's seconds of those waited for."""

    def __init__(self, runner: OrtRunner) -> None:
        self.runner = runner
        self.used_s = 0.0

    def ask(self, participant: OnnxParticipant, feeds: Mapping[str, np.ndarray]) -> AskedRuns:
        """Begin to run ``participant`` after what was asked before."""
        nodes = len(participant.model.graph.node)
        if not participant.is_resized:
            return self.runner.begin(participant.path, feeds, hold=_is_small(participant), nodes=nodes)
        shapes = {name: array.shape for name, array in feeds.items()}
        source, folder = resized(participant.model, shapes, participant.path) or (None, participant.path.parent)
        return self.runner.begin(folder / participant.path.name, feeds, source=source, nodes=nodes)

    def outputs(
        self,
        asked: AskedRuns,
        participant: OnnxParticipant,
        feeds: Mapping[str, np.ndarray],
        limit_s: float | None,
        again: bool,
    ) -> Outputs:
        """The result of a run; raises ``RunFailed``. With ``again`` a process that was killed, starts once more."""
        with stage("run") as told:
            told.at(participant.label)
            try:
                return self._waited(asked, limit_s)
            except RunFailed as error:
                if not asked.is_lost and (error.signal is None or not again):
                    raise
            return self._waited(self.ask(participant, feeds), limit_s)

    def _waited(self, asked: AskedRuns, limit_s: float | None) -> Outputs:
        if limit_s is not None:
            asked.limit_s = min(asked.limit_s, limit_s)
        try:
            return asked.results()[0]
        finally:
            self.used_s += asked.processor_s


def _is_small(participant: OnnxParticipant) -> bool:
    """True when the file, with those of its external data, is small."""
    folder = participant.path.parent
    external = (entry for tensor in participant.model.graph.initializer for entry in tensor.external_data)
    names = {participant.path.name, *(entry.value for entry in external if entry.key == "location")}
    files = {(folder / name).resolve() for name in names}
    return sum(file.stat().st_size for file in files if file.is_file()) <= _MOST_HELD_BYTES
