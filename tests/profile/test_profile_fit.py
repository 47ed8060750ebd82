"""A build profile against a model's inputs."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests.profile.texts import printed, with_inputs
from trtnorm_cli.errors import ProfileError
from trtnorm_cli.profile.fit import FittedProfiles, ModelInput, fit
from trtnorm_cli.profile.load import parse_profile
from trtnorm_cli.profile.model import BuildProfile, OptimizationProfile, ShapeRange
from trtnorm_cli.record import json_of

IMAGE = ModelInput("image", "float32", ("N", 3, "H", "W"))
MASK = ModelInput("mask", "float32", ("N", 1, "H", "W"))
IDS = ModelInput("ids", "int64", ("batch", "seq"))
UNNAMED = ModelInput("points", "float32", ("N", None, 4))
STATIC = ModelInput("anchors", "float32", (9, 4))

IMAGE_ENTRY = "image: {min: [1, 3, 224, 224], opt: [8, 3, 224, 224], max: [32, 3, 448, 448]}"


def fitted(text: str, *inputs: ModelInput) -> FittedProfiles:
    return fit(parse_profile(text, "cfg.yaml"), inputs)


def refusal(text: str, *inputs: ModelInput) -> ProfileError:
    with pytest.raises(ProfileError) as caught:
        fitted(text, *inputs)
    return caught.value


def test_every_input_gets_shapes_and_static_ones_come_from_the_model() -> None:
    result = fitted(with_inputs(IMAGE_ENTRY), STATIC, IMAGE)
    (profile,) = result.profiles
    assert profile.name == "default"
    assert list(profile.shapes) == ["anchors", "image"]
    assert profile.shapes["anchors"] == ((9, 4), (9, 4), (9, 4))
    assert profile.at("max") == {"anchors": (9, 4), "image": (32, 3, 448, 448)}
    assert result.dynamic_inputs == ("image",)


def test_dims_fill_every_input_that_names_them() -> None:
    result = fitted("dims: {N: {min: 1, opt: 8, max: 32}, H: {min: 32, opt: 64, max: 96, multiple_of: 32}, W: 64}", IMAGE, MASK)
    (profile,) = result.profiles
    assert profile.at("min") == {"image": (1, 3, 32, 64), "mask": (1, 1, 32, 64)}
    assert profile.at("opt") == {"image": (8, 3, 64, 64), "mask": (8, 1, 64, 64)}
    assert profile.at("max") == {"image": (32, 3, 96, 64), "mask": (32, 1, 96, 64)}
    assert profile.dims["H"].multiple_of == 32


def test_a_profiles_own_dims_come_before_the_files() -> None:
    text = """
dims: {N: {min: 1, opt: 8, max: 32}, H: {min: 32, opt: 64, max: 96, multiple_of: 32}, W: 64}
optimization_profiles:
  - name: one
    dims: {N: 1, H: 32}
  - name: many
"""
    one, many = fitted(text, IMAGE).profiles
    assert (one.name, many.name) == ("one", "many")
    assert one.at("max") == {"image": (1, 3, 32, 64)}
    assert many.at("max") == {"image": (32, 3, 96, 64)}
    assert one.dims["H"].multiple_of == 32


def test_an_entry_decides_equal_names_in_the_other_inputs() -> None:
    (profile,) = fitted(with_inputs(IMAGE_ENTRY), IMAGE, MASK).profiles
    assert profile.shapes["mask"] == ((1, 1, 224, 224), (8, 1, 224, 224), (32, 1, 448, 448))


def test_an_unnamed_dimension_needs_an_entry_and_takes_any_range() -> None:
    (profile,) = fitted("dims: {N: 1}\n" + with_inputs("points: {min: 1x1x4, opt: 1x100x4, max: 1x900x4}"), UNNAMED).profiles
    assert profile.at("max") == {"points": (1, 900, 4)}


def test_a_static_model_needs_no_profile() -> None:
    for profile in (None, BuildProfile(), parse_profile("builder: {workspace: 2GiB}")):
        result = fit(profile, [STATIC])
        assert result.dynamic_inputs == ()
        assert [one.at("opt") for one in result.profiles] == [{"anchors": (9, 4)}]


def test_a_dimension_that_the_model_fixes_at_zero_is_kept() -> None:
    cache = ModelInput("past", "float32", ("N", 8, 0, 64))
    assert fitted("dims: {N: 2}", cache).profiles[0].at("opt") == {"past": (2, 8, 0, 64)}


def test_a_model_without_inputs_is_static() -> None:
    assert fit(None, []).profiles[0].shapes == {}


@pytest.mark.parametrize("shape", [(-1, 3), ("", 3), (None, 3)])
def test_what_exporters_write_for_an_unknown_dimension_is_dynamic(shape: tuple[int | str | None, ...]) -> None:
    assert ModelInput("x", "float32", shape).shape == (None, 3)
    assert ModelInput("x", "float32", shape).is_dynamic


def test_the_json_form_is_plain() -> None:
    result = fitted(with_inputs(IMAGE_ENTRY), IMAGE)
    assert json_of(result.records()) == [
        {
            "name": "default",
            "inputs": {"image": {"min": [1, 3, 224, 224], "opt": [8, 3, 224, 224], "max": [32, 3, 448, 448]}},
        }
    ]


def test_a_profile_without_a_file_has_no_lines() -> None:
    text = "dims: {W: 224}\n" + with_inputs(IMAGE_ENTRY)
    with pytest.raises(ProfileError) as caught:
        fit(BuildProfile.model_validate(parse_profile(text).model_dump(mode="json")), [IMAGE])
    assert "W is 448 here but 224 in dims.W" in str(caught.value)
    assert "(line" not in str(caught.value)


EQUAL = "TensorRT demands that dimensions of one name are equal: "


@pytest.mark.parametrize(
    ("text", "inputs", "message", "hint"),
    [
        (
            with_inputs(IMAGE_ENTRY.replace("image", "imgae")),
            [IMAGE],
            "cfg.yaml:3: optimization_profiles[0].inputs.imgae: the model has no input 'imgae'; did you mean 'image'?",
            "write image instead; inputs of the model: image: float32 [N, 3, H, W]",
        ),
        (
            with_inputs("zzz: 1x3"),
            [STATIC],
            "cfg.yaml:3: optimization_profiles[0].inputs.zzz: the model has no input 'zzz'",
            "leave it out; inputs of the model: anchors: float32 [9, 4]",
        ),
        (
            with_inputs("image: [3, 224, 224]"),
            [IMAGE],
            "cfg.yaml:3: optimization_profiles[0].inputs.image: "
            "[3, 224, 224] has 3 dimensions but the model's input has 4: image: float32 [N, 3, H, W]",
            "write {min: [1, 3, 224, 224], opt: [8, 3, 224, 224], max: [32, 3, 224, 224]}",
        ),
        (
            with_inputs("image: [1, 4, 224, 224]"),
            [IMAGE],
            "cfg.yaml:3: optimization_profiles[0].inputs.image[1]: "
            "4 where the model fixes dimension 1 to 3: image: float32 [N, 3, H, W]",
            "write {min: [1, 3, 224, 224], opt: [1, 3, 224, 224], max: [1, 3, 224, 224]}, "
            "or export the model with a dynamic dimension 1",
        ),
        (
            with_inputs("anchors: {min: 9x4, opt: 9x4, max: 18x4}"),
            [STATIC],
            "cfg.yaml:3: optimization_profiles[0].inputs.anchors.max: dimension 0: "
            "18 where the model fixes dimension 0 to 9: anchors: float32 [9, 4]",
            "write {min: [9, 4], opt: [9, 4], max: [9, 4]}, or export the model with a dynamic dimension 0",
        ),
        (
            with_inputs(IMAGE_ENTRY, "mask: {min: [1, 1, 224, 224], opt: [8, 1, 224, 224], max: [32, 1, 448, 512]}"),
            [IMAGE, MASK],
            "cfg.yaml:4: optimization_profiles[0].inputs.mask.max[3]: "
            "W is 512 here but 448 in optimization_profiles[0].inputs.image.max[3] (line 3)",
            EQUAL + "write {min: [1, 1, 224, 224], opt: [8, 1, 224, 224], max: [32, 1, 448, 448]}, or change the other",
        ),
        (
            "dims: {W: 224}\n" + with_inputs(IMAGE_ENTRY),
            [IMAGE],
            "cfg.yaml:4: optimization_profiles[0].inputs.image.max[3]: W is 448 here but 224 in dims.W (line 1)",
            EQUAL + "write {min: [1, 3, 224, 224], opt: [8, 3, 224, 224], max: [32, 3, 448, 224]}, or change the other",
        ),
        (
            with_inputs("x: 2x3"),
            [ModelInput("x", "float32", ("S", "S"))],
            "cfg.yaml:3: optimization_profiles[0].inputs.x: dimension 1: "
            "S is 3 here but 2 in optimization_profiles[0].inputs.x (line 3)",
            EQUAL + "write {min: [2, 2], opt: [2, 2], max: [2, 2]}, or change the other",
        ),
        (
            "dims: {N: 1, H: 224, W: 224, Wd: 3}",
            [IMAGE],
            "cfg.yaml:1: dims.Wd: no input of the model has a dimension named 'Wd'; did you mean 'W'?",
            "write W instead; inputs of the model: image: float32 [N, 3, H, W]",
        ),
        (
            "optimization_profiles: [{dims: {batch: 1}}]",
            [IMAGE],
            "cfg.yaml:1: optimization_profiles[0].dims.batch: "
            "no input of the model has a dimension named 'batch'; dynamic dimensions: N, H, W",
            "leave it out; inputs of the model: image: float32 [N, 3, H, W]",
        ),
        (
            "dims: {N: 1}",
            [STATIC],
            "cfg.yaml:1: dims.N: no input of the model has a dimension named 'N'; the model has no dynamic dimension at all",
            "leave it out; inputs of the model: anchors: float32 [9, 4]",
        ),
        (
            "dims:\n  N: {min: 1, opt: 2, max: 3}\n",
            [IMAGE],
            "cfg.yaml:1: dims: no values for H, W of the dynamic input image: float32 [N, 3, H, W]",
            "add under dims and adjust the numbers:\n  H: {min: 224, opt: 224, max: 448}\n  W: {min: 224, opt: 224, max: 448}",
        ),
        (
            with_inputs(IMAGE_ENTRY),
            [IMAGE, UNNAMED],
            "cfg.yaml:2: optimization_profiles[0].inputs: "
            "no values for dimension 1 (no name) of the dynamic input points: float32 [N, ?, 4]",
            "add under optimization_profiles[0].inputs and adjust the numbers:\n"
            "      points: {min: [1, 1, 4], opt: [8, 128, 4], max: [32, 512, 4]}",
        ),
        (
            with_inputs(IMAGE_ENTRY),
            [IMAGE, IDS],
            "cfg.yaml:2: optimization_profiles[0].inputs: "
            "no values for batch, seq of the dynamic input ids: int64 [batch, seq]",
            "add under optimization_profiles[0].inputs and adjust the numbers:\n"
            "      ids: {min: [1, 1], opt: [8, 128], max: [32, 512]}",
        ),
        (
            "dims: {N: 2}",
            [UNNAMED],
            "cfg.yaml:1: dims: no values for dimension 1 (no name) of the dynamic input points: float32 [N, ?, 4]",
            "add and adjust the numbers:\noptimization_profiles:\n  - inputs:\n"
            "      points: {min: [2, 1, 4], opt: [2, 128, 4], max: [2, 512, 4]}",
        ),
        (
            "optimization_profiles: [{name: a}]",
            [IDS],
            "cfg.yaml:1: optimization_profiles[0]: no values for batch, seq of the dynamic input ids: int64 [batch, seq]",
            "add and adjust the numbers:\ndims:\n  batch: {min: 1, opt: 8, max: 32}\n  seq: {min: 1, opt: 128, max: 512}",
        ),
        (
            with_inputs(IMAGE_ENTRY) + "data: {imag: {distribution: ones}}\n",
            [IMAGE],
            "cfg.yaml:4: data.imag: the model has no input 'imag'; did you mean 'image'?",
            "write image instead; inputs of the model: image: float32 [N, 3, H, W]",
        ),
        (
            "dims: {batch: 1, seq: 8}\ndata: {ids: {distribution: normal}}",
            [IDS],
            "cfg.yaml:2: data.ids: normal values are no integers, but the input is ids: int64 [batch, seq]",
            "write {distribution: integers, below: 100}",
        ),
        (
            "dims: {batch: 1, seq: 8}\ndata: {ids: {distribution: uniform}}",
            [IDS],
            "cfg.yaml:2: data.ids: uniform values are no integers, but the input is ids: int64 [batch, seq]",
            "write {distribution: integers, below: 100}",
        ),
    ],
)
def test_a_profile_that_does_not_fit_is_refused(
    text: str, inputs: Sequence[ModelInput], message: str, hint: str | None
) -> None:
    error = refusal(text, *inputs)
    assert printed(error) == [message]
    assert error.hint == hint
    assert error.exit_code == 2


def test_all_problems_of_all_profiles_are_reported_in_the_order_of_the_file() -> None:
    text = (
        "optimization_profiles:\n"
        "  - name: a\n    inputs:\n      image: [1, 4, 224, 224]\n"
        "  - name: b\n    inputs:\n      imag: [1, 3, 224, 224]\n"
        "data: {x: {distribution: ones}}\n"
    )
    assert [line.split(": ")[0] for line in printed(refusal(text, IMAGE))] == ["cfg.yaml:4", "cfg.yaml:7", "cfg.yaml:8"]


def test_a_dynamic_model_without_a_profile_prints_the_block_to_paste() -> None:
    with pytest.raises(ProfileError) as caught:
        fit(None, [IMAGE, STATIC])
    error = caught.value
    assert error.where is None
    assert error.summary == "the model has dynamic inputs, but no build profile was given: image: float32 [N, 3, H, W]"
    action, _, block = (error.hint or "").partition(":\n\n")
    assert action == "save this as cfg.yaml, adjust the numbers, and build with --profile cfg.yaml"
    assert fit(parse_profile(block), [IMAGE, STATIC]).dynamic_inputs == ("image",)


def test_a_profile_without_shapes_prints_the_block_to_add() -> None:
    error = refusal("builder: {workspace: 2GiB}", IMAGE)
    assert printed(error) == [
        "cfg.yaml: the model has dynamic inputs, but the build profile gives no shapes: image: float32 [N, 3, H, W]"
    ]
    action, _, block = (error.hint or "").partition(":\n\n")
    assert action == "add this and adjust the numbers"
    assert fitted("builder: {workspace: 2GiB}\n" + block, IMAGE).dynamic_inputs == ("image",)


@pytest.mark.parametrize(
    ("text", "inputs"),
    [
        ("dims:\n  N: 3\n", [IMAGE, MASK]),
        (with_inputs(IMAGE_ENTRY), [IMAGE, IDS]),
        (with_inputs(IMAGE_ENTRY), [IMAGE, UNNAMED]),
    ],
)
def test_the_lines_of_the_hint_repair_the_profile_when_appended(text: str, inputs: Sequence[ModelInput]) -> None:
    hint = refusal(text, *inputs).hint or ""
    lines = [line for line in hint.splitlines() if not line.startswith("add ")]
    assert len(fitted(text + "\n".join(lines), *inputs).profiles) == 1


def test_a_profile_made_in_a_program_is_refused_with_key_paths_alone() -> None:
    shapes = ShapeRange(min=(1, 4), opt=(1, 4), max=(1, 4))
    profile = BuildProfile(optimization_profiles=(OptimizationProfile(inputs={"x": shapes}),))
    with pytest.raises(ProfileError) as caught:
        fit(profile, [ModelInput("x", "float32", ("N", 3))])
    assert caught.value.where == "optimization_profiles[0].inputs.x.min[1]"
