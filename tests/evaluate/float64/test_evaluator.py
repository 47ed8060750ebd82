from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from trtnorm_cli.evaluate.float64 import (
    BudgetExceeded,
    Evaluation,
    ReferenceUnavailable,
    UnsupportedOperator,
    evaluate_float64,
)
from trtnorm_cli.evaluate.float64.cost import predicted_seconds
from trtnorm_cli.evaluate.float64.foresight import Foresight
from trtnorm_cli.evaluate.float64.kernels.call import Call


def parsed(text: str, opset: int = 21) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : {opset}, "my.dom" : 1]> {text}')


CONV = parsed(
    """g (float[N,3,H,W] x, float[8,3,3,3] w) => (float[N,8,H,W] y) {
       c = Conv<pads = [1, 1, 1, 1]>(x, w)  y = Relu(c)  unused = my.dom.Nothing(y) }"""
)


def feeds(size: int = 8) -> dict[str, np.ndarray]:
    generator = np.random.default_rng(0)
    return {"x": generator.normal(size=(1, 3, size, size)), "w": generator.normal(size=(8, 3, 3, 3))}


def test_the_reference_says_what_it_used():
    reference = evaluate_float64(CONV, feeds())
    assert set(reference.evaluated_with) == {"Conv", "Relu"}
    assert "im2col" in reference.evaluated_with["Conv"]
    assert reference.outputs["y"].dtype == np.float64
    assert 0 < reference.seconds < 60


def test_notes_say_where_rounding_decides():
    model = parsed(
        """g (float[N] x) => (int64[1] y, float[M] z) {
           y = ArgMax<axis = 0>(x)  n = Shape(x)  f = Cast<to = 1>(n)  h = Constant<value_float = 0.5>()
           m = Mul(f, h)  k = Cast<to = 7>(m)  z = Expand(h, k) }"""
    )
    notes = evaluate_float64(model, {"x": np.array([1.0, 3, 2, 0])}).notes
    assert notes == (
        "3 nodes that decide sizes were evaluated in their own type",
        "ArgMax: next to a tie, rounding alone decides the result",
    )
    assert evaluate_float64(CONV, feeds()).notes == ()


def test_inner_tensors_and_only_what_they_need():
    reference = evaluate_float64(CONV, feeds(), outputs=["c", "x"])
    assert list(reference.outputs) == ["c", "x"]
    assert set(reference.evaluated_with) == {"Conv"}
    np.testing.assert_array_equal(np.maximum(reference.outputs["c"], 0), evaluate_float64(CONV, feeds()).outputs["y"])


def test_an_operator_of_another_domain_is_not_the_built_in():
    model = parsed("g (float[1] x) => (float[1] y) { y = my.dom.Relu(x) }")
    with pytest.raises(UnsupportedOperator, match="no verified") as problem:
        evaluate_float64(model, {"x": np.ones(1)})
    assert problem.value.where == "my.dom::Relu 'y'"


def test_weights_outside_of_the_file(tmp_path):
    model = parsed("g (float[N,4] x) => (float[N,4] y) { y = MatMul(x, w) }")
    weight = np.arange(16, dtype=np.float32).reshape(4, 4)
    model.graph.initializer.append(numpy_helper.from_array(weight, "w"))
    onnx.save_model(model, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="m.bin")
    result = evaluate_float64(tmp_path / "m.onnx", {"x": np.eye(4)})
    np.testing.assert_array_equal(result.outputs["y"], weight)


def test_files_that_are_no_model(tmp_path):
    (tmp_path / "page.onnx").write_text("<html>")
    for name in ("page.onnx", "absent.onnx"):
        with pytest.raises(ReferenceUnavailable, match="cannot be read"):
            evaluate_float64(tmp_path / name, {})


@pytest.mark.parametrize(
    ("given", "outputs", "words"),
    [
        ({"x": np.ones((1, 3, 4, 4))}, None, "no value is given for the input 'w'"),
        ({**feeds(), "z": np.ones(1)}, None, "no input 'z'"),
        (feeds(), ["nowhere"], "no tensor 'nowhere'"),
    ],
)
def test_missing_inputs_and_outputs_are_said(given, outputs, words):
    with pytest.raises(ReferenceUnavailable, match=words):
        evaluate_float64(CONV, given, outputs)


def test_shapes_that_do_not_fit_name_the_node():
    model = parsed("g (float[N] x, float[M] z) => (float[N] y) { [sum] y = Add(x, z) }")
    with pytest.raises(ReferenceUnavailable, match="broadcast") as problem:
        evaluate_float64(model, {"x": np.ones(3), "z": np.ones(2)})
    assert problem.value.where == "Add 'sum'"


def test_tensors_are_freed_after_their_last_use():
    nodes = " ".join(f"t{i + 1} = Neg(t{i})" for i in range(40))
    model = parsed(f"g (float[N] t0) => (float[N] t40) {{ {nodes} }}")
    x = np.ones(1 << 18)
    tracemalloc.start()
    evaluate_float64(model, {"t0": x})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * x.nbytes


def test_nodes_in_any_order_and_cycles():
    model = parsed("g (float[1] x) => (float[1] y) { y = Neg(b)  b = Neg(a)  a = Abs(x) }")
    assert evaluate_float64(model, {"x": np.array([-2.0])}).outputs["y"] == [2]
    cyclic = parsed("g (float[1] x) => (float[1] y) { a = Add(x, y)  y = Neg(a) }")
    with pytest.raises(ReferenceUnavailable, match="cycle"):
        evaluate_float64(cyclic, {"x": np.ones(1)})


def test_the_budget_is_guarded_before_a_large_node():
    with pytest.raises(BudgetExceeded, match="needs about") as problem:
        evaluate_float64(CONV, {**feeds(), "x": np.zeros((1, 3, 3000, 3000))}, budget_s=0.2)
    assert problem.value.where == "Conv 'c'"
    assert "smaller shapes" in (problem.value.hint or "")


def test_an_evaluation_that_takes_far_too_long_is_given_up_early():
    """From what is done and what there is to do, whatever the machine; not before it says something."""
    clock = SimpleNamespace(passed=1.0)
    clock.are_over, clock.seconds = lambda seconds: clock.passed > seconds, lambda: clock.passed
    asked = []

    def looks(work: float, budget_s: float = 20.0) -> list[float | None]:
        foresight = Foresight(lambda: asked.append(1) or 100.0, budget_s)
        foresight.work = work
        found = []
        for clock.passed in (1.0, 3.0, 4.0, 6.0, 11.0, 15.0):
            found.append(foresight.too_long(clock))
        return found

    assert looks(1.0) == [None, 300.0, None, 600.0, 1100.0, None]
    assert len(asked) == 1
    assert looks(4.5)[:3] == [None, None, None]  # 67 s, which may be less: it is early
    assert looks(10.0) == [None, None, None, 60.0, 110.0, None]
    assert looks(50.0) == [None] * 6
    assert looks(0.0) == [None] * 6
    assert looks(1.0, budget_s=1.0) == [None] * 6


def test_what_an_evaluation_has_done_is_held_to_all_of_it():
    evaluation = Evaluation(CONV, feeds(), total_work=lambda: 1.0)
    evaluation.go_on()
    assert evaluation._foresight.work == 8 * 3 * 3 * 3 * 8 * 8
    slow = Evaluation(CONV, feeds(), budget_s=20.0, total_work=lambda: 1e18)
    slow._foresight.work, slow._clock._before = 1.0, (3.0, 3.0)
    with pytest.raises(BudgetExceeded, match="would take longer than 20 s: about"):
        slow.go_on()


def test_the_budget_ends_a_loop():
    model = parsed(
        """g (float x) => (float y) {
           y = Loop(, , x) <body = b (int64 i, bool c, float a) => (bool c, float a) { }> }"""
    )
    model.graph.node[0].input[:] = ["", "", "x"]
    with pytest.raises(BudgetExceeded, match=r"longer than 0\.1 s"):
        evaluate_float64(model, {"x": np.array(1.0)}, budget_s=0.1)


def test_loops_and_scans_carry_and_collect():
    model = parsed(
        """g (int64 n, float x) => (float last, float[N] all) {
           last, all = Loop(n, , x) <body = b (int64 i, bool c, float a) => (bool c, float d, float e)
               { two = Constant<value_float = 2.0>()  d = Mul(a, two)  e = Add(d, x) }> }"""
    )
    model.graph.node[0].input[:] = ["n", "", "x"]
    outputs = evaluate_float64(model, {"n": np.array(3), "x": np.array(1.0)}).outputs
    assert outputs["last"] == 8
    assert outputs["all"].tolist() == [3, 5, 9]
    outputs = evaluate_float64(model, {"n": np.array(0), "x": np.array(1.0)}).outputs
    assert outputs["last"] == 1
    assert outputs["all"].shape == (0,)
    scan = parsed(
        """g (float s, float[N] x) => (float last, float[N] all) {
           last, all = Scan<num_scan_inputs = 1, scan_input_directions = [1], scan_output_directions = [1],
               body = b (float a, float v) => (float d, float e) { d = Add(a, v)  e = Identity(d) }>(s, x) }"""
    )
    outputs = evaluate_float64(scan, {"s": np.array(0.0), "x": np.array([1.0, 2, 4])}).outputs
    assert outputs["last"] == 7
    assert outputs["all"].tolist() == [7, 6, 4]


def test_opsets_with_other_broadcasting_are_refused():
    with pytest.raises(UnsupportedOperator, match="opset 6"):
        evaluate_float64(parsed("g (float[1] x) => (float[1] y) { y = Neg(x) }", opset=6), {"x": np.ones(1)})


@pytest.mark.parametrize("text", ["y = RandomNormalLike(x)", "y, m = Dropout(x, r, t)", "y = Bernoulli(x)"])
def test_chance_is_refused(text):
    model = parsed(f"g (float[2] x) => (float[2] y) <float r = {{0.5}}, bool t = {{1}}> {{ {text} }}")
    with pytest.raises(UnsupportedOperator):
        evaluate_float64(model, {"x": np.ones(2)})


def test_the_cost_of_a_node_is_known_from_its_shapes():
    shapes = {"x": (2, 4, 9, 9), "w": (4, 4, 3, 3), "u": (4, 2, 2, 2), "m": (4, 16)}
    expected = 2 * 16 * 4 * 4 * 9 + 2 * 16 * 4 * 2 * 4 + 2 * 4 * 16
    calls = [
        Call("Conv", 21, (np.zeros(shapes["x"]), np.zeros(shapes["w"])), {"strides": [2, 2]}),
        Call("ConvTranspose", 21, (np.zeros((2, 4, 4, 4)), np.zeros(shapes["u"])), {"strides": [2, 2], "group": 2}),
        Call("MatMul", 21, (np.zeros((2, 4)), np.zeros((4, 16))), {}),
    ]
    assert sum(map(predicted_seconds, calls)) == pytest.approx(expected / 5e9)


def test_what_an_expand_repeats_is_counted_before_it_is_read():
    """2^34 numbers in eight bytes: a sum of them took minutes, whatever the budget was."""
    model = parsed(
        "g (float[1] x) => (float y, int64[2] z) <int64[2] s = {131072, 131072}> "
        "{ e = Expand(x, s)  t = Transpose(e)  z = Shape(t)  y = ReduceMax<keepdims = 0>(t) }"
    )
    with pytest.raises(BudgetExceeded, match="needs about 6"):
        evaluate_float64(model, {"x": np.ones(1)}, budget_s=20.0)
    model.graph.output.pop(0)
    assert evaluate_float64(model, {"x": np.ones(1)}, budget_s=20.0).outputs["z"].tolist() == [131072, 131072]
