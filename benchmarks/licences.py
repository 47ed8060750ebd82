"""List the licences of what trtnorm brings along, from a CycloneDX bill of materials: docs/licences.md.

python -m benchmarks.licences build/sbom.cdx.json docs/licences.md
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

_HEAD = """# Licences

The licences of the packages that trtnorm needs, as their own metadata tell them. `make sbom` writes this page, and a bill of
materials in CycloneDX's form with everything that is installed for development, `build/sbom.cdx.json`. trtnorm itself is under
Apache-2.0. The versions are those of `requirements/pins.txt`.

| package | version | licence | needed by |
|---|---|---|---|
"""
_EXTRAS = ("rtx", "torch", "weights", "report")


def needed(name: str, extras: Iterable[str] = ()) -> dict[str, str]:
    """The packages that ``name`` brings along, itself left out, each with what first asked for it."""
    found: dict[str, str] = {}
    waiting = [(name, f"extra {extra}" if extra else "the package", extra) for extra in ("", *extras)]
    while waiting:
        package, who, extra = waiting.pop(0)
        for text in _requirements(package):
            required, marker = _name(text), text.partition(";")[2]
            asked = re.search(r"""extra\s*==\s*['"]([^'"]+)""", marker)
            if (asked.group(1) if asked else "") != extra or required in found or not _is_installed(required):
                continue
            found[required] = who
            waiting.append((required, required, ""))
    return found


def _requirements(package: str) -> list[str]:
    try:
        return metadata.requires(package) or []
    except metadata.PackageNotFoundError:
        return []


def _is_installed(package: str) -> bool:
    try:
        metadata.version(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def _name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", match.group()).lower() if match else ""


def licence(component: Mapping[str, Any]) -> str:
    """The licence of a component: its expression, or the names of its classifiers."""
    found = []
    for entry in component.get("licenses", ()):
        stated = entry.get("expression") or entry.get("license", {}).get("id") or entry.get("license", {}).get("name") or ""
        # Some packages put the whole text where the name belongs.
        first = " ".join(stated.split())
        short = first if len(first) <= 60 else f"{first[:57]}…"
        found.append(re.sub(r"^License :: (OSI Approved :: )?", "", short))
    return ", ".join(dict.fromkeys(one for one in found if one)) or "not stated"


def page(components: Iterable[Mapping[str, Any]], wanted: Mapping[str, str]) -> str:
    """A row for each component that is wanted."""
    rows = []
    for component in sorted(components, key=lambda one: _name(one["name"])):
        name = _name(component["name"])
        if name in wanted:
            rows.append(f"| {component['name']} | {component['version']} | {licence(component)} | {wanted[name]} |")
    return _HEAD + "\n".join(rows) + "\n"


def main() -> int:
    source, target = map(Path, sys.argv[1:])
    components = json.loads(source.read_text(encoding="utf-8"))["components"]
    target.write_text(page(components, needed("trtnorm", _EXTRAS)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
