"""Time and memory of trtnorm beside tools that prove nothing, on the same files in one run.

    python -m benchmarks.speed measure -o build/bench/speed.json [--models NAMES] [--tools NAMES] [--repeat 5]
                                       [--also LABEL=CHECKOUT] [--parts rewrite,build] [--timeout SECONDS]
    python -m benchmarks.speed merge build/bench/speed.json ONE.json OTHER.json
    python -m benchmarks.speed page build/bench/speed.json docs/performance.md

Every run is a process of its own, and the tools take turns: each in each round. What was found is written after every run, and
runs that are there already are not made again. ``--also`` measures another checkout of trtnorm in the same run. ``merge`` puts
results together that were measured apart, on equal machines. Makes two environments beside the results, for the peers and for
the libraries that export models, unless it is given theirs. Needs tensorrt-rtx for builds, 16 GB of memory and 20 GB of disk
for the largest models, no GPU.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import platform
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from benchmarks.measured import measured
from benchmarks.speed_merge import merge
from benchmarks.speed_page import page
from benchmarks.speed_peers import LARGE, PACKAGES, TOOLS, weight

HERE = Path(__file__).resolve().parent
LIBRARIES = ("torch", "torchvision", "transformers", "monai", "onnx", "onnxscript", "PyYAML")
CHAINS = ("chain_83mb", "nodes_20000")
WITH_PHASES = {"phases": ("rewrite", "-o", "made/m.onnx"), "phases of builds": ("build", "--force", "-o", "made/m.engine")}
PARTS = ("rewrite", "build", "curves", *WITH_PHASES)
PHASES_OF = ("resnet50", "bert_base", "regnety_128gf", "raft_small")
CURVE_MB = (100, 500, 1000, 2000, 3000)
CURVES = ("changed", "unchanged")
# Building it takes TensorRT many minutes.
NOT_BUILT = ("nodes_20000",)
TRTNORM, ALONE, TIMEOUT_S = "trtnorm", "TensorRT", 600.0


@dataclass(frozen=True)
class Bench:
    """``checkouts`` are folders with trtnorm, by the name of the column."""

    folder: Path
    known: dict[str, Any]
    file: Path
    checkouts: Mapping[str, Path]
    peers: Path
    tools: tuple[str, ...]
    repeat: int
    checks: bool
    sizes: tuple[int, ...]
    kinds: tuple[str, ...]
    timeout_s: float

    def save(self) -> None:
        part = self.file.with_suffix(".part")
        part.write_text(json.dumps(self.known, indent=1) + "\n")
        part.replace(self.file)

    def rows(self, part: str, model: str, tool: str) -> dict[str, Any]:
        row: dict[str, Any] = self.known.setdefault(part, {}).setdefault(model, {}).setdefault(tool, {"runs": []})
        return row

    def measured_checkouts(self) -> list[str]:
        return [label for label in self.checkouts if label in self.tools]

    def rewriting_tools(self) -> tuple[str, ...]:
        return tuple(tool for tool in self.tools if tool != ALONE)

    def building_tools(self) -> tuple[str, ...]:
        return tuple(tool for tool in (ALONE, *self.checkouts) if tool in self.tools)

    def environment(self, tool: str) -> dict[str, str]:
        """This process's, but that Python reads the bytecode of ``compiled``, as every installed tool has it."""
        inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        return {**inherited, "PYTHONPATH": str(self.checkouts.get(tool, HERE.parent))}

    def trtnorm(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "trtnorm_cli", *arguments]

    def rewriting(self, tool: str, model: Path, made: Path, profile: Path | None) -> list[str]:
        """The command that makes ``made`` of ``model``."""
        if tool in TOOLS:
            return [str(self.peers), str(HERE / "speed_peers.py"), tool, str(model), str(made)]
        sizes = [] if profile is None else ["-p", str(profile)]
        return self.trtnorm("rewrite", str(model), "-o", str(made), "--quiet", *sizes)


def rounds(bench: Bench, part: str, models: list[Path], tools: tuple[str, ...]) -> Iterator[tuple[Path, str, dict[str, Any]]]:
    """What is still to be run: each tool in each round, and each model in turn."""
    for number in range(bench.repeat):
        for model in models:
            for tool in tools:
                row = bench.rows(part, model.stem, tool)
                failed = any(run["code"] != 0 for run in row["runs"])
                if len(row["runs"]) <= number and not failed:
                    yield model, tool, row


def rewrites(bench: Bench, models: list[Path]) -> None:
    for model, tool, row in rounds(bench, "rewrite", models, bench.rewriting_tools()):
        made, profile = bench.folder / "made" / f"{model.stem}.onnx", profile_of(model)
        emptied(made.parent)
        run = measured(bench.rewriting(tool, model, made, profile), bench.environment(tool), bench.folder, bench.timeout_s)
        row["runs"].append(run.record())
        if run.code == 0 and "norms" not in row and bench.checks:
            row |= check(bench, model, made, profile)
        told("rewrite", model, tool, run)
        bench.save()
        emptied(made.parent)


def check(bench: Bench, model: Path, made: Path, profile: Path | None) -> dict[str, Any]:
    """Once for each model and tool: norms left, distances, and kernels where that is quick."""
    kept = bench.folder / "references" / f"{model.stem}.npz"
    kept.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "benchmarks.speed_check", str(model), str(made), str(kept)]
    command += [] if model.stem in NOT_BUILT or weight(model) > LARGE else ["--kernels", str(profile or "-")]
    run = measured(command, bench.environment(TRTNORM), bench.folder, bench.timeout_s)
    found: dict[str, Any] = json.loads(run.output) if run.code == 0 else {"norms": {}, "failed": run.said[-300:]}
    return found


def builds(bench: Bench, models: list[Path]) -> None:
    """``trtnorm build`` with its comparison, as its manifest splits it, beside TensorRT alone."""
    built = [model for model in models if model.stem not in NOT_BUILT]
    for model, tool, row in rounds(bench, "build", built, bench.building_tools()):
        profile, folder = profile_of(model), bench.folder / "made"
        emptied(folder)
        if tool == ALONE:
            command = [sys.executable, "-m", "benchmarks.speed_tensorrt", str(model), str(profile or "-")]
        else:
            sizes = [] if profile is None else ["-p", str(profile)]
            command = bench.trtnorm("build", str(model), "-o", str(folder / "m.engine"), "--json", "--force", *sizes)
        run = measured(command, bench.environment(tool), bench.folder, bench.timeout_s)
        record = run.record()
        if run.code == 0:
            described = json.loads(run.output)
            record["seconds"] = described["seconds"]
            record["compared"] = (described.get("comparison") or {}).get("state")
        row["runs"].append(record)
        told("build", model, tool, run)
        bench.save()


def curves(bench: Bench) -> None:
    """Each size is made, measured with every tool, and deleted."""
    for kind in bench.kinds:
        for size in bench.sizes:
            name = f"{kind}_{size}"
            folder = bench.folder / "curve"
            pending = list(rounds(bench, "curves", [folder / f"{name}.onnx"], bench.rewriting_tools()))
            if not pending:
                continue
            emptied(folder)
            model = folder / f"{name}.onnx"
            apart("benchmarks.speed_chains", kind, str(size), str(model))
            for _, tool, row in pending:
                emptied(bench.folder / "made")
                command = bench.rewriting(tool, model, bench.folder / "made" / "m.onnx", profile_of(model))
                run = measured(command, bench.environment(tool), bench.folder, bench.timeout_s)
                row["runs"].append({**run.record(), "bytes": weight(model)})
                told("curve", model, tool, run)
                bench.save()
            emptied(folder)
    emptied(bench.folder / "made")


def phases(bench: Bench, part: str, models: list[Path]) -> None:
    """Once each: where the seconds of a rewriting or of a build go, by folder of the package."""
    for model in [model for model in models if model.stem in PHASES_OF]:
        for tool in bench.measured_checkouts():
            row = bench.rows(part, model.stem, tool)
            if "seconds" in row or (part == "phases of builds" and model.stem in NOT_BUILT):
                continue
            made, profile = bench.folder / "made", profile_of(model)
            emptied(made)
            sizes = [] if profile is None else ["-p", str(profile)]
            command = [sys.executable, str(HERE / "phases.py"), *WITH_PHASES[part], str(model), "--quiet", *sizes]
            run = measured(command, bench.environment(tool), bench.folder, bench.timeout_s)
            if run.code == 0:
                row["seconds"] = json.loads(run.output.splitlines()[-1])
            told(part, model, tool, run)
            bench.save()


def told(part: str, model: Path, tool: str, run: Any) -> None:
    ended = "" if run.code == 0 else f"  exit {run.code}: {run.said.strip().splitlines()[-1:]}"
    print(f"{part} {model.stem} {tool}: {run.wall_s:.1f} s, {run.cpu_s:.1f} s CPU, {run.largest_mb:.0f} MB{ended}", flush=True)


def apart(module: str, *arguments: str) -> str:
    """What a module of this folder prints; a process counts the memory of the one that started it, so this one stays small."""
    command = [sys.executable, "-m", module, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent)}
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout


def emptied(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def profile_of(model: Path) -> Path | None:
    profile = model.with_suffix(".yaml")
    return profile if profile.exists() else None


def compiled(checkout: Path) -> None:
    """Write the bytecode of a checkout of trtnorm, as pip does with what it installs."""
    subprocess.run([sys.executable, "-m", "compileall", "-q", str(checkout / "trtnorm_cli")], check=True)


def environment(folder: Path, packages: tuple[str, ...]) -> Path:
    """The Python of a virtual environment with ``packages``, made if it is not there."""
    python = folder / "bin" / "python"
    if not python.exists():
        print(f"making an environment in {folder}", flush=True)
        venv.create(folder, with_pip=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
    return python


def chosen(names: tuple[str, ...], wanted: str) -> list[str]:
    """Those of ``names`` that a pattern of ``wanted`` has. Ends the program where a pattern has none."""
    patterns = wanted.split(",")
    if idle := [pattern for pattern in patterns if not fnmatch.filter(names, pattern)]:
        sys.exit(f"no model has a name like {', '.join(map(repr, idle))}; there are {', '.join(names)}")
    return [name for name in names if any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def made_models(folder: Path, libraries: Path | None, wanted: str) -> list[Path]:
    """The files of the table, exported or written if they are not there."""
    folder.mkdir(parents=True, exist_ok=True)
    exports = yaml.safe_load((HERE / "speed_models.yaml").read_text(encoding="utf-8"))["exports"]
    named = chosen((*exports, *CHAINS), wanted)
    script = [str(HERE / "export_library_models.py"), "--list", str(HERE / "speed_models.yaml"), "-o", str(folder)]
    for name in named:
        path = folder / f"{name}.onnx"
        if path.exists():
            continue
        if name in CHAINS:
            apart("benchmarks.speed_chains", name, "0", str(path))
        else:
            python = libraries or environment(folder.parent / "libraries", LIBRARIES)
            subprocess.run([str(python), *script, "--only", name], check=True)
    return sorted((path for name in named if (path := folder / f"{name}.onnx").exists()), key=weight)


def measure(arguments: argparse.Namespace) -> None:
    folder = arguments.output.resolve().parent
    folder.mkdir(parents=True, exist_ok=True)
    known = json.loads(arguments.output.read_text()) if arguments.output.exists() else {}
    also = dict(text.split("=", 1) for text in arguments.also)
    checkouts = {TRTNORM: HERE.parent} | {label: Path(path).resolve() for label, path in also.items()}
    tools = tuple(arguments.tools.split(",")) if arguments.tools else (*checkouts, *TOOLS, ALONE)
    peers = arguments.peers or environment(folder / "peers", PACKAGES)
    bench = Bench(
        folder, known, arguments.output.resolve(), checkouts, peers, tools, arguments.repeat, not arguments.times_only,
        tuple(map(int, arguments.sizes.split(","))), tuple(arguments.kinds.split(",")), arguments.timeout,
    )  # fmt: skip
    for checkout in checkouts.values():
        compiled(checkout)
    parts = arguments.parts.split(",")
    models = made_models(folder / "models", arguments.libraries, arguments.models) if parts != ["curves"] else []
    known["machine"] = (
        f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    )
    known["peers"] = list(PACKAGES)
    versions = folder / "models" / "versions.json"
    if versions.exists():
        known["libraries"] = json.loads(versions.read_text())
    for model in models:
        if model.stem not in known.setdefault("models", {}):
            about = apart("benchmarks.speed_check", "--about", str(model))
            known["models"][model.stem] = {"bytes": weight(model), **json.loads(about)}
    bench.save()
    if "rewrite" in parts:
        rewrites(bench, models)
    if "build" in parts:
        builds(bench, models)
    if "curves" in parts:
        curves(bench)
    for part in [part for part in WITH_PHASES if part in parts]:
        phases(bench, part, models)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("measure", help="run what is not in the results yet")
    run.set_defaults(call=measure)
    run.add_argument("-o", "--output", type=Path, required=True, metavar="OUT.json")
    run.add_argument("--models", default="*", metavar="NAMES", help="patterns with commas between them: 'resnet*,bert_base'")
    run.add_argument("--tools", metavar="NAMES", help=f"of {TRTNORM}, {', '.join(TOOLS)}, {ALONE} and the labels of --also")
    run.add_argument("--repeat", type=int, default=5)
    run.add_argument("--parts", default=",".join(PARTS), help=f"of {', '.join(PARTS)}, with commas between them")
    run.add_argument(
        "--sizes", default=",".join(map(str, CURVE_MB)), metavar="MB", help="of the curves, with commas between them"
    )
    run.add_argument("--kinds", default=",".join(CURVES), help="of the curves")
    run.add_argument("--timeout", type=float, default=TIMEOUT_S, metavar="SECONDS", help="of one run")
    run.add_argument("--times-only", action="store_true", help="leave out what the tools make of the models")
    run.add_argument("--also", action="append", default=[], metavar="LABEL=CHECKOUT")
    run.add_argument("--peers", type=Path, metavar="PYTHON", help="of an environment with the peers")
    run.add_argument("--libraries", type=Path, metavar="PYTHON", help="of an environment with the libraries of the models")
    join = commands.add_parser("merge", help="put results together that were measured apart")
    join.set_defaults(call=lambda found: merge(found.output, found.results))
    join.add_argument("output", type=Path, metavar="OUT.json")
    join.add_argument("results", type=Path, nargs="+", metavar="RESULTS.json")
    show = commands.add_parser("page", help="make the Markdown page of results")
    show.set_defaults(call=lambda found: page(found.results, found.page))
    show.add_argument("results", type=Path)
    show.add_argument("page", type=Path)
    arguments = parser.parse_args()
    arguments.call(arguments)


if __name__ == "__main__":
    main()
