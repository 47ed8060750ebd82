"""Half and bfloat16 models in float32."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import operators, parse, random
from tests.precision.typing_cases import run
from trtnorm_cli.onnx_model.infer import checker_objection
from trtnorm_cli.precision.raising import has_low_types, raised

_HALF = """
g (float16[2, 8] x, bool c) => (float16[2, 8] y, float16[2, 8] x, float[2, 8] z) {
    a = MatMul(x, w)
    b = Cast<to = 1>(a)
    e = Softmax(b)
    d = Cast<to = 10>(e)
    i = If(c) <
        then_branch = g1 () => (float16[2, 8] t) { t = Mul(d, x) },
        else_branch = g2 () => (float16[2, 8] u) { u = Identity(y) }
    >
    y = Mul(d, a)
    z = Cast<to = 1>(i)
}
"""
_GRAPH = _HALF.replace("    y = Mul(d, a)\n", "").replace("    i = If", "    y = Mul(d, a)\n    i = If")


def _model() -> onnx.ModelProto:
    return onnx.shape_inference.infer_shapes(parse(_GRAPH, {"w": random(8, 8).astype(np.float16)}, opset=18))


@pytest.mark.parametrize("io", ["keep", "low"])
def test_a_half_model_is_float32_inside(io: str) -> None:
    model = _model()
    before = model.SerializeToString(deterministic=True)
    done = raised(model, None, "low" if io == "low" else "keep")
    assert model.SerializeToString(deterministic=True) == before
    assert checker_objection(done.model, full_check=True) is None, onnx.printer.to_text(done.model)
    assert done.tensors == 1
    assert set(done.guards) == {"e"}
    x = random(2, 8).astype(np.float16)
    fed = x if io == "keep" else x.astype(np.float32)
    for c in (True, False):
        expected = run(model, {"x": x, "c": np.array(c)})
        found = run(done.model, {"x": fed, "c": np.array(c)})
        assert [value.dtype for value in found] == ([np.float16, np.float16, np.float32] if io == "keep" else [np.float32] * 3)
        for one, other in zip(expected, found, strict=True):
            assert np.allclose(one.astype(np.float32), other.astype(np.float32), atol=2e-2)
    inside = onnx.shape_inference.infer_shapes(done.model)
    low = {v.name for v in inside.graph.value_info if v.type.tensor_type.elem_type == onnx.TensorProto.FLOAT16}
    assert low == set()
    assert has_low_types(done.model) is (io == "keep")


def test_casts_between_what_has_become_one_type_are_gone() -> None:
    graph = "g (float[2, 8] x) => (float[2, 8] y) { a = Cast<to = 10>(x) b = Relu(a) c = Cast<to = 1>(b) y = Exp(c) }"
    done = raised(onnx.shape_inference.infer_shapes(parse(graph)), None)
    assert operators(done.model) == ["Relu", "Exp"]


def test_a_float32_model_has_no_low_types() -> None:
    assert not has_low_types(parse("g (float[2] x) => (float[2] y) { y = Relu(x) }"))
    assert has_low_types(parse("g (float[2] x) => (float[2] y) { a = Cast<to = 16>(x) y = Cast<to = 1>(a) }"))
