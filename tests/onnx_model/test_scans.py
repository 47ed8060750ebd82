"""Scans that TensorRT refuses are written out, or given a state, with the results that ONNX Runtime has for the Scan."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, operators, parse, random
from tests.onnx_model.running import run
from trtnorm_cli.onnx_model.clean import Cleaning, clean

NORM = "n = InstanceNormalization(s, gamma, beta)"
X = random(5, 2, 4, 3)


def same(made: onnx.ModelProto, x: np.ndarray = X) -> Cleaning:
    result = clean(made)
    onnx.checker.check_model(result.model, full_check=True)
    wanted, got = run(made, {"x": x}), run(result.model, {"x": x})
    for name, value in wanted.items():
        np.testing.assert_allclose(got[name], value, rtol=1e-6, atol=1e-6, err_msg=name)
    again = clean(result.model)
    assert (again.model, again.counts) == (result.model, {})
    return result


def model(attributes: str, shape: str = "5,2,4,3", opset: int = 17) -> onnx.ModelProto:
    return parse(
        f"""g (float[{shape}] x) => (float[a,b,c,d] y) {{
        y = Scan<num_scan_inputs = 1, {attributes}
                 body = b (float[2,4,3] s) => (float[2,4,3] t) {{ {NORM} t = Relu(n) }}>(x) }}""",
        batchnorm(4),
        opset=opset,
    )


@pytest.mark.parametrize("opset", [9, 11, 13, 17])
@pytest.mark.parametrize(
    ("attributes", "shape"),
    [
        ("", (5, 2, 4, 3)),
        ("scan_input_directions = [1],", (5, 2, 4, 3)),
        ("scan_output_directions = [1],", (5, 2, 4, 3)),
        ("scan_input_axes = [2], scan_output_axes = [1],", (2, 4, 5, 3)),
        ("scan_input_axes = [3], scan_output_axes = [3], scan_input_directions = [1],", (2, 4, 3, 5)),
    ],
)
def test_a_scan_without_a_state_is_unrolled(opset, attributes, shape):
    made = model(attributes, ",".join(map(str, shape)), opset)
    result = same(made, random(*shape))
    assert "Scan" not in operators(result.model)
    assert operators(result.model).count("InstanceNormalization") == 5
    assert result.counts["Scans unrolled"] == 1


def test_negative_axes():
    result = same(model("scan_input_axes = [-1], scan_output_axes = [-2],", "2,4,3,5"), random(2, 4, 3, 5))
    assert "Scan" not in operators(result.model)


def test_states_go_from_one_iteration_to_the_next():
    made = parse(
        """g (float[5,2,4,3] x) => (float[2,4,3] last, float[5,2,4,3] y, float[5,1] z) {
        zero = ConstantOfShape(dims)
        last, y, z = Scan<num_scan_inputs = 1, body = b (float[2,4,3] h, float[2,4,3] s)
            => (float[2,4,3] h2, float[2,4,3] t, float[1] m) {
            n = InstanceNormalization(s, gamma, beta)
            h2 = Add(h, n)
            t = If (cond) <then_branch = p () => (float[2,4,3] u) { k = Mul(h2, n) u = Neg(k) },
                           else_branch = e () => (float[2,4,3] v) { v = Abs(h2) }>
            m = Reshape(total, one)
            total = ReduceSum<keepdims = 0>(s)
        }>(zero, x)
        }""",
        {**batchnorm(4), "dims": np.array([2, 4, 3]), "one": np.array([1]), "cond": np.array(True)},
    )
    body = made.graph.node[1].attribute[1].g
    body.node[3].CopyFrom(onnx.helper.make_node("ReduceSum", ["s"], ["total"], keepdims=0))
    body.node[4].CopyFrom(onnx.helper.make_node("Reshape", ["total", "one"], ["m"]))
    result = same(made)
    assert "Scan" not in operators(result.model)


def test_a_body_with_initializers():
    made = parse(
        """g (float[5,4] x) => (float[5,4] y) {
        y = Scan<num_scan_inputs = 1, body = b (float[4] s) => (float[4] t)
            <float[4] w = {1.0, 2.0, 3.0, 4.0}> { t = Mul(s, w) }>(x)
        }"""
    )
    assert "Scan" not in operators(same(made, random(5, 4)).model)


def test_an_input_of_the_body_handed_through():
    """ONNX Runtime 1.31 hands out memory that nobody wrote for it."""
    made = parse(
        """g (float[5,4] x) => (float[5,4] copy) {
        copy = Scan<num_scan_inputs = 1, body = b (float[4] s) => (float[4] s) { unread = Neg(s) }>(x)
        }"""
    )
    np.testing.assert_array_equal(run(clean(made).model, {"x": random(5, 4)})["copy"], random(5, 4))


@pytest.mark.parametrize("shape", ["N,2,4,3", "65,2,4,3"])
def test_a_scan_of_unknown_or_great_length_gets_a_state(shape):
    result = same(model("", shape), random(65, 2, 4, 3))
    scan = next(node for node in result.model.graph.node if node.op_type == "Scan")
    assert (len(scan.input), len(scan.output)) == (2, 2)
    assert result.counts["Scans given a state"] == 1


def test_a_scan_that_tensorrt_takes_stays():
    made = parse(
        """g (float[5,4] x, float[4] h) => (float[4] last, float[5,4] y) {
        last, y = Scan<num_scan_inputs = 1, body = b (float[4] h0, float[4] s) => (float[4] h1, float[4] t)
            { h1 = Add(h0, s) t = Relu(h1) }>(h, x)
        }"""
    )
    assert operators(clean(made).model) == ["Scan"]
