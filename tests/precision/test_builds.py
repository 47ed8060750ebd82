"""What TensorRT makes of models in a low type: that they build, in as many kernels as documented."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import parse, random
from tests.precision.typing_cases import typed
from trtnorm_cli.onnx_model.stored import brought_in
from trtnorm_cli.precision.capabilities import REFUSED
from trtnorm_cli.precision.convert import Typed, convert
from trtnorm_cli.precision.low_types import BF16, FP16, LowType
from trtnorm_cli.precision.plan import TypePlan
from trtnorm_cli.precision.static import static_kept
from trtnorm_cli.precision.units import units_of
from trtnorm_cli.profile.precision import KeptFloat32
from trtnorm_cli.records.engine_parts import CompiledLayer, Kernel, launched
from trtnorm_cli.tensorrt.launch import launch
from trtnorm_cli.tensorrt.request import BuildRequest, BuildResult

pytestmark = pytest.mark.rtx


def _build(model: onnx.ModelProto, folder: Path) -> BuildResult:
    (folder / "m.onnx").write_bytes(brought_in(model).SerializeToString())
    settings = {"profiling_verbosity": "detailed"}
    return launch(BuildRequest("m.onnx", str(folder / "m.engine"), None, (), settings), folder, lambda event: None)


def _kernels(model: onnx.ModelProto, folder: Path) -> Sequence[CompiledLayer]:
    result = _build(model, folder)
    assert result.ok, result.errors
    return launched(result.kernels)


def _types(kernels: Sequence[CompiledLayer]) -> set[str]:
    return {t.dtype for kernel in kernels if isinstance(kernel, Kernel) for t in (*kernel.inputs, *kernel.outputs)}


def _chosen(model: onnx.ModelProto, low: LowType) -> Typed:
    model = onnx.shape_inference.infer_shapes(model)
    parts, types = units_of(model, None)
    return convert(model, None, TypePlan(low, static_kept(model, None, types, parts, low)), parts, types)


_OPERATORS = {
    "ConvTranspose": "b = ConvTranspose(a, t)",
    "HardSwish": "b = HardSwish(a)",
    "LpPool": "b = LpPool<kernel_shape = [3, 3]>(a)",
    "Mish": "b = Mish(a)",
}


@pytest.mark.parametrize("operator", _OPERATORS)
def test_operators_that_are_refused_in_bfloat16_build_between_casts(operator: str, tmp_path: Path) -> None:
    assert operator in REFUSED["bf16"]
    graph = f"g (float[1, 8, 8, 8] x) => (float[1, 8, p, q] y) {{ a = Conv(x, w) {_OPERATORS[operator]} y = Conv(b, w) }}"
    weights = {"w": random(8, 8, 3, 3), "t": random(8, 8, 3, 3)}
    weights = {name: value for name, value in weights.items() if name == "w" or operator == "ConvTranspose"}
    model = parse(graph, weights, opset=22)
    if operator != "ConvTranspose":  # it would be refused by the builder only, which takes a while
        assert not _build(typed(graph, weights, low=BF16, opset=22).model, tmp_path).ok
    assert "BFloat16" in _types(_kernels(_chosen(model, BF16).model, tmp_path))


def test_a_product_that_must_be_float32_is_not_made_half_again(tmp_path: Path) -> None:
    graph = "g (float[32, 64] x) => (float[32, 64] y) { a = MatMul(x, v) b = MatMul(a, w) y = MatMul(b, v) }"
    done = _chosen(parse(graph, {"v": random(64, 64), "w": random(64, 64) * 1e5}, opset=18), FP16)
    into = [kernel.inputs[0].dtype for kernel in _kernels(done.model, tmp_path) if isinstance(kernel, Kernel)]
    assert into.count("Float") == 2  # x, and what the large weights are multiplied with


_ATTENTION = """
g (float[1, 4, 64, 64] q, float[1, 4, 64, 64] k, float[1, 4, 64, 64] v, bool[1, 1, 1, 64] m) => (float[1, 4, 64, 64] y) {
    s = MatMul(q, k)
    c = Mul(s, scale)
    a = Where(m, c, hidden)
    b = Softmax<axis = -1>(a)
    y = MatMul(b, v)
}
"""


@pytest.mark.parametrize("low", [FP16, BF16])
def test_a_masked_softmax_costs_no_kernel_in_float32(low: LowType, tmp_path: Path) -> None:
    weights = {"scale": np.float32(0.125), "hidden": np.float32(-3.4028235e38)}
    chosen = _chosen(parse(_ATTENTION, weights, opset=18), low)
    assert [one.cause for one in chosen.kept] == ["mask"] * 2
    small = typed(_ATTENTION, {**weights, "hidden": np.float32(-100)}, low=low)
    assert len(_kernels(chosen.model, tmp_path)) <= len(_kernels(small.model, tmp_path))


_QUANTISED = """
g (float[32, 64] x) => (float[32, 64] y) {
    [first] r = MatMul(x, w)
    q = QuantizeLinear(r, s, n)
    [data] d = DequantizeLinear(q, s, n)
    [weights] t = DequantizeLinear<axis = 1>(v, many, none)
    [product] p = MatMul(d, t)
    y = MatMul(p, w)
}
"""


def test_the_scales_of_a_product_are_of_one_type(tmp_path: Path) -> None:
    """In larger networks Myelin refuses a float32 scale beside one in half: "type mismatch between matmul operand scales"."""
    rng = np.random.default_rng(0)
    weights = {"s": np.float32(0.1), "n": np.int8(0), "v": rng.integers(-9, 9, (64, 64)).astype(np.int8), "w": random(64, 64)}
    weights |= {"many": np.linspace(0.1, 0.2, 64, dtype=np.float32), "none": np.zeros(64, np.int8)}
    model = onnx.shape_inference.infer_shapes(parse(_QUANTISED, weights, opset=21))
    parts, types = units_of(model, None)
    kept = static_kept(model, None, types, parts, FP16, KeptFloat32(nodes=("weights",)))
    assert _build(convert(model, None, TypePlan(FP16, kept), parts, types).model, tmp_path).ok
    assert {one.node for one in kept.values()} == {"data", "weights", "product"}
