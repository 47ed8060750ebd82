"""The plugins of a build profile, held against the model and the disk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from trtnorm_cli.onnx_model.normalization_nodes import PARAMETERS
from trtnorm_cli.profile.implementations import OPERATORS
from trtnorm_cli.profile.model import BuildProfile
from trtnorm_cli.profile.problems import Problem
from trtnorm_cli.suggest import did_you_mean, listing


def unknown_nodes(profile: BuildProfile, operators: Mapping[str, str]) -> Iterator[Problem]:
    """Nodes that are named and not there, or are another normalization. ``operators`` maps the model's nodes to operators.

    Any other node may be the last one of a normalization that is written in pieces.
    """
    said = {"instance_norm": profile.instance_norm, "group_norm": profile.group_norm}
    for key, implementation in said.items():
        known = [node for node, operator in operators.items() if operator == OPERATORS[key]]
        for node in implementation.nodes:
            is_other = operators.get(node, "") in PARAMETERS and node not in known
            if node not in operators or is_other:
                instead = f": {node!r} is a {operators[node]}" if is_other else did_you_mean(node, known)
                hint = f"{OPERATORS[key]} nodes of the model: {listing(known) or 'none'}"
                yield Problem((key, "nodes", node), f"the model has no {OPERATORS[key]} {node!r}{instead}", hint)


def library_paths(profile: BuildProfile | None, folder: Path) -> tuple[Path, ...]:
    """The plugin libraries. Relative paths start from the profile's ``folder``."""
    return () if profile is None else tuple(folder / library for library in profile.plugins)


def library_problems(profile: BuildProfile, folder: Path) -> Iterator[Problem]:
    """Plugin libraries that are not there."""
    for index, path in enumerate(library_paths(profile, folder)):
        if not path.is_file():
            what = "is a folder" if path.is_dir() else "does not exist"
            hint = f"the path is relative to the folder of the build profile, {folder.absolute()}"
            yield Problem(("plugins", index), f"the plugin library {profile.plugins[index]} {what}", hint)
