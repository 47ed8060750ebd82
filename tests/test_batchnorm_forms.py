"""docs/batchnorm_forms.md is what benchmarks/batchnorm_forms.py makes of the forms; a few of its rows are made again here."""

from __future__ import annotations

import re

import onnx
import pytest

from benchmarks.batchnorm_form_list import forms
from benchmarks.batchnorm_forms import BOOK
from benchmarks.forms import Row, page, run

FORMS = {form.name: form for form in forms()}
LINES = BOOK.path.read_text(encoding="utf-8").splitlines()


def documented() -> dict[str, str]:
    rows = [line for line in LINES if line.startswith("| ") and not line.startswith("| form ")]
    return {line.split(" | ")[0].removeprefix("| "): line for line in rows}


def test_every_form_is_in_the_page_in_this_order():
    assert list(documented()) == list(FORMS)
    assert [line.removeprefix("## ") for line in LINES if line.startswith("## ")] == list(
        dict.fromkeys(f.section for f in FORMS.values())
    )


def test_nothing_in_the_page_is_left_unexplained():
    """Equal, with the rules that did it, or refused for a reason that the exit code stands for: profile, model or doubt.

    Only images and volumes of float32 stay, where nothing absorbs the BatchNormalization.
    """
    staying = {"of the outer graph, inside `If`", "data of rank 5", "between elementwise operators"}
    assert {name for name, line in documented().items() if line.split(" | ")[2] == "equal"} == staying
    for name, line in documented().items():
        outcome = line.split(" | ")[2]
        assert name in staying or re.match(r"equal(, with a warning)?: `|refused \(exit [234]\): \S", outcome), (
            f"{name}: {outcome}"
        )


def test_no_form_has_more_kernels_than_before():
    kernels = {name: line.rstrip(" |").split(" | ")[-1].split(" → ") for name, line in documented().items()}
    built = {name: (int(b), int(a)) for name, (b, a) in kernels.items() if b.isdigit() and a.isdigit()}
    assert len(built) >= 40
    assert [name for name, (before, after) in built.items() if after > before and "is_test=0" not in name] == []


def test_no_machine_is_named():
    assert not re.search(r"/tmp|/home|/root|trtnorm-forms", BOOK.path.read_text(encoding="utf-8"))


def test_the_models_are_small_and_named_uniquely():
    assert len(FORMS) == len(list(forms()))
    assert all(form.model.ByteSize() < 1 << 20 for form in FORMS.values())
    assert all(isinstance(form.model, onnx.ModelProto) for form in FORMS.values())


def test_a_page_is_made_of_rows():
    form = FORMS["initializers"]
    text = page(
        BOOK,
        [Row(form, "builds", 5, "equal", 3, ("rule-a", "rule-b"), 0), Row(form, "refused: x", None, "refused", None, (), 4)],
        "v1",
    )
    assert "## Where the parameters are" in text
    assert "| initializers | builds | equal: `rule-a`, `rule-b` | 5 → 3 |" in text
    assert "| initializers | refused: x | refused | – → – |" in text


@pytest.mark.rtx
@pytest.mark.parametrize("name", ["16 for 64", "parameters of shape [1]", "`training_mode=1`"])
def test_a_row_is_what_running_it_gives(name):
    assert run(FORMS[name], BOOK).markdown() == documented()[name]


@pytest.mark.rtx
@pytest.mark.slow
@pytest.mark.parametrize("name", FORMS)
def test_every_row_is_what_running_it_gives(name):
    assert run(FORMS[name], BOOK).markdown() == documented()[name]
