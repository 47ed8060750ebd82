"""Small models around one normalization, from which the list of their forms is made."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper

Weights = dict[str, np.ndarray]
Model = onnx.ModelProto
MICROSOFT = "com.microsoft"
# A form's name, its model, and where it has dynamic inputs their min, opt and max.
Named = tuple[Any, ...]
IN = "n = InstanceNormalization(c, s, b)"
GN = "n = GroupNormalization <num_groups={}> (c, s, b)"
LN = "n = LayerNormalization(c, s, b)"
BF16, HALF = ml_dtypes.bfloat16, np.float16
DYNAMIC = {"x": ((1, 8, 2, 2), (2, 8, 6, 5), (3, 8, 9, 9))}
FROM_ONE = {"x": ((1, 8, 1, 1), (2, 8, 6, 5), (3, 8, 9, 9))}
ONE = "2, 8, 1, 1"


def runtime(length: str = "8", kind: str = "float") -> str:
    """Inputs that are scale and bias."""
    return f", {kind}[{length}] s, {kind}[{length}] b"


def tensor(*shape: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """One shape as min, opt and max."""
    return (shape, shape, shape)


def random(*shape: int, dtype: np.typing.DTypeLike = np.float32, seed: int = 0) -> np.ndarray:
    return np.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape)).astype(dtype)


def scales(*shape: int, dtype: np.typing.DTypeLike = np.float32) -> Weights:
    """A scale ``s`` and a bias ``b`` of one shape."""
    return {"s": (random(*shape, seed=1) / 4 + 1).astype(dtype), "b": random(*shape, dtype=dtype, seed=2)}


def spoilt(value: float, channels: int = 8) -> Weights:
    """Parameters with one value that is out of order."""
    values = scales(channels)
    values["s"][2] = value
    return values


def model(
    node: str,
    weights: Weights | None = None,
    shape: str = "2, 8, 6, 5",
    kind: str = "float",
    opset: int = 17,
    inputs: str = "",
    outputs: str = "",
    out: str = "",
    before: str = "c = Add(x, x)",
    after: str = "y = Add(n, n)",
    functions: str = "",
    domains: tuple[str, ...] = (),
) -> Model:
    """``node`` makes ``n`` from ``c``, between two elementwise operators unless told otherwise."""
    node = node.replace("<>", "")
    imports = "".join(f', "{name}" : 1' for name in domains)
    text = f"g ({kind}[{shape}] x{inputs}) => ({kind}[{out or shape}] y{outputs}) {{ {before} {node} {after} }}"
    made = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{imports}]> {text} {functions}')
    used = {name: value for name, value in (weights or {}).items() if re.search(rf"\b{name}\b", f"{before} {node} {after}")}
    fed = {value.name for value in made.graph.input}
    made.graph.initializer.extend(numpy_helper.from_array(v, name) for name, v in used.items() if name not in fed)
    return made


def behind_convolution(node: str, weights: Weights, shape: str = "2, 3, 16, 16", out: str = "2, 8, 16, 16", **more) -> Model:
    """Convolution, normalization, Relu, convolution: where the layout that a kernel wants shows."""
    kernels = {"w1": random(8, 3, 3, 3), "w2": random(8, 8, 3, 3)}
    convolutions = [f"Conv <pads=[1, 1, 1, 1]> ({x}, {w})" for x, w in (("x", "w1"), ("r", "w2"))]
    return model(
        node,
        {**kernels, **weights},
        shape,
        out=out,
        before=f"c = {convolutions[0]}",
        after=f"r = Relu(n) y = {convolutions[1]}",
        **more,
    )


def in_a_branch(node: str, weights: Weights, shape: str = "2, 8, 6, 5", opset: int = 17) -> Model:
    """The branch that runs, though nobody can tell before."""
    return model(
        "v = Not(t) always = Or(t, v) y = If (always) <"
        f"then_branch = a () => (float[{shape}] p) {{ {node} p = Relu(n) }},"
        f"else_branch = o () => (float[{shape}] q) {{ q = Neg(c) }}>",
        weights,
        shape,
        opset=opset,
        inputs=", bool t",
        after="",
    )


def in_a_loop(node: str, weights: Weights, shape: str = "2, 8, 6, 5", opset: int = 17) -> Model:
    """Twice around: the normalization reads what the last turn made."""
    body = f"b (int64 i, bool k, float[{shape}] c) => (bool o, float[{shape}] z) {{ o = Identity(k) {node} z = Add(n, n) }}"
    known = {**weights, "two": np.array(2), "yes": np.array(True)}
    return model(f"y = Loop (two, yes, c0) <body = {body}>", known, shape, opset=opset, before="c0 = Add(x, x)", after="")


def in_a_function(node: str, weights: Weights, shape: str = "2, 8, 6, 5", opset: int = 17) -> Model:
    call = "n = my.Norm(c, s, b)"
    body = f'<domain: "my", opset_import: ["" : {opset}]> Norm (c, s, b) => (n) {{ {node} }}'
    return model(call, weights, shape, opset=opset, functions=body, domains=("my",))


def with_attribute(made: Model, name: str, value: object, operator: str) -> Model:
    """``made`` with one attribute of its normalization as the text form cannot say it; None takes it away."""
    (node,) = (node for node in made.graph.node if node.op_type == operator)
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)
    if value is not None:
        node.attribute.append(helper.make_attribute(name, value))
    return made
