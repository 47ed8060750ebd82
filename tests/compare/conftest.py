"""Counts of what comparisons evaluate."""

from __future__ import annotations

from collections import Counter

import pytest

from trtnorm_cli.compare import float64_runs
from trtnorm_cli.evaluate.float64.kernels import KERNELS


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
