"""Modules of well-known networks: every normalization is found, and none takes more kernels than before."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch")

from benchmarks.normalization_kernels import outcome
from benchmarks.normalization_modules import EXAMPLES

PAGE = Path(__file__).parents[1] / "docs" / "normalization_kernels.md"
ROWS = [line.strip("| \n").split(" | ") for line in PAGE.read_text(encoding="utf-8").splitlines() if " → " in line]


@pytest.mark.torch
def test_the_page_has_every_module_from_both_exporters():
    assert {row[0] for row in ROWS} == set(EXAMPLES)
    for name in EXAMPLES:
        assert {row[1] for row in ROWS if row[0] == name} >= {"dynamo 20", "dynamo 21", "torchscript 11", "torchscript 17"}


@pytest.mark.torch
def test_the_page_has_none_that_is_worse():
    for name, export, norms, *_, kernels, verdict in ROWS:
        before, after = map(int, re.findall(r"\d+", kernels))
        assert after <= before, (name, export)
        assert verdict == "equal", (name, export)
        assert "found" not in norms, (name, export)


@pytest.mark.slow
@pytest.mark.torch
@pytest.mark.rtx
@pytest.mark.parametrize("export", [("torchscript", 11), ("torchscript", 17), ("dynamo", 20), ("dynamo", 21)])
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_normalization_is_found_and_none_takes_more_kernels(name, export):
    found = outcome(EXAMPLES[name], *export)
    assert found.problem == ""
    assert found.norms == EXAMPLES[name].norms
    assert found.kernels[1] <= found.kernels[0]
    assert found.compared
