"""The list of compiled layers, as TensorRT for RTX 1.7 writes it."""

from __future__ import annotations

import pytest

from trtnorm_cli.records.engine_parts import launched
from trtnorm_cli.tensorrt.layer_table import is_layer_table, read_layer_table

LINEAR = "(Linear) Row major linear format"
NHWC = "(NHWC) Channel major format"


def tensor(name: str, shape: str, dtype: str = "Float", layout: str = LINEAR) -> str:
    return f"{{ Name: {name}, Dimensions: [{shape}], Strides: [1], StrideOrder: [0], Datatype: {dtype}, Format: {layout} }}"


def line(name: str, kind: str, inputs: str, outputs: str, constants: str = "", rest: str = ", Metadata: ") -> str:
    return (
        f"Name: {name}, LayerType: {kind}, Inputs: [ {inputs}], Constants: [{constants}], Outputs: [ {outputs}], "
        f"TacticName: __myl_Move_0x27, StreamId: 0{rest}"
    )


def as_json(message: str) -> list[dict]:
    return [layer.to_json() for layer in read_layer_table(message)]


def table(*lines: str) -> str:
    return (
        "Layers:\n"
        + "\n".join(lines)
        + "\n\nI/O Tensors:\n Name: x, IOMode: Input\n\nEngine Metadata:\n Multi-Device: Disabled"
    )


CONV = line(
    "conv1_myl0_1", "correlation", tensor("x", "2,2,7,7", "Half", NHWC), tensor("y", "2,4,5,5", "Half"),
    f" {tensor('w', '4,2,3,3')}, {tensor('b', '1')}", ", Metadata: [ONNX Layer: conv1]\x1f[ONNX Layer: bn1]",
)  # fmt: skip


def test_the_message_is_recognised():
    assert is_layer_table(table(CONV))
    for other in ("Layers: 3", "Total Layers:\n", "", "Layer:\n"):
        assert not is_layer_table(other)


def test_a_layer():
    (layer,) = as_json(table(CONV))
    assert layer == {
        "name": "conv1_myl0_1",
        "type": "correlation",
        "tactic": "__myl_Move_0x27",
        "inputs": [{"name": "x", "shape": [2, 2, 7, 7], "dtype": "Half", "format": "NHWC"}],
        "outputs": [{"name": "y", "shape": [2, 4, 5, 5], "dtype": "Half", "format": "Linear"}],
        "onnx_nodes": ["conv1", "bn1"],
        "constants": [
            {"name": "w", "shape": [4, 2, 3, 3], "dtype": "Float", "format": "Linear"},
            {"name": "b", "shape": [1], "dtype": "Float", "format": "Linear"},
        ],
    }


def test_layers_without_inputs_scalars_and_dynamic_sizes():
    signal = line("sig", "signal", "", "", rest=", EventId: 3, Metadata: ")
    several = line("many", "kgen", f"{tensor('a', '')}, {tensor('b', '-1,3')}", tensor("c", "0"), rest="")
    found = as_json(table(signal, several))
    assert (found[0]["inputs"], found[0]["outputs"], found[0]["onnx_nodes"]) == ([], [], [])
    assert [t["shape"] for t in found[1]["inputs"]] == [[], [-1, 3]]
    assert found[1]["outputs"][0]["shape"] == [0]


@pytest.mark.parametrize("name", ["/layer1/layer1.0/Add_output_0", "getitem[3]", "a, b", "onnx::Conv_12", "名前", "x: {1}"])
def test_names_as_exporters_write_them(name):
    (layer,) = as_json(table(line(name, "kgen", tensor(name, "1"), tensor(name, "1"))))
    assert layer["name"] == name
    assert [t["name"] for t in layer["inputs"] + layer["outputs"]] == [name, name]


def test_a_line_of_another_form_is_kept():
    odd = "Name: something, in another release"
    assert as_json(table(CONV, odd))[1] == {"unread": odd}


def test_what_launches_nothing_is_not_counted():
    kinds = ["signal", "wait", "shape_call", "kgen", "correlation", "runtime_fusion"]
    layers = read_layer_table(table(*(line(f"l{i}", kind, "", "") for i, kind in enumerate(kinds)), "Name: odd"))
    assert [layer.type for layer in launched(layers)] == ["kgen", "correlation", "runtime_fusion", "unread"]


def test_the_form_of_older_releases():
    """Before 1.7, type and layout are one entry, and constants are not listed."""
    (layer,) = as_json(
        "Layers:\nName: c_U0, LayerType: correlation, Inputs: [ { Name: x, Dimensions: [-1,2], Format/Datatype: Float }, { "
        "Name: z, Dimensions: [2], Format/Datatype: Half }], Outputs: [ { Name: y, Dimensions: [], Format/Datatype: Float }], "
        "TacticName: t, StreamId: 0, Metadata: [ONNX Layer: c]\x1f[ONNX Layer: d]"
    )
    assert [(t["name"], t["shape"], t["dtype"], t["format"]) for t in layer["inputs"]] == [
        ("x", [-1, 2], "Float", ""), ("z", [2], "Half", "")
    ]  # fmt: skip
    assert (layer["outputs"][0]["shape"], layer["onnx_nodes"]) == ([], ["c", "d"])
