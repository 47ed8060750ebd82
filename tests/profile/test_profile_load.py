# ruff: noqa: E501  tables of literal messages
"""A build profile file: what is read, and every mistake with its file, line and key path."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.profile.texts import refusal_of, refused, with_inputs
from trtnorm_cli.errors import ProfileError
from trtnorm_cli.profile.load import MAX_BYTES, load_profile, parse_profile
from trtnorm_cli.profile.model import BuildProfile, DimRange, Normal, ShapeRange

IMAGE = "image: {min: [1, 3, 224, 224], opt: [8, 3, 224, 224], max: [32, 3, 448, 448]}"


def test_the_minimal_form_is_read() -> None:
    profile = parse_profile(with_inputs(IMAGE))
    (only,) = profile.optimization_profiles
    assert only.inputs == {
        "image": ShapeRange(min=(1, 3, 224, 224), opt=(8, 3, 224, 224), max=(32, 3, 448, 448)),
    }
    assert profile.profile_names() == ("default",)


@pytest.mark.parametrize(
    "written",
    [
        "[8, 3, 224, 224]",
        "8x3x224x224",
        "'8 x 3 X 224×224'",
        "\n        - 8\n        - 3\n        - 224\n        - 224",
    ],
)
def test_one_shape_is_a_fixed_shape_in_every_spelling(written: str) -> None:
    profile = parse_profile(with_inputs(f"image: {written}"))
    shape = (8, 3, 224, 224)
    assert profile.optimization_profiles[0].inputs["image"].corners() == (shape, shape, shape)


def test_every_section_is_read() -> None:
    profile = parse_profile(
        """
        dims: {N: {min: 1, opt: 8, max: 32}, H: {min: 224, opt: 224, max: 448, multiple_of: 32}, C: 3}
        optimization_profiles:
          - {name: small, dims: {N: 1}}
          - inputs: {mask: 1x1}
        builder: {optimization_level: 3, workspace: 2GiB, profiling_verbosity: layer_names_only}
        data: {image: {distribution: normal, mean: 0.5, std: 2}}
        tolerances: {default: {atol: 1e-3}, logits: {atol: 0, rtol: 1e-2}}
        rules: {skip: [fold-batchnorm-conv]}
        """.replace("\n        ", "\n")
    )
    assert profile.dims["H"] == DimRange(min=224, opt=224, max=448, multiple_of=32)
    assert profile.dims["C"].corners() == (3, 3, 3)
    assert profile.profile_names() == ("small", "profile1")
    assert profile.builder.workspace == 2 * 2**30
    assert profile.builder.optimization_level == 3
    assert profile.data["image"] == Normal(distribution="normal", mean=0.5, std=2.0)
    assert profile.tolerances["default"].atol == 1e-3
    assert profile.tolerances["default"].rtol is None
    assert profile.rules.skip == ("fold-batchnorm-conv",)


@pytest.mark.parametrize(
    ("written", "size"),
    [("1048576", 2**20), ("512 MiB", 2**29), ("1.5gib", 3 * 2**29), ("1024TiB", 2**50), ("'1048576 B'", 2**20)],
)
def test_workspace_is_bytes_or_a_number_with_a_binary_unit(written: str, size: int) -> None:
    assert parse_profile(f"builder: {{workspace: {written}}}").builder.workspace == size


def test_an_empty_mapping_is_a_profile_without_wishes() -> None:
    assert parse_profile("{}") == BuildProfile()


def test_zero_is_a_legal_smallest_dimension() -> None:
    profile = parse_profile(with_inputs("boxes: {min: 0x4, opt: 10x4, max: 100x4}") + "dims: {K: {min: 0, opt: 1, max: 2}}")
    assert profile.optimization_profiles[0].inputs["boxes"].min == (0, 4)
    assert profile.dims["K"].min == 0


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("image: {min: [1, 3], opt: [8, 512], max: [32, 448]}", "image.opt[1]: 512 is above max 448"),
        ("image: {min: [1, 3], opt: [8, 2], max: [32, 448]}", "image.opt[1]: 2 is below min 3"),
        ("image: {min: [1, 600], opt: [8, 2], max: [32, 448]}", "image.min[1]: 600 is above max 448"),
        ("image: {min: 1x3, opt: 8x512, max: 32x448}", "image.opt: dimension 1: 512 is above max 448"),
        ("image: {min: [1, 3], opt: [8], max: [32, 3]}", "image.opt: opt has 1 dimension but min and max have 2"),
        ("image: {min: [1], opt: [], max: [3, 2]}", "image: min, opt and max need equally many dimensions, but have: min 1, opt 0, max 2"),
        ("image: [1, -3]", "image[1]: -3 is negative; give the number itself, a profile has no wildcard"),
        ("image: 1x-3", "image: dimension 1: -3 is negative; give the number itself, a profile has no wildcard"),
        ("image: [1, 0]", "image[1]: 0 is not allowed here; a dimension can be 0 in min alone"),
        ("image: [1, true]", "image[1]: expected an integer, got true"),
        ("image: [1, 2.0]", "image[1]: expected an integer, got 2.0"),
        ("image: [1, H]", "image[1]: expected an integer, got the text 'H'"),
        ("image: [1, '3']", "image[1]: expected an integer, got the text '3'"),
        ("image: [1, ]\n      mask: [1, null]", "mask[1]: expected an integer, got no value"),
        ("image: 1xx3", "image: dimension 1: expected an integer, got the text ''"),
        ("image: [2147483647]\n      mask: [2147483648]", "mask[0]: 2147483648 is above 2147483647, the largest dimension that TensorRT takes"),
        ("image: [2147483648]", "image[0]: 2147483648 is above 2147483647, the largest dimension that TensorRT takes"),
        ("image: 1x1x1x1x1x1x1x1x1", "image: has 9 dimensions; TensorRT takes at most 8"),
        ("image: {min: 8, opt: [8], max: [8]}", "image.min: expected a shape such as [1, 3, 224, 224] or '1x3x224x224', got 8"),
        ("image: {min: [8], max: [8]}", "image: the key 'opt' is missing"),
        ("image: {mni: [8], opt: [8], max: [8]}", "image: unknown key 'mni'; did you mean 'min'?"),
        ("image:", "image: expected {min: …, opt: …, max: …}, or one shape such as [1, 3, 224, 224] or '1x3x224x224', got no value"),
    ],
)  # fmt: skip
def test_a_wrong_shape_is_refused_at_its_element(entry: str, message: str) -> None:
    line = 4 if entry.count("\n") else 3
    assert refusal_of(with_inputs(entry)) == f"cfg.yaml:{line}: optimization_profiles[0].inputs.{message}"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("optimisation_profiles: []", "unknown key 'optimisation_profiles'; did you mean 'optimization_profiles'?"),
        ("Dims: {}", "unknown key 'Dims'; did you mean 'dims'?"),
        ("workspace: 2GiB", "unknown key 'workspace'; it belongs in 'builder'"),
        ("inputs: {}", "unknown key 'inputs'; it belongs in an entry of 'optimization_profiles'"),
        ("fp16: true", "unknown key 'fp16'"),
        ("optimization_profiles: {inputs: {}}", "optimization_profiles: expected a list, got a mapping with the keys inputs"),
        ("optimization_profiles: [{image: 1x3}]", "optimization_profiles[0]: unknown key 'image'"),
        ("optimization_profiles: [3]", "optimization_profiles[0]: expected a mapping, got 3"),
        ("optimization_profiles: [{name: 3}]", "optimization_profiles[0].name: expected a text, got 3"),
        ("optimization_profiles: [{name: ''}]", "optimization_profiles[0].name: the text is empty"),
        ("optimization_profiles: [{name: a}, {name: a}]", "optimization_profiles[1].name: 'a' is already the name of optimization_profiles[0]"),
        ("optimization_profiles: [{}, {name: profile0}]", "optimization_profiles[1].name: 'profile0' is already the name of optimization_profiles[0]"),
        ("dims: {H: {min: 135, opt: 136, max: 160, multiple_of: 8}}", "dims.H.min: 135 is not a multiple of 8; nearest: 128 and 136"),
        ("dims: {H: {mn: 1, opt: 2, max: 3}}", "dims.H: unknown key 'mn'; did you mean 'min'?"),
        ("dims: {H: {min: 8, opt: 8, max: 8, multiple_of: 0}}", "dims.H.multiple_of: 0 is not allowed here; a dimension can be 0 in min alone"),
        ("dims: {H: {min: 3, opt: 9, max: 8}}", "dims.H.opt: 9 is above max 8"),
        ("dims: {H: 8x8}", "dims.H: expected {min: …, opt: …, max: …} or one integer, got the text '8x8'"),
        ("dims: {H: true}", "dims.H: expected {min: …, opt: …, max: …} or one integer, got true"),
        ("dims: {H: -8}", "dims.H: -8 is negative; give the number itself, a profile has no wildcard"),
        ("dims: [N]", "dims: expected a mapping, got a list of 1"),
        ("builder:", "builder: expected a mapping, got no value"),
        ("builder: {optimization_level: 7}", "builder.optimization_level: 7 is above 5"),
        ("builder: {optimization_level: -1}", "builder.optimization_level: -1 is below 0"),
        ("builder: {optimization_level: '3'}", "builder.optimization_level: expected an integer, got the text '3'"),
        ("builder: {optimization_level: true}", "builder.optimization_level: expected an integer, got true"),
        ("builder: {workspace: 2GB}", "builder.workspace: expected a size such as '2GiB', '512MiB' or a number of bytes, got the text '2GB'"),
        ("builder: {workspace: 2}", "builder.workspace: 2 is below 1 MiB"),
        ("builder: {workspace: true}", "builder.workspace: expected a size such as '2GiB', '512MiB' or a number of bytes, got true"),
        ("builder: {workspace: 2000TiB}", "builder.workspace: the text '2000TiB' is above 1024 TiB"),
        ("builder: {profiling_verbosity: full}", "builder.profiling_verbosity: expected 'detailed', 'layer_names_only' or 'none', got the text 'full'"),
        ("data: {x: {}}", "data.x: the key 'distribution' is missing; one of normal, uniform, integers, ones, constant"),
        ("data: {x: ones}", "data.x: expected a mapping, got the text 'ones'"),
        ("data: {x: {distribution: Gauss}}", "data.x: unknown distribution 'Gauss'; one of normal, uniform, integers, ones, constant"),
        ("data: {x: {distribution: integer}}", "data.x: unknown distribution 'integer'; did you mean 'integers'?"),
        ("data: {x: {distribution: null}}", "data.x: unknown distribution no value; one of normal, uniform, integers, ones, constant"),
        ("data: {x: {distribution: integers}}", "data.x: the key 'below' is missing"),
        ("data: {x: {distribution: integers, below: 2, std: 1}}", "data.x: unknown key 'std'; it belongs in an entry of 'data' with the distribution 'normal'"),
        ("data: {x: {distribution: integers, low: 5, below: 5}}", "data.x.below: 5 is not above low, 5"),
        ("data: {x: {distribution: uniform, low: 2}}", "data.x.low: 2 is not below high, 1"),
        ("data: {x: {distribution: normal, std: 0}}", "data.x.std: 0 is not above 0"),
        ("data: {x: {distribution: constant, value: .nan}}", "data.x.value: expected a finite number, got nan"),
        ("tolerances: {y: {}}", "tolerances.y: gives neither atol nor rtol"),
        ("tolerances: {y: 1e-3}", "tolerances.y: expected a mapping, got 0.001"),
        ("tolerances: {y: {atol: -1}}", "tolerances.y.atol: -1 is below 0"),
        ("tolerances: {y: {rtol: small}}", "tolerances.y.rtol: expected a number, got the text 'small'"),
        ("rules: {skip: fold}", "rules.skip: expected a list, got the text 'fold'"),
        ("export: {inputs: {x: [N, 3.5]}}", "export.inputs.x[1]: expected an integer, got 3.5"),
        ("export: {inputs: {x: {shape: [N, 0]}}}", "export.inputs.x.shape[1]: 0 is not allowed here; a dimension can be 0 in min alone"),
        ("export: {inputs: {x: [a b]}}", "export.inputs.x[0]: expected a size or the name of a dimension"),
        ("export: {inputs: {x: {shape: [1], dtype: float}}}", "export.inputs.x.dtype: the text 'float' is no element type; did you mean 'float64'?"),
        ("export: {inputs: {x: [1, 1, 1, 1, 1, 1, 1, 1, N]}}", "export.inputs.x: has 9 dimensions; TensorRT takes at most 8"),
        ("export: {inputs: {x: {shape: 3}}}", "export.inputs.x.shape: expected a shape such as [N, 3, H, W], got 3"),
        ("export: {inputs: {x: {shape: [1], dtype: 3}}}", "export.inputs.x.dtype: 3 is no element type"),
        ("export: {inputs: {x: 3}}", "export.inputs.x: expected a mapping, got 3"),
        ("rules: {skip: [3]}", "rules.skip[0]: expected a text, got 3"),
        ('dims: {"a.b c": 0}', 'dims."a.b c": 0 is not allowed here; a dimension can be 0 in min alone'),
    ],
)  # fmt: skip
def test_a_wrong_key_or_value_is_refused_with_its_path(text: str, message: str) -> None:
    assert refusal_of(text) == f"cfg.yaml:1: {message}"


@pytest.mark.parametrize(
    ("text", "fix"),
    [
        ("fp16: true", "valid keys here: optimization_profiles, dims, values, max_memory, builder, data, tolerances, rules"),
        ("optimization_profiles: [{image: 1x3}]", "names of inputs stand under 'inputs:'"),
        ("optimization_profiles: {inputs: {}}", "begin each entry with '- '"),
        ("optimization_profiles: [{name: 3}]", "put it in quotes: '3'"),
        ("optimization_profiles: [{inputs: {image: 8}}]", "write [8]"),
        ("builder:\n  optimization_level:3", "is a space missing after ':'?"),
        ("builder: {optimization_level: '3'}", "leave out the quotes"),
        ("builder: {workspace: 2}", "a plain number counts bytes; write '2GiB' or '512MiB'"),
        ("tolerances: {y: 1e-3}", "its keys are atol, rtol"),
        ("dims: {H: {min: 9, opt: 20, max: 30, multiple_of: 8}}", "write {min: 16, opt: 16, max: 24, multiple_of: 8}"),
        ("dims: {H: {min: 9, opt: 9, max: 9, multiple_of: 8}}", "write {min: 16, opt: 16, max: 16, multiple_of: 8}"),
        ("data: {x: 3}", "write {distribution: …}: normal, uniform, integers, ones, constant"),
    ],
)
def test_the_hint_says_how_to_fix_it(text: str, fix: str) -> None:
    assert fix in (refused(text).hint or "")


@pytest.mark.parametrize("text", ["optimization_profiles: 3", "rules: {skip: fold}"])
def test_a_hint_about_entries_is_for_what_has_entries(text: str) -> None:
    assert refused(text).hint is None


def test_an_input_of_a_module_is_its_shape_or_more() -> None:
    inputs = parse_profile("export: {inputs: {x: [N, 3], y: {shape: [4], dtype: int64}}}").export.inputs
    assert [(one.shape, one.dtype) for one in inputs.values()] == [(("N", 3), None), ((4,), "int64")]


def test_lines_are_those_of_the_file() -> None:
    text = """# a comment

optimization_profiles:
  - inputs:
      image:
        min: [1, 3, 224, 224]
        opt:
          - 8
          - 3
          - 512
          - 224
        max: [32, 3, 448, 448]
"""
    assert refusal_of(text) == "cfg.yaml:10: optimization_profiles[0].inputs.image.opt[2]: 512 is above max 448"


def test_all_problems_are_reported_in_the_order_of_the_file() -> None:
    text = (
        with_inputs("image: {min: [1, 2.5], opt: [true, 3], max: [32, 3]}", "mask: {min: [9], opt: [8], max: [32]}")
        + "colour: red\ndims: {N: -1}\ndims: {}\n"
    )
    assert refusal_of(text).splitlines() == [
        "cfg.yaml:3: optimization_profiles[0].inputs.image.min[1]: expected an integer, got 2.5",
        "cfg.yaml:3: optimization_profiles[0].inputs.image.opt[0]: expected an integer, got true",
        "cfg.yaml:4: optimization_profiles[0].inputs.mask.opt[0]: 8 is below min 9",
        "cfg.yaml:5: unknown key 'colour'",
        "cfg.yaml:6: dims.N: -1 is negative; give the number itself, a profile has no wildcard",
        "cfg.yaml:7: the key 'dims' is given twice, first on line 6",
    ]


def test_a_value_that_cannot_be_read_is_one_problem_and_no_wrong_type_besides() -> None:
    assert refusal_of("dims: {N: !symbol 3, H: -1}").splitlines() == [
        "cfg.yaml:1: dims.N: the YAML tag !symbol is not supported here",
        "cfg.yaml:1: dims.H: -1 is negative; give the number itself, a profile has no wildcard",
    ]
    assert refusal_of("!profile {dims: {}}") == "cfg.yaml:1: the YAML tag !profile is not supported here"


def test_a_flood_of_problems_is_cut_with_its_count() -> None:
    lines = refusal_of("".join(f"k{index}: 1\n" for index in range(50))).splitlines()
    assert len(lines) == 21
    assert lines[-1] == "… and 30 more problems"


def test_a_profiles_own_range_keeps_the_files_multiple() -> None:
    text = "dims: {H: {min: 32, opt: 32, max: 64, multiple_of: 32}}\noptimization_profiles:\n  - dims: {H: 48}\n"
    assert refusal_of(text).startswith(
        "cfg.yaml:3: optimization_profiles[0].dims.H: 48 is not a multiple of 32; nearest: 32 and 64"
    )


def test_the_dump_is_plain_json_and_reads_back_equal() -> None:
    text = with_inputs(IMAGE, "ids: 1x128") + "data: {ids: {distribution: integers, below: 30522}}\n"
    profile = parse_profile(text, "somewhere/cfg.yaml")
    dumped = profile.model_dump_json()
    assert BuildProfile.model_validate_json(dumped) == profile
    assert BuildProfile.model_validate(profile.model_dump(mode="json")) == profile
    assert parse_profile(text, "elsewhere.yaml").model_dump_json() == dumped
    assert "somewhere" not in dumped


def test_a_profile_keeps_the_line_of_every_key() -> None:
    positions = parse_profile(with_inputs(IMAGE, "mask: 1x1"), "cfg.yaml").positions
    assert positions.where(("optimization_profiles", 0, "inputs", "mask", "max", 1)) == (
        "cfg.yaml:4: optimization_profiles[0].inputs.mask"
    )
    assert positions.where(("builder", "workspace")) == "cfg.yaml"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"# only a comment\n", "the file is empty"),
        (b"- a\n", "expected keys such as 'optimization_profiles', got a list of 1"),
        (b"hello\n", "expected keys such as 'optimization_profiles', got the text 'hello'"),
        (b"\x7fELF\x00\x01", "the file is binary, not YAML"),
        ("dims: {}".encode("utf-16"), "the file is UTF-16, not UTF-8"),
        (b"x" * (MAX_BYTES + 1), "the file is larger than 256 KiB"),
    ],
)
def test_a_file_that_is_no_profile_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "cfg.yaml"
    path.write_bytes(content)
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    assert (caught.value.where, caught.value.summary) == (str(path), message)
    assert caught.value.hint


def test_bytes_that_are_no_utf8_are_named_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "cfg.yaml"
    path.write_bytes(b"# a\n# caf\xe9\n")
    with pytest.raises(ProfileError, match="the file is not UTF-8: byte 0xe9") as caught:
        load_profile(path)
    assert caught.value.where == f"{path}:2"


def test_a_byte_order_mark_and_windows_line_ends_are_read(tmp_path: Path) -> None:
    path = tmp_path / "cfg.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + with_inputs(IMAGE).replace("\n", "\r\n").encode())
    assert load_profile(path) == parse_profile(with_inputs(IMAGE))


def test_a_missing_file_is_named_with_its_nearest_neighbour(tmp_path: Path) -> None:
    (tmp_path / "resnet18.yaml").write_text("{}")
    with pytest.raises(ProfileError) as caught:
        load_profile(tmp_path / "resnet81.yaml")
    assert caught.value.summary == "the build profile does not exist; did you mean 'resnet18.yaml'?"


def test_a_folder_and_a_pipe_are_refused_without_reading(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="the build profile is a folder"):
        load_profile(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ProfileError, match="the build profile is not a regular file"):
        load_profile(tmp_path / "pipe")


def test_a_path_that_cannot_be_opened_is_message(tmp_path: Path) -> None:
    (tmp_path / "cfg.yaml").write_text("{}")
    for path in (tmp_path / "cfg.yaml" / "inner.yaml", tmp_path / "nul\0.yaml", tmp_path / ("x" * 300)):
        with pytest.raises(ProfileError, match="the build profile cannot be read"):
            load_profile(path)


def test_a_profile_knows_its_file(tmp_path):
    """Relative paths in it start there, also after it was changed for an exported model or for sizes that fit."""
    path = tmp_path / "cfg.yaml"
    path.write_text("dims: {N: {min: 1, opt: 2, max: 4}}\n")
    profile = load_profile(path)
    assert profile.path == path
    assert profile.model_copy(update={"optimize": "never"}).path == path
    assert profile.located(profile.positions).path == path
    assert BuildProfile().path is None
