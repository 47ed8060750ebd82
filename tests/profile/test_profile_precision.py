"""``precision``: what is taken, and every mistake with what to do."""

from __future__ import annotations

import math

import pytest

from tests.profile.texts import refused
from trtnorm_cli.profile.load import parse_profile
from trtnorm_cli.profile.model import BuildProfile, json_schema
from trtnorm_cli.profile.precision import PrecisionSettings
from trtnorm_cli.profile.rewriting import PRECISIONS


def test_the_default_changes_nothing() -> None:
    assert BuildProfile().precision == PrecisionSettings(type="as-written")


@pytest.mark.parametrize(
    ("text", "settings", "limit"),
    [
        ("precision: fp16", PrecisionSettings(type="fp16"), 1e-2),
        ("precision: bf16", PrecisionSettings(type="bf16"), 5e-2),
        ("precision: {type: fp16, max_error: 1e-3}", PrecisionSettings(type="fp16", max_error=1e-3), 1e-3),
        ("precision: {type: fp32, io: keep}", PrecisionSettings(type="fp32", io="keep"), math.inf),
    ],
)
def test_a_type_alone_or_with_what_goes_with_it(text: str, settings: PrecisionSettings, limit: float) -> None:
    precision = parse_profile(text).precision
    assert precision == settings
    assert precision.limit == limit


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("precision: f16", "did you mean 'fp16'?", "one of as-written, fp16, bf16, fp32"),
        ("precision: {type: int8}", "expected 'as-written', 'fp16', 'bf16' or 'fp32', got the text 'int8'", None),
        ("precision: {io: low}", "has no effect where the type is as-written: io", "give type: fp16, bf16 or fp32"),
        ("precision: {type: fp16, max_error: 0}", "0 is not above 0", None),
        ("precision: {type: fp16, max_eror: 1}", "did you mean 'max_error'?", None),
        ("precision: {type: fp16, keep_fp32: [a]}", "expected a mapping, got a list of 1", "its keys are nodes, operators"),
        ("keep_fp32: {nodes: [a]}", "it belongs in 'precision'", None),
    ],
)
def test_mistakes(text: str, message: str, hint: str | None) -> None:
    error = refused(text)
    assert message in error.summary
    assert error.hint == hint


def test_the_schema_takes_a_type_alone() -> None:
    assert {"enum": list(PRECISIONS), "type": "string"} in json_schema()["$defs"]["PrecisionSettings"]["anyOf"]
