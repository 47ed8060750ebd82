"""Normalizations that the build profile wants a plugin for and that got none. They are errors, never silently native."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trtnorm_cli.errors import RewriteError
from trtnorm_cli.onnx_model.surgery import Surgery
from trtnorm_cli.profile.paste import yaml_key
from trtnorm_cli.profile.rewriting import GROUP_NORM_TO_PLUGIN, INSTANCE_NORM_TO_PLUGIN, Implementations, RewriteSettings, is_of
from trtnorm_cli.rewrite.pattern import DEFAULT_DOMAINS, describe
from trtnorm_cli.rewrite.rule import Change, Rejection

_SHOWN = 8


@dataclass(frozen=True)
class Wish:
    """A key of the build profile, the operator that it is about, what it says, and the rule that does it."""

    key: str
    operator: str
    said: Implementations
    rule: str


@dataclass(frozen=True)
class Unmet:
    """A node for which the build profile wants a plugin, and why it has none."""

    node: str
    reason: str
    wish: Wish


def wishes(settings: RewriteSettings) -> tuple[Wish, ...]:
    """What the build profile says of each kind of normalization that there are plugins for."""
    return (
        Wish("instance_norm", "InstanceNormalization", settings.instance_norm, INSTANCE_NORM_TO_PLUGIN),
        Wish("group_norm", "GroupNormalization", settings.group_norm, GROUP_NORM_TO_PLUGIN),
    )


def unmet_wishes(
    surgery: Surgery, settings: RewriteSettings, changes: Iterable[Change], rejections: Sequence[Rejection]
) -> list[Unmet]:
    """The nodes that should be plugins and are not: those that are left, and named ones that are not there."""
    changes = list(changes)
    found: list[Unmet] = []
    for wish in wishes(settings):
        left = [describe(node) for graph in surgery.graphs() for node in graph.nodes if _is(wish.operator, node)]
        found += [Unmet(node, _reason(node, wish, rejections), wish) for node in left if wish.said.of(node) == "plugin"]
        found += [unmet for unmet in _not_there(wish, changes) if unmet.node not in left]
    return found


def _is(operator: str, node: object) -> bool:
    return getattr(node, "op", None) == operator and getattr(node, "domain", None) in DEFAULT_DOMAINS


def _reason(node: str, wish: Wish, rejections: Sequence[Rejection]) -> str:
    reasons = [r.reason for r in rejections if r.node == node and r.rule == wish.rule]
    return "; ".join(dict.fromkeys(reasons)) or f"the rule {wish.rule} is left out by rules.skip"


def _not_there(wish: Wish, changes: Sequence[Change]) -> Iterator[Unmet]:
    """Nodes that the build profile names and that did not become a plugin: another rule has taken them, or none knew them."""
    placed = {node for change in changes if change.rule == wish.rule for node in change.removed}
    for node, choice in wish.said.nodes.items():
        if choice == "plugin" and not any(is_of(made, node) for made in placed):
            taken = [change.rule for change in changes if node in change.removed]
            reason = f"the rule {taken[-1]} has replaced it" if taken else f"no {wish.operator} was found to end there"
            yield Unmet(node, reason, wish)


def idle_wishes(settings: RewriteSettings, changes: Iterable[Change], unmet: Iterable[Unmet]) -> Iterator[str]:
    """What the build profile says of plugins by default and had no effect, as notes."""
    busy = {change.rule for change in changes} | {one.wish.rule for one in unmet}
    for wish in wishes(settings):
        if wish.said.default == "plugin" and wish.rule not in busy:
            yield f"the build profile says {wish.key}: plugin, and the model has no {wish.operator} node to be one"


def impossible(unmet: Sequence[Unmet]) -> RewriteError:
    """The error that names every node with its reason, and says in YAML how to except them."""
    lines = [f"{one.wish.operator} {one.node}: {one.reason}" for one in unmet[:_SHOWN]]
    if len(unmet) > _SHOWN:
        lines.append(f"and {len(unmet) - _SHOWN} more")
    return RewriteError(
        f"{len(unmet)} normalization(s) cannot be the plugin that the build profile asks for; nothing was written",
        where="\n".join(["these nodes:", *lines]),
        hint="leave them to TensorRT's own layers in the build profile:\n" + _exceptions(unmet),
    )


def _exceptions(unmet: Sequence[Unmet]) -> str:
    lines: list[str] = []
    for wish in dict.fromkeys(one.wish.key for one in unmet):
        mine = [one for one in unmet if one.wish.key == wish]
        lines += [f"{wish}:", f"  default: {mine[0].wish.said.default}", "  nodes:"]
        lines += [f"    {yaml_key(one.node)}: native" for one in mine[:_SHOWN]]
    return "\n".join(lines)
