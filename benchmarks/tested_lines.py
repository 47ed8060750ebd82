"""Which tests run a line, as benchmarks/lines_of_tests.py recorded it, also where the text has changed since."""

from __future__ import annotations

import difflib
import json
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.mutated_parts import PACKAGE, ROOT


class _Record:
    """The lines of the tests of one process, as bits by file and by what ran them."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.tests: dict[str, Any] = record["tests"]
        self._texts: dict[str, str] = record["texts"]
        self._bits: dict[str, list[tuple[str, int]]] = defaultdict(list)
        self.many: dict[str, int] = defaultdict(int)
        for owner, files in record["lines"].items():
            for name, written in files.items():
                bits = int(written, 16)
                self._bits[name].append((owner, bits))
                self.many[owner] += bits.bit_count()

    def owners(self, file: str, first: int, last: int) -> set[str]:
        """The tests and fixtures that ran one of these lines of the file of today."""
        if file not in self._texts:
            return set()
        mask = sum(1 << before for now, before in _places(file, self._texts[file]).items() if first <= now <= last)
        return {owner for owner, bits in self._bits[file] if bits & mask}


class TestedLines:
    """The tests of each line, with what each test costs."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        files = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime)
        self._records = [_Record(json.loads(file.read_text(encoding="utf-8"))) for file in files]
        self.seconds: dict[str, float] = {}
        self._many: dict[str, int] = {}
        for record in self._records:
            for test, one in record.tests.items():
                if one["passed"] and (ROOT / test.partition("::")[0]).is_file():
                    self.seconds[test] = one["seconds"]
                    self._many[test] = sum(record.many[owner] for owner in (test, *one["fixtures"]))

    def _running(self, file: str, first: int, last: int) -> set[str]:
        found = set()
        for record in self._records:
            owners = record.owners(file, first, last)
            if owners:
                found |= {test for test, one in record.tests.items() if not owners.isdisjoint((test, *one["fixtures"]))}
        return found & self.seconds.keys()

    def tests(self, file: str, first: int, last: int) -> list[str]:
        """The tests that run one of these lines: of each function one first.

        Those of the module's own file come before those of its folder and others, and of these those that run little else.
        """
        folder, stem = Path(file).parts[0], Path(file).stem
        own = (f"/test_{stem}.py::", f"/test_{folder}_{stem}.py::")
        found = self._running(file, first, last)
        turns: dict[str, int] = defaultdict(int)
        turned = []
        for test in sorted(found, key=lambda test: (self._many[test], self.seconds[test], test)):
            function = test.partition("[")[0]
            distance = 0 if any(name in test for name in own) else 1 if test.startswith(f"tests/{folder}/") else 2
            turned.append((turns[function], distance, len(turned), test))
            turns[function] += 1
        return [test for *_, test in sorted(turned)]

    def within(self, tests: Sequence[str], most: int, seconds: float) -> list[str]:
        """As many of ``tests`` as take so many ``seconds``, one at least, the quickest first."""
        chosen: list[str] = []
        left = seconds
        for test in tests:
            if len(chosen) < most and (self.seconds[test] <= left or not chosen):
                chosen.append(test)
                left -= self.seconds[test]
        return sorted(chosen, key=lambda test: self.seconds[test])


@cache
def _places(file: str, text: str) -> dict[int, int]:
    """Where each line of the file of today was in ``text``."""
    path = PACKAGE / file
    old, new = text.splitlines(), path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    if old == new:
        return {line: line for line in range(1, len(old) + 1)}
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return {b + place + 1: a + place + 1 for a, b, size in blocks for place in range(size)}
