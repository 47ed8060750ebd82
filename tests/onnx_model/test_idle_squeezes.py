"""Squeezes of axes that are longer than 1, as PyTorch's dynamo exporter writes them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from tests.models import loaded, parse, random
from trtnorm_cli.cli import run
from trtnorm_cli.onnx_model.repair import mend

GRAPH = "g (float[N, 1, 6, 8] x) => (float[N, MADE] y) {{ a = Relu(x) b = Squeeze(a, axes) y = Relu(b) }}"
STATED = {"a": ["N", 1, 6, 8], "b": ["N", 6, 8]}


def model(axes: list[int], stated: dict[str, list[str | int]], opset: int = 17) -> onnx.ModelProto:
    made = parse(GRAPH.format().replace("MADE", "6, 8"), {"axes": np.array(axes)}, opset=opset)
    for name, shape in stated.items():
        made.graph.value_info.append(onnx.helper.make_tensor_value_info(name, 1, shape))
    return made


@pytest.mark.parametrize("axes", [[1, 2], [-3, -1], [2, 1, 3]])
def test_axes_that_the_shapes_of_the_file_keep_are_kept(tmp_path, axes):
    read = loaded(model(axes, STATED), tmp_path)
    onnx.checker.check_model(read.proto, full_check=True)
    assert not read.runs_unmended
    assert "1 Squeezes (b) take away axes that are longer than 1" in read.warnings[0]
    left = next(onnx.numpy_helper.to_array(t) for t in read.proto.graph.initializer if t.name == "axes_kept")
    assert left.tolist() in ([1], [-3])


def test_a_squeeze_that_takes_nothing_away_is_an_identity(tmp_path):
    made = parse("g (float[N, 6] x) => (float[N, 6] y) { y = Squeeze<axes = [1]>(x) }", opset=11)
    read = loaded(made, tmp_path)
    assert [node.op_type for node in read.proto.graph.node] == ["Identity"]


@pytest.mark.parametrize(
    ("axes", "stated"),
    [
        ([1], STATED),  # sound
        ([1, 2], {"a": ["N", 1, 6, 8], "b": ["N", 8]}),  # the file says that it goes
        ([1, 2], {"a": ["N", 1, "H", 8], "b": ["N", 8]}),  # it may be 1 long
        ([1, 2], {"b": ["N", 6, 8]}),  # nothing is known of it
        ([1, 7], STATED),
    ],
)
def test_others_stay_as_they_are(axes, stated):
    made = model(axes, stated)
    before = made.SerializeToString()
    mend(made)
    assert made.SerializeToString() == before


@pytest.mark.rtx
def test_it_is_built_and_compared(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = parse(
        "g (float[N, 4, 8] x) => (float[N, 4, 8] y) { n = LayerNormalization(x, s) q = Squeeze(n, axes) y = Mul(q, w) }",
        {"s": random(8), "w": random(8), "axes": np.array([1])},
    )
    for name in "nq":
        made.graph.value_info.append(onnx.helper.make_tensor_value_info(name, 1, ["N", 4, 8]))
    onnx.save(made, "m.onnx")
    (tmp_path / "p.yaml").write_text("dims: {N: {min: 1, opt: 2, max: 3}}\n")
    assert run(["build", "m.onnx", "-p", "p.yaml", "--require-compare"]) == 0
