"""Every file in configs/ is a build profile."""

from __future__ import annotations

from pathlib import Path

import pytest

from trtnorm_cli.profile.load import load_profile

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.y*ml"))


def test_there_are_configs() -> None:
    assert "resnet18.yaml" in [path.name for path in CONFIGS]


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_every_config_loads_and_says_what_it_is_for(path: Path) -> None:
    profile = load_profile(path)
    assert profile.optimization_profiles or profile.dims
    assert path.read_text(encoding="utf-8").startswith("#")


def test_the_resnet18_profile_is_the_documented_one() -> None:
    (path,) = [path for path in CONFIGS if path.name == "resnet18.yaml"]
    (profile,) = load_profile(path).optimization_profiles
    assert profile.inputs["image"].corners() == ((1, 3, 224, 224), (8, 3, 224, 224), (32, 3, 448, 448))
