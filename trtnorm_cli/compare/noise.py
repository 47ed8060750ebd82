"""The noise of the networks in a comparison, measured when somebody asks for it, and no more runs of it than decide."""

from __future__ import annotations

from collections.abc import Hashable

import onnx

from trtnorm_cli.compare.calibration import Noise, NoiseRuns, RunNoise
from trtnorm_cli.compare.float64_runs import Float64Runs
from trtnorm_cli.compare.participants import ModuleParticipant, OnnxParticipant, RunnableReference
from trtnorm_cli.compare.trial_run import Attempt, Pairing, TrialRun
from trtnorm_cli.compare.verdict import ARITHMETIC, CONSTANTS, FUNCTIONS, NoiseOf
from trtnorm_cli.evaluate.float64 import Perturbation, Reference, ReferenceUnavailable, Watch
from trtnorm_cli.evaluate.float64.perturbation import Constant, Moves
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.onnx_model.walk import all_graphs

_MOVES = {CONSTANTS: Moves.CONSTANTS, ARITHMETIC: Moves.ARITHMETIC, FUNCTIONS: Moves.FUNCTIONS}
# What decides between right and wrong may take longer than one float64 run, in such budgets.
_PATIENCE = 3.0
_ROUND_TO_STEPS = frozenset(("DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul", "QuantizeLinear", "Round"))
# A run on inputs that move by half of this changes the step of a few values in a hundred.
_STEPS_ULP = 2.0**-11


class NoiseMeter:
    """Measures noise by trial, kind and unit; what was measured is remembered."""

    def __init__(self, reference: RunnableReference, exact: Float64Runs, runner: OrtRunner) -> None:
        self._reference, self._exact, self._runner = reference, exact, runner
        self._has_steps = not isinstance(reference, ModuleParticipant) and _rounds_to_steps(reference.model)
        self._measured: dict[tuple[str, str, float], NoiseRuns | RunNoise | Noise] = {}

    def of_output(self, attempt: Attempt, name: str, ulp: float) -> NoiseOf:
        """Noise of the output ``name`` by kind and number of runs, measured when it is asked for."""
        return lambda kind, runs: self.measured(attempt, kind, ulp, runs).outputs.get(name, [])

    def measured(self, attempt: Attempt, kind: str, ulp: float, runs: int, names: frozenset[str] = frozenset()) -> Noise:
        """The reference's own noise, that of its export where the reference is a module; of inner tensors, that of ``names``.

        How functions are approximated is the candidate's: ONNX Runtime's Sigmoid near 0, say, of which no reference that
        spells it otherwise knows.
        """
        run = attempt.run
        if run.truth is not None and run.float64_s * runs > _PATIENCE * self._exact.budget_s:
            return self._of_steps(run, ulp, runs) if kind == ARITHMETIC and self._has_steps else Noise()
        of_candidate = kind == FUNCTIONS or isinstance(self._reference, ModuleParticipant)
        subject = f"{kind} of {attempt.candidate.label}" if of_candidate else kind if attempt.follows else f"{kind}, any side"
        key = (f"{run.trial.label}{'' if run.truth is None else ', float64'}", subject, ulp)
        found = self._measured.get(key)
        if found is None or (isinstance(found, NoiseRuns) and not names <= found.names):
            found = (
                self._of_candidate(attempt, kind, ulp)
                if of_candidate
                else self._of_reference(run, kind, ulp, names, attempt.follows)
            )
            self._measured[key] = found
        if isinstance(found, Noise):
            return found
        return _renamed(found.noise(runs), attempt.pairing) if of_candidate else found.noise(runs)

    def _of_reference(
        self, run: TrialRun, kind: str, ulp: float, names: frozenset[str], follows: bool
    ) -> NoiseRuns | RunNoise | Noise:
        reference = self._reference
        assert not isinstance(reference, ModuleParticipant)
        if run.truth is None:
            return self._runs(run, ulp)

        def evaluate(perturbation: Perturbation, watch: Watch) -> Reference:
            return self._exact.evaluate(reference, run.trial.feeds, watch, run.known, perturbation)

        if kind == CONSTANTS:
            held = _held_by_all(run)

            def kept(value: Constant) -> bool:
                return run.known.identity(value) in held

            def following(perturbation: Perturbation, watch: Watch) -> Reference:
                return evaluate(perturbation, lambda name, value: watch(name, run.ties.follow(name, value)))

            return NoiseRuns(
                following if follows else evaluate, run.truth, ulp, _MOVES[kind], kept, run.inner, names, not follows
            )
        return NoiseRuns(evaluate, run.truth, ulp, _MOVES[kind])

    def _of_steps(self, run: TrialRun, ulp: float, runs: int) -> Noise:
        """The noise by runs, where float64 takes too long to decide ties otherwise."""
        key = (f"{run.trial.label}, runs", ARITHMETIC, ulp)
        found = self._measured.setdefault(key, self._runs(run, ulp))
        assert isinstance(found, RunNoise)
        return found.noise(runs)

    def _runs(self, run: TrialRun, ulp: float) -> RunNoise:
        """Runs of the reference on other inputs: of one that rounds to steps, so far away that some values change theirs.

        Few lie next to a tie, and no run need fall on the other side of one where the candidate does.
        """
        assert not isinstance(self._reference, ModuleParticipant)
        moved = max(ulp, _STEPS_ULP) if self._has_steps else ulp
        return RunNoise(self._runner, self._reference.path, run.trial.feeds, run.native, moved)

    def _of_candidate(self, attempt: Attempt, kind: str, ulp: float) -> NoiseRuns | Noise:
        candidate, run = attempt.candidate, attempt.run
        if not isinstance(candidate, OnnxParticipant):
            return Noise()

        def evaluate(perturbation: Perturbation | None, watch: Watch | None) -> Reference:
            return self._exact.evaluate(candidate, attempt.feeds, watch, run.known, perturbation)

        try:
            truth = evaluate(None, None).outputs
        except ReferenceUnavailable:
            return Noise()
        return NoiseRuns(evaluate, truth, ulp, _MOVES[kind])


def _rounds_to_steps(model: onnx.ModelProto) -> bool:
    return any(node.op_type in _ROUND_TO_STEPS for graph in all_graphs(model.graph) for node in graph.node)


def _held_by_all(run: TrialRun) -> frozenset[Hashable]:
    """Constants that every candidate holds as they are: no rounding of them can make a difference."""
    held = [attempt.constants for attempt in run.attempts if attempt.constants is not None]
    return frozenset.intersection(*held) if held else frozenset()


def _renamed(noise: Noise, pairing: Pairing) -> Noise:
    """Noise of a candidate's outputs under the reference's names."""
    ours = {theirs: name for name, theirs in pairing.outputs.items()}
    return Noise({ours[name]: distances for name, distances in noise.outputs.items() if name in ours})
