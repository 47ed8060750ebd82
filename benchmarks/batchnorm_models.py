"""Small models around a BatchNormalization, from which the list of its forms is made."""

from __future__ import annotations

import re

import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper

Weights = dict[str, np.ndarray]


def random(*shape: int, dtype: type = np.float32, seed: int = 0) -> np.ndarray:
    return np.asarray(np.random.default_rng([seed, *shape]).standard_normal(shape)).astype(dtype)


def parameters(channels: int, dtype: type = np.float32) -> Weights:
    rng = np.random.default_rng(channels)
    values = (
        rng.uniform(0.5, 1.5, channels),
        rng.standard_normal(channels),
        rng.standard_normal(channels),
        rng.uniform(0.1, 3, channels),
    )
    return {name: value.astype(dtype) for name, value in zip(("gamma", "beta", "mu", "var"), values, strict=True)}


def parsed(
    text: str, weights: Weights, opset: int = 17, ir: int = 8, functions: str = "", domains: str = ""
) -> onnx.ModelProto:
    model = onnx.parser.parse_model(f'<ir_version: {ir}, opset_import: ["" : {opset}{domains}]> {text} {functions}')
    model.graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in weights.items())
    return model


def network(
    node: str = "b = BatchNormalization(c, gamma, beta, mu, var)",
    weights: Weights | None = None,
    before: str = "c = Conv <pads=[1, 1, 1, 1]> (x, w)",
    after: str = "y = Relu(b)",
    shape: str = "2, 3, 16, 16",
    out: str = "2, 8, 16, 16",
    kind: str = "float",
    channels: int = 8,
    inputs: str = "",
    outputs: str = "",
    opset: int = 17,
    ir: int = 8,
) -> onnx.ModelProto:
    """Convolution, BatchNormalization, Relu, unless told otherwise."""
    known = {"w": random(channels, 3, 3, 3), **parameters(channels), **(weights or {})}
    fed = set(re.findall(r"\w+$", inputs.replace(",", "\n"), re.MULTILINE))
    used = {name: value for name, value in known.items() if name in f"{before} {node} {after}" and name not in fed}
    text = f"g ({kind}[{shape}] x{inputs}) => ({kind}[{out}] y{outputs}) {{ {before} {node} {after} }}"
    return parsed(text, used, opset, ir)


def alone(
    node: str = "b = BatchNormalization(x, gamma, beta, mu, var)",
    weights: Weights | None = None,
    shape: str = "2, 8, 16, 16",
    **more,
) -> onnx.ModelProto:
    """The BatchNormalization between two elementwise operators."""
    node = node.replace("(x,", "(c,")
    return network(node, weights, before="c = Exp(x)", shape=shape, out=more.pop("out", shape), **more)


def half(weights: Weights, dtype: type = np.float16) -> Weights:
    return {name: value.astype(dtype) for name, value in weights.items()}


def shaped(*shape: int) -> Weights:
    return {name: value.reshape(shape) for name, value in parameters(8).items()}


def doubled() -> Weights:
    return {name: np.tile(value, 2) for name, value in parameters(8).items()}


def spoilt(name: str, value: float, at: int = 2) -> Weights:
    values = parameters(8)[name].copy()
    values[at] = value
    return {name: values}


def as_inputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """Initializers listed as inputs, as was obligatory before IR version 4."""
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return model


def tiled(dynamic: bool) -> onnx.ModelProto:
    """Instance normalization with running statistics, as the exporters write it."""
    names = ("gamma", "beta", "mu", "var")
    shapes = {"fs": np.array([1, -1, 16, 16]), "us": np.array([2, 8, 16, 16])}
    if dynamic:
        tiles = " ".join(f"t_{name} = Tile({name}, n)" for name in names)
        read = ", ".join(f"t_{name}" for name in names)
        body = f"n = Shape <start=0, end=1> (x) f = Reshape(c, fs) {tiles} b0 = BatchNormalization(f, {read})"
        weights = {**shapes, **parameters(8)}
    else:
        body = f"f = Reshape(c, fs) b0 = BatchNormalization(f, {', '.join(names)})"
        weights = {**shapes, **{name: np.tile(value, 2) for name, value in parameters(8).items()}}
    return network(f"{body} b = Reshape(b0, us)", weights, opset=18)


def standardised(torchscript: bool) -> onnx.ModelProto:
    """A convolution whose weight is normalized by a BatchNormalization."""
    weights = {"k": random(1, 8, 27), "ws": np.array([8, 3, 3, 3])}
    mode, outputs = ("<training_mode=1>", "n, m, v") if torchscript else ("", "n")
    before = f"{outputs} = BatchNormalization {mode} (k, gamma, beta, mu, var) w = Reshape(n, ws)"
    model = network("b = Conv <pads=[1, 1, 1, 1]> (x, w)", weights, before=before)
    del model.graph.initializer[[t.name for t in model.graph.initializer].index("w")]
    return model


def in_a_branch() -> onnx.ModelProto:
    return parsed(
        "g (float[2, 8, 16, 16] x, bool t) => (float[2, 8, 16, 16] y) { c = Exp(x) y = If (t) <"
        "then_branch = a () => (float[2, 8, 16, 16] p) { b = BatchNormalization(c, gamma, beta, mu, var) p = Relu(b) },"
        "else_branch = o () => (float[2, 8, 16, 16] q) { q = Neg(c) }> }",
        parameters(8),
    )


def in_a_function() -> onnx.ModelProto:
    return parsed(
        "g (float[2, 3, 16, 16] x) => (float[2, 8, 16, 16] y)"
        " { c = Conv <pads=[1, 1, 1, 1]> (x, w) b = my.Norm(c, gamma, beta, mu, var) y = Relu(b) }",
        {"w": random(8, 3, 3, 3), **parameters(8)},
        functions='<domain: "my", opset_import: ["" : 17]> Norm (x, s, b, m, v) => (y)'
        " { y = BatchNormalization(x, s, b, m, v) }",
        domains=', "my" : 1',
    )


def three_blocks() -> onnx.ModelProto:
    """Convolution, BatchNormalization with parameters of run time, and Relu, three times."""
    convolution = "Conv <pads=[1, 1, 1, 1]>"
    blocks = " ".join(
        f"c{i} = {convolution} (r{i}, w{i}) b{i} = BatchNormalization(c{i}, gamma, beta, mu, var) r{i + 1} = Relu(b{i})"
        for i in range(3)
    )
    kernels = {f"w{i}": random(8, 8, 3, 3, seed=i) for i in range(3)}
    return parsed(f"g (float[2, 8, 16, 16] r0{RUNTIME}) => (float[2, 8, 16, 16] r3) {{ {blocks} }}", kernels)


def old(node: str, opset: int) -> onnx.ModelProto:
    return as_inputs(network(node, before="c = Conv <kernel_shape=[3, 3], pads=[1, 1, 1, 1]> (x, w)", opset=opset, ir=3))


TRAINING = "b, m, v = BatchNormalization <training_mode=1> (c, gamma, beta, mu, var)"
FIVE = "b, m, v, sm, sv = BatchNormalization (c, gamma, beta, mu, var)"
PLAIN = "b = BatchNormalization(c, gamma, beta, mu, var)"
RUNTIME = ", float[8] gamma, float[8] beta, float[8] mu, float[8] var"
BATCH_STATISTICS = (
    "m1 = ReduceMean <axes=[0, 2, 3], keepdims=0> (c) m2 = ReduceMean <axes=[0, 2, 3]> (c) d = Sub(c, m2) q = Mul(d, d)"
    " v1 = ReduceMean <axes=[0, 2, 3], keepdims=0> (q) "
)
EPSILON_NODE = "b = BatchNormalization <epsilon={}> (c, gamma, beta, mu, var)"
