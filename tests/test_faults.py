"""A few of the faults of docs/faults.md, on a small model. `make torture` tries all of them on ResNet-18."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.torture import page
from benchmarks.torture_cases import cases
from benchmarks.torture_run import Arena, Outcome, earlier_pair, tried
from tests.models import parse, saved

MODEL = "g (float[1, 8, 16, 16] x) => (float[1, 8, 16, 16] y) { r = Relu(x) y = Sigmoid(r) }"
CASES = {f"{case.kind}, {case.label}": case for case in cases()}
QUICK = [
    "SIGKILL, placing",
    "Ctrl-C twice, placing",
    "leftovers of a killed run, folders and a lock",
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory) -> tuple[Path, Path, dict[str, Path]]:
    folder = tmp_path_factory.mktemp("faults")
    model, profile = saved(parse(MODEL), folder / "model.onnx"), folder / "cfg.yaml"
    profile.write_text("optimize: auto\n")
    return model, profile, earlier_pair(model, profile, folder / "earlier")


@pytest.mark.rtx
@pytest.mark.parametrize("name", QUICK)
def test_a_fault(tmp_path, sources, name):
    model, profile, earlier = sources
    outcome = tried(CASES[name], Arena.made(tmp_path / "case", model, profile, earlier))
    if outcome.skipped is not None:
        pytest.skip(outcome.skipped)
    assert outcome.problems == (), outcome.said


def test_every_case_has_a_name_of_its_own():
    assert len(CASES) == len(list(cases()))


def test_the_page_names_what_broke_and_what_was_not_tried():
    outcomes = [
        Outcome("SIGKILL", "build", "ended by SIGKILL", ("2 processes run on",)),
        Outcome("SIGKILL", "compare", "ended by SIGKILL"),
        Outcome("full disk", "1 MiB", "", skipped="mounting a disk takes root"),
    ]
    text = page(outcomes, "resnet18", "onnx 1")
    assert "| SIGKILL | 2 | build; compare | ended by SIGKILL |" in text
    assert "2 tries, 1 of which broke one of these promises." in text
    assert "- SIGKILL, build: 2 processes run on" in text
    assert "- not tried: full disk, 1 MiB: mounting a disk takes root" in text


def test_the_page_in_the_documents_has_every_kind():
    text = (Path(__file__).parents[1] / "docs" / "faults.md").read_text(encoding="utf-8")
    assert [case.kind for case in CASES.values() if f"| {case.kind} |" not in text] == []
