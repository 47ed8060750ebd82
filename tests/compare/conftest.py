"""Comparisons of models in memory, and counts of what they evaluate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import onnx
import pytest

from tests.models import saved
from trtnorm_cli.compare import float64_runs
from trtnorm_cli.compare.participants import OnnxParticipant, onnx_participant
from trtnorm_cli.compare.result import Comparison
from trtnorm_cli.compare.session import Session, build_settings, judge_session
from trtnorm_cli.evaluate.float64.kernels import KERNELS
from trtnorm_cli.profile.fit import fit
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.profile.model_input import inputs_of
from trtnorm_cli.profile.prove import prove


@pytest.fixture
def runs(monkeypatch) -> Counter[str]:
    """Float64 runs, plain and perturbed, and products that were computed in them."""
    count: Counter[str] = Counter()

    def evaluate(model, feeds, outputs, budget_s, perturbation, watch, known, ties, kept, free_values, work):
        count["plain" if perturbation is None else "perturbed"] += 1
        return original(model, feeds, outputs, budget_s, perturbation, watch, known, ties, kept, free_values, work)

    def matmul(call):
        count["products"] += 1
        return product(call)

    original, product = float64_runs.Evaluation, KERNELS["MatMul"]
    monkeypatch.setattr(float64_runs, "Evaluation", evaluate)
    monkeypatch.setitem(KERNELS, "MatMul", matmul)
    return count


@pytest.fixture
def compared(tmp_path) -> Callable[..., Comparison]:
    """Holds candidates to a reference, as a build does, whatever they take but for ``budget_s`` (None for no bound)."""

    def participant(model: onnx.ModelProto, label: str) -> OnnxParticipant:
        return replace(onnx_participant(saved(model, tmp_path / f"{label}.onnx"), label), shares_tensors=True)

    def run(
        reference: onnx.ModelProto,
        *candidates: onnx.ModelProto,
        may_be_smaller: bool = True,
        is_unchanged: bool = False,
        budget_s: float | None = 1e9,
        profile: BuildProfile | None = None,
    ) -> Comparison:
        made = [participant(model, f"candidate {number}") for number, model in enumerate(candidates)]
        settings = replace(build_settings(None, 0, lambda: budget_s, 60), may_be_smaller=may_be_smaller)
        if budget_s is None:
            settings = replace(settings, options=replace(settings.options, total_budget_s=None))
        proof = prove(reference, inputs := inputs_of(reference), None, fit(None, inputs), False) if is_unchanged else None
        return judge_session(
            Session(participant(reference, "m"), made, proof=proof, is_unchanged=is_unchanged), profile, settings
        )

    return run
