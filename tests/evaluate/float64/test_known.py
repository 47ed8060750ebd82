"""What one evaluation found, another takes over, and nothing but that."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx
import pytest

from tests.models import parse, random
from trtnorm_cli.evaluate.float64 import Evaluation, Known, Perturbation, evaluate_float64
from trtnorm_cli.evaluate.float64.float64_model import Float64Model
from trtnorm_cli.evaluate.float64.kernels import KERNELS, convolution, elementwise
from trtnorm_cli.evaluate.float64.kernels.call import Call
from trtnorm_cli.evaluate.float64.perturbation import Moves

W, V = random(16, 16, seed=1), random(16, 16, seed=2)
X = {"x": random(2, 5, 16)}


def model(body: str = "p = MatMul(x, w) r = Relu(p) y = MatMul(r, v)", **weights: np.ndarray) -> onnx.ModelProto:
    return parse(f"g (float[2, N, 16] x) => (float[2, N, 16] y) {{ {body} }}", {"w": W, "v": V, **weights})


def outputs(proto: onnx.ModelProto, known: Known | None, feeds=X, **options) -> np.ndarray:
    return evaluate_float64(proto, feeds, known=known, **options).outputs["y"]


def test_an_equal_model_is_not_computed_again(evaluated):
    known = Known()
    first = outputs(model(), known)
    evaluated.clear()
    np.testing.assert_array_equal(outputs(model(), known), first)
    assert not evaluated


def test_a_product_with_a_vector_keeps_its_shape():
    known, feeds, v = Known(), {"x": random(1, 3, 4)}, {"v": random(4), "s": np.array([3, 4])}
    text = "g (float[1, 3, 4] x) => (float[] y) {{ {} }}"
    first = outputs(parse(text.format("y = MatMul(x, v)"), v), known, feeds)
    second = outputs(parse(text.format("r = Reshape(x, s) y = MatMul(r, v)"), v), known, feeds)
    assert (first.shape, second.shape) == ((1, 3), (3,))


def test_an_axis_is_counted_anew_for_each_rank():
    known = Known()
    last, second = (
        Float64Model(parse(f"g (float[] x) => (float[] y) {{ y = Softmax<axis = {axis}>(x) }}")) for axis in (-1, 1)
    )
    for shape, are_equal in (((2, 3), True), ((2, 3, 4), False)):
        known, feeds = known.for_other_inputs(), {"x": random(*shape)}
        first, other = (evaluate_float64(one, feeds, known=known).outputs["y"] for one in (last, second))
        assert np.array_equal(first, other) == are_equal


@pytest.mark.parametrize(("older", "newer"), [("bilinear", "linear"), ("bicubic", "cubic"), ("nearest", "nearest")])
def test_a_mode_of_a_sampling_has_two_names(evaluated, older, newer):
    known, feeds = Known(), {"x": random(1, 2, 9, 9), "g": np.tanh(random(1, 5, 6, 2))}
    text = 'g (float[1, 2, 9, 9] x, float[1, 5, 6, 2] g) => (float[] y) {{ y = GridSample<mode = "{}">(x, g) }}'
    first = outputs(parse(text.format(older), opset=16), known, feeds)
    evaluated.clear()
    np.testing.assert_array_equal(outputs(parse(text.format(newer), opset=22), known, feeds), first)
    assert not evaluated
    outputs(parse(text.format({"linear": "cubic"}.get(newer, "linear")), opset=22), known, feeds)
    assert evaluated == {"GridSample": 1}


def test_a_cast_to_the_type_that_it_has_is_the_tensor_itself(evaluated):
    known = Known()
    first = outputs(model(), known)
    evaluated.clear()
    again = outputs(model("c = Cast<to = 1>(x) p = MatMul(c, w) r = Relu(p) y = MatMul(r, v)"), known)
    np.testing.assert_array_equal(again, first)
    assert evaluated == {"Cast": 1}


def test_from_the_first_difference_on_everything_is_computed(evaluated):
    known = Known()
    outputs(model(), known)
    evaluated.clear()
    other = model(v=V * np.float32(1 + 1e-6))
    np.testing.assert_array_equal(outputs(other, known), outputs(other, None))
    assert evaluated["MatMul"] == 1 + 2, "the first product is known; the run without knowledge makes both"


@pytest.mark.parametrize(
    "body",
    [
        "u = Unsqueeze(w, zero) p = MatMul(x, u) r = Relu(p) y = MatMul(r, v)",
        "i = Identity(x) p = MatMul(i, w) r = Relu(p) q = Reshape(r, s) y = MatMul(q, v)",
        "i = Transpose<perm = [0, 2, 1]>(x) j = Transpose<perm = [0, 2, 1]>(i) p = MatMul(j, w) r = Relu(p) y = MatMul(r, v)",
    ],
)
def test_another_way_to_write_the_same(evaluated, body):
    known = Known()
    first = outputs(model(), known)
    evaluated.clear()
    again = model(body, zero=np.array([0]), s=np.array([2, -1, 16]))
    np.testing.assert_array_equal(outputs(again, known), first)
    assert evaluated["MatMul"] == 0


@pytest.mark.parametrize(
    "body",
    [
        "p = MatMul(x, w) r = Sigmoid(p) y = MatMul(r, v)",
        "p = MatMul(x, v) r = Relu(p) y = MatMul(r, w)",
        "t = Transpose<perm = [1, 0]>(w) p = MatMul(x, t) r = Relu(p) y = MatMul(r, v)",
        "p = MatMul(x, w) r = Relu(p) k = Transpose<perm = [0, 2, 1]>(r) q = Reshape(k, s) y = MatMul(q, v)",
        "p = MatMul(x, w) c = Clip(p, low, high) y = MatMul(c, v)",
    ],
)
def test_what_differs_is_not_taken_for_known(body):
    known = Known()
    outputs(model(), known)
    other = model(body, s=np.array([2, -1, 16]), low=np.float32(0), high=np.float32(1))
    np.testing.assert_array_equal(outputs(other, known), outputs(other, None))


ATTENTION = "p = MatMul(x, w) s = Softmax<axis = {axis}>(p) y = {activation}(s)"


def of_opset(opset: int, body: str) -> onnx.ModelProto:
    return parse(f"g (float[2, N, 16] x) => (float[2, N, 16] y) {{ {body} }}", {"w": W}, opset=opset)


@pytest.mark.parametrize(
    ("axis", "opset", "softmax", "gelu"), [(-1, 23, 0, 0), (2, 20, 0, 0), (2, 23, 0, 0), (1, 20, 1, 1)],
    ids=["a later opset", "the axis from the front", "both", "another axis"],
)  # fmt: skip
def test_an_operator_is_the_same_in_every_opset_that_has_this_version_of_it(evaluated, axis, opset, softmax, gelu):
    known, written = Known(), ATTENTION.format(axis=-1, activation="Gelu")
    first = outputs(of_opset(20, written), known)
    evaluated.clear()
    other = of_opset(opset, ATTENTION.format(axis=axis, activation="Gelu"))
    found = outputs(other, known)
    assert (evaluated["Softmax"], evaluated["Gelu"]) == (softmax, gelu)
    np.testing.assert_array_equal(found, first if not softmax else outputs(other, None))


def test_another_version_of_an_operator_is_another_one(evaluated):
    """Before opset 13 Softmax took all axes from its own on as one."""
    known, body = Known(), ATTENTION.format(axis=1, activation="Relu")
    outputs(of_opset(12, body), known)
    evaluated.clear()
    later = of_opset(13, body)
    found = outputs(later, known)
    assert evaluated["Softmax"] == 1
    np.testing.assert_array_equal(found, outputs(later, None))


@pytest.mark.parametrize("operator", ["Add", "Div", "Max", "Mean", "Min", "Mul", "Pow", "Sub", "Sum"])
@pytest.mark.parametrize("shape", [(16,), (5, 16), (1,), (5, 1)], ids=str)
def test_axes_of_length_one_in_front_make_no_difference(evaluated, operator, shape):
    known, weight = Known(), np.abs(random(*shape)) + 1
    first = outputs(model(f"p = Abs(x) y = {operator}(p, k)", k=weight), known)
    for other in (weight[None], weight[None, None])[: 3 - weight.ndim]:
        evaluated.clear()
        again = model(f"p = Abs(x) y = {operator}(p, k)", k=other)
        found = outputs(again, known)
        assert found.shape == first.shape == outputs(again, None).shape
        np.testing.assert_array_equal(found, first)
        assert evaluated[operator] == 1, "in the run without knowledge"


def test_more_axes_are_another_result():
    known, weight = Known(), random(16)
    both = [
        parse(f"g (float[5, 16] x) => (float[{rank}] y) {{ y = Add(x, k) }}", {"k": k})
        for rank, k in (("5, 16", weight), ("1, 5, 16", weight[None, None]), ("1, 1, 5, 16", weight[None, None, None]))
    ]
    for each in both:
        feeds = {"x": random(5, 16)}
        found, alone = outputs(each, known, feeds), outputs(each, None, feeds)
        assert found.shape == alone.shape
        np.testing.assert_array_equal(found, alone)


@pytest.mark.parametrize("kept", [None, "p", "r", "py", ""])
def test_only_what_is_kept_is_found_again(evaluated, kept):
    known = Known()
    first = outputs(model(), known, kept=None if kept is None else set(kept))
    evaluated.clear()
    np.testing.assert_array_equal(outputs(model(), known), first)
    # What follows from a tensor that was not kept cannot be recognised either.
    is_found = {"p": kept is None or "p" in kept, "r": kept is None, "y": kept is None}
    assert evaluated["MatMul"] == (not is_found["p"]) + (not is_found["y"])


ZEROS = {"zeros": np.zeros(16, np.float32), "ones": np.ones(16, np.float32), "minus": np.full(16, -0.0, np.float32)}


@pytest.mark.parametrize(("few", "products"), [("zeros", 0), ("minus", 0), ("ones", 1)])
@pytest.mark.parametrize("named", [{"b"}, {"b", "y"}])
def test_a_product_whose_sum_with_zeros_is_kept_is_found_again(monkeypatch, evaluated, named, few: str, products: int):
    """The biases of an untrained network are zero. A rewriting leaves them out, and has the product under the sum's name."""
    monkeypatch.setattr(elementwise, "_FEW", 1)
    known, plain = Known(), model("b = MatMul(x, w) y = Relu(b)")
    wanted = outputs(plain, None)
    outputs(model(f"p = MatMul(x, w) b = Add(p, {few}) y = Relu(b)", **ZEROS), known, kept=named)
    evaluated.clear()
    np.testing.assert_array_equal(outputs(plain, known), wanted)
    assert evaluated["MatMul"] == products


def test_a_product_that_is_read_before_is_none_to_find_again(monkeypatch, evaluated):
    monkeypatch.setattr(elementwise, "_FEW", 1)
    known = Known()
    body = "p = MatMul(x, w) q = Relu(p) b = Add(q, zeros) y = Add(b, p)"
    wanted = outputs(model(body, **ZEROS), None)
    outputs(model(body, **ZEROS), known, kept={"b"})
    evaluated.clear()
    np.testing.assert_array_equal(outputs(model(body, **ZEROS), known), wanted)
    assert evaluated["MatMul"] == 1


@pytest.mark.parametrize("later", ["q = Relu(p) y = Add(q, p)", "y = Concat<axis=2>(p, p)", "y = Add(p, zeros)"])
def test_no_product_is_held_for_a_sum_that_does_not_come(later: str):
    """Its inputs, which nobody reads any more, are as large."""
    evaluation = Evaluation(model(f"r = Relu(x) p = MatMul(r, w) {later}", **ZEROS), X, known=Known(), kept={"y"})
    most = 0
    while not evaluation.is_done:
        steps = iter([False, True])
        evaluation.go_on(until=lambda steps=steps: next(steps))
        most = max(most, len(evaluation._unnamed))
    assert most == ("zeros" in later)
    assert not evaluation._unnamed


def test_a_node_without_inputs_is_nothing_to_compare():
    """Only the operators that have an axis or a plane are asked for the rank of their data."""
    body = "k = Constant <value = float {1.5}> () p = MatMul(x, w) y = Mul(p, k)"
    np.testing.assert_array_equal(outputs(model(body), Known()), outputs(model(body), None))


def test_the_sign_of_zero_is_a_difference():
    zeros = np.zeros((100,), np.float32)
    known = Known()
    kept = known.constant(zeros.astype(np.float64))
    assert np.shares_memory(known.constant(zeros.astype(np.float64)), kept)
    assert not np.shares_memory(known.constant(-zeros.astype(np.float64)), kept)


@pytest.mark.parametrize("size", [16, 100])
def test_equal_bits_of_another_type_are_a_difference(size):
    """NumPy writes down every type that it does not know itself as so many bytes."""
    known, bits = Known(), np.arange(size, dtype=np.uint8)
    for kind in (ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e4m3fnuz, ml_dtypes.float8_e5m2fnuz):
        graph = f"g (float[{size}] x) => (float[{size}] y) {{ d = DequantizeLinear(q, s) y = Mul(d, x) }}"
        proto = parse(graph, {"q": bits.view(kind), "s": np.float32(1)}, opset=21, ir=10)
        found = outputs(proto, known, {"x": np.ones(size, np.float32)})
        assert np.array_equal(found, bits.view(kind).astype(np.float64)), kind


def test_other_inputs_give_other_results():
    known = Known()
    outputs(model(), known)
    other = {"x": random(2, 5, 16, seed=9)}
    np.testing.assert_array_equal(outputs(model(), known, other), outputs(model(), None, other))
    np.testing.assert_array_equal(outputs(model(), known.for_other_inputs(), other), outputs(model(), None, other))


@pytest.mark.parametrize("room", [1 << 20, 2 * 2 * 5 * 16 * 8 * 4 + 1])
def test_what_takes_the_room_of_others_is_forgotten(evaluated, room):
    """Results of a candidate that is none any more; where they take little room, they may be found again."""
    known, other = Known(room), model(v=W, w=V)
    outputs(model(), known)
    mark = known.mark()
    first = outputs(other, known)
    known.forget_since(mark)
    evaluated.clear()
    np.testing.assert_array_equal(outputs(other, known), first)
    assert evaluated["MatMul"] == (0 if room == 1 << 20 else 2)
    evaluated.clear()
    outputs(model(), known)
    outputs(other, known)
    assert not evaluated, "what was there before stays, and there is room again"


def test_what_is_kept_elsewhere_takes_no_room(evaluated):
    known = Known(2 * W.size * 8 + X["x"].size * 8)  # the constants; of six results four

    def keep(name: str, value: np.ndarray) -> np.ndarray:
        known.is_kept_elsewhere(value)
        return value

    outputs(model(), known, watch=keep)
    outputs(model(v=W, w=V), known)
    evaluated.clear()
    outputs(model(), known)
    outputs(model(v=W, w=V), known)
    assert not evaluated


def test_what_is_forgotten_is_recognised_by_nothing(evaluated):
    """Also where a later array lies in its memory."""
    known, results = Known(), list[np.ndarray]()
    outputs(model(), known, watch=lambda name, value: results.append(value) or value)
    room = known.room
    known.forget_all_but(results[:1])
    assert known.room > room
    evaluated.clear()
    results.clear()
    outputs(model(), known)
    assert evaluated["MatMul"] == 1, "the first is known, the second one is not"
    known.forget_all_but([])
    assert known.mark() == frozenset()
    evaluated.clear()
    other = {"x": random(2, 5, 16, seed=9)}
    np.testing.assert_array_equal(outputs(model(), known, other), outputs(model(), None, other))


def test_a_mark_may_be_of_some_of_what_is_remembered(evaluated):
    results = list[np.ndarray]()
    outputs(model(), None, watch=lambda name, value: results.append(value) or value)
    known = Known(sum(result.nbytes for result in results) + W.nbytes + V.nbytes)
    results.clear()
    outputs(model(), known, watch=lambda name, value: results.append(value) or value)
    known.forget_since(known.mark(results[:1]))
    evaluated.clear()
    outputs(model(), known)
    assert evaluated["MatMul"] == 1


def test_without_room_everything_is_computed(evaluated):
    known = Known(most_bytes=0)
    first = outputs(model(), known)
    evaluated.clear()
    np.testing.assert_array_equal(outputs(model(), known), first)
    assert evaluated["MatMul"] == 2


def test_a_perturbed_run_uses_what_is_known_and_adds_nothing(evaluated):
    known = Known()
    outputs(model(), known)

    def perturbed(known: Known | None) -> np.ndarray:
        return outputs(model(), known, perturbation=Perturbation(1e-7, 0, Moves.CONSTANTS))

    evaluated.clear()
    np.testing.assert_array_equal(perturbed(known), perturbed(None))
    assert evaluated["MatMul"] == 4
    np.testing.assert_array_equal(outputs(model(), known), outputs(model(), None))


@pytest.mark.parametrize("group", [1, 3])
def test_a_convolution_on_several_cores_is_the_same(monkeypatch, group):
    x, weight = random(2, 6, 9, 8).astype(np.float64), random(12, 6 // group, 3, 3).astype(np.float64)
    attributes = {"pads": [1, 1, 1, 1], "group": group}
    call = Call("Conv", 22, (x, weight), {"strides": None, "dilations": None, "auto_pad": "NOTSET", **attributes})
    alone = KERNELS["Conv"](call)[0]
    monkeypatch.setattr(convolution, "WORTH_THREADS", 0)
    monkeypatch.setattr(convolution, "MATRIX_ELEMENTS", 1000)
    np.testing.assert_allclose(KERNELS["Conv"](call)[0], alone, rtol=1e-13, atol=1e-13)
