from __future__ import annotations

from collections import Counter

import pytest

from trtnorm_cli.evaluate.float64.kernels import KERNELS


@pytest.fixture
def evaluated(monkeypatch) -> Counter[str]:
    """How often a kernel ran, by operator."""
    count: Counter[str] = Counter()

    def counting(operator, kernel):
        def run(call):
            count[operator] += 1
            return kernel(call)

        return run

    for operator, kernel in list(KERNELS.items()):
        monkeypatch.setitem(KERNELS, operator, counting(operator, kernel))
    return count
