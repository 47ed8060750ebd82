"""Operators without a rule, of which ONNX infers the sizes: what goes in, and what comes out."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import parse
from tests.shapes.runs import ints
from trtnorm_cli.shapes.propagate import propagate

HEAD = "g (float[N, 4, H, 2] x, int64[N, 3] i)"
CASES = {
    "an input that is left out": ("y = DFT(x, , at2)", 20, "(N, 4, H, 2)"),
    "a length that stands in the file": ("y = DFT(x, eight, at2)", 20, "(N, 4, 8, 2)"),
    "two of one size": ("s = Relu(x) y = Einsum<equation='...'>(x)", 20, "None"),
    "a size of no name": ("n = NonZero(i) y = Unique<axis=0>(n)", 20, "(None, None)"),
    "an input of unknown type": ("t = mine.thing(x) y = DFT(t, , at2)", 20, "None"),
    "an input of unknown rank": ("t = Squeeze(x, i) y = DFT(t, , at2)", 20, "None"),
    "a number that stands in the file": ("y = HannWindow(two)", 20, "(2,)"),
    "sizes of 32 bits": ("y = CenterCropPad<axes=[1, 2]>(x, narrow)", 20, "(N, 3, 5, 2)"),
    "what ONNX finds wrong": ("y = DFT(x, , at9)", 20, "None"),
    "an operator of a later opset": ("y = RMSNormalization2(x)", 20, "None"),
    "a domain without a version": ("y = other.thing(x)", 20, "None"),
    "positions on a grid": ("y = Col2Im(x, sides, sides)", 18, "None"),
}
K = {"at2": np.array(2), "at9": np.array(9), "eight": np.array(8), "two": np.array(2), "sides": ints(2, 2)}
K["narrow"] = np.array([3, 5], np.int32)


@pytest.mark.parametrize(("body", "opset", "shape"), CASES.values(), ids=CASES)
def test_what_onnx_infers_is_known(body, opset, shape):
    used = {name: value for name, value in K.items() if f", {name}" in body or f"({name})" in body}
    model = parse(f"{HEAD} => (float[?] y) {{ {body} }}".replace("'", '"'), used, opset=opset)
    model.opset_import.add(domain="mine", version=1)
    found = propagate(model)
    assert str(found.tensors["y"].shape) == shape
    assert found.constraints == []


def test_a_sequence_that_onnx_makes_is_unknown():
    model = parse("g (float[N] x) => (seq(float[N]) y) { y = SequenceEmpty() }")
    assert propagate(model).tensors["y"].shape is None
