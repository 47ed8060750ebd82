"""The block to paste: it must load and fit whatever the model looks like."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trtnorm_cli.profile.fit import ModelInput, fit
from trtnorm_cli.profile.load import parse_profile
from trtnorm_cli.profile.paste import paste_block
from trtnorm_cli.profile.yaml_keys import yaml_key

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8) | st.sampled_from(["on", "0", "input.1", "N", "8*_H"])
dims = st.integers(1, 512) | names | st.none()
model_inputs = st.lists(
    st.builds(ModelInput, names, st.sampled_from(["float32", "int64", "bool"]), st.lists(dims, max_size=6).map(tuple)),
    max_size=5,
    unique_by=lambda model_input: model_input.name,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine draws slowly
@given(model_inputs)
def test_the_block_loads_and_fits_any_model(inputs: list[ModelInput]) -> None:
    block = paste_block(inputs)
    result = fit(parse_profile(block), inputs)
    assert list(result.profiles[0].shapes) == [one.name for one in inputs]


@given(names)
def test_any_name_is_a_key_that_reads_back(name: str) -> None:
    (key,) = parse_profile(f"dims:\n  {yaml_key(name)}: 1\n").dims
    assert key == name


def test_names_decide_the_numbers_to_start_from() -> None:
    block = paste_block(
        [
            ModelInput("image", "float32", ("batch_size", 3, "height", "width")),
            ModelInput("ids", "int64", ("batch_size", "seq_len")),
            ModelInput("points", "float32", ("batch_size", None, 3)),
        ]
    )
    assert block == (
        "# image: float32 [batch_size, 3, height, width]\n"
        "# ids: int64 [batch_size, seq_len]\n"
        "# points: float32 [batch_size, ?, 3]\n"
        "optimization_profiles:\n"
        "  - inputs:\n"
        "      points: {min: [1, 1, 3], opt: [8, 128, 3], max: [32, 512, 3]}\n"
        "dims:\n"
        "  batch_size: {min: 1, opt: 8, max: 32}\n"
        "  height: {min: 224, opt: 224, max: 448}\n"
        "  width: {min: 224, opt: 224, max: 448}\n"
        "  seq_len: {min: 1, opt: 128, max: 512}\n"
    )


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (("s0", 3, "s1", "s2"), {"s0": (1, 8, 32), "s1": (224, 224, 448)}),
        (("s0", "s1", "s2", 3), {"s1": (224, 224, 448), "s2": (224, 224, 448)}),
        (("s0", "s1", "s2", "s3"), {"s1": (3, 3, 3), "s3": (224, 224, 448)}),
        (("s0", 1, "s1", "s2", "s3"), {"s1": (32, 64, 128)}),
        (("s0", "s1", 80), {"s1": (1, 128, 512)}),
        (("N", 3, "100*_h", 64), {"100*_h": (300, 300, 500)}),
    ],
)
def test_position_decides_where_the_name_says_nothing(
    shape: tuple[int | str | None, ...], expected: dict[str, tuple[int, int, int]]
) -> None:
    profile = parse_profile(paste_block([ModelInput("x", "float32", shape)]))
    assert {name: profile.dims[name].corners() for name in expected} == expected


def test_the_letter_of_a_depth_says_nothing_where_there_is_no_volume() -> None:
    block = paste_block([ModelInput("volume", "float32", (1, 1, "d", "h", "w")), ModelInput("z", "float32", ("D", "K", 128))])
    assert "  d: {min: 32, opt: 64, max: 128}\n" in block
    assert "  D: {min: 1, opt: 8, max: 32}\n" in block


def test_a_dimension_that_torch_export_names_as_a_multiple_is_one() -> None:
    profile = parse_profile(paste_block([ModelInput("x", "float32", ("N", 3, "32*_h", "32*_w"))]))
    assert profile.dims["32*_h"].multiple_of == 32


@pytest.mark.parametrize("name", ["1*_h", "0*_h"])
def test_a_dimension_that_is_a_multiple_of_one_is_any(name: str) -> None:
    profile = parse_profile(paste_block([ModelInput("x", "float32", ("N", 3, name, 64))]))
    assert profile.dims[name].multiple_of is None
