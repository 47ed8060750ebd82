"""Lines, columns and names that fit a terminal without a word being broken."""

from __future__ import annotations

import pytest

from trtnorm_cli.report.columns import column_widths, gap_between, row_lines
from trtnorm_cli.report.short_names import shortened, shortened_apart
from trtnorm_cli.report.wrapping import longest_word, wrapped

SUMMARY = (
    "200 ELEMENTWISE, 154 CONSTANT, 28 MATRIX_MULTIPLY, 13 × LayerNormalization; rewrite 0.43 s, build 1.06 s (2.5e-07 of it, "
    "7% of what rounding explains) at most 48.9 MiB"
)


@pytest.mark.parametrize("width", range(30, 60, 3))
def test_a_number_stays_with_what_it_counts(width):
    lines = wrapped(SUMMARY, width)
    assert " ".join(line.strip() for line in lines) == SUMMARY
    assert all(len(line) <= width for line in lines)
    assert not any(line.split()[-1] in {"200", "154", "28", "13", "×", "0.43", "1.06", "7%", "48.9"} for line in lines)


def test_what_fits_stays_as_it_is():
    assert wrapped("  -    1.0 µs  kgen           a", 40) == ["  -    1.0 µs  kgen           a"]
    assert wrapped("", 10) == [""]


def test_wide_characters_count_twice():
    assert wrapped("模型 模型 模型", 10) == ["模型 模型", "  模型"]


def test_columns_share_what_there_is_and_break_no_word():
    rows = [("kernels", "71: 27 kgen, 23 gemm, 8 cast"), ("profile default", "x 1x3x64x64 / 2x3x64x64 / 4x3x64x64")]
    widths = column_widths(rows, 40)
    assert widths == [15, 23]
    assert [line for row in rows for line in row_lines(row, widths)] == [
        "kernels          71: 27 kgen, 23 gemm,", "                 8 cast", "profile default  x 1x3x64x64 / 2x3x64x64",
        "                 / 4x3x64x64",
    ]  # fmt: skip
    assert column_widths([("a" * 30, "b" * 30)], 40) is None


@pytest.mark.parametrize("quantity", ["302.5 KiB", "1.2 s", "-5 µs", "1e-07 s", "12 B"])
def test_a_column_is_as_wide_as_a_number_with_its_unit(quantity):
    """The last column of a batch had the number on one line, and its unit on the next."""
    rows = [("job", "state", "engine"), ("a-model/fp16", "built the second time", quantity)]
    widths = column_widths(rows, 24 + max(len(quantity), len("engine")))
    assert widths is not None
    assert widths[-1] == max(len(quantity), len("engine"))
    assert longest_word(f"at most {quantity}") == max(len(quantity), len("most"))
    assert longest_word("12 SLICE") == len("SLICE")


def test_a_table_that_is_a_little_too_wide_has_narrow_gaps():
    rows = [("default min", "1.0e-07", "ok"), ("at", "mean abs", "verdict")]
    assert [gap_between(rows, width) for width in (40, 30, 29, 28, 27)] == [2, 2, 1, 1, 2]


@pytest.mark.parametrize(("name", "width", "short"), [
    ("/model/encoder/layer.0/attention/output/LayerNorm", 49, "/model/encoder/layer.0/attention/output/LayerNorm"),
    ("/model/encoder/layer.0/attention/output/LayerNorm", 40, "/model/…/attention/output/LayerNorm"),
    ("/model/encoder/layer.0/attention/output/LayerNorm", 20, "…/output/LayerNorm"),
    ("layers.10.attention.query.norm", 22, "…attention.query.norm"),
    ("x" * 50 + "tail", 13, "xxxx…xxxxtail"),
])  # fmt: skip
def test_a_long_name_keeps_its_end_and_whole_parts(name, width, short):
    assert shortened(name, width) == short
    assert len(shortened(name, width)) <= width


def test_names_stay_different_when_they_are_shortened():
    names = [
        f"/module/encoder/layer.{n}/{part}output/LayerNorm/LayerNormalization" for n in (0, 1) for part in ("attention/", "")
    ]
    short = shortened_apart([*names, names[0]], 41)
    assert short == [
        "…/layer.0/attention/…/LayerNormalization", "…/layer.0/output/…/LayerNormalization",
        "…/layer.1/attention/…/LayerNormalization", "…/layer.1/output/…/LayerNormalization",
        "…/layer.0/attention/…/LayerNormalization",
    ]  # fmt: skip
    assert shortened_apart(names, 24) == names, "whole where nothing shorter tells them apart"
