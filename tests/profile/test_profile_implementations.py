"""``instance_norm``, ``group_norm`` and ``plugins``: what is taken, and every mistake with its line and what to do."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.profile.texts import refused
from trtnorm_cli.errors import ProfileError
from trtnorm_cli.profile.load import load_profile, parse_profile
from trtnorm_cli.profile.model import BuildProfile, json_schema
from trtnorm_cli.profile.names import refuse_unknown_names
from trtnorm_cli.profile.plugins import library_paths
from trtnorm_cli.profile.rewriting import Implementations

EXPECTED = "expected native, plugin, or {default: native, nodes: {NODE: plugin}}"


def test_the_defaults() -> None:
    profile = BuildProfile()
    assert profile.instance_norm.settings() == profile.group_norm.settings() == Implementations("native", {})
    assert not profile.instance_norm.wants_plugins
    assert profile.plugins == ()


@pytest.mark.parametrize(
    ("text", "settings"),
    [
        ("instance_norm: native", Implementations("native")),
        ("instance_norm: plugin", Implementations("plugin")),
        ("instance_norm: {default: plugin}", Implementations("plugin")),
        ("instance_norm: {nodes: {/a/In: plugin}}", Implementations("native", {"/a/In": "plugin"})),
        ("instance_norm:\n  default: plugin\n  nodes:\n    in1: native", Implementations("plugin", {"in1": "native"})),
    ],
)
def test_a_default_and_exceptions(text: str, settings: Implementations) -> None:
    profile = parse_profile(text)
    assert profile.instance_norm.settings() == settings
    assert profile.instance_norm.wants_plugins == ("plugin" in (settings.default, *settings.nodes.values()))
    assert BuildProfile.model_validate(profile.model_dump(mode="json")) == profile


def test_an_exception_counts_before_the_default() -> None:
    choice = Implementations("plugin", {"in1": "native"})
    assert [choice.of(node) for node in ("in0", "in1")] == ["plugin", "native"]


@pytest.mark.parametrize(
    ("text", "where", "summary"),
    [
        (
            "builder: {}\ninstance_norm: plugn",
            "cfg.yaml:2: instance_norm",
            f"{EXPECTED}, got the text 'plugn'; did you mean 'plugin'?",
        ),
        (
            "instance_norm: [plugin]",
            "cfg.yaml:1: instance_norm",
            f"{EXPECTED}, got a list of 1",
        ),
        (
            "instance_norm:\n  default: trt",
            "cfg.yaml:2: instance_norm.default",
            "expected 'native' or 'plugin', got the text 'trt'",
        ),
        (
            "instance_norm:\n  nodes:\n    in0: native\n    in1: no",
            "cfg.yaml:4: instance_norm.nodes.in1",
            "expected 'native' or 'plugin', got the text 'no'",
        ),
        ("instance_norm:\n  node: {}", "cfg.yaml:2: instance_norm", "unknown key 'node'; did you mean 'nodes'?"),
    ],
)
def test_mistakes(text: str, where: str, summary: str) -> None:
    error = refused(text)
    assert (error.where, error.summary) == (where, summary)


def test_a_plugin_for_group_norms_needs_a_library() -> None:
    error = refused("builder: {}\ngroup_norm: plugin")
    assert error.where == "cfg.yaml:2: group_norm"
    for reason in ("deprecated", "cuDNN in training mode", "a fixed batch", "float32 only"):
        assert reason in error.summary
    assert error.hint == "use group_norm: native, or give a library that has the plugin under plugins:"
    assert parse_profile("group_norm: plugin\nplugins: [libmine.so]").group_norm.wants_plugins
    assert refused("group_norm: {nodes: {gn0: plugin}}").where == "cfg.yaml:1: group_norm"


@pytest.mark.parametrize("setting", ["version_compatible: true", "hardware_compatibility: ampere_plus"])
@pytest.mark.parametrize("key", ["instance_norm", "group_norm"])
def test_an_engine_that_runs_elsewhere_needs_native_layers(key: str, setting: str) -> None:
    error = refused(f"plugins: [a.so]\nbuilder: {{{setting}}}\n{key}: {{nodes: {{a: plugin}}}}")
    name = setting.split(":")[0]
    assert error.where == f"cfg.yaml:3: {key}"
    assert (
        f"builder.{name} asks for an engine that runs elsewhere too, which has to have TensorRT's own layers" in error.summary
    )
    assert error.hint == f"use {key}: native, or leave out {name}"


@pytest.mark.parametrize(
    ("builder", "wanted"),
    [("{version_compatible: false, hardware_compatibility: none}", "plugin"), ("{version_compatible: true}", "native")],
)
def test_settings_that_ask_for_no_such_engine(builder: str, wanted: str) -> None:
    profile = parse_profile(f"builder: {builder}\ninstance_norm: {wanted}")
    assert profile.instance_norm.default == wanted


def test_a_node_in_the_place_of_a_named_one() -> None:
    choice = Implementations("native", {"/a/Add": "plugin", "/a/Add/x": "native"})
    nodes = ("/a/Add", "/a/Add/instance_norm", "/a/Add/x/y", "/a/Add_1", "/a")
    assert [choice.of(node) for node in nodes] == ["plugin", "plugin", "native", "native", "native"]


@pytest.mark.parametrize(("operator", "refused"), [("Add", False), ("Mul", False), ("BatchNormalization", True)])
def test_a_normalization_in_pieces_has_the_name_of_its_last_node(operator: str, refused: bool) -> None:
    profile = parse_profile("instance_norm:\n  nodes:\n    last: plugin\n", "cfg.yaml")
    with pytest.raises(ProfileError, match="no InstanceNormalization 'last'") if refused else nullcontext():
        refuse_unknown_names(profile, operators={"last": operator})


def test_names_of_nodes() -> None:
    profile = parse_profile("instance_norm:\n  nodes:\n    /a/in0: plugin\n    bn0: plugin", "cfg.yaml")
    with pytest.raises(ProfileError) as caught:
        refuse_unknown_names(profile, operators={"/a/In0": "InstanceNormalization", "bn0": "BatchNormalization"})
    error = caught.value
    assert error.where == 'cfg.yaml:3: instance_norm.nodes."/a/in0"'
    assert error.summary == (
        "the model has no InstanceNormalization '/a/in0'; did you mean '/a/In0'?\n"
        "cfg.yaml:4: instance_norm.nodes.bn0: the model has no InstanceNormalization 'bn0': 'bn0' is a BatchNormalization"
    )
    assert error.hint == "InstanceNormalization nodes of the model: /a/In0"
    known = dict.fromkeys(("/a/in0", "bn0"), "InstanceNormalization")
    refuse_unknown_names(profile, operators=known)
    refuse_unknown_names(profile)


def test_libraries_are_relative_to_the_profile(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "mine.so").touch()
    path = tmp_path / "cfg.yaml"
    path.write_text(f"plugins: [lib/mine.so, {tmp_path}/lib/mine.so]")
    profile = load_profile(path)
    assert library_paths(profile, tmp_path) == (tmp_path / "lib" / "mine.so",) * 2
    assert library_paths(None, tmp_path) == ()


def test_libraries_have_to_be_there(tmp_path: Path) -> None:
    path = tmp_path / "cfg.yaml"
    path.write_text("builder: {}\nplugins:\n  - none.so\n  - .")
    with pytest.raises(ProfileError) as caught:
        load_profile(path)
    error = caught.value
    assert error.where == f"{path}:3: plugins[0]"
    assert error.summary == f"the plugin library none.so does not exist\n{path}:4: plugins[1]: the plugin library . is a folder"
    assert error.hint == f"the path is relative to the folder of the build profile, {tmp_path}"


def test_the_schema_takes_both_forms() -> None:
    schema = json_schema()
    short = {"enum": ["native", "plugin"], "type": "string"}
    assert short in schema["$defs"]["NormImplementation"]["anyOf"]
