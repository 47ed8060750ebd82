"""Einsums with capital letters, which ONNX allows and TensorRT does not, are given small ones of the same meaning."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import parse, random, saved
from tests.onnx_model.running import run
from trtnorm_cli import cli
from trtnorm_cli.onnx_model.clean import clean

COUNT = "Einsums given small letters"


def einsum(equation: str) -> onnx.ModelProto:
    weights = {"w": random(2, 4, 5)}
    return parse(f'g (float[2, 3, 4] x) => (float[I, J, K] y) {{ y = Einsum<equation = "{equation}">(x, w) }}', weights)


def equation(model: onnx.ModelProto) -> str:
    (node,) = (node for node in model.graph.node if node.op_type == "Einsum")
    return node.attribute[0].s.decode()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("BIJ,BJK->BIK", "bij,bjk->bik"),
        ("B I J, B J K -> B I K", "b i j, b j k -> b i k"),
        ("bIJ,bJK->bIK", "bij,bjk->bik"),
        ("bBj,bjJ->bBJ", "baj,bjc->bac"),
        ("...IJ,...JK->...IK", "...ij,...jk->...ik"),
    ],
)
def test_capital_letters_become_small_ones(before, after):
    model, x = einsum(before), random(2, 3, 4, seed=1)
    result = clean(model)
    assert equation(result.model) == after
    assert result.counts[COUNT] == 1
    np.testing.assert_array_equal(run(result.model, {"x": x})["y"], run(model, {"x": x})["y"])
    assert clean(result.model).model == result.model


@pytest.mark.parametrize("as_it_is", ["bij,bjk->bik", "bij, bjk -> bik", "bij,bjk", "BIJ,BJK", "...ij,...jk"])
def test_others_stay(as_it_is):
    result = clean(einsum(as_it_is))
    assert equation(result.model) == as_it_is
    assert COUNT not in result.counts


def test_more_axes_than_small_letters_stay():
    letters = "abcdefghijklmnopqrstuvwxyzA"
    shape = ", ".join("1" for _ in letters)
    text = f'g (float[{shape}] x) => (float[1] y) {{ y = Einsum<equation = "{letters}->A">(x) }}'
    assert equation(clean(parse(text)).model) == f"{letters}->A"


@pytest.mark.rtx
def test_tensorrt_takes_it(tmp_path, capsys):
    pytest.importorskip("tensorrt_rtx")
    path = saved(einsum("BIJ,BJK->BIK"), tmp_path / "m.onnx")
    assert cli.run(["build", str(path), "-o", str(tmp_path / "m.engine")]) == 0, capsys.readouterr().err
