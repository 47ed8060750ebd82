"""Plugins in the parent, which tells the child of them, and the user when they cannot be had."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path

import onnx

from trtnorm_cli.errors import TensorRTRefusal
from trtnorm_cli.onnx_model.plugin_functions import GROUP_NORM, INSTANCE_NORM
from trtnorm_cli.onnx_model.plugin_nodes import plugin_nodes
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.profile.problems import Problem, refusal
from trtnorm_cli.tensorrt.backend import installed
from trtnorm_cli.tensorrt.plugins import ABSENT, NOT_LOADED, OWN, WITHOUT_PLUGINS
from trtnorm_cli.tensorrt.request import LOG_FILE, BuildRequest, BuildResult

# The key of the build profile that decides on each plugin.
_KEYS = {INSTANCE_NORM: "instance_norm", GROUP_NORM: "group_norm"}


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
    nodes = plugin_nodes(model, every=bool(libraries))
    wanted = [asdict(node) for node in nodes if node.is_own or not node.has_function]
    return replace(request, plugins=libraries, plugin_nodes=tuple(wanted))


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
    """The ways out. TensorRT for RTX brings no plugins of its own, and takes those of a library."""
    absent = [message for message in result.errors if message.text.startswith(ABSENT)]
    own = {message.operator for message in absent if message.code == OWN}
    hints = [f"{key}: native builds TensorRT's own layer instead" for name, key in _KEYS.items() if name in own]
    if absent:
        none = "TensorRT for RTX has no plugin layers of its own; " if result.backend in WITHOUT_PLUGINS else ""
        hints.append(f"{none}name a library that has the plugin under plugins: in the build profile")
    if any(message.text.startswith(NOT_LOADED) for message in result.errors):
        hints.append("give a shared library for this machine and this TensorRT; `ldd` shows what it needs itself")
    return hints or ["write the node's attributes as the plugin takes them, or load the version of it that takes these"]
