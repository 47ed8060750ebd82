"""Condense listings of TensorRT's Python API into ``tensorrt_names.json``: the names alone, and which releases have them.

    python tests/data/condense_tensorrt_api.py LISTING.json ...

A listing is one release: {"module": {name: …}, "version": …, "distribution": …, "classes": {class: {"members": {name: …},
"enum": {name: …}}}}, as ``inspect`` finds them in the bindings of a wheel. Classes that no builder meets are left out.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

# Plugins' and refitters' own interfaces, and what only running an engine needs.
_LEFT_OUT = re.compile(
    r"IPlugin(?!V[23]Layer|Registry)|Plugin|Refitter|Dims|Calibrat|Algorithm|Expr|Debug|Allocator|StreamReader"
)
TARGET = Path(__file__).with_name("tensorrt_names.json")


def names_of(listing: dict[str, Any]) -> set[str]:
    """Every name of one release: ``Class``, ``Class.member``, and functions of the module."""
    names = set(listing["module"])
    for name, content in listing["classes"].items():
        if not _LEFT_OUT.search(name):
            members = {*content.get("members", {}), *content.get("enum", {})}
            names |= {name, *(f"{name}.{member}" for member in members if not member.startswith("__"))}
    return names


def condense(listings: list[dict[str, Any]]) -> dict[str, Any]:
    """``releases`` by name, names that all of them have, and for every other name the releases that have it."""
    releases = [f"{release_of(listing)} {listing['version']}" for listing in listings]
    found = [names_of(listing) for listing in listings]
    everywhere = set.intersection(*found)
    rest = sorted(set.union(*found) - everywhere)
    groups: dict[str, list[str]] = {}
    for name in rest:
        groups.setdefault(" ".join(str(index) for index, names in enumerate(found) if name in names), []).append(name)
    return {
        "releases": releases,
        "everywhere": grouped(everywhere),
        "in": {key: grouped(groups[key]) for key in sorted(groups)},
    }


def release_of(listing: dict[str, Any]) -> str:
    return "tensorrt-rtx" if "rtx" in listing["distribution"] else "tensorrt"


def grouped(names: Any) -> dict[str, str]:
    """Members by class, as one line each; the class itself and functions of the module stand under an empty name."""
    classes: dict[str, list[str]] = {}
    for name in sorted(names):
        owner, _, member = name.rpartition(".")
        classes.setdefault(owner, []).append(member)
    return {owner: " ".join(members) for owner, members in classes.items()}


def main() -> None:
    listings = [json.loads(Path(path).read_text(encoding="utf-8")) for path in sys.argv[1:]]
    listings.sort(key=lambda listing: (release_of(listing), [int(part) for part in listing["version"].split(".")]))
    TARGET.write_text(json.dumps(condense(listings), indent=0) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
