"""The curves of docs/performance.md: ``python benchmarks/speed_picture.py RESULTS.json PICTURE.svg`` (needs matplotlib)."""

from __future__ import annotations

import json
import statistics
import sys
from pathlib import Path
from typing import Any

COLOURS = {"before": "#b0b0b0", "trtnorm": "#2b7a3d"}
TITLES = {
    "changed": "49 × Conv, BatchNorm, Relu: every weight changes",
    "unchanged": "100 × MatMul, LayerNorm: nothing changes",
}
AXES = {"cpu_s": "processor seconds", "largest_mb": "largest process, GB"}


def points(curves: dict[str, Any], kind: str, tool: str, key: str) -> list[tuple[float, float]]:
    found = []
    for name, row in curves.items():
        runs = [run for run in row.get(tool, {}).get("runs", ()) if run["code"] == 0]
        if name.startswith(kind + "_") and runs:
            value = statistics.median(run[key] for run in runs)
            found.append((runs[0]["bytes"] / 1e9, value / 1000 if key == "largest_mb" else value))
    return sorted(found)


def main(results: Path, picture: Path) -> None:
    import matplotlib as mpl

    mpl.use("svg")
    mpl.rcParams.update({"svg.hashsalt": "trtnorm", "svg.fonttype": "none", "font.size": 9})
    from matplotlib import pyplot

    curves = json.loads(results.read_text())["curves"]
    tools = list(dict.fromkeys(tool for row in curves.values() for tool in row))
    figure, grid = pyplot.subplots(2, 2, figsize=(9, 6), sharex=True)
    for column, (kind, title) in enumerate(TITLES.items()):
        for line, (key, label) in enumerate(AXES.items()):
            axes = grid[line][column]
            for tool in tools:
                drawn = points(curves, kind, tool, key)
                own = tool in COLOURS
                axes.plot(*zip(*drawn, strict=True), marker="o", markersize=3, label=tool, color=COLOURS.get(tool),
                          linewidth=2 if own else 1, linestyle="-" if own else "--") if drawn else None  # fmt: skip
            axes.set_ylim(bottom=0)
            axes.set_ylabel(label)
            axes.grid(alpha=0.3)
        grid[0][column].set_title(title, fontsize=9)
        grid[1][column].set_xlabel("weights, GB")
    grid[0][0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(picture, metadata={"Date": None})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
