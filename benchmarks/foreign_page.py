"""docs/foreign_models.md from what foreign_models.py found."""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

LIST = Path(__file__).with_name("foreign_models.yaml")
BESIDES = Path(__file__).with_name("foreign_besides.md")
Record = Mapping[str, Any]

HEAD = """# Models that nobody here wrote

What `trtnorm build` does with ONNX files that packages on PyPI ship, and with exports of torchvision, timm, transformers,
diffusers and MONAI, beside what TensorRT's own parser and builder do with the same file and the same profile. Made by:

    python benchmarks/export_library_models.py -o build/exports     # in an environment with the libraries below
    python -m benchmarks.foreign_models --exports build/exports -o build/foreign_models.json
    python -m benchmarks.foreign_models --page docs/foreign_models.md -o build/foreign_models.json

`benchmarks/foreign_models.yaml` names packages, versions, constructors and profiles. {versions}.
"""

COLUMNS = """
"Kernels" are those of the engine that TensorRT builds from the file as it is, and those of trtnorm's. A profile is written by
hand from what the model is for, or by `trtnorm init`; a static model needs none. The verdict names the shapes that were
compared, the largest part of the allowed distance that any output took, as a function (in float64) or as run, and the largest
distance as run. Seconds are those of the stages of `trtnorm build`, on one or two cores, beside other programs.
"""


def page(known: Mapping[str, Any]) -> str:
    """The page: totals, what is refused and why, and one row for each model."""
    records = [record for record in known["models"].values() if "defect" not in record]
    groups = {
        "Files in wheels": [record for record in records if not record["how"]],
        "Exports": [record for record in records if record["how"]],
    }
    parts = [
        HEAD.format(versions=_versions(known)),
        _commits(records),
        _totals(groups),
        _not_tried(known),
        _refusals(records),
        COLUMNS,
    ]
    parts += [_table(title, found) for title, found in groups.items() if found]
    return "\n".join([*parts, BESIDES.read_text(encoding="utf-8")])


def _versions(known: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {number}" for name, number in known.get("versions", {}).items())


def _commits(records: Sequence[Record]) -> str:
    found = Counter(record["commit"] for record in records).most_common()
    seeds = Counter(", ".join(str(run["seed"]) for run in record["trtnorm"]) for record in records).most_common()
    commits = ", and ".join(f"{name} for {number} models" for name, number in found)
    drawn = ", and ".join(f"{name} for {number} models" for name, number in seeds)
    return f"trtnorm is that of commit {commits}. Random inputs are those of seed {drawn}.\n"


def raw_builds(record: Record) -> bool:
    return bool(record["raw"]["ok"])


def exits(record: Record) -> list[int | str]:
    return [run["exit"] for run in record["trtnorm"]]


def builds(record: Record) -> bool:
    return set(exits(record)) == {0}


def compared(record: Record) -> bool:
    """The engine's network was compared with the model, at every seed, and passed."""
    runs = [run.get("verdict") for run in record["trtnorm"]]
    return all(verdict is not None and verdict["state"] == verdict["network"] == "passed" for verdict in runs)


TESTS: dict[str, Callable[[Record], bool]] = {
    "models": lambda record: True,
    "raw TensorRT builds": raw_builds,
    "trtnorm builds": builds,
    "of these compared and equal": lambda record: builds(record) and compared(record),
    "of these at min, opt and max": lambda record: builds(record) and compared(record) and not _left_out(record),
    "trtnorm only": lambda record: builds(record) and not raw_builds(record),
    "raw only": lambda record: raw_builds(record) and not builds(record),
    "neither": lambda record: not raw_builds(record) and not builds(record),
}


def _left_out(record: Record) -> list[str]:
    verdicts = [run.get("verdict") or {} for run in record["trtnorm"]]
    return [str(text) for verdict in verdicts for text in [*verdict.get("skipped", []), *verdict.get("not_compared", [])]]


def _totals(groups: Mapping[str, Sequence[Record]]) -> str:
    lines = [f"| | {' | '.join(groups)} | all |", f"|---|{'---|' * (len(groups) + 1)}"]
    for title, test in TESTS.items():
        numbers = [sum(test(record) for record in found) for found in groups.values()]
        lines.append(f"| {title} | {' | '.join(map(str, [*numbers, sum(numbers)]))} |")
    return "\n".join([*lines, ""])


def _not_tried(known: Mapping[str, Any]) -> str:
    found = [f"{name} ({_cell(record['defect'])})" for name, record in known["models"].items() if "defect" in record]
    return f"Not tried: {', '.join(found)}.\n" if found else ""


def _refusals(records: Sequence[Record]) -> str:
    reasons = yaml.safe_load(LIST.read_text(encoding="utf-8")).get("refused", {})
    lines = ["## What is not built", "", "| model | raw TensorRT | trtnorm | why, looked at by hand |", "|---|---|---|---|"]
    for record in records:
        if not builds(record):
            failed = next(run for run in record["trtnorm"] if run["exit"] != 0)
            said = _cell(failed.get("error", "").splitlines()[0] if failed.get("error") else "")
            why = next((text for pattern, text in reasons.items() if fnmatch.fnmatch(record["name"], pattern)), "")
            lines.append(f"| {record['name']} | {_raw(record)} | {_exit(record)}: {said} | {why} |")
    return "\n".join([*lines, ""]) if len(lines) > 4 else ""


def _table(title: str, records: Sequence[Record]) -> str:
    head = "model | opset | normalizations | profile | exit | verdict | kernels | seconds"
    lines = [f"## {title}", "", f"| {head} |", "|---|---|---|---|---|---|---|---|"]
    source = ""
    for record in records:
        origin = f"{record['package']} {record['version']}, trtnorm of {record['commit']}"
        if origin != source:
            lines.append(f"| **{origin}** | | | | | | | |")
            source = origin
        lines.append(_row(record))
    return "\n".join([*lines, ""])


def _row(record: Record) -> str:
    first = next((run for run in record["trtnorm"] if run["exit"] == 0), record["trtnorm"][0])
    name = record["name"].split("/")[-1] + (f", {record['how']}" if record["how"] else "")
    cells = [
        name, str(record["opset"]), _norms(first), record["profile"], _exit(record), _verdict(record),
        f"{_raw(record)} → {first.get('kernels', '–')}", _seconds(first),
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _norms(run: Record) -> str:
    return ", ".join(f"{number} {kind}" for kind, number in run.get("norms", {}).items()) or "–"


def _raw(record: Record) -> str:
    if raw_builds(record):
        return str(record["raw"]["kernels"])
    return f"fails ({_cell(record['raw']['error'])[:90]})" if record["raw"]["error"] else f"fails at {record['raw']['stage']}"


def _exit(record: Record) -> str:
    found = Counter(exits(record))
    if len(found) == 1:
        return str(next(iter(found)))
    return ", ".join(f"{code} at {number} of {found.total()} seeds" for code, number in found.most_common())


def _verdict(record: Record) -> str:
    verdicts = [run["verdict"] for run in record["trtnorm"] if run.get("verdict")]
    if not verdicts:
        return "–"
    where = ", ".join(dict.fromkeys(text.removeprefix("default ") for verdict in verdicts for text in verdict["at"]))
    states = {verdict["state"] for verdict in verdicts} | {verdict["network"] for verdict in verdicts}
    words = ["equal" if compared(record) else f"**{', '.join(sorted(states - {'passed'}))}**"]
    words[0] += f" at {where}" if where else ""
    shares = [verdict["share"] for verdict in verdicts if verdict["share"] is not None]
    words += [f"{max(shares):.2g} of what is allowed"] if shares else []
    as_run = [verdict["as_run"] for verdict in verdicts if verdict["as_run"] is not None]
    words += [f"as run {max(as_run):.1e}"] if as_run else []
    left = _left_out(record)
    return "; ".join([*words, *([f"left out: {_cell(', '.join(dict.fromkeys(left)))[:160]}"] if left else [])])


def _seconds(run: Record) -> str:
    steps = run.get("steps")
    if steps is None:
        return f"{run['seconds']:.0f} in all"
    return ", ".join(f"{name} {seconds:.1f}" for name, seconds in steps.items())


def _cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())
