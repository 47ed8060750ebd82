"""Files that are half already: what is broken in them is no reference for another precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import parse, random, saved
from tests.pipeline.runs import build, manifest_of

pytestmark = pytest.mark.rtx


def broken() -> onnx.ModelProto:
    """Squares beyond half precision, which the file computes in it."""
    weights = {"v": np.float16(random(16, 16) * 200), "two": np.float16([2.0]), "axes": np.int64([-1])}
    return parse(
        "g (float16[N, 16] x) => (float16[N, 16] y) { [first] p = MatMul(x, v) [square] s = Pow(p, two)"
        "[mean] m = ReduceMean(s, axes) [root] r = Sqrt(m) [norm] y = Div(p, r) }",
        weights,
        opset=18,
    )


@pytest.mark.parametrize("precision", ["fp16", "fp32"])
def test_a_broken_half_file_is_mended(work: Path, precision: str) -> None:
    saved(broken(), work / "m.onnx")
    (work / "cfg.yaml").write_text("dims: {N: {min: 1, opt: 2, max: 4}}\n")
    assert build("m.onnx", "--precision", precision, "-o", "m.engine") == 0
    manifest = manifest_of(work / "m.engine")
    types = {layer["outputs"][0]["dtype"] for layer in manifest["network"]["layers"] if layer["type"] in ("REDUCE", "UNARY")}
    assert types == {"FLOAT"}
    assert [binding["dtype"] for binding in manifest["engine"]["bindings"]] == ["HALF", "HALF"]
