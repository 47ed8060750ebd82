"""The models themselves: frozen, strict, described, and known to the messages."""

from __future__ import annotations

import pytest
from pydantic import BaseModel, ValidationError

from trtnorm_cli.profile import model
from trtnorm_cli.profile.messages import DISTRIBUTIONS, SECTIONS
from trtnorm_cli.profile.model import BuildProfile, DimRange, OptimizationProfile, ShapeRange, json_schema
from trtnorm_cli.profile.ranges import ProfileSection


def settings_models() -> list[type[BaseModel]]:
    models = [value for value in vars(model).values() if isinstance(value, type) and issubclass(value, BaseModel)]
    return [cls for cls in models if cls.__module__.startswith("trtnorm_cli.profile.") and cls is not ProfileSection]


def test_every_model_has_its_place_in_the_messages() -> None:
    assert set(SECTIONS.values()) == set(settings_models())
    assert DISTRIBUTIONS == ("normal", "uniform", "integers", "ones", "constant")


@pytest.mark.parametrize("cls", settings_models())
def test_every_model_is_frozen_and_refuses_unknown_keys(cls: type[BaseModel]) -> None:
    assert cls.model_config["frozen"]
    assert cls.model_config["extra"] == "forbid"


def test_a_profile_is_made_from_models_in_a_program() -> None:
    shapes = ShapeRange(min=(1, 3), opt=(8, 3), max=(32, 3))
    profile = BuildProfile(
        optimization_profiles=(OptimizationProfile(inputs={"image": shapes}, dims={"N": DimRange(min=1, opt=8, max=32)}),)
    )
    assert profile.optimization_profiles[0].inputs["image"] is shapes
    with pytest.raises(ValidationError):
        profile.dims = {}


def test_the_positions_of_a_file_are_no_part_of_a_profile() -> None:
    assert "positions" not in json_schema()["properties"]
    assert "positions" not in BuildProfile().model_dump()


def test_the_schema_offers_every_spelling_of_a_shape() -> None:
    definitions = json_schema()["$defs"]
    kinds = {option["type"] for option in definitions["ShapeRange"]["anyOf"]}
    assert kinds == {"object", "array", "string"}
    assert {option["type"] for option in definitions["DimRange"]["anyOf"]} == {"object", "integer"}
    assert json_schema()["additionalProperties"] is False


def test_the_schema_of_a_shape_takes_sizes_from_one_and_the_smallest_from_zero() -> None:
    ranges = json_schema()["$defs"]["ShapeRange"]["anyOf"]
    (listed,) = (option for option in ranges if option["type"] == "array")
    corners = next(option for option in ranges if option["type"] == "object")["properties"]
    smallest = [corners[corner]["anyOf"][0]["items"]["minimum"] for corner in ("min", "opt", "max")]
    assert (listed["items"]["minimum"], smallest) == (1, [0, 1, 1])


def test_every_key_of_the_file_is_described_in_the_schema() -> None:
    schema = json_schema()
    for name in ("OptimizationProfile", "BuilderSettings", "Tolerance", "RuleSettings"):
        for key, field in schema["$defs"][name]["properties"].items():
            assert field.get("description"), f"{name}.{key}"
