"""The measurements in one small file: the device's figures, the names of kernels, and a row for each case.

    python -m benchmarks.cost_check.store DEVICE.json OUT.json LINES.jsonl …

A later line counts before an earlier one for the same case.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.cost_check.cases import Case, cases

Kernel = tuple[str, int, int]


def pack(device: dict[str, Any], records: Sequence[dict[str, Any]]) -> str:
    """The text of the file. Cases that failed are left out and said."""
    ran = {_key(record): record for record in records if "us" in record}
    names: dict[str, int] = {}
    rows = []
    for case in cases():
        record = ran.get(_key(case.record()))
        if record is None:
            print("not measured:", case)
            continue
        kernels = [[names.setdefault(_plain(name), len(names)), *launch] for name, *launch, _ in record["kernels"]]
        rows.append(json.dumps([*_key(record), record["us"], kernels], separators=(",", ":")))
    head = f'{{"device":{json.dumps(device)},\n"names":{json.dumps(list(names))},\n"cases":[\n'
    return head + ",\n".join(rows) + "\n]}\n"


def load(path: Path) -> tuple[dict[str, Any], list[tuple[Case, float, list[Kernel]]]]:
    """The device's figures; and each case with its time in seconds and its kernels: name, blocks, threads a block."""
    data = json.loads(path.read_text(encoding="utf-8"))
    names = data["names"]
    found = []
    for pattern, form, shape, dtype, layout, us, kernels in data["cases"]:
        case = Case(pattern, form, tuple(shape), dtype, layout)
        found.append((case, us / 1e6, [(names[index], blocks, threads) for index, blocks, threads in kernels]))
    return data["device"], found


def _key(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(tuple(v) if isinstance(v := record[k], (list, tuple)) else v for k in Case.__dataclass_fields__)


def _plain(name: str) -> str:
    """The kernel's name without template arguments and without the operators that were fused into it."""
    return re.sub(r"_fused_.*?(_\d+)?$", r"\1", re.sub(r"<.*", "", name))


def main(device: str, out: str, *lines: str) -> None:
    records = [json.loads(line) for name in lines for line in Path(name).read_text(encoding="utf-8").splitlines()]
    Path(out).write_text(pack(json.loads(Path(device).read_text(encoding="utf-8")), records), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
