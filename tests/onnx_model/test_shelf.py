"""Values that wait for being written in a file, and not in memory."""

from __future__ import annotations

import gc
import os

import ml_dtypes
import numpy as np
import onnx
import onnx_graphsurgeon as gs
import pytest
from onnx import numpy_helper

from tests.models import parse, random
from trtnorm_cli.errors import ModelError
from trtnorm_cli.onnx_model import shelf as shelves
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.onnx_model.shelf import Shelf
from trtnorm_cli.onnx_model.stored import is_own_reference, tensor_array
from trtnorm_cli.onnx_model.surgery import Surgery, open_model

LARGE = random(128, 512)


def with_new_weight(value: np.ndarray) -> tuple[Surgery, onnx.ModelProto]:
    """A model whose Relu was replaced by a product with ``value``."""
    surgery = open_model(parse("g (float[N, 128] x) => (float[N, 512] y) { y = Relu(x) }"), None)
    relu = surgery.graph.nodes[0]
    constant, output = surgery.new_constant("w", value), relu.outputs[0]
    node = gs.Node("MatMul", "product", {}, [relu.inputs[0], constant], [])
    relu.outputs.clear()
    node.outputs.append(output)
    surgery.graph.nodes[:] = [node]
    np.testing.assert_array_equal(surgery.constant(constant), value)
    return surgery, surgery.close()


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64, np.int64, np.bool_, ml_dtypes.bfloat16])
def test_what_is_put_on_it_is_what_is_taken(dtype):
    shelf = Shelf()
    values = [LARGE.astype(dtype), LARGE.T.astype(dtype), LARGE[:, ::-1].astype(dtype)]
    for number, value in enumerate(values):
        kept = shelf.put(value, f"v{number}")
        assert tuple(kept.shape) == value.shape
        found = tensor_array(kept.tensor)
        assert found.dtype == value.dtype
        assert found.tobytes() == np.ascontiguousarray(value).tobytes()


def test_a_large_constant_is_on_the_shelf_until_it_is_written(tmp_path):
    surgery, closed = with_new_weight(LARGE)
    assert is_own_reference(closed.graph.initializer[0])
    save_model(closed, tmp_path / "m.onnx")
    assert surgery.shelf is not None
    np.testing.assert_array_equal(numpy_helper.to_array(onnx.load(str(tmp_path / "m.onnx")).graph.initializer[0]), LARGE)


def test_a_small_constant_stays_in_memory():
    _, closed = with_new_weight(LARGE[:, :2])
    assert closed.graph.initializer[0].raw_data == LARGE[:, :2].tobytes()


@pytest.mark.parametrize("missing", ["the list of open files", "room"])
def test_without_a_place_it_stays_in_memory(tmp_path, monkeypatch, missing):
    def full(*args):
        raise OSError(28, "No space left on device")

    if missing == "room":
        monkeypatch.setattr(os, "pwrite", full)
    else:
        monkeypatch.setattr(shelves, "_OPEN_FILES", tmp_path / "nothing")
    _, closed = with_new_weight(LARGE)
    assert closed.graph.initializer[0].raw_data == LARGE.tobytes()


def test_the_file_goes_with_the_shelf(tmp_path, monkeypatch):
    monkeypatch.setattr(shelves.tempfile, "tempdir", str(tmp_path))
    shelf = Shelf()
    tensor = shelf.put(LARGE, "w").tensor
    assert list(tmp_path.iterdir()) == []
    del shelf
    gc.collect()
    with pytest.raises(ModelError, match="cannot be read"):
        tensor_array(tensor)
