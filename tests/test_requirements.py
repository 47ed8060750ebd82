"""The lists of versions beside pyproject.toml: oldest.txt has the oldest that it allows, pins.txt those that are installed."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
# No test runs with TensorRT for CUDA. PyTorch and the tools of the tests are installed as pinned.
_NOT_AT_THE_OLDEST = ("tensorrt", "torch", "dev")


def stated() -> Iterator[tuple[str, str]]:
    """The packages that pyproject.toml asks for, each with its lower bound."""
    tomllib = pytest.importorskip("tomllib", reason="tomllib needs Python 3.11")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    for line in project["dependencies"] + [each for name in extras if name not in _NOT_AT_THE_OLDEST for each in extras[name]]:
        name, bound = re.split(">=", line)
        yield name, bound


def listed(name: str) -> dict[str, list[str]]:
    """The versions of a constraints file, by package."""
    found: dict[str, list[str]] = {}
    for line in (ROOT / "requirements" / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            package, version = line.split(";")[0].strip().split("==")
            found.setdefault(package, []).append(version)
    return found


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib needs Python 3.11")
def test_the_oldest_versions_are_those_that_the_package_allows():
    oldest, pins = listed("oldest.txt"), listed("pins.txt")
    bounds = dict(stated())
    assert set(oldest) == set(bounds)
    for package, bound in bounds.items():
        (version,) = oldest[package]
        assert numbers(version)[: len(numbers(bound))] == numbers(bound), package
        assert all(numbers(pin) >= numbers(version) for pin in pins[package]), package
