"""Build each floating operator in float32, half and bfloat16, and see what TensorRT makes of it.

    python -m benchmarks.low_precision_operators [NAME …]

Prints a Markdown table: the kernels of each engine, or what TensorRT says. Needs tensorrt-rtx, no GPU.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

from benchmarks.low_precision_operator_list import MODELS, PARAMETERS
from trtnorm_cli.child_process import Limits
from trtnorm_cli.errors import BuilderDied
from trtnorm_cli.records.engine_parts import launched
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.request import BuildRequest, BuildResult

TYPES = {"float": onnx.TensorProto.FLOAT, "float16": onnx.TensorProto.FLOAT16, "bfloat16": onnx.TensorProto.BFLOAT16}
_LITERALS: dict[str, list[float] | float] = {
    "a0": 0.0, "a9": 12.0, "a1": 1.0, "pair": [0.0, 1.0], "s0": -0.5, "s1": 0.75,
}  # fmt: skip
_INTEGERS: dict[str, object] = {
    "ax": 1, "zero": 0, "five": 5, "depth": 4, "starts0": [0], "ends1": [1], "lengths": [3, 6],
}  # fmt: skip
_SHAPES = {"gh": (1, 18, 6), "lh": (1, 24, 6), "rh": (1, 6, 6)}
_ALWAYS_FLOAT = {"scales": [1.0, 1.0, 2.0, 2.0]}


def model(name: str, kind: str) -> onnx.ModelProto:
    """The model of one operator in the type that ONNX's text form calls ``kind``."""
    text, opset = MODELS[name]
    text = re.sub(r"\bT(?=\[)", kind, text)
    proto = onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}]> {text}')
    made = {out for node in proto.graph.node for out in node.output} | {value.name for value in proto.graph.input}
    for parameter in dict.fromkeys(name for node in proto.graph.node for name in node.input if name):
        if parameter not in made:
            proto.graph.initializer.append(_parameter(parameter, TYPES[kind]))
    return proto


def _parameter(name: str, element: int) -> onnx.TensorProto:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
    if name in _ALWAYS_FLOAT:
        return numpy_helper.from_array(np.asarray(_ALWAYS_FLOAT[name], np.float32), name)
    if name in _LITERALS:
        return numpy_helper.from_array(np.asarray(_LITERALS[name]).astype(dtype), name)
    given = _INTEGERS.get(name, PARAMETERS.get(name))
    if isinstance(given, list | int):
        return numpy_helper.from_array(np.asarray(given, np.int64), name)
    shape = _SHAPES.get(name) or given
    values = np.random.default_rng(0).uniform(0.5, 1, shape)
    return numpy_helper.from_array(values.astype(dtype), name)


def built(proto: onnx.ModelProto) -> BuildResult | str:
    """The result of a build, or how the builder died."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model.onnx").write_bytes(proto.SerializeToString())
        request = BuildRequest("model.onnx", f"{folder}/engine", settings={"profiling_verbosity": "detailed"})
        try:
            return launch(request, Path(folder), lambda event: None, Limits())
        except BuilderDied as death:
            return death.summary


def told(name: str, kind: str) -> str:
    """The number of kernels, or the first thing that TensorRT says against the model."""
    try:
        onnx.checker.check_model(model(name, kind), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return f"not ONNX: {_short(str(error))}"
    result = built(model(name, kind))
    if isinstance(result, str):
        return f"**{_short(result)}**"
    if not result.ok:
        return f"**{_short(result.errors[0].text)}**"
    kernels = launched(result.kernels)
    raised = any("Cast" in getattr(kernel, "name", "") for kernel in kernels)
    return f"{len(kernels)}{', casts inside' if raised else ''}"


def _short(text: str) -> str:
    text = " ".join(text.split("\n\n==> Context:")[0].split()).replace("|", "/")
    return text if len(text) <= 110 else text[:107] + "…"


def main() -> None:
    print("| operator | float32 | half | bfloat16 |\n|---|---|---|---|")
    for name in sys.argv[1:] or MODELS:
        print(f"| {name} | {' | '.join(told(name, kind) for kind in TYPES)} |", flush=True)


if __name__ == "__main__":
    main()
