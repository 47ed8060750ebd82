"""Plugins in the child process, which loads their libraries, and asks TensorRT's registry for those that the model wants.

The parser itself says only that a plugin was not found, ignores attributes that the plugin does not know, and hands on those of
another type. So the registry is asked first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from trtnorm_cli.tensorrt.backend import Backend
from trtnorm_cli.tensorrt.request import BuildRequest, TensorRTMessage

STAGE = "plugins"
Address = tuple[str, str, str]
Wanted = Mapping[str, Any]

# The ONNX type of the attributes from which a plugin can make a field of each TensorRT type.
_NUMBERS = {
    **dict.fromkeys(("FLOAT16", "BF16", "FLOAT32", "FLOAT64"), "FLOAT"),
    **dict.fromkeys(("INT8", "INT16", "INT32", "INT64"), "INT"),
}
# Backends that bring no plugin layers.
WITHOUT_PLUGINS = ("tensorrt-rtx",)
_SHOWN = 4
_ADDRESS = ("plugin_version", "plugin_namespace")
# In the place of TensorRT's error code: the plugin stands for an operator of ONNX.
OWN = "written by trtnorm"
ABSENT, NOT_LOADED = "there is no plugin ", "the plugin library "


def make_ready(backend: Backend, logger: Any, parser: Any, request: BuildRequest) -> list[TensorRTMessage]:
    """Load the plugin libraries and look up every plugin that the model wants. Returns what is wrong."""
    if not request.plugins and not request.plugin_nodes:
        return []
    trt = backend.trt
    if backend.name not in WITHOUT_PLUGINS:
        trt.init_libnvinfer_plugins(logger, "")
    registry = trt.get_plugin_registry()
    problems = [problem for path in request.plugins if (problem := _load(registry, path, logger)) is not None]
    return problems or plugin_problems(registry, parser, request.plugin_nodes, f"{backend.name} {backend.version}")


def _load(registry: Any, path: str, logger: Any) -> TensorRTMessage | None:
    """Load a plugin library, and warn when no plugin came of it."""
    before = _addresses(registry)
    if reason := load_library(registry, path):
        return TensorRTMessage(reason)
    if _addresses(registry) == before:
        logger.warnings.append(f"the plugin library {path} was loaded, and registered no plugin that was not there before")
    return None


def load_library(registry: Any, path: str) -> str:
    """Load a plugin library. Returns why that was not possible.

    A library without entry points for the registry may register its plugins by itself as soon as it is loaded.
    """
    try:
        if registry.load_library(path) is None:
            ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except (OSError, RuntimeError, ValueError) as error:
        return f"{NOT_LOADED}{path} cannot be loaded: {error}"
    return ""


def _addresses(registry: Any) -> set[Address]:
    """Name, version and namespace of every plugin that is registered."""
    return {(creator.name, creator.plugin_version, creator.plugin_namespace) for creator in registry.all_creators}


def plugin_problems(registry: Any, parser: Any, wanted: Iterable[Wanted], backend: str) -> list[TensorRTMessage]:
    """Messages about the plugin nodes ``wanted``, for each absent plugin, and each node with attributes that it does not take.

    A node whose operator the parser imports by itself is none of them.
    """
    by_plugin: dict[Address, list[Wanted]] = {}
    messages: list[TensorRTMessage] = []
    for node in wanted:
        if (no_text := _no_text(node)) is not None:
            messages.append(no_text)
        elif not parser.supports_operator(node["operator"]):
            by_plugin.setdefault((node["operator"], node["version"], node["namespace"]), []).append(node)
    for address, nodes in by_plugin.items():
        creator = _creator(registry, address, nodes[0]["domain"])
        if creator is None:
            messages.append(_absent(address, nodes, _addresses(registry), backend))
        else:
            messages += [misfit for node in nodes if (misfit := _misfit(node, _fields(creator))) is not None]
    return messages


def _creator(registry: Any, address: Address, domain: str) -> Any:
    """The plugin's creator, or None. Since TensorRT 10.10 the parser takes the node's domain for a namespace as well."""
    name, version, namespace = address
    found = (registry.get_creator(name, version, space) for space in dict.fromkeys((namespace, domain)))
    return next((creator for creator in found if creator is not None), None)


def _no_text(node: Wanted) -> TensorRTMessage | None:
    """The message for a version or namespace that is a number. The parser would look for version 1 without a word."""
    for name in _ADDRESS:
        if name in node["attributes"]:
            text = f"{name} has to be a string, and the node gives {node['attributes'][name].lower()}"
            return TensorRTMessage(text, node["node"], node["operator"])
    return None


def _absent(address: Address, nodes: Sequence[Wanted], known: Iterable[Address], backend: str) -> TensorRTMessage:
    name, version, namespace = address
    others = sorted(_said(v, n) for other, v, n in known if other == name)
    instead = f", only {' and '.join(others)}" if others else ""
    names = [node["node"] for node in nodes]
    rest = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    wanted_by = f"wanted by {', '.join(names[:_SHOWN])}{rest}"
    text = f"{ABSENT}{name}, {_said(version, namespace)}, in {backend}{instead}; {wanted_by}"
    return TensorRTMessage(text, operator=name, code=OWN if nodes[0]["is_own"] else "")


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
