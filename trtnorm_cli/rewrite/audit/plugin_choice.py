"""Normalizations that the build profile wants a plugin for and that got none. They are errors, never silently native."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from trtnorm_cli.errors import RewriteError
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.surgery import Surgery
from trtnorm_cli.profile.rewriting import GROUP_NORM_TO_PLUGIN, INSTANCE_NORM_TO_PLUGIN, Implementations, RewriteSettings, is_of
from trtnorm_cli.profile.yaml_keys import yaml_key
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rule import Change, Rejection

_SHOWN = 8


@dataclass(frozen=True)
class PluginRequest:
    """A key of the build profile, the operator that it is about, what it says, and the rule that does it."""

    key: str
    operator: str
    said: Implementations
    rule: str


@dataclass(frozen=True)
class UnmetRequest:
    """A node for which the build profile wants a plugin, and why it has none."""

    node: str
    reason: str
    request: PluginRequest


def plugin_requests(settings: RewriteSettings) -> tuple[PluginRequest, ...]:
    """The request of the build profile for each kind of normalization that there are plugins for."""
    return (
        PluginRequest("instance_norm", "InstanceNormalization", settings.instance_norm, INSTANCE_NORM_TO_PLUGIN),
        PluginRequest("group_norm", "GroupNormalization", settings.group_norm, GROUP_NORM_TO_PLUGIN),
    )


def unmet_requests(
    surgery: Surgery, settings: RewriteSettings, changes: Iterable[Change], rejections: Sequence[Rejection]
) -> list[UnmetRequest]:
    """The nodes that should be plugins and are not: those that are left, and named ones that are not there."""
    changes = list(changes)
    found: list[UnmetRequest] = []
    for request in plugin_requests(settings):
        left = [describe(node) for graph in surgery.graphs() for node in graph.nodes if _is(request.operator, node)]
        found += [
            UnmetRequest(node, _reason(node, request, rejections), request)
            for node in left
            if request.said.of(node) == "plugin"
        ]
        found += [unmet for unmet in _not_there(request, changes) if unmet.node not in left]
    return found


def _is(operator: str, node: object) -> bool:
    return getattr(node, "op", None) == operator and getattr(node, "domain", None) in DEFAULT_DOMAINS


def _reason(node: str, request: PluginRequest, rejections: Sequence[Rejection]) -> str:
    reasons = [r.reason for r in rejections if r.node == node and r.rule == request.rule]
    return "; ".join(dict.fromkeys(reasons)) or f"the rule {request.rule} is left out by rules.skip"


def _not_there(request: PluginRequest, changes: Sequence[Change]) -> Iterator[UnmetRequest]:
    """Nodes that the build profile names and that did not become a plugin: another rule has taken them, or none knew them."""
    placed = {node for change in changes if change.rule == request.rule for node in change.removed}
    for node, choice in request.said.nodes.items():
        if choice == "plugin" and not any(is_of(made, node) for made in placed):
            taken = [change.rule for change in changes if node in change.removed]
            reason = f"the rule {taken[-1]} has replaced it" if taken else f"no {request.operator} was found to end there"
            yield UnmetRequest(node, reason, request)


def idle_requests(settings: RewriteSettings, changes: Iterable[Change], unmet: Iterable[UnmetRequest]) -> Iterator[str]:
    """Notes about requests for plugins by default that had no effect."""
    busy = {change.rule for change in changes} | {one.request.rule for one in unmet}
    for request in plugin_requests(settings):
        if request.said.default == "plugin" and request.rule not in busy:
            yield f"the build profile says {request.key}: plugin, and the model has no {request.operator} node to be one"


def impossible(unmet: Sequence[UnmetRequest]) -> RewriteError:
    """The error that names every node with its reason, and says in YAML how to except them."""
    lines = [f"{one.request.operator} {one.node}: {one.reason}" for one in unmet[:_SHOWN]]
    if len(unmet) > _SHOWN:
        lines.append(f"and {len(unmet) - _SHOWN} more")
    return RewriteError(
        f"{len(unmet)} normalization(s) cannot be the plugin that the build profile asks for; nothing was written",
        where="\n".join(["these nodes:", *lines]),
        hint="leave them to TensorRT's own layers in the build profile:\n" + _exceptions(unmet),
    )


def _exceptions(unmet: Sequence[UnmetRequest]) -> str:
    lines: list[str] = []
    for request in dict.fromkeys(one.request.key for one in unmet):
        mine = [one for one in unmet if one.request.key == request]
        lines += [f"{request}:", f"  default: {mine[0].request.said.default}", "  nodes:"]
        lines += [f"    {yaml_key(one.node)}: native" for one in mine[:_SHOWN]]
    return "\n".join(lines)
