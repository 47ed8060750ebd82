"""The types of a built engine against those of the model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, parse, random
from tests.tensorrt.builds import built
from trtnorm_cli.errors import TensorRTRefusal
from trtnorm_cli.records.engine_parts import NetworkTensor
from trtnorm_cli.tensorrt.typed import require_types

GRAPH = (
    "g ({0}[2, 2, 7, 7] x) => ({0}[2, 4, 3, 3] y) {{ [conv] c = Conv(x, w) b = BatchNormalization(c, gamma, beta, mu, var) "
    "[add] d = Add(b, k) [up] u = ConvTranspose(d, t) [last] y = Conv <strides=[2, 2]> (u, w2) }}"
)


def model(dtype="float", numpy_type=np.float32):
    weights = {"w": random(4, 2, 3, 3), "k": random(4, 1, 1), "t": random(4, 4, 3, 3), "w2": random(4, 4, 3, 3)}
    return parse(GRAPH.format(dtype), {k: v.astype(numpy_type) for k, v in (weights | batchnorm(4)).items()})


@pytest.fixture(scope="module")
def half(tmp_path_factory):
    made = model("float16", np.float16)
    return made, built(made, tmp_path_factory.mktemp("half"))


@pytest.mark.rtx
@pytest.mark.parametrize(("dtype", "numpy_type"), [("float", np.float32), ("float16", np.float16)])
def test_tensorrt_follows_the_file(tmp_path, dtype, numpy_type):
    made = model(dtype, numpy_type)
    result = built(made, tmp_path)
    require_types(made, result)
    name = "FLOAT" if dtype == "float" else "HALF"
    held = {layer.name: layer.weights for layer in result.layers if layer.weights is not None}
    assert held == {
        "conv": name,
        "up": name,
        "last": name,
    }


@pytest.mark.rtx
def test_bfloat16_weights_are_read(tmp_path):
    import ml_dtypes

    weight = random(4, 2, 3, 3).astype(ml_dtypes.bfloat16)
    made = parse("g (bfloat16[2, 2, 7, 7] x) => (bfloat16[] y) { [conv] y = Conv(x, w) }", {"w": weight})
    result = built(made, tmp_path)
    assert [layer.weights for layer in result.layers if layer.name == "conv"] == ["BF16"]
    require_types(made, result)


@pytest.mark.rtx
def test_a_name_that_is_used_again_in_a_branch(tmp_path):
    """It says nothing of the type of either."""
    made = parse(
        "g (float16[2, 4] x, bool c) => (float[2, 4] y) { a = Add(x, w) f = Cast <to=1> (a) y = If (c) <then_branch = t () => "
        "(float[2, 4] p) { p = Mul(f, k) }, else_branch = e () => (float[2, 4] q) { q = Neg(f) }> }",
        {"w": random(4).astype(np.float16)},
    )
    branch = made.graph.node[2].attribute[0].g
    branch.initializer.append(onnx.numpy_helper.from_array(random(4), "w"))
    branch.node[0].input[1] = "w"
    require_types(made, built(made, tmp_path))


def changed(result, name, **values):
    return tuple(replace(layer, **values) if layer.name == name else layer for layer in result.layers)


@pytest.mark.rtx
@pytest.mark.parametrize(("change", "fault"), [
    (lambda r: {"inputs": (replace(r.inputs[0], dtype="FLOAT"),)}, "input x: HALF in the model, FLOAT in the network"),
    (lambda r: {"outputs": (replace(r.outputs[0], dtype="FLOAT"),)}, "output y: HALF in the model, FLOAT in the network"),
    (lambda r: {"bindings": tuple(replace(b, dtype="FLOAT") for b in r.bindings if b.mode == "output")},
     "output y: HALF in the model, FLOAT in the engine"),
    (lambda r: {"layers": changed(r, "up", weights="FLOAT")}, "weights of up: HALF in the model, FLOAT in the network"),
    (lambda r: {"layers": changed(r, "k", outputs=(NetworkTensor("k_output", "FLOAT", None),))},
     "weight k: HALF in the model, FLOAT in the network"),
])  # fmt: skip
def test_a_difference_is_an_error(half, change, fault):
    made, result = half
    require_types(made, result)
    with pytest.raises(TensorRTRefusal) as caught:
        require_types(made, replace(result, **change(result)))
    assert caught.value.exit_code == 5
    assert caught.value.where == fault
