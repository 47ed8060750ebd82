"""docs/cost_model.md is what the measurements and the model say, and the model agrees with them about as well as it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.cost_check.cases import cases
from benchmarks.cost_check.compare import GENERATED, LOOPED, Timed, agreement, order, read
from benchmarks.cost_check.page import MEASURED, page

DOCUMENT = Path(__file__).parents[2] / "docs" / "cost_model.md"


@pytest.fixture(scope="module")
def timed() -> list[Timed]:
    return read(MEASURED)


def test_every_case_was_measured(timed):
    assert [t.case for t in timed] == cases()


def test_the_page_is_up_to_date():
    hint = "python -m benchmarks.cost_check.page docs/cost_model.md"
    assert DOCUMENT.read_text(encoding="utf-8") == page(), hint


def test_generated_kernels_take_what_is_estimated(timed):
    found = agreement([t for t in timed if t.case.form in GENERATED], launched=True)
    assert found.spearman > 0.97
    assert 0.9 < found.middle < 1.15


def test_a_block_a_row_takes_what_is_estimated_where_rows_are_long(timed):
    chosen = [t for t in timed if t.case.form in LOOPED and t.case.shape[1] >= 65536 and t.case.dtype == "float32"]
    assert len(chosen) > 40
    found = agreement(chosen, launched=True)
    assert found.spearman > 0.97
    assert 0.7 < found.low < found.high < 1.4


def test_waiting_orders_forms_that_bytes_do_not(timed):
    from benchmarks.cost_check.page import BYTES_ALONE

    forms = [t for t in timed if t.case.form in (*GENERATED, *LOOPED) and t.case.shape[-1] >= 65536]
    model, alone = (order(forms, way) for way in (lambda t: t.estimated(launched=True), lambda t: t.estimated(BYTES_ALONE)))
    assert model.right / (model.right + model.wrong) > 0.9
    assert alone.right / (alone.right + alone.wrong) < 0.7
