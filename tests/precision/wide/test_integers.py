"""int64 as int32: where it is proved, between casts, and with the same results."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import parse, random, saved
from trtnorm_cli.precision.session import typed_session
from trtnorm_cli.precision.wide.integers import narrow_integers
from trtnorm_cli.rewrite.prepare import OpenedModel, prepare

LARGEST = {"N": 4, "S": 32}
# As exports of RoBERTa count positions.
POSITIONS = parse(
    "g (int64[N, S] ids) => (float[N, S, 8] y) { [pad] e = Equal(ids, one) [not] n = Not(e) [mask] m = Cast <to = 7> (n) "
    "[count] c = CumSum(m, one) [masked] p = Mul(c, m) [shift] q = Add(p, one) [word] w = Gather(words, ids) "
    "[position] v = Gather(positions, q) [sum] y = Add(w, v) }",
    {"one": np.array(1), "words": random(100, 8), "positions": random(64, 8)},
)


def narrowed(model):
    return narrow_integers(onnx.shape_inference.infer_shapes(model), None, LARGEST)


def session(model, folder, profile):
    (folder / "cfg.yaml").write_text(profile)
    prepared = prepare(OpenedModel.of_file(saved(model, folder / "model.onnx"), folder / "cfg.yaml"))
    return typed_session(prepared)


SIZES = "dims: {N: {min: 1, opt: 2, max: 4}, S: {min: 2, opt: 8, max: 32}}\n"


def test_a_chain_of_counts_is_narrow_and_needs_no_cast():
    found = narrowed(POSITIONS)
    assert found.record.nodes == ("mask", "count", "masked", "shift")
    assert found.record.tensors == ("m", "c", "p", "q")
    assert (found.record.casts, found.record.kept) == (0, ())
    onnx.checker.check_model(found.model, full_check=True)
    types = {v.name: v.type.tensor_type.elem_type for v in onnx.shape_inference.infer_shapes(found.model).graph.value_info}
    assert types["c_int32"] == onnx.TensorProto.INT32
    assert [node.input[1] for node in found.model.graph.node if node.op_type == "Gather"] == ["ids", "q_int32"]


def test_a_second_pass_changes_nothing():
    once = narrowed(POSITIONS).model
    assert narrowed(once).record.nodes == ()
    assert narrowed(once).model.SerializeToString() == onnx.shape_inference.infer_shapes(once).SerializeToString()


def test_inputs_and_outputs_keep_their_type():
    model = parse(
        "g (int64[N, S] ids) => (int64[N, S] y, float[N, S, 8] w) { a = Add(ids, one) b = Mul(a, one) c = Sub(b, one) "
        "d = Mul(c, a) f = Add(d, b) y = Mul(f, one) w = Gather(words, ids) }",
        {"one": np.array(3), "words": random(100, 8)},
    )  # fmt: skip
    found = narrowed(model)
    assert len(found.record.nodes) == 6
    assert found.record.casts == 2
    assert [v.type.tensor_type.elem_type for v in (*found.model.graph.input, found.model.graph.output[0])] == [7, 7]
    assert found.model.graph.node[0].op_type == "Cast"


@pytest.mark.parametrize(("graph", "why"), [
    ("g (int64[N, S] x) => (float[N, S] y) { a = Add(x, one) b = Mul(a, one) c = Sub(b, one) y = Cast <to = 1> (c) }",
     ("x", "its range is not known", None)),
    ("g (int64[N, S] x) => (float[N, S] y) { m = Mod(x, one) a = Add(m, far) b = Mul(a, one) y = Cast <to = 1> (b) }",
     ("far", f"it may be {2**40}, beyond int32", 2**40)),
    ("g (int64[N, S] x) => (float[N, S] y) { m = Mod(x, large) a = Mul(m, large) b = Add(a, one) y = Cast <to = 1> (b) }",
     ("a", f"it may be {99_999 * 100_000}, beyond int32", 99_999 * 100_000)),
])  # fmt: skip
def test_what_cannot_be_proved_stays_and_is_named(graph, why):
    found = narrowed(parse(graph, {"one": np.array(3), "far": np.array(2**40), "large": np.array(100_000)}))
    assert why in [(kept.tensor, kept.reason, kept.value) for kept in found.record.kept]
    assert found.record.nodes == () or "Add" not in found.record.nodes


@pytest.mark.parametrize("graph", [
    "g (float[N, S] x) => (float[] y) { s = Shape(x) t = Mul(s, one) u = Add(t, one) v = Sub(u, one) y = Expand(x, v) }",
    "g (float[N, S] x) => (int64[] y) { s = Shape(x) n = Gather <axis = 0> (s, zero) y = Range(zero, n, one) }",
    "g (float[N, S] x) => (float[N, S] y) { y = Relu(x) }",
    "g (int64[N, S] ids) => (float[N, S, 8] y) { y = Gather(words, ids) }",
    "g (int64[N, S] ids) => (float[N, S, 8] y, int64[N, S] z) { y = Gather(words, ids) z = Identity(ids) }",
])  # fmt: skip
def test_sizes_and_what_does_not_pay_stay(graph):
    model = parse(graph, {"one": np.array(1), "zero": np.array(0), "words": random(100, 8)})
    found = narrowed(model)
    assert found.record.nodes == ()
    assert [node.op_type for node in found.model.graph.node] == [node.op_type for node in model.graph.node]


def test_branches_read_what_they_read_before(tmp_path):
    model = parse(
        "g (int64[N, S] ids, bool c) => (float[N, S, 8] y, int64[N, S] z) { a = Add(ids, one) b = Mul(a, one) d = Sub(b, one) "
        "e = Mul(d, a) y = Gather(words, ids) z = If (c) <then_branch = t () => (int64[N, S] p) { p = Identity(e) }, "
        "else_branch = o () => (int64[N, S] q) { q = Neg(a) }> }",
        {"one": np.array(1), "words": random(100, 8)},
    )  # fmt: skip
    rewriting = session(model, tmp_path, SIZES + "int64: narrow\n").rewrite()
    assert rewriting.types.integers.undone is None
    onnx.checker.check_model(rewriting.model, full_check=True)


def test_only_when_asked(tmp_path):
    assert session(POSITIONS, tmp_path, SIZES).rewrite().types is None
    integers = session(POSITIONS, tmp_path, SIZES + "int64: narrow\n").rewrite().types.integers
    assert integers.undone is None
    assert integers.nodes == ("mask", "count", "masked", "shift")


def test_what_differs_in_a_run_is_undone(tmp_path, monkeypatch):
    monkeypatch.setattr("trtnorm_cli.precision.session.difference", lambda *found: "the output y would differ")
    rewriting = session(POSITIONS, tmp_path, SIZES + "int64: narrow\n").rewrite()
    assert rewriting.types.integers.undone == "the output y would differ"
    assert rewriting.types.integers.nodes == ()
    assert not any("int32" in name for node in rewriting.model.graph.node for name in node.output)
