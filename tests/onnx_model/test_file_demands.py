"""Demands that every file must keep to before anybody works with it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.models import parse, saved
from trtnorm_cli.errors import ModelError
from trtnorm_cli.limits import MOST_NODES, NODES_VARIABLE
from trtnorm_cli.onnx_model.load import load_model

GRAPH = "g (float[1, 4] x) => (float[1, 4] y) { [node] t = Add(x, weight) y = Relu(t) }"


def model() -> onnx.ModelProto:
    return parse(GRAPH, {"weight": np.ones(4, np.float32)})


def refusal(broken: onnx.ModelProto, folder: Path) -> str:
    with pytest.raises(ModelError) as caught:
        load_model(saved(broken, folder / "m.onnx"))
    return f"{caught.value.where}: {caught.value.summary}"


@pytest.mark.parametrize("name", [b"node", b"weight", b"Relu"], ids=["node", "tensor", "operator"])
def test_a_name_that_is_no_text(tmp_path, name):
    content = model().SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(content.replace(name, b"\xff" * len(name)))
    with pytest.raises(ModelError, match="is not UTF-8"):
        load_model(path)


def test_types_that_onnx_does_not_know(tmp_path):
    for edit in (
        lambda m: m.graph.input[0].type.tensor_type.__setattr__("elem_type", 999),
        lambda m: m.graph.output[0].type.tensor_type.__setattr__("elem_type", 999),
        lambda m: m.graph.initializer[0].__setattr__("data_type", 999),
    ):
        broken = model()
        edit(broken)
        assert "is of type 999, which this version of ONNX does not know" in refusal(broken, tmp_path)


@pytest.mark.parametrize(("operator", "attribute"), [("Cast", "to"), ("EyeLike", "dtype")])
@pytest.mark.parametrize("inside", [False, True], ids=["in the graph", "in a branch"])
def test_a_node_that_names_a_type_that_onnx_does_not_know(tmp_path, operator, attribute, inside):
    def named(number: int) -> onnx.ModelProto:
        node = helper.make_node(operator, ["x"], ["y"], name="n", **{attribute: number})
        if inside:
            y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
            branch = helper.make_graph([node], "branch", [], [y])
            node = helper.make_node("If", ["c"], ["z"], then_branch=branch, else_branch=branch)
        ends = ([helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2])], [helper.make_tensor_value_info(
            "z" if inside else "y", TensorProto.FLOAT, None)])  # fmt: skip
        held = [helper.make_tensor("c", TensorProto.BOOL, [], [True])] if inside else []
        return helper.make_model(helper.make_graph([node], "g", *ends, held), opset_imports=[helper.make_opsetid("", 17)])

    said = refusal(named(999), tmp_path)
    assert f"node n: the {operator} is not valid: {attribute} is the type 999, which this version of ONNX does not know" in said
    load_model(saved(named(TensorProto.FLOAT16), tmp_path / "known.onnx"))


def test_more_axes_than_arrays_have(tmp_path):
    broken = model()
    broken.graph.initializer[0].dims[:] = [1] * 99 + [4]
    assert "tensor weight: the tensor has 100 axes" in refusal(broken, tmp_path)
    broken = model()
    broken.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.FLOAT, [1] * 101))
    assert "tensor x: the tensor has 101 axes" in refusal(broken, tmp_path)


def calling(count: int, calls: list[list[int]]) -> onnx.ModelProto:
    """Functions of which each calls those of its list, the last one called by the graph."""
    made = parse("g (float[1, 4] x) => (float[1, 4] y) { y = Relu(x) }")
    made.graph.node[0].CopyFrom(helper.make_node(f"F{count - 1}", ["x"], ["y"], domain="d"))
    made.opset_import.append(helper.make_opsetid("d", 1))
    for number, called in enumerate(calls):
        names = ["a", *(f"t{i}" for i in range(len(called) - 1)), "r"]
        body = [helper.make_node(f"F{n}", [names[i]], [names[i + 1]], domain="d") for i, n in enumerate(called)]
        body = body or [helper.make_node("Relu", ["a"], ["r"])]
        made.functions.append(helper.make_function("d", f"F{number}", ["a"], ["r"], body, list(made.opset_import)))
    return made


def test_functions_that_come_to_more_nodes_than_there_are_atoms(tmp_path):
    doubling = calling(300, [[], *([n, n] for n in range(299))])
    assert "nodes, its functions written out; more than 250,000 are not read" in refusal(doubling, tmp_path)


@pytest.mark.parametrize("calls", [[[0]], [[1], [0]], [[2], [0], [1]]], ids=["itself", "each other", "in a ring of three"])
def test_functions_without_an_end(tmp_path, calls):
    assert "calls itself" in refusal(calling(len(calls), calls), tmp_path)


def test_functions_that_many_call_are_no_circle(tmp_path):
    load_model(saved(calling(4, [[], [0, 0], [0, 1], [2, 1, 0]]), tmp_path / "m.onnx"))


def test_functions_are_nested_deeper_than_python_goes(tmp_path):
    assert "depth exceeds limit" in refusal(calling(3000, [[], *([n] for n in range(2999))]), tmp_path)  # of the checker


def test_the_number_of_nodes_has_a_limit_that_can_be_raised(tmp_path, monkeypatch):
    assert MOST_NODES >= 200_000  # twice the largest exports
    monkeypatch.setenv(NODES_VARIABLE, "1")
    assert "the model has 1 inputs or outputs; more than 0 are not read" in refusal(model(), tmp_path)
    monkeypatch.setenv(NODES_VARIABLE, "100")
    load_model(saved(model(), tmp_path / "m.onnx"))
    long = model()
    long.graph.node.extend(helper.make_node("Relu", ["x"], [f"u{i}"]) for i in range(99))
    assert "the model has 101 nodes; more than 100 are not read" in refusal(long, tmp_path)


def test_loops_need_a_body_that_fits(tmp_path):
    for operator, attributes in (("Loop", {}), ("Scan", {"num_scan_inputs": 1}), ("Scan", {"num_scan_inputs": -5})):
        broken = model()
        node = helper.make_node(operator, ["", "", "x"][-3 if operator == "Loop" else -1 :], ["z"], name="bad", **attributes)
        node.attribute.append(helper.make_attribute("body", onnx.GraphProto(name="b")))
        broken.graph.node.append(node)
        assert f"node bad: the {operator} is not valid: its body does not have" in refusal(broken, tmp_path)


def test_attributes_of_functions_stand_in_functions(tmp_path):
    broken = model()
    broken.graph.node[1].attribute.add(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="outer")
    assert "it takes an attribute of a function, and stands in none" in refusal(broken, tmp_path)


@pytest.mark.parametrize(
    "attribute", [{"value_string": "abc"}, {"value": helper.make_tensor("", TensorProto.STRING, [1], ["a"])}]
)
def test_parameters_that_are_texts(tmp_path, attribute):
    broken = parse("g (float[1, 4, 2] x) => (float[1, 4, 2] y) { [norm] y = InstanceNormalization(x, s, s) }")
    broken.graph.node.insert(0, helper.make_node("Constant", [], ["s"], **attribute))
    assert "node norm: the InstanceNormalization is not valid: it reads texts" in refusal(broken, tmp_path)


def test_graphs_in_graphs_deeper_than_python_goes(tmp_path):
    content = b""
    for _ in range(3000):
        for key in (6, 5, 1):  # graph, attribute, node
            length, size = bytearray(), len(content)
            while size > 0x7F:
                length.append(size & 0x7F | 0x80)
                size >>= 7
            content = bytes([key << 3 | 2, *length, size]) + content
    (tmp_path / "m.onnx").write_bytes(content.replace(content[:1], b"\x3a", 1))
    with pytest.raises(ModelError, match="not an ONNX model"):
        load_model(tmp_path / "m.onnx")


def test_links_in_a_circle(tmp_path):
    broken = model()
    tensor: TensorProto = broken.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="loop")
    (tmp_path / "loop").symlink_to("loop")
    assert "the external data" in refusal(broken, tmp_path)


def test_a_hole_in_the_place_of_a_model_is_not_read(tmp_path):
    path = tmp_path / "m.onnx"
    with path.open("wb") as stream:
        stream.truncate(3 << 30)
    with pytest.raises(ModelError, match="not an ONNX model"):
        load_model(path)
