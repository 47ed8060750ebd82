"""Tensors beyond the range of half precision are held as a power of two of themselves, and nothing else changes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import parse, random, saved
from tests.precision.typing_cases import run
from trtnorm_cli import api
from trtnorm_cli.onnx_model.infer import checker_objection
from trtnorm_cli.onnx_model.shapes import declared_types
from trtnorm_cli.precision import search
from trtnorm_cli.precision.float_graph import FloatGraph
from trtnorm_cli.precision.low_types import FP16
from trtnorm_cli.precision.output_errors import Arrays
from trtnorm_cli.precision.scaling.exponents import Scaling, scaling_of
from trtnorm_cli.precision.scaling.scaled_model import scaled_model
from trtnorm_cli.records.precision import PrecisionRecord

X = random(2, 4, 8, 8) * np.float32(1000)
# Whatever is between: f(x, 2⁻ᵏ ·) = 2⁻ᵏ f(x, ·).
ALIKE = {
    "relu": "b = Relu (a)",
    "leaky": "b = LeakyRelu <alpha = 0.1> (a)",
    "slopes": "b = PRelu (a, perchannel)",
    "pooling": "p = MaxPool <kernel_shape = [2, 2]> (a)  b = AveragePool <kernel_shape = [2, 2]> (p)",
    "global": "b = GlobalAveragePool (a)",
    "mean": "b = ReduceMean <keepdims = 1> (a, axes)",
    "residual": "r = Relu (a)  b = Add (a, r)",
    "added constant": "b = Add (a, perchannel)",
    "bounded": "b = Clip (a, zero, six)",
    "joined": "r = Abs (a)  b = Concat <axis = 2> (a, r)",
    "padded": "b = Pad (a, pads, six)",
    "split": "p, q = Split <axis = 1, num_outputs = 2> (a)  b = Concat <axis = 1> (q, p)",
    "chosen": "z = Greater (x, zero)  b = Where (z, a, six)",
    "resized": 'b = Resize <mode = "linear"> (a, , twice)',
    "moved": "p = Transpose <perm = [0, 1, 3, 2]> (a)  b = Slice (p, zeros, fours)",
}
PRODUCTS = {
    "convolution": "c = Conv (b, w, bias)",
    "transposed": "c = ConvTranspose (b, w, bias)",
    "scale": "c = Mul (perchannel, b)",
    "batchnorm": "c = BatchNormalization (b, gamma, bias, gamma, gamma)",
}
WEIGHTS: Mapping[str, np.ndarray] = {
    "v": random(4, 4, 1, 1), "w": random(4, 4, 1, 1) + np.float32(1), "bias": random(4) * np.float32(3000),
    "perchannel": np.abs(random(4, 1, 1)), "gamma": np.abs(random(4)), "zero": np.float32(0), "six": np.float32(6e4),
    "axes": np.array([2, 3]), "pads": np.array([0, 0, 1, 1, 0, 0, 1, 1]), "twice": np.array([1, 1, 2, 2], np.float32),
    "zeros": np.zeros(4, np.int64), "fours": np.full(4, 4),
}  # fmt: skip


def graph_of(between: str, behind: str, end: str = "y = Conv (c, v)") -> FloatGraph:
    """A convolution whose result is too large, and a small output."""
    text = f"g (float[2,4,8,8] x) => (float[A,B,C,D] y) {{ a = Conv (x, w, bias)  {between}  {behind}  {end} }}"
    words = set(re.findall(r"\w+", text))
    used = {name: value for name, value in WEIGHTS.items() if name in words}
    model = onnx.shape_inference.infer_shapes(parse(text, used, opset=21))
    return FloatGraph(model, declared_types(model))


def largest(model: onnx.ModelProto) -> dict[str, float]:
    """The magnitudes of all tensors for X."""
    seen = onnx.ModelProto.FromString(model.SerializeToString())
    names = [name for node in model.graph.node for name in node.output if name not in {v.name for v in model.graph.output}]
    seen.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    order = [value.name for value in seen.graph.output]
    return {name: float(np.abs(value.astype(np.float64)).max()) for name, value in zip(order, run(seen, {"x": X}), strict=True)}


def scaled(graph: FloatGraph, limit: float = 1000.0) -> tuple[Scaling, onnx.ModelProto]:
    """Scaled so that no tensor is above the limit; the result has the same bits."""
    scaling = scaling_of(graph, largest(graph.model), limit)
    assert scaling is not None
    made = scaled_model(graph, None, scaling)
    assert checker_objection(made.model, full_check=True) is None
    np.testing.assert_array_equal(run(made.model, {"x": X})[0], run(graph.model, {"x": X})[0])
    sizes = largest(made.model)
    assert all(sizes[name] <= limit for name in scaling.exponents)
    return scaling, made.model


@pytest.mark.parametrize("between", ALIKE.values(), ids=ALIKE)
def test_what_is_homogeneous_passes_a_power_of_two_on(between: str) -> None:
    graph = graph_of(between, "c = Conv (b, w, bias)")
    scaling, model = scaled(graph)
    assert {"a", "b", "c"} <= scaling.exponents.keys()
    assert len(model.graph.node) == len(graph.model.graph.node)


@pytest.mark.parametrize("behind", PRODUCTS.values(), ids=PRODUCTS)
def test_products_take_factors_into_their_constants(behind: str) -> None:
    graph = graph_of("b = Relu (a)", behind)
    scaling, model = scaled(graph)
    assert "c" in scaling.exponents
    assert len(model.graph.node) == len(graph.model.graph.node)


@pytest.mark.parametrize(
    "norm",
    [
        "c = InstanceNormalization (b, gamma, bias)",
        "c = LayerNormalization <axis = 1> (b, norm)",
        "c = GroupNormalization <num_groups = 2> (b, gamma, bias)",
    ],
)
def test_a_normalization_takes_a_factor_into_its_epsilon(norm: str) -> None:
    text = f"g (float[2,4,8,8] x) => (float[2,4,8,8] c) {{ a = Conv (x, w, bias)  b = Relu (a)  {norm} }}"
    weights = {name: WEIGHTS[name] for name in ("w", "bias", "gamma") if name in text}
    weights |= {"norm": random(4, 8, 8)} if "norm)" in text else {}
    model = onnx.shape_inference.infer_shapes(parse(text, weights, opset=21))
    scaling, made = scaled(FloatGraph(model, declared_types(model)))
    assert scaling.exponents.keys() == {"a", "b"}
    epsilon = next(a.f for a in made.graph.node[-1].attribute if a.name == "epsilon")
    assert epsilon == np.float32(1e-5) * 4.0 ** -scaling.exponents["b"]


def test_a_gate_gets_its_tensor_bounded_and_as_it_was() -> None:
    scaling, model = scaled(graph_of("s = Sigmoid (a)", "c = Mul (a, s)"))
    assert scaling.restored == {"a"}
    assert [node.op_type for node in model.graph.node] == ["Conv", "Clip", "Mul", "Sigmoid", "Mul", "Conv"]
    assert largest(model)[model.graph.node[2].output[0]] <= 1024


@pytest.mark.parametrize(
    "between",
    ["b = Mul (a, a)", "b = Sqrt (a)", "e = Exp (zero)  b = Div (a, e)", "s = Softplus (a)  b = Add (s, a)"],
    ids=["square", "root", "quotient", "sum with what is not scaled"],
)
def test_what_is_not_homogeneous_gets_no_scale(between: str) -> None:
    graph = graph_of(between, "c = Relu (b)")
    scaling = scaling_of(graph, {"b": 1e6, "c": 1e6}, FP16.largest)
    assert scaling is None


def test_inputs_and_outputs_stay_as_they_are() -> None:
    graph = graph_of("b = Relu (a)", "c = Relu (b)", "y = Relu (c)")
    assert scaling_of(graph, dict.fromkeys("xabcy", 1e6), FP16.largest) is None


def test_what_would_have_to_be_restored_everywhere_stays() -> None:
    graph = graph_of("b = Relu (a)", "c = Exp (b)  e = Exp (a)")
    assert scaling_of(graph, {"a": 1e6}, FP16.largest) is None


def test_what_a_branch_reads_stays() -> None:
    text = """g (float[2,4,8,8] x, bool k) => (float[2,4,8,8] y) {
        a = Conv (x, v)
        b = If (k) <then_branch = t () => (float[2,4,8,8] p) { p = Relu (a) },
                    else_branch = e () => (float[2,4,8,8] q) { q = Neg (a) }>
        y = Add (b, x)
    }"""
    model = onnx.shape_inference.infer_shapes(parse(text, {"v": WEIGHTS["v"]}, opset=21))
    assert scaling_of(FloatGraph(model, declared_types(model)), {"a": 1e6}, FP16.largest) is None


def converted(
    folder: Path, gain: float, end: str = "y = Conv (e, small)", keep: str = ""
) -> tuple[PrecisionRecord, onnx.ModelProto]:
    text = f"""g (float[1,3,8,8] x) => (float[1,4,8,8] y) {{
        a = Conv <pads = [1,1,1,1]> (x, w)
        b = Relu (a)
        [second] c = Conv (b, v)
        [third] d = Relu (c)
        e = Relu (d)
        {end}
    }}"""
    rng = np.random.default_rng(0)
    eye = np.eye(4, dtype=np.float32)[:, :, None, None]
    weights = {"w": rng.random((4, 3, 3, 3), np.float32), "v": eye * np.float32(gain), "small": eye * np.float32(1 / gain)}
    saved(parse(text, {name: value for name, value in weights.items() if name in text}, opset=21), folder / "m.onnx")
    (folder / "cfg.yaml").write_text(f"precision: {{type: fp16{keep}}}\n")
    made = api.rewrite(folder / "m.onnx", profile=folder / "cfg.yaml", output=folder / "low.onnx")
    assert made.precision is not None
    return made.precision, onnx.load(folder / "low.onnx")


def test_a_network_that_overflows_stays_in_half(tmp_path: Path) -> None:
    record, _ = converted(tmp_path, 1e3)
    assert record.kept == ()
    assert {one.tensor for one in record.scaled} >= {"c", "d", "e"}
    assert record.worst is not None
    assert record.worst.error < 2e-3


def test_a_scaled_model_that_gives_something_else_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was measured of it is forgotten, too."""
    given = []

    def are_equal(before: Sequence[Arrays], behind: Sequence[Arrays]) -> bool:
        given.append((before, behind))
        return real(before, [{"y": outputs["y"] * np.float32(1 + 1e-5)} for outputs in behind])

    real = search.are_equal
    monkeypatch.setattr(search, "are_equal", are_equal)
    record, _ = converted(tmp_path, 1e5)
    ((before, behind),) = given
    assert len(before) == len(behind) == 2  # random inputs and the same as images
    assert real(before, behind)
    assert record.scaled == ()
    assert {one.cause for one in record.kept} >= {"range"}
    assert record.worst is not None
    assert record.worst.error < 2e-3


def test_what_fits_is_not_scaled(tmp_path: Path) -> None:
    record, _ = converted(tmp_path, 1.0)
    assert record.scaled == ()


def test_what_is_float32_anyway_is_not_scaled(tmp_path: Path) -> None:
    record, model = converted(tmp_path, 1e3, keep=", keep_fp32: {operators: [Conv, Relu]}")
    assert record.low == 0
    assert record.scaled == ()
    assert not any("scaled" in name for node in model.graph.node for name in node.input)
