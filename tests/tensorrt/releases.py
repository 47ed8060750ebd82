"""TensorRT's releases as they are by name: a stand-in module for each, made from the committed list of names."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

_DATA = json.loads((Path(__file__).parents[1] / "data" / "tensorrt_names.json").read_text(encoding="utf-8"))
RELEASES: tuple[str, ...] = tuple(_DATA["releases"])


def _names(groups: dict[str, str]) -> set[str]:
    return {f"{owner}.{name}" if owner else name for owner, members in groups.items() for name in members.split()}


NAMES: dict[str, set[str]] = {
    release: _names(_DATA["everywhere"]).union(
        *(_names(groups) for key, groups in _DATA["in"].items() if str(index) in key.split())
    )
    for index, release in enumerate(RELEASES)
}


def stand_in(release: str) -> Any:
    """A module with the classes, members and enumerators of ``release``; each enumerator is its own name's number."""
    module: Any = ModuleType(release.split()[0].replace("-", "_"))
    module.__version__ = release.split()[1]
    classes: dict[str, dict[str, Any]] = {}
    for name in sorted(NAMES[release]):
        owner, _, member = name.rpartition(".")
        if owner:
            classes.setdefault(owner, {})[member] = len(classes.setdefault(owner, {}))
    for owner, members in classes.items():
        setattr(module, owner, type(owner, (), {**members, "__members__": members}))
    return module


def config_of(module: Any) -> Any:
    """A stand-in for ``IBuilderConfig`` that knows its release's members only, and notes what is set and called."""
    known = set(module.IBuilderConfig.__members__)

    class Config:
        def __init__(self) -> None:
            object.__setattr__(self, "noted", [])

        def __setattr__(self, name: str, value: object) -> None:
            if name not in known:
                raise AttributeError(name)
            self.noted.append((name, value))

        def __getattr__(self, name: str) -> Any:
            if name not in known:
                raise AttributeError(name)

            def call(*arguments: object) -> bool:
                self.noted.append((name, *arguments))
                return True

            return call

    return Config()
