"""Erfc, which tf2onnx leaves in the GELU of Keras, and string attributes that are no text, which it leaves beside."""

from __future__ import annotations

import logging

import numpy as np
import onnx
import pytest

from tests.models import loaded, parse, random, saved
from trtnorm_cli.cli import run
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.onnx_model.repair import mend
from trtnorm_cli.onnx_model.surgery import open_model

GELU = """g (float[N, 8] x) => (float[N, 8] y) {
    h = Mul(x, half) n = Neg(x) s = Mul(n, root) e = Erfc(s) y = Mul(h, e)
}"""
NUMBERS = {"half": np.array(0.5, np.float32), "root": np.array(np.sqrt(0.5), np.float32)}
PLAIN = GELU.replace("e = Erfc(s)", "f = Erf(s) e = Sub(one, f)")


def test_it_is_one_minus_erf(tmp_path):
    read = loaded(parse(GELU, NUMBERS), tmp_path)
    onnx.checker.check_model(read.proto, full_check=True)
    assert not read.runs_unmended
    assert "1 nodes (e) are Erfc" in read.warnings[0]
    x = {"x": random(3, 8)}
    with OrtRunner(threads=1) as runner:
        got, wanted = (runner.run(m, x)["y"] for m in (read.proto, parse(PLAIN, NUMBERS | {"one": np.array(1, np.float32)})))
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        (GELU, NUMBERS | {"half": np.array(0.5, np.float16)}),  # of which type it is, is not known
        (GELU.replace("h = Mul(x, half)", "d = Cast<to=11>(x) h = Cast<to=1>(d)"), NUMBERS),
        (GELU.replace("Erfc(s)", "Erfc<axis=1>(s)"), NUMBERS),
        (GELU.replace("Erfc(s)", "Erfc(s, s)"), NUMBERS),
        (GELU.replace("Erfc(s)", "Erf(s)"), NUMBERS),
        (
            GELU.replace("float[N, 8] x", "float16[N, 8] x").replace("Neg(x)", "Constant<value_float=0.5>()"),
            {name: value.astype(np.float16) for name, value in NUMBERS.items()},
        ),
        (
            GELU.replace("float[N, 8] x", "double[N, 8] x").replace("Neg(x)", "ConstantOfShape(size)"),
            {"size": np.array([3, 8]), **{name: value.astype(np.float64) for name, value in NUMBERS.items()}},
        ),
    ],
    ids=["two types", "a cast", "an attribute", "two inputs", "none", "a number", "zeros"],
)
def test_others_stay_as_they_are(text, numbers):
    model = parse(text, numbers)
    before = model.SerializeToString()
    mend(model)
    assert model.SerializeToString() == before


def test_a_cast_says_its_type_and_nothing_else(tmp_path):
    text = GELU.replace("h = Mul(x, half)", "d = Cast<to=1, saturate=1>(x) h = Mul(d, half)")
    model = parse(text, NUMBERS, opset=19)
    assert len(mend(model).notes) == 1
    onnx.checker.check_model(model, full_check=True)


def test_those_of_functions_and_of_old_opsets_are_left():
    function = onnx.helper.make_function(
        "local", "G", ["a"], ["b"], [onnx.helper.make_node("Erfc", ["a"], ["b"])], [onnx.helper.make_opsetid("", 17)]
    )
    model = parse("g (float[N, 8] x) => (float[N, 8] y) { y = Relu(x) }", {})
    model.functions.append(function)
    model.opset_import.append(onnx.helper.make_opsetid("local", 1))
    model.graph.node[0].CopyFrom(onnx.helper.make_node("G", ["x"], ["y"], domain="local"))
    before = model.SerializeToString()
    assert not any("Erfc" in note for note in mend(model).notes)
    assert model.SerializeToString() == before
    old = parse(GELU, NUMBERS, opset=8)
    assert not any("Erfc" in note for note in mend(old).notes)


@pytest.mark.rtx
def test_it_is_built_and_compared(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    saved(parse(GELU.replace("[N", "[4"), NUMBERS), tmp_path / "m.onnx")
    assert run(["build", "m.onnx"]) == 0
    told = capsys.readouterr()
    assert "network:rewriting passed" in " ".join(told.out.split())
    assert "written as 1 - erf" in " ".join(told.out.split())


def test_a_string_that_is_no_text_is_kept_as_it_is():
    """A configuration of TensorFlow, or an engine in a node."""
    model = parse(GELU.replace("Erfc(s)", 'Erf<config="c">(s)').replace("Neg(x)", 'Neg<names=["a", "b"]>(x)'), NUMBERS)
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "config":
                attribute.s = b"\x07\x82\x01\xff"
            else:
                attribute.strings[:] = [b"a", b"\x82"]
    before = model.SerializeToString()
    surgery = open_model(model, None)
    assert model.SerializeToString() == before
    assert [node.SerializeToString() for node in surgery.close().graph.node] == [
        node.SerializeToString() for node in model.graph.node
    ]


@pytest.mark.rtx
def test_a_node_of_tensorflow_is_refused_by_tensorrt_and_no_defect(tmp_path, monkeypatch, capsys, caplog):
    monkeypatch.chdir(tmp_path)
    model = parse(GELU.replace("[N", "[4").replace("Erfc(s)", 'StatefulPartitionedCall<config="c">(s)'), NUMBERS)
    next(a for node in model.graph.node for a in node.attribute).s = b"\x07\x82\x01\xff"
    untyped = model.graph.value_info.add(name="e")
    untyped.type.tensor_type.shape.dim.add().dim_value = 4
    saved(model, tmp_path / "m.onnx")
    with caplog.at_level(logging.WARNING):
        assert run(["build", "m.onnx"]) == 5
    assert "TensorRT knows no operator and no plugin of this name" in " ".join(capsys.readouterr().err.split())
    assert not [record for record in caplog.records if record.name.startswith("onnx_ir")]
