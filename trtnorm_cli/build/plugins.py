"""Plugins: what a model wants, whether TensorRT's registry has it, and the error that says what is missing.

The parser itself says only that a plugin was not found, and ignores attributes that the plugin does not know. So the registry
is asked first, in the child process.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from trtnorm_cli.build.backend import Backend, installed
from trtnorm_cli.build.request import LOG_FILE, BuildRequest, BuildResult, TensorRTMessage
from trtnorm_cli.errors import TensorRTRefusal
from trtnorm_cli.profile.problems import Problem, refusal

if TYPE_CHECKING:
    from pathlib import Path

    import onnx

    from trtnorm_cli.profile.model import BuildProfile

STAGE = "plugins"
Address = tuple[str, str, str]
Wanted = Mapping[str, Any]

# The ONNX type from which the parser makes a field of each TensorRT type. A field of another type takes what it can.
_NUMBERS = {
    **dict.fromkeys(("FLOAT16", "BF16", "FLOAT32", "FLOAT64"), "FLOAT"),
    **dict.fromkeys(("INT8", "INT16", "INT32", "INT64"), "INT"),
}
# Backends that bring no plugin layers.
WITHOUT_PLUGINS = ("tensorrt-rtx",)
_SHOWN = 4
# In the place of TensorRT's error code: the plugin stands for an operator of ONNX.
_OWN = "written by trtnorm"
_ABSENT, _NOT_LOADED = "there is no plugin ", "the plugin library "


def require_plugins_can_be(profile: BuildProfile | None, backend: str | None) -> None:
    """Raise ``ProfileError`` where the profile wants TensorRT's own plugins and the backend brings none."""
    expected = backend or next((spec.name for spec in installed()), None)
    if profile is None or profile.plugins or expected not in WITHOUT_PLUGINS or not profile.instance_norm.wants_plugins:
        return
    hint = "use instance_norm: native, build with --backend tensorrt, or name a library that has the plugin under plugins:"
    problem = Problem(("instance_norm",), "TensorRT for RTX has no plugin layers", hint)
    raise refusal([problem], profile.positions)


def with_plugins(request: BuildRequest, model: onnx.ModelProto, libraries: tuple[str, ...]) -> BuildRequest:
    """``request`` with what the child must know of plugins. ``model`` is the one that others than the builder get.

    An operator that neither ONNX nor the model defines counts where the user gave libraries.
    """
    from trtnorm_cli.onnx_model.plugin_nodes import plugin_nodes

    nodes = plugin_nodes(model, every=bool(libraries))
    wanted = [asdict(node) for node in nodes if node.is_own or not node.has_function]
    return replace(request, plugins=libraries, plugin_nodes=tuple(wanted))


def make_ready(backend: Backend, logger: Any, parser: Any, request: BuildRequest) -> list[TensorRTMessage]:
    """Load the plugin libraries and look up every plugin that the model wants; returns what is wrong."""
    if not request.plugins and not request.plugin_nodes:
        return []
    trt = backend.trt
    if backend.name not in WITHOUT_PLUGINS:
        trt.init_libnvinfer_plugins(logger, "")
    registry = trt.get_plugin_registry()
    problems = [problem for path in request.plugins if (problem := _load(registry, path, logger)) is not None]
    return problems or plugin_problems(registry, parser, request.plugin_nodes, f"{backend.name} {backend.version}")


def _load(registry: Any, path: str, logger: Any) -> TensorRTMessage | None:
    """Load a plugin library, and warn when no plugin came of it.

    A library without entry points for the registry may register its plugins by itself as soon as it is loaded.
    """
    before = _addresses(registry)
    try:
        if registry.load_library(path) is None:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except (OSError, RuntimeError, ValueError) as error:
        return TensorRTMessage(f"{_NOT_LOADED}{path} cannot be loaded: {error}")
    if _addresses(registry) == before:
        logger.warnings.append(f"the plugin library {path} was loaded, and registered no plugin that was not there before")
    return None


def _addresses(registry: Any) -> set[Address]:
    """Name, version and namespace of every plugin that is registered."""
    return {(creator.name, creator.plugin_version, creator.plugin_namespace) for creator in registry.all_creators}


def plugin_problems(registry: Any, parser: Any, wanted: Iterable[Wanted], backend: str) -> list[TensorRTMessage]:
    """What stands in the way of the plugin nodes ``wanted``: one message for each absent plugin, and for each node whose
    attributes the plugin does not take.

    A node whose operator the parser imports by itself is none of them.
    """
    by_plugin: dict[Address, list[Wanted]] = {}
    for node in wanted:
        if not parser.supports_operator(node["operator"]):
            by_plugin.setdefault((node["operator"], node["version"], node["namespace"]), []).append(node)
    messages = []
    for address, nodes in by_plugin.items():
        creator = registry.get_creator(*address)
        if creator is None:
            messages.append(_absent(address, nodes, _addresses(registry), backend))
        else:
            messages += [misfit for node in nodes if (misfit := _misfit(node, _fields(creator))) is not None]
    return messages


def _absent(address: Address, nodes: Sequence[Wanted], known: Iterable[Address], backend: str) -> TensorRTMessage:
    name, version, namespace = address
    others = sorted(_said(v, n) for other, v, n in known if other == name)
    instead = f", only {' and '.join(others)}" if others else ""
    names = [node["node"] for node in nodes]
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    wanted_by = f"wanted by {', '.join(names[:_SHOWN])}{rest}"
    text = f"{_ABSENT}{name}, {_said(version, namespace)}, in {backend}{instead}; {wanted_by}"
    return TensorRTMessage(text, operator=name, code=_OWN if nodes[0]["is_own"] else "")


def _said(version: str, namespace: str) -> str:
    return f"version {version!r} in namespace {namespace!r}"


def _fields(creator: Any) -> dict[str, str]:
    """The plugin's attributes with their TensorRT types."""
    return {field.name: field.type.name for field in creator.field_names}


def _misfit(node: Wanted, fields: Mapping[str, str]) -> TensorRTMessage | None:
    """The attributes that the plugin does not know, or wants in another type."""
    reasons = [f"has no attribute {name!r}" for name in node["attributes"] if name not in fields]
    for name, given in node["attributes"].items():
        kind = _NUMBERS.get(fields.get(name, ""))
        if kind is not None and given not in (kind, f"{kind}S", "TENSOR"):
            reasons.append(f"wants {name!r} as {fields[name].lower()}, and the node gives {given.lower()}")
    if not reasons:
        return None
    text = f"the plugin {node['operator']}, {_said(node['version'], node['namespace'])}, {'; '.join(reasons)}"
    return TensorRTMessage(f"{text}; it takes {', '.join(fields) or 'none'}", node["node"], node["operator"])


def refusal_of_plugins(result: BuildResult, folder: Path) -> TensorRTRefusal:
    """The error for a build that ended at this stage."""
    nodes = [f"node {m.node} ({m.operator}): " if m.node else "" for m in result.errors]
    lines = [node + message.text for node, message in zip(nodes, result.errors, strict=True)]
    return TensorRTRefusal(
        "TensorRT cannot use the plugins that the model wants",
        where="\n".join([*lines, f"log: {folder / LOG_FILE}"]),
        hint="\n".join(_hints(result)),
    )


def _hints(result: BuildResult) -> list[str]:
    """What can be done; TensorRT for RTX brings no plugins of its own, and takes those of a library."""
    absent = [message for message in result.errors if message.text.startswith(_ABSENT)]
    own = {message.operator for message in absent if message.code == _OWN}
    hints = [f"{key}: native builds TensorRT's own layer instead" for name, key in _ALTERNATIVES.items() if name in own]
    if absent:
        none = "TensorRT for RTX has no plugin layers of its own; " if result.backend in WITHOUT_PLUGINS else ""
        hints.append(f"{none}name a library that has the plugin under plugins: in the build profile")
    if any(message.text.startswith(_NOT_LOADED) for message in result.errors):
        hints.append("give a shared library for this machine and this TensorRT; `ldd` shows what it needs itself")
    return hints or ["write the node's attributes as the plugin takes them, or load the version of it that takes these"]


_ALTERNATIVES = {"InstanceNormalization_TRT": "instance_norm", "GroupNormalizationPlugin": "group_norm"}
