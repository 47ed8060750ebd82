"""ONNX's own operator tests through TensorRT's parser: does its network compute what the test expects?

    python -m tests.tensorrt.network.suite [PATTERN] [--constants]

prints one line per test whose name matches PATTERN, and a count. With ``--constants`` every input but the first becomes an
initializer, because TensorRT wants axes, shapes and parameters as constants. Tests run in a child process that is started
again when TensorRT kills it.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

from tests.numerics import relative_error
from tests.tensorrt.network.harness import Bench, run_onnx
from trtnorm_cli.tensorrt.network import UntranslatableLayer

#: How far a result may be off, relative to its largest value.
TOLERANCE = {TensorProto.FLOAT16: 2e-3, TensorProto.BFLOAT16: 1e-2}

#: Types that ONNX Runtime takes from NumPy in another type only.
COMMON = {
    TensorProto.BFLOAT16: TensorProto.FLOAT,
    TensorProto.FLOAT8E4M3FN: TensorProto.FLOAT,
    TensorProto.INT4: TensorProto.INT8,
}


@dataclass(frozen=True)
class Outcome:
    """``verdict`` is pass, wrong, refused (by TensorRT), untranslatable, crash, or skipped; ``words`` say why."""

    name: str
    verdict: str
    words: str = ""


def tests(pattern: str) -> Iterator[Any]:
    """The operator tests whose name matches."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = load_model_tests(kind="node")
    return (case for case in loaded if re.search(pattern, case.name))


def judge(case: Any, constants: bool) -> Outcome:
    """One test."""
    model = case.model
    inputs, outputs = ([numpy_helper.to_array(v) if isinstance(v, TensorProto) else v for v in vs] for vs in case.data_sets[0])
    if not all(isinstance(v, np.ndarray | np.generic) and v.dtype.kind not in "OUS" for v in (*inputs, *outputs)):
        return Outcome(case.name, "skipped", "sequences, optionals or strings")
    feeds = dict(zip((value.name for value in model.graph.input), map(np.asarray, inputs), strict=False))
    if constants:
        model, feeds = with_constants(model, feeds)
    bench = Bench()
    parser = bench.trt.OnnxParser(bench.network, bench.builder.logger)
    if not parser.parse(model.SerializeToString()) or not bench.network.num_layers:
        errors = [parser.get_error(i).desc() for i in range(parser.num_errors)]
        return Outcome(case.name, "refused", " | ".join(errors) or "no reason given")
    try:
        network = bench.translated()
    except UntranslatableLayer as refusal:
        return Outcome(case.name, "untranslatable", str(refusal))
    expected = dict(zip((value.name for value in case.model.graph.output), map(np.asarray, outputs), strict=True))
    try:
        return Outcome(case.name, *compare(network, feeds, expected, tolerance(case.model)))
    except NoKernel as missing:
        if not has_float4(network):  # ONNX Runtime does not cast it
            raise
        return Outcome(case.name, "skipped", f"ONNX Runtime: {missing}")


def with_constants(model: ModelProto, feeds: dict[str, np.ndarray]) -> tuple[ModelProto, dict[str, np.ndarray]]:
    """The model with every input but the first as an initializer."""
    baked, kept = ModelProto(), list(model.graph.input)[:1]
    baked.CopyFrom(model)
    for value in list(model.graph.input)[1:]:
        tensor = numpy_helper.from_array(np.ascontiguousarray(feeds[value.name]).reshape(feeds[value.name].shape), value.name)
        tensor.data_type = value.type.tensor_type.elem_type
        baked.graph.initializer.append(tensor)
    del baked.graph.input[:]
    baked.graph.input.extend(kept)
    return baked, {value.name: feeds[value.name] for value in kept}


def has_float4(model: ModelProto) -> bool:
    """True where a tensor at the model's ends is of FLOAT4E2M1."""
    ends = (*model.graph.input, *model.graph.output)
    return any(value.type.tensor_type.elem_type == TensorProto.FLOAT4E2M1 for value in ends)


def tolerance(model: ModelProto) -> float:
    """The coarsest type at the model's ends decides."""
    types = {v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)}
    return max([TOLERANCE[t] for t in types if t in TOLERANCE], default=1e-5)


def compare(
    network: ModelProto, feeds: dict[str, np.ndarray], expected: dict[str, np.ndarray], bound: float
) -> tuple[str, str]:
    """The verdict on a translated network."""
    missing = [value.name for value in network.graph.input if value.name not in feeds]
    if missing:
        return "wrong", f"input {missing[0]} is none of the model's"
    ready = with_common_ends(network)
    types = {v.name: helper.tensor_dtype_to_np_dtype(v.type.tensor_type.elem_type) for v in ready.graph.input}
    actual = run_onnx(ready, {name: feeds[name].astype(dtype) for name, dtype in types.items()})
    for name, values in expected.items():
        if name not in actual:
            return "wrong", f"output {name} is missing"
        if actual[name].shape != values.shape:
            return "wrong", f"shape {list(actual[name].shape)} instead of {list(values.shape)}"
        error = finite_error(values.astype(np.float64), actual[name].astype(np.float64))
        if not error <= bound:
            return "wrong", f"relative error {error:.1e}"
    return "pass", ""


def finite_error(expected: np.ndarray, actual: np.ndarray) -> float:
    """The relative error of the finite values; NaN where infinities or NaNs are not the same."""
    finite = np.isfinite(expected)
    if not np.array_equal(expected[~finite], actual[~finite], equal_nan=True):
        return float("nan")
    return relative_error(expected[finite], actual[finite]) if finite.any() else 0.0


def with_common_ends(model: ModelProto) -> ModelProto:
    """The model with inputs and outputs in types that NumPy and ONNX Runtime share."""
    graph = model.graph
    for value in (*graph.input, *graph.output):
        narrow = value.type.tensor_type.elem_type
        if narrow not in COMMON:
            continue
        is_input, inner = value in graph.input, f"{value.name}/narrow"
        for node in graph.node:
            for field in (node.input, node.output):
                for i, name in enumerate(field):
                    field[i] = inner if name == value.name else name
        ends = ([value.name], [inner]) if is_input else ([inner], [value.name])
        cast = helper.make_node("Cast", *ends, to=narrow if is_input else COMMON[narrow])
        graph.node.insert(0 if is_input else len(graph.node), cast)
        value.type.tensor_type.elem_type = COMMON[narrow]
    return model


def run(pattern: str, constants: bool) -> list[Outcome]:
    """All matching tests, in children that may die."""
    outcomes: list[Outcome] = []
    skip = 0
    while True:
        command = [sys.executable, "-m", "tests.tensorrt.network.suite", pattern, "--child", str(skip)]
        child = subprocess.run(command + ["--constants"] * constants, capture_output=True, text=True, timeout=600, check=False)
        lines = [json.loads(line[1:]) for line in child.stdout.split("\n") if line.startswith("\x1e")]
        outcomes += [Outcome(**line) for line in lines if "verdict" in line]
        if child.returncode == 0:
            return outcomes
        if not lines or child.returncode > 0:
            raise RuntimeError(child.stderr)
        if "verdict" in lines[-1]:
            outcomes.pop()  # it died when it let go of the network
        outcomes.append(Outcome(lines[-1]["name"], "crash", f"exit code {child.returncode}"))
        skip = len(outcomes)


def _child(pattern: str, constants: bool, skip: int) -> None:
    for i, case in enumerate(tests(pattern)):
        if i < skip:
            continue
        print("\x1e" + json.dumps({"name": case.name}), flush=True)
        print("\x1e" + json.dumps(asdict(judge(case, constants))), flush=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, or be the child that makes it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pattern", nargs="?", default="")
    parser.add_argument("--constants", action="store_true")
    parser.add_argument("--child", type=int)
    options = parser.parse_args(arguments)
    if options.child is not None:
        _child(options.pattern, options.constants, options.child)
        return
    outcomes = run(options.pattern, options.constants)
    for outcome in outcomes:
        print(f"{outcome.verdict:15s} {outcome.name:60s} {' '.join(outcome.words.split())[:160]}")
    print(dict(Counter(outcome.verdict for outcome in outcomes)))


if __name__ == "__main__":
    main()
