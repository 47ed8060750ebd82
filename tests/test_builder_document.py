"""docs/builder.md has every builder setting, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from trtnorm_cli.tensorrt.catalogue import CATALOGUE
from trtnorm_cli.tensorrt.settings import KEYS

DOCUMENT = Path(__file__).parents[1] / "docs" / "builder.md"


def test_every_setting_has_its_row():
    rows = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| `")]
    named = [key for row in rows for key in re.findall(r"`(\w+)`", row.split("|")[1])]
    assert sorted(named) == sorted(KEYS)


def test_the_number_of_families():
    (number,) = re.findall(r"(\d+) families", DOCUMENT.read_text(encoding="utf-8"))
    assert int(number) == len(CATALOGUE)
