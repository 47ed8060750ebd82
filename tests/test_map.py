"""docs/map.md names every folder of the package, in the order of the import contract, and nothing that is gone."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "trtnorm_cli"
PAGE = (REPOSITORY / "docs" / "map.md").read_text(encoding="utf-8")
TREE = PAGE.split("## The tree")[1].split("## The contract")[0]
ROWS = [re.findall(r"`([^`]+)`", line.split("|")[1]) for line in TREE.splitlines() if line.startswith("| `")][1:]


def test_every_folder_is_in_the_tree():
    folders = {path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE}
    assert {str(folder.relative_to(PACKAGE)) + "/" for folder in folders} == {
        name for row in ROWS for name in row if name.endswith("/")
    }


def test_every_file_that_it_names_exists():
    named = re.findall(r"`([\w/]+(?:\.py|/))`", PAGE)
    assert len(named) > 30
    assert [name for name in named if not (PACKAGE / name).exists() and not (REPOSITORY / name).exists()] == []


def test_every_table_that_it_names_exists():
    named = re.findall(r"`([A-Z]{4,})`(?:,[^|`]*| of| in)[^|`]* `([\w/]+(?:\.py|/))`", PAGE)
    assert len(named) >= 4
    for table, place in named:
        path = PACKAGE / place
        sources = [path] if path.is_file() else sorted(path.glob("*.py"))
        assert any(re.search(rf"^{table}\b.*=", source.read_text(encoding="utf-8"), re.M) for source in sources), table


@pytest.mark.skipif(sys.version_info < (3, 11), reason="tomllib needs Python 3.11")
def test_the_order_is_that_of_the_contract():
    import tomllib

    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))
    (layers,) = [c["layers"] for c in project["tool"]["importlinter"]["contracts"] if c["type"] == "layers"]
    rank = {name: place for place, layer in enumerate(layers) for name in layer.split(" : ")}
    listed = [name.removesuffix(".py").removesuffix("/") for row in ROWS for name in row if "/" not in name.rstrip("/")]
    assert set(listed) == set(rank)
    assert [rank[name] for name in listed] == sorted(rank[name] for name in listed)
