"""Every name of TensorRT that the package uses, against what each release has."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import trtnorm_cli
from tests.tensorrt.releases import NAMES, RELEASES, config_of, stand_in
from trtnorm_cli.profile.builder import BuilderSettings
from trtnorm_cli.profile.load import parse_profile
from trtnorm_cli.tensorrt.backend import Backend
from trtnorm_cli.tensorrt.capabilities import CAPABILITIES
from trtnorm_cli.tensorrt.capabilities import NAMES as CAPABILITY_NAMES
from trtnorm_cli.tensorrt.settings import SETTINGS, apply_settings, faults_of, notes_of

PACKAGE = Path(trtnorm_cli.__file__).parent
# What the variables of the modules that drive TensorRT hold.
CLASSES = {
    "builder": "Builder",
    "config": "IBuilderConfig",
    "network": "INetworkDefinition",
    "parser": "OnnxParser",
    "inspector": "EngineInspector",
    "runtime": "Runtime",
    "cache": "ITimingCache",
    "weights": "Weights",
}
# These hold a network, tensors and weights of their own under the same names.
OWN_CLASSES = {"translate.py", "context.py", "weights.py", "typed.py"}
# Not in the lists of names: the module's version, and its aliases for members of DataType.
UNLISTED = {"__version__", "float32"}
LAYER_VARIABLES = {"handle", "layer"}


def chain(node: ast.AST) -> list[str]:
    """``["self", "trt", "BuilderFlag"]`` for ``self.trt.BuilderFlag``; empty where something else is in between."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.insert(0, node.attr)
        node = node.value
    return [node.id, *parts] if isinstance(node, ast.Name) else []


def names_used(path: Path) -> set[str]:
    """The names of TensorRT in one module, as ``Class.member`` or ``member`` of the module."""
    used: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            parts = chain(node)
            if "trt" in parts[:-1]:
                used.add(".".join(parts[parts.index("trt") + 1 :][:2]))
            elif len(parts) > 1 and path.name not in OWN_CLASSES:
                owner = parts[1] if parts[0] == "self" and len(parts) > 2 else parts[0]
                member = parts[2] if parts[0] == "self" and len(parts) > 2 else parts[1]
                if owner in CLASSES:
                    used.add(f"{CLASSES[owner]}.{member}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_flag":
            used.add(f"BuilderFlag.{ast.literal_eval(node.args[0])}")
    return {name for name in used if not name.rpartition(".")[2].startswith("__")}


def drives_tensorrt(path: Path) -> bool:
    text = path.read_text(encoding="utf-8")
    nodes = ast.walk(ast.parse(text)) if re.search(r"\btrt\b", text) else ()
    named = any(isinstance(node, ast.Attribute) and "trt" in chain(node)[:-1] for node in nodes)
    return named or path.name == "timing_cache.py"


DRIVERS = sorted(path for path in PACKAGE.rglob("*.py") if drives_tensorrt(path))
GUARDED = {name for capability in CAPABILITIES for name in capability.names}
EVERYWHERE = set.intersection(*NAMES.values())


def test_the_modules_are_found():
    assert {
        "worker.py",
        "settings.py",
        "backend.py",
        "probe.py",
        "inspector.py",
        "parsing.py",
        "timing_cache.py",
        "engine_output.py",
    } <= {path.name for path in DRIVERS}
    assert "Builder.build_serialized_network" in names_used(PACKAGE / "tensorrt" / "child" / "engine_output.py")
    assert "BuilderFlag.STRIP_PLAN" in names_used(PACKAGE / "tensorrt" / "settings.py")
    assert "IBuilderConfig.create_timing_cache" in names_used(PACKAGE / "tensorrt" / "child" / "timing_cache.py")


@pytest.mark.parametrize("path", DRIVERS, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_each_name_is_in_every_release_or_stands_behind_a_capability(path):
    unknown = {name for name in names_used(path) if name not in EVERYWHERE | GUARDED | UNLISTED}
    assert not unknown, f"{path.name} uses what some release lacks: {sorted(unknown)}"


def test_the_members_of_layers_are_in_every_release():
    """A layer is read by its own class. A release that has one of the classes with the member must have the member too."""
    used = {
        node.attr
        for path in (PACKAGE / "tensorrt" / "network").glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and chain(node)[-2:-1] == ["handle"] and not node.attr.startswith("__")
    }
    assert len(used) > 50
    newest = NAMES[RELEASES[-1]]
    owners = {member: {n.rpartition(".")[0] for n in newest if n.endswith(f".{member}")} for member in used}
    assert all(owners.values())
    for release, names in NAMES.items():
        for member, classes in owners.items():
            there = {name for name in classes if name in names}
            assert not there or any(f"{name}.{member}" in names for name in there), (release, member)


@pytest.mark.parametrize(("capability", "has_it"), [
    ("explicit batch flag", "1110010"), ("strong typing flag", "1111111"), ("weak typing", "1110000"),
    ("targets", "0000011"), ("tiling", "0111111"), ("hardware compatibility", "1111100"),
    ("same compute capability", "0111100"), ("timing cache", "1111100"), ("lean runtime", "1111100"),
    ("attention", "0011111"), ("engine in pieces", "0000011"),
])  # fmt: skip
def test_which_release_has_what(capability, has_it):
    found = "".join(str(int(Backend("x", stand_in(release)).can(capability))) for release in RELEASES)
    assert found == has_it, dict(zip(RELEASES, found, strict=True))


def test_every_capability_is_listed_above():
    listed = {case[0] for mark in test_which_release_has_what.pytestmark for case in mark.args[1]}
    assert listed == CAPABILITY_NAMES


def test_a_capability_that_does_not_exist_is_a_mistake():
    with pytest.raises(KeyError):
        Backend("x", stand_in(RELEASES[0])).can("magic")


def test_targets_of_each_release():
    targets = {release: Backend("x", stand_in(release)).targets for release in RELEASES}
    assert targets["tensorrt 11.4.0.106"] == ()
    assert targets["tensorrt-rtx 1.4.0.76"] == ("sm_75", "sm_80", "sm_86", "sm_89", "sm_120")
    assert targets["tensorrt-rtx 1.7.1.116"] == ("sm_75", "sm_80", "sm_86", "sm_89", "sm_120", "sm_121")


VALUES = {
    "optimization_level": [0, 5], "workspace": [1 << 30], "tiling": ["none", "fast", "moderate", "full"], "l2_limit": [1 << 22],
    "max_aux_streams": [0, 2], "hardware_compatibility": ["none", "ampere_plus", "same_compute_capability"],
    "profiling_verbosity": ["detailed", "layer_names_only", "none"], "timing_cache": ["a.cache"],
    "targets": [["sm_86"], ["sm_75", "sm_120"]],
}  # fmt: skip


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("row", SETTINGS, ids=lambda row: row.key)
def test_each_setting_in_each_release(release, row):
    """It is applied, or it is a fault that names an alternative, or a note: with the names that this release has."""
    backend = Backend("x", stand_in(release))
    for value in VALUES.get(row.key, [True, False]):
        settings = {row.key: value}
        faults = faults_of(settings, "x", backend.capabilities, backend.targets)
        notes = notes_of(settings, "x", backend.capabilities)
        config = config_of(backend.trt)
        apply_settings(config, {} if faults else settings, backend.trt)
        own = [entry for entry in config.noted if entry[0] != "profiling_verbosity" or row.key == "profiling_verbosity"]
        assert all(fault.instead and fault.key == row.key for fault in faults)
        handled = bool(own) + bool(faults) + bool(notes)
        # The file of the timing cache is read and written by the worker itself, where the release has one.
        elsewhere = row.key == "timing_cache" and backend.can("timing cache")
        assert handled == (0 if elsewhere else 1)


def test_the_table_and_the_profile_have_the_same_keys():
    assert [row.key for row in SETTINGS] == list(BuilderSettings.model_fields)


def test_all_settings_at_once_on_the_newest():
    text = (
        "builder:\n  optimization_level: 5\n  workspace: 1GiB\n  tiling: full\n  l2_limit: 4MiB\n  max_aux_streams: 2\n"
        "  tf32: false\n  sparse_weights: true\n  refit: true\n  refit_identical: false\n  strip_plan: true\n"
        "  version_compatible: true\n  exclude_lean_runtime: true\n  weight_streaming: true\n  targets: [sm_86, 12.0]\n"
    )
    settings = parse_profile(text).builder.model_dump(mode="json", exclude_none=True)
    backend = Backend("tensorrt-rtx", stand_in(RELEASES[-1]))
    assert faults_of(settings, "x", backend.capabilities, backend.targets) == []
    config = config_of(backend.trt)
    apply_settings(config, settings, backend.trt)
    flags, compute = backend.trt.BuilderFlag, backend.trt.ComputeCapability
    assert config.noted == [
        ("builder_optimization_level", 5),
        ("set_memory_pool_limit", backend.trt.MemoryPoolType.WORKSPACE, 1 << 30),
        ("tiling_optimization_level", backend.trt.TilingOptimizationLevel.FULL),
        ("l2_limit_for_tiling", 4 << 20),
        ("max_aux_streams", 2),
        ("clear_flag", flags.TF32),
        ("set_flag", flags.SPARSE_WEIGHTS),
        ("set_flag", flags.REFIT),
        ("clear_flag", flags.REFIT_IDENTICAL),
        ("set_flag", flags.STRIP_PLAN),
        ("set_flag", flags.VERSION_COMPATIBLE),
        ("set_flag", flags.EXCLUDE_LEAN_RUNTIME),
        ("set_flag", flags.WEIGHT_STREAMING),
        ("profiling_verbosity", backend.trt.ProfilingVerbosity.DETAILED),
        ("num_compute_capabilities", 2),
        ("set_compute_capability", compute.SM86, 0),
        ("set_compute_capability", compute.SM120, 1),
    ]


def test_a_key_that_is_not_in_the_table_is_not_dropped():
    backend = Backend("x", stand_in(RELEASES[0]))
    with pytest.raises(ValueError, match="no builder setting named magic"):
        apply_settings(config_of(backend.trt), {"magic": 1}, backend.trt)
