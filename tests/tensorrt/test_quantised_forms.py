"""Quantisation that TensorRT refuses, or reads as another, is refused before TensorRT, with the nodes and the choices."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import parse, saved
from trtnorm_cli.cli import run
from trtnorm_cli.errors import TensorRTRefusal
from trtnorm_cli.tensorrt.quantised_forms import require_taken_quantisation

F32 = np.float32


def quantised(zero: np.ndarray, kind: str = "uint8"):
    """Data that leave the model as integers, so that no rule can write them otherwise."""
    return parse(
        f"g (float[4] x) => ({kind}[4] y) {{ [qq] y = QuantizeLinear(x, s, z) }}", {"s": F32(0.1), "z": zero}, opset=21
    )


REFUSED = {
    "QuantizeLinear qq quantises to uint8": quantised(np.uint8(0)),
    "QuantizeLinear qq has a zero point of 3": quantised(np.int8(3), "int8"),
    "QuantizeLinear -> y quantises to uint8": parse(
        "g (float[4] x) => (uint8[4] y) { y = QuantizeLinear(x, s) }", {"s": F32(0.1)}, opset=21
    ),
    "DequantizeLinear -> y quantises to int16": parse(
        "g (int16[4] x) => (float[4] y) { y = DequantizeLinear(x, s) }", {"s": F32(0.1)}, opset=21
    ),
    "QuantizeLinear -> y has scales that are not positive": parse(
        "g (float[4] x) => (int8[4] y) { y = QuantizeLinear(x, s, z) }", {"s": F32(0), "z": np.int8(0)}, opset=21
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_refused_with_the_node_and_what_to_do(reason):
    with pytest.raises(TensorRTRefusal) as caught:
        require_taken_quantisation(REFUSED[reason], None, "m.onnx")
    assert reason in caught.value.where
    assert caught.value.exit_code == 5
    assert "quantize_static" in caught.value.hint


def test_what_tensorrt_takes_passes():
    for zero, kind in ((np.int8(0), "int8"),):
        require_taken_quantisation(quantised(zero, kind), None, "m.onnx")
    at_run_time = parse(
        "g (float[4] x) => (int8[4] y) { s = ReduceMax<keepdims=0>(x) y = QuantizeLinear(x, s, z) }", {"z": np.int8(0)}
    )
    require_taken_quantisation(at_run_time, None, "m.onnx")


@pytest.mark.rtx
def test_a_build_ends_before_tensorrt(tmp_path, capsys):
    path = saved(quantised(np.uint8(0)), tmp_path / "m.onnx")
    assert run(["build", str(path), "-o", str(tmp_path / "m.engine")]) == 5
    assert "QuantizeLinear qq quantises to uint8" in capsys.readouterr().err
    assert not (tmp_path / "m.engine").exists()


@pytest.mark.rtx
def test_unsigned_activations_are_built_as_what_they_are(tmp_path, capsys):
    """TensorRT's parser reads uint8 as int8, and so loses all above 127 steps."""
    model = parse(
        "g (float[2, 8] x) => (float[] y) { q = QuantizeLinear(x, s, z) d = DequantizeLinear(q, s, z) y = MatMul(d, w) }",
        {"s": F32(0.01), "z": np.uint8(0), "w": np.eye(8, 5, dtype=F32)},
    )
    path = saved(model, tmp_path / "m.onnx")
    assert run(["build", str(path), "-o", str(tmp_path / "m.engine")]) == 0
    assert "is computed with floats, rounded to the steps that the file has" in " ".join(capsys.readouterr().out.split())
