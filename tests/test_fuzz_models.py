"""Some of the models that ``make fuzz`` mutates: each is read and planned, or refused with one clear error."""

from __future__ import annotations

import pytest

from benchmarks.fuzz_models import mutated, problem


@pytest.mark.parametrize("first", range(0, 60, 15))
def test_mutated_models_end_well(tmp_path, first):
    found = {seed: text for seed in range(first, first + 15) if (text := problem(mutated(seed), tmp_path))}
    assert not found


def test_a_seed_is_a_model():
    assert mutated(7) == mutated(7)
    assert len({mutated(seed).SerializeToString() for seed in range(20)}) > 15
