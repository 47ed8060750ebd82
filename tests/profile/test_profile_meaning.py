"""``training_mode`` and ``mismatch``: what is taken, and every mistake with its line and the nearest right name."""

from __future__ import annotations

from typing import get_args

import pytest

from tests.profile.texts import printed, refused
from trtnorm_cli.errors import ProfileError
from trtnorm_cli.profile.load import parse_profile
from trtnorm_cli.profile.model import BuildProfile, json_schema
from trtnorm_cli.profile.names import refuse_unknown_names
from trtnorm_cli.profile.rewriting import READINGS, TrainingMode


def test_the_defaults() -> None:
    assert BuildProfile().training_mode == "as-written"
    assert BuildProfile().mismatch == {}


@pytest.mark.parametrize("mode", get_args(TrainingMode))
def test_every_training_mode(mode: str) -> None:
    assert parse_profile(f"training_mode: {mode}").training_mode == mode


@pytest.mark.parametrize("reading", READINGS)
def test_every_reading(reading: str) -> None:
    profile = parse_profile(f'mismatch: {{"/layer1/bn/BatchNormalization": {reading}}}')
    assert profile.mismatch == {"/layer1/bn/BatchNormalization": reading}
    assert BuildProfile.model_validate(profile.model_dump(mode="json")) == profile


def test_an_unknown_training_mode() -> None:
    error = refused("optimization_profiles: []\ntraining_mode: evaluation")
    assert error.where == "cfg.yaml:2: training_mode"
    assert error.summary == "expected 'as-written', 'eval' or 'refuse', got the text 'evaluation'"


@pytest.mark.parametrize(
    ("reading", "meant"),
    [
        ("repeat_per_group", "repeat-per-group"),
        ("axis 2", "axis-2"),
        ("take_the_head", "take-head"),
        ("checkpiont", "checkpoint"),
    ],
)
def test_an_unknown_reading_is_answered_with_the_nearest(reading: str, meant: str) -> None:
    error = refused(f"optimization_profiles: []\nmismatch:\n  bn1: {reading}")
    assert error.where == "cfg.yaml:3: mismatch.bn1"
    assert error.summary == f"{reading!r} is no reading of parameters; did you mean {meant!r}?"
    assert error.hint is not None
    assert all(name in error.hint for name in READINGS)


def test_a_reading_that_is_like_none() -> None:
    assert refused("mismatch: {bn1: 7}").summary == "expected a text, got 7"
    assert refused("mismatch: {bn1: zzz}").summary == "'zzz' is no reading of parameters"
    assert "expected a mapping" in refused("mismatch: repeat-per-group").summary


def test_unknown_nodes_are_refused_with_the_nearest() -> None:
    profile = parse_profile("mismatch:\n  /layer1/bn/BatchNorm: tile\n  bn9: tile", "cfg.yaml")
    with pytest.raises(ProfileError) as caught:
        refuse_unknown_names(profile, normalizations=["/layer1/bn/BatchNormalization", "other"])
    lines = printed(caught.value)
    assert lines == [
        "cfg.yaml:2: mismatch.\"/layer1/bn/BatchNorm\": the model has no normalization '/layer1/bn/BatchNorm'; "
        "did you mean '/layer1/bn/BatchNormalization'?",
        "cfg.yaml:3: mismatch.bn9: the model has no normalization 'bn9'",
    ]
    assert caught.value.hint == "normalizations of the model: /layer1/bn/BatchNormalization, other"
    refuse_unknown_names(profile, normalizations=["/layer1/bn/BatchNorm", "bn9"])
    refuse_unknown_names(profile)


def test_the_schema_lists_what_is_legal() -> None:
    properties = json_schema()["properties"]
    assert properties["training_mode"]["enum"] == list(get_args(TrainingMode))
    assert properties["mismatch"]["additionalProperties"]["enum"] == list(READINGS)
    assert all(properties[name]["description"] for name in ("training_mode", "mismatch"))
