"""docs/performance.md from what speed.py measured. The text around the tables stands in the page itself and is kept."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]
Cell = Callable[[Row], float | None]
TRTNORM, BEFORE = "trtnorm", "before"
FEWEST_SECONDS = 0.1


def page(results: Path, target: Path) -> None:
    """Put each table between the comments with its name in ``target``. One of which nothing was measured stays as it is."""
    known = json.loads(results.read_text())
    text = target.read_text(encoding="utf-8")
    for name, make in TABLES.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        if begin not in text or end not in text:
            raise SystemExit(f"{target} has no place for the table {name!r}: {begin.strip()} … {end}")
        before, _, rest = text.partition(begin)
        _, _, after = rest.partition(end)
        made = make(known)
        if made:
            text = "\n".join([before + begin, *made, "", end + after])
    target.write_text(text, encoding="utf-8")


def ended(row: Row) -> list[Row]:
    return [run for run in row.get("runs", ()) if run["code"] == 0]


def median(row: Row, key: str) -> float | None:
    values = [run[key] for run in ended(row)]
    return statistics.median(values) if values else None


def spread(row: Row, key: str, digits: int) -> str:
    """The median, and the smallest and largest value where there are several; what happened where there is none."""
    if not row.get("runs"):
        return ""
    values = [run[key] for run in ended(row)]
    if not values:
        code = row["runs"][0]["code"]
        return "too long" if code is None else f"failed ({code})"
    middle = f"{statistics.median(values):.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def models(known: Row, part: str) -> list[str]:
    """The models of a part, small ones first."""
    return sorted(known.get(part, {}), key=lambda name: known["models"][name]["bytes"])


def tools(known: Row, part: str) -> list[str]:
    found = {tool: None for row in known.get(part, {}).values() for tool in row}
    first = [tool for tool in (BEFORE, TRTNORM) if tool in found]
    return [*first, *sorted(tool for tool in found if tool not in first)]


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(head) + " |", "|---" * len(head) + "|", *("| " + " | ".join(row) + " |" for row in rows)]


def about(known: Row) -> list[str]:
    rows = []
    for name in sorted(known["models"], key=lambda name: known["models"][name]["bytes"]):
        model = known["models"][name]
        norms = ", ".join(f"{number} {norm}" for norm, number in model["norms"].items()) or "none"
        rows.append([name, f"{model['bytes'] / 1e6:.1f}", str(model["nodes"]), norms])
    libraries = ", ".join(f"{name} {version}" for name, version in known.get("libraries", {}).items())
    exported = f" Models exported with {libraries}." if libraries else ""
    return [
        f"Machine: {known['machine']}. Peers: {', '.join(known['peers'])}.{exported}",
        "",
        *table(["model", "MB", "nodes", "norms"], rows),
    ]


def folds_everything(known: Row, name: str, row: Row) -> bool:
    """No BatchNormalization is left of those that trtnorm folds too. False where nobody counted (``--times-only``)."""
    least = min(
        (found["norms"].get("BatchNormalization", 0) for found in known["rewrite"][name].values() if "norms" in found),
        default=0,
    )
    is_counted = "norms" in row and bool(ended(row)) and not row.get("failed")
    return is_counted and row["norms"].get("BatchNormalization", 0) <= least


def ratio(known: Row, name: str, key: str, tool: str) -> str:
    row = known["rewrite"][name]
    peers = [median(found, key) for peer, found in row.items() if peer not in (TRTNORM, BEFORE)
             and folds_everything(known, name, found)]  # fmt: skip
    best, ours = min((value for value in peers if value), default=None), median(row.get(tool, {}), key)
    return "" if best is None or ours is None else f"{ours / best:.1f}"


def rewriting(key: str, digits: int) -> Callable[[Row], list[str]]:
    def make(known: Row) -> list[str]:
        columns = tools(known, "rewrite")
        if not columns:
            return []
        ours = [tool for tool in (BEFORE, TRTNORM) if tool in columns]
        rows = [
            [name, *(spread(known["rewrite"][name].get(tool, {}), key, digits) for tool in columns),
             *(ratio(known, name, key, tool) for tool in ours)]
            for name in models(known, "rewrite")
        ]  # fmt: skip
        names = [
            name for name in models(known, "rewrite") if all(ended(known["rewrite"][name].get(tool, {})) for tool in columns)
        ]
        sums = [sum(median(known["rewrite"][name][tool], key) or 0.0 for name in names) for tool in columns]
        rows.append([f"sum of the {len(names)} that all took", *(f"{value:.{digits}f}" for value in sums), *("" for _ in ours)])
        return table(["model", *columns, *(f"{tool} / best" for tool in ours)], rows)

    return make


def left(known: Row) -> list[str]:
    if not any("norms" in row for tools_of_one in known.get("rewrite", {}).values() for row in tools_of_one.values()):
        return []
    columns = tools(known, "rewrite")
    rows = [[name, *(_left(known["rewrite"][name].get(tool, {})) for tool in columns)] for name in models(known, "rewrite")]
    return table(["model", *columns], rows)


def _left(row: Row) -> str:
    if "norms" not in row:
        return ""
    if row.get("failed"):
        return "does not run"
    exact, run = row.get("error_exact"), row.get("error_as_run")
    kernels = f", {row['kernels']} kernels" if row.get("kernels") else ""
    distance = "" if exact is None or run is None else f", {exact:.0e} / {run:.0e}"
    return f"{sum(row['norms'].values())}{distance}{kernels}"


def building(known: Row) -> list[str]:
    if not known.get("build"):
        return []
    ours = [tool for tool in (BEFORE, TRTNORM) if any(row.get(tool, {}).get("runs") for row in known["build"].values())]
    rows = []
    for name in models(known, "build"):
        row = known["build"][name]
        alone = row.get("TensorRT", {})
        cells = [name, inside(alone), spread(alone, "cpu_s", 1)]
        for tool in ours:
            found = row.get(tool, {})
            cells += [spread(found, "wall_s", 1), spread(found, "cpu_s", 1), times(found, alone, "cpu_s")]
        rows.append([*cells, stages(row.get(TRTNORM) or row.get(BEFORE, {})), megabytes(row, ["TensorRT", *ours])])
    head = ["model", "parse + build s", "TensorRT alone, CPU s"]
    for tool in ours:
        head += [f"{tool}, s", "CPU s", "× TensorRT's CPU"]
    return table([*head, "stages, s", f"MB, largest process: TensorRT / {' / '.join(ours)}"], rows)


def times(row: Row, alone: Row, key: str) -> str:
    ours, theirs = median(row, key), median(alone, key)
    return f"{ours / theirs:.1f}" if ours and theirs else ""


def inside(row: Row) -> str:
    """TensorRT's own parsing and building, without the start of a process."""
    values = [run["seconds"].get("parse", 0) + run["seconds"].get("build", 0) for run in ended(row)]
    return f"{statistics.median(values):.2f}" if values else ""


def stages(row: Row) -> str:
    runs = ended(row)
    return ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in runs[-1]["seconds"].items()) if runs else ""


def megabytes(row: Row, columns: Sequence[str]) -> str:
    values = [median(row.get(tool, {}), "largest_mb") for tool in columns]
    return " / ".join("–" if value is None else f"{value:.0f}" for value in values)


def curve(known: Row) -> list[str]:
    names = sorted(known.get("curves", {}), key=lambda name: (name.split("_")[0], int(name.split("_")[1])))
    columns = tools(known, "curves")
    if not columns:
        return []
    rows = [
        [name.replace("_", ", ") + " MB", *(_curve_cell(known["curves"][name].get(tool, {})) for tool in columns)]
        for name in names
    ]
    return table(["model", *columns], rows)


def _curve_cell(row: Row) -> str:
    seconds = spread(row, "cpu_s", 1)
    return seconds if not ended(row) else f"{seconds} s, {spread(row, 'largest_mb', 0)} MB"


def phases(kind: str) -> Callable[[Row], list[str]]:
    """One table a model: the parts of the package in the order of what they take now."""

    def make(known: Row) -> list[str]:
        lines: list[str] = []
        for name in models(known, kind):
            found = {tool: row["seconds"] for tool, row in known[kind][name].items() if "seconds" in row}
            columns = [tool for tool in (BEFORE, TRTNORM) if tool in found]
            parts = {part: None for tool in reversed(columns) for part in found[tool]}
            shown = [part for part in parts if any(found[tool].get(part, 0) >= FEWEST_SECONDS for tool in columns)]
            rows = [[part, *(f"{found[tool].get(part, 0):.2f}" for tool in columns)] for part in shown]
            lines += ["", *table([name, *columns], rows)]
        return lines[1:]

    return make


TABLES: Mapping[str, Callable[[Row], list[str]]] = {
    "models": about,
    "processor seconds": rewriting("cpu_s", 1),
    "seconds": rewriting("wall_s", 1),
    "largest process": rewriting("largest_mb", 0),
    "all processes": rewriting("family_mb", 0),
    "what is left": left,
    "builds": building,
    "curves": curve,
    "phases": phases("phases"),
    "phases of builds": phases("phases of builds"),
}
