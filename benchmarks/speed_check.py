"""What a tool made of a model: ``python -m benchmarks.speed_check MODEL.onnx MADE.onnx REFERENCE.npz [--kernels PROFILE|-]``.

``--about MODEL.onnx`` prints its nodes and norms.

Prints one JSON line: normalizations left, and two distances from the original in float64, each relative to the largest value of
an output: ``error_as_run`` of ONNX Runtime in float32 without its own optimisations, and ``error_exact`` of the made model
evaluated in float64 too, which has no rounding of the run in it. The reference is computed once and kept in REFERENCE.npz.
``--kernels`` adds what TensorRT's parser and builder make of the file with that build profile.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime

from benchmarks.foreign_corpus import Source
from benchmarks.foreign_models import inputs, raw
from trtnorm_cli.evaluate.float64.evaluator import evaluate_float64

NORMS = ("BatchNormalization", "InstanceNormalization", "LayerNormalization", "GroupNormalization", "RMSNormalization")
SIZES = {"T": 16}
BUDGET_S = 600.0
Arrays = dict[str, np.ndarray]


def norms(model: onnx.ModelProto) -> dict[str, int]:
    """How many there are of each operator, those in functions and branches left out."""
    found = Counter(node.op_type for node in model.graph.node)
    return {name: found[name] for name in NORMS if found[name]}


def feeds(model: onnx.ModelProto) -> Arrays:
    """Normal values, and integers of 0 and 1; a dynamic size is 1 unless ``SIZES`` has it."""
    rng, found = np.random.default_rng(0), {}
    for value in inputs(model):
        shape = [dim.dim_value or SIZES.get(dim.dim_param, 1) for dim in value.type.tensor_type.shape.dim]
        kind = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
        drawn = rng.integers(0, 2, shape) if kind.kind in "iub" else rng.standard_normal(shape)
        found[value.name] = np.asarray(drawn).astype(kind)
    return found


def reference(path: Path, data: Arrays, kept: Path) -> Arrays:
    if not kept.exists():
        np.savez(kept, **evaluate_float64(path, data, budget_s=BUDGET_S).outputs)
    with np.load(kept) as stored:
        return dict(stored)


def as_run(path: Path, data: Arrays, names: list[str]) -> Arrays:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    known = {value.name for value in session.get_inputs()}
    return dict(zip(names, session.run(names, {key: value for key, value in data.items() if key in known}), strict=True))


def error(wanted: Arrays, got: Arrays) -> float:
    return max(_distance(wanted[name], np.asarray(got[name], np.float64)) for name in wanted)


def _distance(wanted: np.ndarray, got: np.ndarray) -> float:
    return float(np.max(np.abs(wanted - got)) / max(float(np.max(np.abs(wanted))), np.finfo(np.float64).tiny))


def checked(original: Path, made: Path, kept: Path) -> dict[str, Any]:
    model = onnx.load(original, load_external_data=False)
    found: dict[str, Any] = {"norms": norms(onnx.load(made, load_external_data=False))}
    try:
        data = feeds(model)
        wanted = reference(original, data, kept)
        found["error_as_run"] = error(wanted, as_run(made, data, list(wanted)))
        found["error_exact"] = error(wanted, evaluate_float64(made, data, budget_s=BUDGET_S).outputs)
    except Exception as failure:  # whatever a tool made of the model is a result
        found["failed"] = f"{type(failure).__name__}: {failure}"[:300]
    return found


def kernels(made: Path, profile: Path | None) -> dict[str, Any]:
    """What TensorRT alone makes of a file."""
    source = Source(made.stem, made, "", "", "", profile)
    with tempfile.TemporaryDirectory() as folder:
        result = raw(source, onnx.load(made, load_external_data=False), Path(folder), 900)
    return {"kernels": result["kernels"], "tensorrt": result["error"] or None}


def main(arguments: list[str]) -> None:
    if arguments[0] == "--about":
        model = onnx.load(arguments[1], load_external_data=False)
        print(json.dumps({"nodes": len(model.graph.node), "norms": norms(model)}))
        return
    original, made, kept = map(Path, arguments[:3])
    found = checked(original, made, kept)
    if "--kernels" in arguments:
        profile = arguments[arguments.index("--kernels") + 1]
        found |= kernels(made, None if profile == "-" else Path(profile))
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
