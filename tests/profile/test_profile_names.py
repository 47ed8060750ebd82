"""Names of outputs and rules in a build profile, and near misses in general."""

from __future__ import annotations

import pytest

from tests.profile.texts import printed
from trtnorm_cli.errors import ProfileError
from trtnorm_cli.profile.load import parse_profile
from trtnorm_cli.profile.names import refuse_unknown_names
from trtnorm_cli.suggest import did_you_mean, listing, nearest

PROFILE = parse_profile("tolerances: {default: {atol: 1}, logit: {atol: 1}}\nrules: {skip: [fold-batchnorm-cnov]}", "cfg.yaml")


def test_unknown_outputs_and_rules_are_refused_together() -> None:
    with pytest.raises(ProfileError) as caught:
        refuse_unknown_names(PROFILE, outputs=["logits"], rules=["fold-batchnorm-conv"])
    assert printed(caught.value) == [
        "cfg.yaml:1: tolerances.logit: the model has no output 'logit'; did you mean 'logits'?",
        "cfg.yaml:2: rules.skip[0]: there is no rule 'fold-batchnorm-cnov'; did you mean 'fold-batchnorm-conv'?",
    ]


@pytest.mark.parametrize(
    ("known", "refused"),
    [
        ({}, []),
        ({"outputs": ["logit"]}, []),
        ({"rules": ["fold-batchnorm-cnov"]}, []),
        ({"outputs": ["logits"]}, ["tolerances.logit"]),
        ({"rules": ["fold-batchnorm-conv"]}, ["rules.skip[0]"]),
        ({"outputs": ["logit"], "rules": ["fold-batchnorm-conv"]}, ["rules.skip[0]"]),
        ({"outputs": ["logits"], "rules": ["fold-batchnorm-cnov"]}, ["tolerances.logit"]),
    ],
)
def test_only_what_is_given_is_held_against_the_model(known: dict[str, list[str]], refused: list[str]) -> None:
    assert refused_names(**known) == refused


def refused_names(**known: list[str]) -> list[str]:
    """The keys of the profile whose names are refused."""
    try:
        refuse_unknown_names(PROFILE, **known)
    except ProfileError as error:
        return [line.split(": ")[1] for line in printed(error)]
    return []


@pytest.mark.parametrize(
    ("name", "candidates", "meant"),
    [
        ("optimisation_profiles", ["optimization_profiles", "dims"], "optimization_profiles"),
        ("profiling-verbosity", ["profiling_verbosity"], "profiling_verbosity"),
        ("IMAGE", ["image", "mask"], "image"),
        ("input_1", ["input.1"], "input.1"),
        ("profiles", ["rules", "optimization_profiles"], "optimization_profiles"),
        ("size", ["rules", "max_size", "sizes"], "sizes"),
        ("profiles", ["files", "optimization_profiles", "other_profiles"], "files"),
        ("_", ["a_b"], None),
        ("fp16", ["dims", "builder"], None),
        ("x", [], None),
    ],
)
def test_the_nearest_name(name: str, candidates: list[str], meant: str | None) -> None:
    assert nearest(name, candidates) == meant


def test_suggestions_are_part_of_a_sentence() -> None:
    assert did_you_mean("mask", ["masks"]) == "; did you mean 'masks'?"
    assert did_you_mean("zzz", ["masks"]) == ""


def test_a_long_listing_is_cut_with_its_count() -> None:
    assert listing(map(str, range(14))) == "0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more"
