"""Value infos of cleaned models: inferred, completed from the file, never contradicting."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import onnx
import onnx.helper
import pytest

from tests.models import parse, random, saved
from trtnorm_cli import api
from trtnorm_cli.onnx_model.clean import clean
from trtnorm_cli.onnx_model.infer import checker_objection, does_not_fit_together


def shapes(model: onnx.ModelProto) -> dict[str, list[int | str | None] | None]:
    found: dict[str, list[int | str | None] | None] = {}
    for value in model.graph.value_info:
        tensor = value.type.tensor_type
        found[value.name] = (
            [d.dim_value if d.HasField("dim_value") else d.dim_param or None for d in tensor.shape.dim]
            if tensor.HasField("shape")
            else None
        )
    return found


def with_shape(model: onnx.ModelProto, name: str, shape: list[int | str | None]) -> onnx.ModelProto:
    model.graph.value_info.append(onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape))
    return model


def test_shapes_are_inferred_with_the_names_of_dimensions():
    model = parse(
        "g (float[N, 2, H, W] x) => (float[N, 4, P, Q] y) { c = Conv(x, w) r = Relu(c) y = Exp(r) }", {"w": random(4, 2, 3, 3)}
    )
    assert shapes(clean(model).model) == {"c": ["N", 4, None, None], "r": ["N", 4, None, None]}


@pytest.mark.parametrize(("node", "names"), [
    ("a = GroupNormalization<num_groups = 1>(x, s, s)", ("a",)),
    ("a = SimplifiedLayerNormalization(x, s)", ("a",)),
    ("a = com.microsoft.GroupNorm<groups = 1, activation = 0>(x, s, s)", ("a",)),
    ("a, none, nor, sum = com.microsoft.SkipSimplifiedLayerNormalization(x, x, s)", ("a", "sum")),
    ("a = com.microsoft.BiasGelu(x, s)", ("a",)),
])  # fmt: skip
def test_normalizations_that_onnx_cannot_infer_have_the_shape_of_their_data(node, names):
    """Without it all behind them had no rank, and no rule took it."""
    graph = f"g (float[N, 4, H, 6] x) => (float[P, Q, R, S] y) {{ {node} y = Sum({', '.join(names)}) }}"
    model = parse(graph, {"s": random(4)}, opset=21)
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    found = shapes(clean(with_shape(model, "a", [1, 4, "H", 6])).model)
    assert [found[name] for name in names] == [["N", 4, "H", 6]] * len(names)


def test_what_inference_leaves_open_comes_from_the_file():
    model = parse("g (float[N, 2, 8, W] x, int64[3] s) => (float[P, Q, R] y) { r = Reshape(x, s) e = Exp(r) y = Neg(e) }")
    result = clean(with_shape(model, "r", ["N", 16, "W"]))
    assert shapes(result.model)["r"] == ["N", 16, "W"]
    assert result.notes == ()


def test_shapes_that_contradict_the_inputs_are_dropped_together():
    model = parse("g (float[N, 3] x, int64[2] s) => (float[P, Q] y) { r = Relu(x) t = Reshape(r, s) y = Neg(t) }")
    result = clean(with_shape(with_shape(model, "r", [1, 3]), "t", [3, 1]))
    assert shapes(result.model) == {"r": ["N", 3], "t": [None, None]}
    (note,) = result.notes
    assert "r is [1, 3] in the file and [N, 3] by inference" in note


def test_outputs_of_plugins_have_the_shape_of_the_file():
    model = parse("g (float[N, 3] x) => (float[P, Q] y) { r = my.Plugin(x) e = Exp(r) y = Neg(e) }")
    model.opset_import.append(onnx.helper.make_opsetid("my", 1))
    assert shapes(clean(with_shape(model, "r", ["N", 7])).model) == {"r": ["N", 7], "e": ["N", 7]}


def test_tensors_of_branches_have_shapes():
    model = parse(
        """g (float[N, 3] x, bool c) => (float[N, 3] y) {
        y = If (c) <then_branch = t () => (float[N, 3] p) { q = Exp(x) p = Neg(q) },
                    else_branch = e () => (float[N, 3] p) { p = Abs(x) }> }"""
    )
    branch = clean(model).model.graph.node[0].attribute[0].g
    assert [v.name for v in branch.value_info] == ["q"]
    assert [d.dim_param or d.dim_value for d in branch.value_info[0].type.tensor_type.shape.dim] == ["N", 3]


def test_types_of_sequences_stay():
    model = parse("g (float[N, 3] x, int64 i) => (float[N, 3] y) { s = SequenceConstruct(x, x) y = SequenceAt(s, i) }")
    model.graph.value_info.append(
        onnx.helper.make_tensor_sequence_value_info("s", onnx.TensorProto.FLOAT, ["N", 3]),
    )
    (value,) = clean(model).model.graph.value_info
    assert value.type.HasField("sequence_type")


def test_documentation_and_metadata_of_tensors_stay():
    model = with_shape(parse("g (float[N] x) => (float[N] y) { r = Relu(x) y = Neg(r) }"), "r", ["N"])
    model.graph.value_info[0].doc_string = "why"
    model.graph.value_info[0].metadata_props.add(key="from", value="layer")
    assert clean(model).model.graph.value_info == model.graph.value_info


@pytest.mark.parametrize("operator", ["Cast<to = 6>", "Neg", "Identity"])
def test_long_vectors_do_not_fill_the_memory(operator):
    """Data propagation would keep 140 bytes for each element: 14 GB here."""
    model = parse(
        f"g (int64[100000000] x) => (float y) {{ a = Abs(x) b = {operator}(a) c = Cast<to = 1>(b) y = ReduceSum(c) }}"
    )
    start = time.perf_counter()
    result = clean(model)
    assert time.perf_counter() - start < 30
    assert shapes(result.model)["c"] == [100000000]


def test_the_file_stands_when_inference_fails(monkeypatch):
    def fails(*args, **kwargs):
        raise RuntimeError("out of\n memory")

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", fails)
    model = with_shape(parse("g (float[N] x) => (float[N] y) { r = Relu(x) y = Neg(r) }"), "r", ["N"])
    result = clean(model)
    assert shapes(result.model) == {"r": ["N"]}
    assert result.notes == ("shapes were not inferred, those of the file stand: out of memory",)


def test_checker_objection_is_one_line():
    assert checker_objection(parse("g (float[N] x) => (float[N] y) { y = Relu(x) }")) is None
    objection = checker_objection(parse("g (float[N] x) => (float[N] y) { y = NoSuch(x) }"))
    assert objection == "No Op registered for NoSuch with domain_version of 17"


def test_weights_are_not_copied_for_the_checker():
    model = parse("g (float[N, 2048] x) => (float[N, 2048] y) { y = MatMul(x, w) }", {"w": np.zeros((2048, 2048), np.float32)})
    from trtnorm_cli.onnx_model.light_copy import light_copy

    assert light_copy(model).ByteSize() < 1000


def test_a_model_that_does_not_fit_together_is_no_defect_of_a_rule(tmp_path: Path) -> None:
    """The checker sees it once sizes are constants: TensorRT says what is wrong with the model."""
    text = """g (float[2, 6] x) => (float[a, b] y) {
        shape = Shape (x) rows = Slice (shape, zero, one) sizes = Concat <axis = 0> (rows, rest)
        r = Reshape (x, sizes) y = MatMul (r, w) }"""
    numbers = {"zero": np.array([0]), "one": np.array([1]), "rest": np.array([-1])}
    model = parse(text, {**numbers, "w": random(5, 4)})
    assert checker_objection(model, full_check=True) is None
    assert does_not_fit_together(model)
    api.rewrite(saved(model, tmp_path / "m.onnx"), output=tmp_path / "out.onnx")
    assert not does_not_fit_together(parse(text, {**numbers, "w": random(6, 4)}))
