"""Plugin nodes before TensorRT's own registry and parser. Nothing here was run on TensorRT 10 or 11."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import loaded, parse, random
from tests.rewritings import rewrite
from trtnorm_cli.child_process import Limits
from trtnorm_cli.onnx_model.plugin_nodes import DOMAIN, for_builder
from trtnorm_cli.profile.rewriting import Implementations, RewriteSettings
from trtnorm_cli.tensorrt.explain import refusal
from trtnorm_cli.tensorrt.launch import WORKER, launch
from trtnorm_cli.tensorrt.plugin_request import with_plugins
from trtnorm_cli.tensorrt.request import BuildRequest, BuildResult

pytestmark = pytest.mark.rtx
PLUGINS = RewriteSettings(instance_norm=Implementations("plugin"), group_norm=Implementations("plugin"))
WITH_CREATORS = (sys.executable, str(Path(__file__).with_name("plugin_worker.py")))
# As NVIDIA's creators declare them (TensorRT open source, plugin/instanceNormalizationPlugin and groupNormalizationPlugin).
INSTANCE_NORM = {
    "name": "InstanceNormalization_TRT",
    "version": "3",
    "namespace": "",
    "fields": {"epsilon": "FLOAT32", "scales": "FLOAT32", "bias": "FLOAT32", "relu": "INT32", "alpha": "FLOAT32"},
}
GROUP_NORM = {
    "name": "GroupNormalizationPlugin",
    "version": "1",
    "namespace": "",
    "fields": {"eps": "FLOAT32", "num_groups": "INT32"},
}


def instance_norms(kind: str = "float") -> onnx.ModelProto:
    dtype = np.float32 if kind == "float" else np.float16
    return parse(
        f"g ({kind}[2, 3, 8, 8] x) => ({kind}[2, 3, 8, 8] y) {{ [in0] a = InstanceNormalization <epsilon=1e-3> (x, s, b)"
        " [act] r = LeakyRelu <alpha=0.2> (a) [in1] y = InstanceNormalization(r, s, b) }",
        {"s": random(3, dtype=dtype), "b": random(3, seed=1, dtype=dtype)},
    )


@dataclass(frozen=True)
class Parsed:
    """How a build ended, and what the parser handed to the creators."""

    result: BuildResult
    given: list[dict[str, object]]
    text: str
    hint: str


def parsed(
    model: onnx.ModelProto,
    folder: Path,
    creators: list[dict[str, object]] | None = None,
    libraries: tuple[str, ...] = (),
) -> Parsed:
    """A build of ``model`` as the builder gets it. With ``creators``, the registry has them."""
    (folder / "m.onnx").write_bytes(for_builder(model).SerializeToString())
    (folder / "creators.json").write_text(json.dumps(creators))
    request = BuildRequest("m.onnx", str(folder / "out.engine"), "tensorrt-rtx")
    request = with_plugins(request, model, libraries)
    result = launch(request, folder, lambda event: None, Limits(120), WORKER if creators is None else WITH_CREATORS)
    error = None if result.ok else refusal(result, model, folder)
    fields = folder / "fields.json"
    given = [json.loads(line) for line in fields.read_text().splitlines()] if fields.exists() else []
    return Parsed(result, given, "" if error is None else f"{error.summary}\n{error.where}", (error and error.hint) or "")


def with_plugin_nodes(model: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    rewriting = rewrite(loaded(model, folder), settings=PLUGINS)
    rewriting.require_all_checks_passed()
    return rewriting.model


@pytest.mark.parametrize("kind", ["float", "float16"])
def test_the_parser_hands_the_attributes_to_the_plugin(tmp_path, kind):
    model = with_plugin_nodes(instance_norms(kind), tmp_path)
    outcome = parsed(model, tmp_path, [INSTANCE_NORM])
    assert outcome.result.stage == "parse", "the lookup succeeded; only creating the plugin did not"
    assert "Could not create the plugin" in outcome.text
    (given,) = outcome.given
    assert (given["node"], given["phase"]) == ("in0", "BUILD")
    fields = given["fields"]
    assert {name: kind for name, (kind, _) in fields.items()} == INSTANCE_NORM["fields"]
    values = {name: np.float32(value) for name, (_, value) in fields.items()}
    dtype = np.float32 if kind == "float" else np.float16
    np.testing.assert_array_equal(values["scales"], random(3, dtype=dtype).astype(np.float32))
    np.testing.assert_array_equal(values["bias"], random(3, seed=1, dtype=dtype).astype(np.float32))
    assert values["epsilon"] == np.float32([1e-3])
    assert values["alpha"] == np.float32([0.2])
    assert fields["relu"][1] == [1]


def test_a_group_norm_plugin_is_found(tmp_path):
    model = parse(
        "g (float[2, 6, 4, 4] x) => (float[2, 6, 4, 4] y) {"
        " [gn0] y = GroupNormalization <num_groups=3, epsilon=1e-4> (x, s, b) }",
        {"s": random(6), "b": random(6, seed=1)},
        opset=21,
    )
    outcome = parsed(with_plugin_nodes(model, tmp_path), tmp_path, [GROUP_NORM])
    (given,) = outcome.given
    assert given["fields"]["num_groups"] == ["INT32", [3]]
    assert np.float32(given["fields"]["eps"][1]) == np.float32([1e-4])


def test_an_absent_plugin_is_one_clear_error(tmp_path):
    outcome = parsed(with_plugin_nodes(instance_norms(), tmp_path), tmp_path)
    assert outcome.result.stage == "plugins"
    assert outcome.text.startswith("TensorRT cannot use the plugins that the model wants\n")
    version = outcome.result.version
    assert (
        f"there is no plugin InstanceNormalization_TRT, version '3' in namespace '', in tensorrt-rtx {version}; "
        "wanted by in0, in1\n" in outcome.text
    )
    native, library = outcome.hint.splitlines()
    assert native == "instance_norm: native builds TensorRT's own layer instead"
    assert library.startswith("TensorRT for RTX has no plugin layers of its own; name a library that has the plugin")


def test_plugins_of_others_have_no_native_alternative(tmp_path):
    """Nothing in the build profile makes an operator of ONNX of them."""
    model = parse(
        "g (float[2, 3, 4, 4] x) => (float[2, 3, 4, 4] y) {"
        ' [in0] y = InstanceNormalization_TRT <scales=[1.0, 1.0, 1.0], bias=[0.0, 0.0, 0.0], plugin_version="1"> (x) }'
    )
    outcome = parsed(model, tmp_path)
    assert "there is no plugin InstanceNormalization_TRT, version '1'" in outcome.text
    assert outcome.hint.startswith("TensorRT for RTX has no plugin layers of its own; name a library")


def odd(attributes: str = "", domain: str = "") -> onnx.ModelProto:
    model = parse(f"g (float[2, 3] x) => (float[2, 3] y) {{ [odd] y = Odd {attributes}(x) }}")
    if domain:
        model.graph.node[0].domain = domain
        model.opset_import.add(domain=domain, version=1)
    return model


@pytest.mark.parametrize(
    ("attributes", "domain", "namespace", "version"),
    [
        ("", "", "", "1"),
        ("", "mine", "mine", "1"),
        ("", "mine", "", "1"),
        ('<plugin_namespace="">', "mine", "mine", "1"),
        ('<plugin_namespace="other">', "mine", "mine", "1"),
        ('<plugin_namespace="mine">', "", "mine", "1"),
        ('<plugin_namespace="mine">', "mine", "", None),
        ('<plugin_version="2">', "", "", "2"),
        ("", "", "", None),
    ],
)
def test_a_plugin_is_found_where_the_parser_finds_it(tmp_path, attributes, domain, namespace, version):
    """By name, version, and the namespace that the node gives or its domain."""
    creator = {"name": "Odd", "version": version or "7", "namespace": namespace, "fields": {}}
    if version is None and attributes:
        creator["version"] = "1"
    model = odd(attributes, domain)
    library = importlib.util.find_spec("_ctypes").origin
    outcome = parsed(model, tmp_path, [creator], libraries=(library,))
    assert outcome.result.stage == ("parse" if version else "plugins")
    assert len(outcome.given) == (1 if version else 0)
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "m.onnx").write_bytes(model.SerializeToString())
    (alone / "creators.json").write_text(json.dumps([creator]))
    launch(BuildRequest("m.onnx", str(alone / "o"), "tensorrt-rtx"), alone, lambda event: None, Limits(120), WITH_CREATORS)
    assert (alone / "fields.json").exists() == (version is not None), "the parser alone finds the same"


def test_a_version_has_to_be_a_string(tmp_path):
    outcome = parsed(odd("<plugin_version=2> "), tmp_path, [{"name": "Odd", "version": "2", "namespace": "", "fields": {}}])
    assert outcome.result.stage == "plugins"
    assert "node odd (Odd): plugin_version has to be a string, and the node gives int\n" in outcome.text


@pytest.mark.parametrize("namespace", ["", DOMAIN])
def test_the_parser_may_take_a_plugin_before_a_function(tmp_path, namespace):
    """As TensorRT does since 10.7; the file for the builder leaves it no choice."""
    model = with_plugin_nodes(instance_norms(), tmp_path)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "creators.json").write_text(json.dumps([{**INSTANCE_NORM, "namespace": namespace}]))
    request = BuildRequest("m.onnx", str(tmp_path / "out.engine"), "tensorrt-rtx")
    result = launch(request, tmp_path, lambda event: None, Limits(120), WITH_CREATORS)
    assert (tmp_path / "fields.json").exists() == (namespace == "")
    assert result.ok == (namespace != "")


def test_other_versions_and_namespaces_are_named(tmp_path):
    others = [{**INSTANCE_NORM, "version": "1"}, {**INSTANCE_NORM, "namespace": "mine"}]
    outcome = parsed(with_plugin_nodes(instance_norms(), tmp_path), tmp_path, others)
    assert outcome.result.stage == "plugins"
    assert "only version '1' in namespace '' and version '3' in namespace 'mine'; wanted by in0, in1" in outcome.text


def test_attributes_that_the_plugin_does_not_know(tmp_path):
    """The parser would leave them out without a word."""
    fields = {name: kind for name, kind in INSTANCE_NORM["fields"].items() if name not in ("relu", "alpha")}
    outcome = parsed(with_plugin_nodes(instance_norms(), tmp_path), tmp_path, [{**INSTANCE_NORM, "fields": fields}])
    assert outcome.result.stage == "plugins"
    assert outcome.given == []
    plugin = "the plugin InstanceNormalization_TRT, version '3' in namespace ''"
    reasons = "has no attribute 'relu'; has no attribute 'alpha'; it takes epsilon, scales, bias"
    assert f"node in0 (InstanceNormalization_TRT): {plugin}, {reasons}\n" in outcome.text


def test_attributes_of_another_type(tmp_path):
    fields = {**INSTANCE_NORM["fields"], "epsilon": "INT32", "relu": "FLOAT32"}
    outcome = parsed(with_plugin_nodes(instance_norms(), tmp_path), tmp_path, [{**INSTANCE_NORM, "fields": fields}])
    assert outcome.result.stage == "plugins"
    assert "wants 'epsilon' as int32, and the node gives float" in outcome.text
    assert "wants 'relu' as float32, and the node gives int;" in outcome.text


def test_operators_of_the_parser_need_no_plugin(tmp_path):
    """Some exporters write plugin attributes on operators that ONNX has."""
    model = parse('g (float[2, 3] x) => (float[2, 3] y) { y = Relu <plugin_version="1"> (x) }')
    assert parsed(model, tmp_path).result.ok


def test_a_plugin_that_comes_with_tensorrt(tmp_path):
    """ROIAlign_TRT is the one that TensorRT for RTX 1.7 has; creating it needs a GPU."""
    model = parse(
        "g (float[1, 4, 16, 16] x, float[5, 4] r, int32[5] b) => (float[5, 4, 3, 3] y) {"
        ' [roi] y = ROIAlign_TRT <plugin_version="2", output_height=3, output_width=3, sampling_ratio=2, mode=1,'
        " spatial_scale=1.0, coordinate_transformation_mode=1> (x, r, b) }"
    )
    outcome = parsed(model, tmp_path)
    assert outcome.result.ok or "Could not create the plugin" in outcome.text, outcome.text


def test_unknown_operators_are_looked_up_where_a_library_is_given(tmp_path):
    model = parse("g (float[2, 3] x) => (float[2, 3] y) { [odd] y = Odd(x) }")
    without = parsed(model, tmp_path)
    assert (without.result.stage, "Plugin not found" in without.text) == ("parse", True)
    library = importlib.util.find_spec("_ctypes").origin
    outcome = parsed(model, tmp_path, libraries=(library,))
    assert outcome.result.stage == "plugins"
    assert "there is no plugin Odd, version '1' in namespace ''" in outcome.text
    assert "native" not in outcome.hint


def test_a_library_that_has_no_plugins_is_a_warning(tmp_path):
    library = importlib.util.find_spec("_ctypes").origin
    outcome = parsed(parse("g (float[2, 3] x) => (float[2, 3] y) { y = Relu(x) }"), tmp_path, libraries=(library,))
    assert outcome.result.ok
    assert f"the plugin library {library} was loaded, and registered no plugin that was not there before" in (
        outcome.result.warnings
    )


def test_a_library_that_is_none(tmp_path):
    (tmp_path / "none.so").write_text("this is text")
    library = str(tmp_path / "none.so")
    outcome = parsed(parse("g (float[2] x) => (float[2] y) { y = Relu(x) }"), tmp_path, libraries=(library,))
    assert outcome.result.stage == "plugins"
    assert f"the plugin library {library} cannot be loaded: {library}: " in outcome.text
    assert "`ldd` shows what it needs itself" in outcome.hint
