"""docs/normalization_forms.md is what benchmarks/normalization_forms.py makes of the forms; a few rows are made again."""

from __future__ import annotations

import re

import onnx
import pytest

from benchmarks.forms import Row, page, run
from benchmarks.normalization_form_list import forms
from benchmarks.normalization_forms import BOOK

FORMS = {f"{form.section}: {form.name}": form for form in forms()}
TEXT = BOOK.path.read_text(encoding="utf-8")
FAST = [
    "InstanceNormalization: 1×1 behind GlobalAveragePool, dynamic N, H, W",
    "InstanceNormalization: dynamic C, profile of another C",
    "GroupNormalization: 1 group of 8 channels, opset 21",
    "GroupNormalization: 1 group of 8 channels, opset 18",
    "LayerNormalization: mean is used",
    "LRN: size 4",
    "Parameters that do not fit the channels: group, one value per group in opset 21",
]
# Not valid ONNX: ONNX Runtime happens to broadcast the one value in the function that the operator stands for.
BROADCAST = {"GroupNormalization: one group, one parameter of run time for all channels"}
# What ONNX Runtime runs and is refused all the same, each with its reason: the result is not a number.
NOT_A_NUMBER = {name for name in FORMS if re.search("NaN|infinite", name)}


def documented() -> dict[str, list[str]]:
    """The cells of each row, by section and name."""
    rows: dict[str, list[str]] = {}
    section = ""
    for line in TEXT.splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        elif line.startswith("| ") and not line.startswith("| form "):
            cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            rows[f"{section}: {cells[0]}"] = cells
    return rows


def test_every_form_is_in_the_page_in_this_order():
    assert list(documented()) == list(FORMS)
    assert len(FORMS) == len(list(forms()))


def test_nothing_in_the_page_is_left_unexplained():
    """Either equal, or refused by trtnorm itself before TensorRT says anything: model, or a profile that contradicts it."""
    for name, (_, _, _, outcome, _) in documented().items():
        assert re.match(r"equal(, with a warning)?(: `|$)|refused \(exit [234]\): \S", outcome), f"{name}: {outcome}"


def test_what_onnxruntime_runs_is_built_and_equal():
    refused = {name for name, cells in documented().items() if cells[1] == "runs" and not cells[3].startswith("equal")}
    assert refused == BROADCAST | {name for name in FORMS if "profile of " in name}
    not_a_number = {name for name, cells in documented().items() if cells[1] == "runs, not a number"}
    assert {name for name in not_a_number if not documented()[name][3].startswith("equal")} == NOT_A_NUMBER


def test_what_tensorrt_computes_wrongly_is_put_right():
    wrong = {name for name, cells in documented().items() if "builds, wrong" in cells[2]}
    assert len(wrong) >= 20
    assert {name for name in wrong if not documented()[name][3].startswith("equal")} == BROADCAST


def test_no_form_has_more_kernels_than_before():
    """Unless what was built before was wrong, or no valid model."""
    rows = {name: (cells[4].split(" → "), "wrong" in cells[2] or cells[1] == "refuses") for name, cells in documented().items()}
    built = {name: (int(b), int(a)) for name, ((b, a), unsound) in rows.items() if b.isdigit() and a.isdigit() and not unsound}
    assert len(built) >= 150
    assert [name for name, (before, after) in built.items() if after > before] == []


def test_no_machine_is_named():
    assert not re.search(r"/tmp|/home|/root|trtnorm-forms", TEXT)


def test_the_models_are_small():
    assert all(form.model.ByteSize() < 1 << 20 for form in FORMS.values())
    assert all(isinstance(form.model, onnx.ModelProto) for form in FORMS.values())


def test_a_row_says_what_onnxruntime_does():
    form = FORMS["LRN: size 4"]
    text = page(BOOK, [Row(form, "builds", 5, "equal", 3, ("rule-a",), 0, "refuses")], "v1")
    assert "| form | ONNX Runtime | as it is | with trtnorm | kernels |" in text
    assert "| size 4 | refuses | builds | equal: `rule-a` | 5 → 3 |" in text


@pytest.mark.rtx
@pytest.mark.parametrize("name", FAST)
def test_a_row_is_what_running_it_gives(name):
    assert run(FORMS[name], BOOK).markdown() in TEXT.splitlines()


@pytest.mark.rtx
@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_every_row_is_what_running_it_gives(name):
    assert run(FORMS[name], BOOK).markdown() in TEXT.splitlines()
