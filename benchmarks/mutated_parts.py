"""The parts of the program that are mutated: those whose mistakes are silent, and those that keep promises about files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "trtnorm_cli"
PARTS = {
    "rewrite/rules": ("rewrite/rules/",),
    "rewrite/norms, scale_shift": ("rewrite/norms/", "rewrite/scale_shift/"),
    "rewrite, other": ("rewrite/",),
    "profile": ("profile/",),
    "shapes": ("shapes/",),
    "tensorrt/launch, settings; pipeline": (
        "tensorrt/launch",
        "tensorrt/settings",
        "pipeline.py",
        "engine_making.py",
        "variant_choice.py",
        "build_job.py",
    ),
}


def files_of_parts() -> Iterator[tuple[str, list[Path]]]:
    """The files of every part: a file belongs to the first that names it."""
    taken: set[Path] = set()
    for part, beginnings in PARTS.items():
        files = [
            path
            for path in sorted(PACKAGE.rglob("*.py"))
            if path not in taken and str(path.relative_to(PACKAGE)).startswith(beginnings)
        ]
        taken.update(files)
        yield part, files
