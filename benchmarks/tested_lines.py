"""Which tests run a line, as benchmarks/lines_of_tests.py recorded it, also where the text has changed since."""

from __future__ import annotations

import difflib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.mutated_parts import PACKAGE, ROOT


class TestedLines:
    """The tests of each line, with what each test costs."""

    __test__ = False

    def __init__(self, folder: Path) -> None:
        self._tests: dict[tuple[str, int], set[str]] = defaultdict(set)
        self._many: dict[str, int] = defaultdict(int)
        self.seconds: dict[str, float] = {}
        for record in sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime):
            self._read(json.loads(record.read_text(encoding="utf-8")))

    def _read(self, record: dict[str, dict]) -> None:
        places = {name: _places(text, PACKAGE / name) for name, text in record["texts"].items()}
        owners: dict[str, list[str]] = defaultdict(list)
        for test, one in record["tests"].items():
            if one["passed"] and (ROOT / test.partition("::")[0]).is_file():
                self.seconds[test] = one["seconds"]
                for owner in (test, *one["fixtures"]):
                    owners[owner].append(test)
        for owner, files in record["lines"].items():
            for name, bits in files.items():
                lines = [places[name][line] for line in _set_bits(int(bits, 16)) if line in places[name]]
                for test in owners[owner]:
                    self._many[test] += len(lines)
                    for line in lines:
                        self._tests[name, line].add(test)

    def tests(self, file: str, first: int, last: int) -> list[str]:
        """The tests that run one of these lines, those of little else first, and of each function one first."""
        found = {test for line in range(first, last + 1) for test in self._tests.get((file, line), ())}
        turns: dict[str, int] = defaultdict(int)
        turned = []
        for test in sorted(found, key=lambda test: (self._many[test], self.seconds[test], test)):
            function = test.partition("[")[0]
            turned.append((turns[function], len(turned), test))
            turns[function] += 1
        return [test for _, _, test in sorted(turned)]

    def within(self, tests: Sequence[str], most: int, seconds: float) -> list[str]:
        """As many of ``tests`` as take so many ``seconds``, one at least, the quickest first."""
        chosen: list[str] = []
        left = seconds
        for test in tests:
            if len(chosen) < most and (self.seconds[test] <= left or not chosen):
                chosen.append(test)
                left -= self.seconds[test]
        return sorted(chosen, key=lambda test: self.seconds[test])


def _set_bits(bits: int) -> Iterator[int]:
    while bits:
        lowest = bits & -bits
        yield lowest.bit_length() - 1
        bits ^= lowest


def _places(text: str, path: Path) -> dict[int, int]:
    """Where each line of ``text`` is in the file of today."""
    if not path.is_file():
        return {}
    old, new = text.splitlines(), path.read_text(encoding="utf-8").splitlines()
    if old == new:
        return {line: line for line in range(1, len(old) + 1)}
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    return {a + place + 1: b + place + 1 for a, b, size in blocks for place in range(size)}
