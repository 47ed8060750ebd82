"""Models around one normalization for the tests of the rules, and what is asked of each rewritten one."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx.parser
from numpy.typing import DTypeLike
from onnx import numpy_helper

from tests.models import random
from tests.numerics import relative_error
from tests.oracle import evaluate, feeds_for

MICROSOFT = "com.microsoft"


def affine(*shape: int, dtype: DTypeLike = np.float32) -> dict[str, np.ndarray]:
    """A scale ``s`` and a bias ``b`` of one shape."""
    return {"s": (random(*shape, seed=1) / 4 + 1).astype(dtype), "b": random(*shape, dtype=dtype, seed=2)}


def norm(
    node: str,
    weights: dict[str, np.ndarray] | None = None,
    shape: str = "N, 4, 5, 6",
    kind: str = "float",
    opset: int = 17,
    inputs: str = "",
    outputs: str = "",
    before: str = "",
    domain: str = "",
) -> onnx.ModelProto:
    """``node`` makes ``y`` from ``x``, and is called ``norm`` when it has no name."""
    named = node if node.startswith("[") else f"[norm] {node}"
    imports = f', "{domain}" : 1' if domain else ""
    source = "a" if before else "x"
    text = f"g ({kind}[{shape}] {source}{inputs}) => ({kind}[] y{outputs}) {{ {before} {named} }}"
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{imports}]> {text}')
    used = {name: value for name, value in (weights or {}).items() if re.search(rf"\b{name}\b", f"{before} {node}")}
    fed = {value.name for value in model.graph.input}
    model.graph.initializer.extend(numpy_helper.from_array(v, name) for name, v in used.items() if name not in fed)
    return model


def unknown_rank(node: str, weights: dict[str, np.ndarray], opset: int = 17, domain: str = "") -> onnx.ModelProto:
    """The data comes from a Reshape to a shape of run time."""
    return norm(node, weights, "N, 4", inputs=", int64[K] k", before="x = Reshape(a, k)", opset=opset, domain=domain)


def difference(before: onnx.ModelProto, after: onnx.ModelProto, pins: dict[str, tuple[int, ...]] | None = None) -> float:
    """The largest error of any output in float64, relative to its largest value, by an independent evaluator."""
    feeds = feeds_for(before, pins)
    wanted, got = evaluate(before, feeds), evaluate(after, feeds)
    assert wanted.keys() == got.keys()
    return max(relative_error(wanted[name], got[name]) for name in wanted)


def standardized(x: np.ndarray, axes: tuple[int, ...], epsilon: float = float(np.float32(1e-5))) -> np.ndarray:
    """(x − μ)/√(σ²+ε), written out."""
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)
