"""The names of TensorRT's plugin interface that the package uses, against what each release has."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from trtnorm_cli.tensorrt import plugins

TREE = ast.parse(Path(plugins.__file__).read_text(encoding="utf-8"))
LISTING = Path(__file__).parents[1] / "data" / "tensorrt_plugin_names.json"
RELEASES = json.loads(LISTING.read_text(encoding="utf-8"))["releases"]
every_release = pytest.mark.parametrize("names", RELEASES.values(), ids=list(RELEASES))


def used_on(variable: str) -> set[str]:
    """What is asked of the variable: ``registry.get_creator`` is ``get_creator``."""
    asked = (node for node in ast.walk(TREE) if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name))
    return {node.attr for node in asked if node.value.id == variable}


def test_there_are_names_to_look_at():
    assert used_on("registry") == {"load_library", "all_creators", "get_creator"}
    assert used_on("creator") == {"name", "plugin_version", "plugin_namespace", "field_names"}
    assert used_on("field") == {"name", "type"}
    assert used_on("trt") == {"get_plugin_registry", "init_libnvinfer_plugins"}


@every_release
def test_every_release_has_them(names):
    assert used_on("trt") <= set(names[""].split())
    assert used_on("registry") <= set(names["IPluginRegistry"].split())
    assert used_on("field") <= set(names["PluginField"].split())
    for creator in ("IPluginCreator", "IPluginCreatorV3One"):
        assert used_on("creator") <= set(names[creator].split())


@every_release
def test_the_types_of_fields_are_known(names):
    """Eight-bit floats and smaller, texts and dimensions take whatever the node gives."""
    others = {"CHAR", "DIMS", "UNKNOWN", "FP8", "FP4", "INT4"}
    assert set(names["PluginFieldType"].split()) - others == set(plugins._NUMBERS)
