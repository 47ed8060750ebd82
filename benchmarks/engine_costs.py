"""Kernels, traffic and estimated time of engines: TensorRT alone, peers, and each ``optimize`` of trtnorm.

    python -m benchmarks.engine_costs measure -o build/bench/costs.json --peers PYTHON [--kinds NAMES] MODEL.onnx …
    python -m benchmarks.engine_costs page build/bench/costs.json … docs/engine_costs.md

A profile ``MODEL.yaml`` is taken where there is one. PYTHON is one of an environment with the packages of ``speed_peers``.
What was measured is written after every build, and not measured again. The peers' models are built as they are, with the same
shapes. Needs tensorrt-rtx, no GPU. Nothing is run: times are estimates (docs/cost_model.md).
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx

from benchmarks.foreign_corpus import Source
from benchmarks.foreign_models import corners
from trtnorm_cli.child_process import Limits
from trtnorm_cli.cost.device import DEFAULT, DEVICES
from trtnorm_cli.engine_cost.engine import engine_cost
from trtnorm_cli.shapes.symbols import axis_symbol
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.request import BuildRequest

RAW = "TensorRT alone"
PEERS = ("OnnxSlim", "onnxsim", "onnxscript")
POLICIES = ("auto", "always", "never", "kernels")
KINDS = (RAW, *PEERS, *POLICIES)
LIMITS = Limits(900)
# Times that are nearer than this are equal, as for ``optimize: auto``.
EQUAL = 0.001


def built_as_it_is(path: Path, profile: Path | None) -> dict[str, Any]:
    """The cost of the engine that TensorRT makes of a file."""
    model = onnx.load(path, load_external_data=False)
    ranges = corners(Source(path.stem, path, "", "", "", profile), model)
    with tempfile.TemporaryDirectory() as folder:
        engine = str(Path(folder) / "m.engine")
        settings = {"profiling_verbosity": "detailed"}
        request = BuildRequest(str(path), engine, "tensorrt-rtx", (ranges,) if ranges else (), settings)
        result = launch(request, Path(folder), lambda event: None, LIMITS)
    if not result.ok:
        return {"refused": "; ".join(message.text for message in result.errors)[:300]}
    sizes = {}
    for value in model.graph.input:
        if value.name in ranges:
            for axis, (dim, size) in enumerate(zip(value.type.tensor_type.shape.dim, ranges[value.name][1], strict=True)):
                sizes[dim.dim_param or axis_symbol(value.name, axis)] = size
    cost = engine_cost(result.kernels, model, {"default": sizes}, DEVICES[DEFAULT], result.layers)
    return asdict(cost.total)


def built_by_peer(path: Path, profile: Path | None, tool: str, python: Path) -> dict[str, Any]:
    """The cost of the engine of what a peer makes of a file."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / path.name
        command = [str(python), str(Path(__file__).with_name("speed_peers.py")), tool, str(path), str(made)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if done.returncode or not made.exists():
            return {"refused": f"{tool}: {(done.stderr.strip().splitlines() or ['nothing written'])[-1][:300]}"}
        return built_as_it_is(made, profile)


def built_by_trtnorm(path: Path, profile: Path | None, policy: str) -> dict[str, Any]:
    """The cost of trtnorm's engine, with the seconds that variants took and how many builds there were."""
    with tempfile.TemporaryDirectory() as folder:
        text = "" if profile is None else profile.read_text(encoding="utf-8")
        kept = [line for line in text.splitlines() if not line.startswith("optimize:")]
        own = Path(folder) / "p.yaml"
        own.write_text("\n".join([*kept, f"optimize: {policy}"]) + "\n", encoding="utf-8")
        engine = Path(folder) / "m.engine"
        command = [
            sys.executable,
            "-m",
            "trtnorm_cli",
            "build",
            str(path),
            "-p",
            str(own),
            "-o",
            str(engine),
            "--no-compare",
            "-q",
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=1800)
        if done.returncode:
            return {"refused": done.stderr[:300]}
        manifest = json.loads((Path(folder) / "m.engine.json").read_text(encoding="utf-8"))
    chosen = manifest["optimize"]["chosen"]
    found = {"seconds": manifest["seconds"].get("variants", 0.0), "builds": 1 if chosen is None else chosen["builds"]}
    return {**manifest["cost"]["total"], **found, "left_out": 0 if chosen is None else len(chosen["left_out"])}


def measure(models: list[Path], target: Path, python: Path, kinds: list[str]) -> None:
    known: dict[str, dict[str, Any]] = json.loads(target.read_text(encoding="utf-8")) if target.exists() else {}
    for path in models:
        profile = path.with_suffix(".yaml") if path.with_suffix(".yaml").exists() else None
        row = known.setdefault(path.stem, {})
        for kind in kinds:
            if kind in row:
                continue
            start, processor = time.perf_counter(), processor_seconds()
            try:
                if kind == RAW:
                    row[kind] = built_as_it_is(path, profile)
                elif kind in PEERS:
                    row[kind] = built_by_peer(path, profile, kind, python)
                else:
                    row[kind] = built_by_trtnorm(path, profile, kind)
            except subprocess.TimeoutExpired:
                row[kind] = {"refused": "too long"}
            row[kind]["cpu_seconds"] = round(processor_seconds() - processor, 2)
            target.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
            found = (
                row[kind].get("refused") or f"{row[kind]['us']} µs, {row[kind]['launches']} kernels, {row[kind]['bytes']} bytes"
            )
            print(f"{path.stem} {kind}: {found} ({time.perf_counter() - start:.0f} s)", flush=True)


def processor_seconds() -> float:
    """The processor's seconds of all child processes that ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def page(known: dict[str, dict[str, Any]]) -> str:
    """The tables as Markdown."""
    lines = [
        "| model | TensorRT alone | best peer | never | always | kernels | **auto** | builds | search, CPU s | all, CPU s |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    above: list[str] = []
    more: list[str] = []
    for name, row in sorted(known.items()):
        cells = [row.get(RAW), best_peer(row), *(row.get(kind) for kind in ("never", "always", "kernels", "auto"))]
        auto = row.get("auto") or {}
        shown = " | ".join(map(cell, cells))
        lines.append(f"| {name} | {shown} | {auto.get('builds', '')} | {search(row)} | {seconds(auto)} |")
        usable = {kind: one for kind, one in row.items() if "us" in one}
        if "us" not in auto:
            continue
        kind = min(usable, key=lambda kind: usable[kind]["us"])
        if auto["us"] > usable[kind]["us"] * (1 + EQUAL):
            above.append(f"{name}: {auto['us'] / usable[kind]['us'] - 1:.1%} above {kind}")
        if (raw := usable.get(RAW)) is not None and auto["launches"] > raw["launches"]:
            saved = 1 - auto["us"] / raw["us"]
            more.append(f"{name}: {auto['launches'] - raw['launches']} more, in {saved:.1%} less time")
    return (
        "\n".join(lines) + "\n\n" + sums(known, (RAW, "never", "auto")) + "\n" + sums(known, (RAW, *PEERS, "auto"))
        + f"\nWhere `auto` is above the least estimated time by more than {EQUAL:.1%}:\n\n{listed(above)}\n"
        + f"\nWhere `auto` has more kernels than TensorRT alone:\n\n{listed(more)}\n"
    )  # fmt: skip


def sums(known: dict[str, dict[str, Any]], kinds: tuple[str, ...]) -> str:
    """The sums over the models that all of ``kinds`` build."""
    rows = [row for row in known.values() if all("us" in (row.get(kind) or {}) for kind in kinds)]
    lines = [
        f"Sums over {len(rows)} models:\n",
        "| | µs | kernels | of them compiled on the device | MB moved |",
        "|---|---|---|---|---|",
    ]
    for kind in kinds:
        us, launches, compiled, moved = (
            sum(row[kind][key] for row in rows) for key in ("us", "launches", "compiled_on_device", "bytes")
        )
        lines.append(f"| {kind} | {us:,.0f} | {launches:,} | {compiled:,} | {moved / 1e6:,.1f} |")
    return "\n".join(lines) + "\n"


def listed(lines: list[str]) -> str:
    return "\n".join(f"- {line}" for line in lines) or "- none"


def search(row: dict[str, dict[str, Any]]) -> str:
    """The processor's seconds that ``auto`` takes beyond ``always``."""
    both = [(row.get(kind) or {}).get("cpu_seconds") for kind in ("auto", "always")]
    return "–" if None in both else f"{max(0.0, both[0] - both[1]):.1f}"


def seconds(one: dict[str, Any]) -> str:
    return f"{one['cpu_seconds']:.1f}" if "cpu_seconds" in one else "–"


def best_peer(row: dict[str, Any]) -> dict[str, Any] | None:
    found = [row[kind] for kind in PEERS if "us" in (row.get(kind) or {})]
    return min(found, key=lambda one: one["us"]) if found else None


def cell(one: dict[str, Any] | None) -> str:
    """``185 µs, 78, 7.7``: time, kernels (with those compiled on the device), and megabytes."""
    if one is None:
        return "–"
    if "us" not in one:
        return "refused"
    compiled = f" ({one['compiled_on_device']})" if one["compiled_on_device"] else ""
    return f"{one['us']:.0f} µs, {one['launches']}{compiled}, {one['bytes'] / 1e6:.2f}"


BEGIN, END = "<!-- costs -->", "<!-- end of costs -->"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("measure")
    one.add_argument("-o", type=Path, required=True)
    one.add_argument("--peers", type=Path, required=True)
    one.add_argument("--kinds", default=",".join(KINDS))
    one.add_argument("models", nargs="+", type=Path)
    other = commands.add_parser("page")
    other.add_argument("results", type=Path, nargs="+")
    other.add_argument("page", type=Path)
    given = parser.parse_args()
    if given.command == "measure":
        measure([path.resolve() for path in given.models], given.o, given.peers, given.kinds.split(","))
        return
    known: dict[str, dict[str, Any]] = {}
    for path in given.results:
        for name, row in json.loads(path.read_text(encoding="utf-8")).items():
            known.setdefault(name, {}).update(row)
    before, _, rest = given.page.read_text(encoding="utf-8").partition(BEGIN)
    after = rest.partition(END)[2]
    given.page.write_text(f"{before}{BEGIN}\n\n{page(known)}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
