"""Values that wait for being written in a file, and not in memory."""

from __future__ import annotations

import errno
import gc
import os
import sys
import time
from pathlib import Path

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
from trtnorm_cli.onnx_model.shelf import Shelf, others_see
from trtnorm_cli.onnx_model.stored import file_part, is_own_reference, tensor_array
from trtnorm_cli.onnx_model.surgery import Surgery, open_model

LARGE = random(128, 512)
# Written in a thread of its own.
HUGE = random(1024, 512)


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


def written(surgery: Surgery, closed: onnx.ModelProto, folder: Path) -> tuple[Path, np.ndarray]:
    """The file of weights of the saved model, and its weight as it is read from there."""
    folder.mkdir()
    _, data = sorted(save_model(closed, folder / "m.onnx", external_from=0))
    assert surgery.shelf is not None
    return data, numpy_helper.to_array(onnx.load(str(folder / "m.onnx")).graph.initializer[0])


def inode(tensor: onnx.TensorProto) -> int:
    """That of the file on the shelf."""
    return file_part(tensor, None).file.stat().st_ino


def test_its_file_becomes_that_of_the_weights_once(tmp_path):
    surgery, closed = with_new_weight(LARGE)
    first, value = written(surgery, closed, tmp_path / "first")
    second, again = written(surgery, closed, tmp_path / "second")
    assert first.stat().st_ino == inode(closed.graph.initializer[0]) != second.stat().st_ino
    for found in (value, again, tensor_array(closed.graph.initializer[0])):
        np.testing.assert_array_equal(found, LARGE)


def test_values_behind_those_of_a_written_file_are_not_put_into_it(tmp_path):
    surgery, closed = with_new_weight(LARGE)
    data, _ = written(surgery, closed, tmp_path / "first")
    before = data.read_bytes()
    later = surgery.shelf.put(-LARGE, "later")
    assert data.read_bytes() == before
    np.testing.assert_array_equal(tensor_array(later.tensor), -LARGE)


def test_a_file_of_weights_has_the_mode_of_a_new_file(tmp_path):
    surgery, closed = with_new_weight(LARGE)
    (tmp_path / "new").touch()
    assert written(surgery, closed, tmp_path / "first")[0].stat().st_mode == (tmp_path / "new").stat().st_mode


def test_a_shelf_with_values_that_nobody_needs_is_copied_from(tmp_path):
    surgery, closed = with_new_weight(LARGE)
    surgery.shelf.put(LARGE, "unused")
    data, value = written(surgery, closed, tmp_path / "first")
    assert data.stat().st_ino != inode(closed.graph.initializer[0])
    assert data.stat().st_size == LARGE.nbytes
    np.testing.assert_array_equal(value, LARGE)


@pytest.mark.parametrize("reason", [errno.EXDEV, errno.ENOENT, errno.EPERM, errno.ENOSYS])
def test_a_shelf_on_another_disk_is_copied_from(tmp_path, monkeypatch, reason):
    def fails(*args, **further):
        raise OSError(reason, os.strerror(reason))

    surgery, closed = with_new_weight(LARGE)
    monkeypatch.setattr(os, "link", fails)
    data, value = written(surgery, closed, tmp_path / "first")
    assert data.stat().st_ino != inode(closed.graph.initializer[0])
    np.testing.assert_array_equal(value, LARGE)


def test_a_shelf_is_where_the_result_will_be(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(os, "open", lambda path, *args, own=os.open: asked.append(path) or own(path, *args))
    with shelves.shelves_in(tmp_path):
        with_new_weight(LARGE)
    assert asked[0] == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_without_nameless_files_in_the_folder_it_is_among_temporary_ones(tmp_path):
    with shelves.shelves_in(tmp_path / "not-there"):
        surgery, closed = with_new_weight(LARGE)
    data, value = written(surgery, closed, tmp_path / "first")
    assert data.stat().st_ino != inode(closed.graph.initializer[0])
    np.testing.assert_array_equal(value, LARGE)


def test_a_value_that_was_begun_is_what_is_taken():
    shelf = Shelf()
    begun = shelf.begin(HUGE, "w")
    kept = begun.result()
    np.testing.assert_array_equal(tensor_array(kept.tensor), HUGE)
    seen = others_see(begun.part)
    assert seen.file == Path(f"/proc/{os.getpid()}/fd") / begun.part.file.name
    assert seen.file.read_bytes()[seen.offset : seen.offset + seen.length] == HUGE.tobytes()
    assert shelf.begin(LARGE, "small") is None


def test_the_place_of_a_value_that_is_taken_back_is_free_again():
    shelf = Shelf()
    first, second = shelf.begin(HUGE, "first"), shelf.begin(-HUGE, "second")
    second.take_back()
    third = shelf.begin(2 * HUGE, "third")
    assert third.part == second.part
    first.take_back()  # another lies behind it
    for begun, value in ((first, HUGE), (third, 2 * HUGE)):
        np.testing.assert_array_equal(tensor_array(begun.result().tensor), value)


def test_a_value_that_was_begun_stays_in_memory_where_there_is_no_room(monkeypatch):
    def full(*args):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    begun = Shelf().begin(HUGE, "w")
    assert begun.result() is None
    surgery = open_model(parse("g (float[N, 128] x) => (float[N, 512] y) { y = Relu(x) }"), None)
    surgery.begin_constants({"w": HUGE})
    assert surgery.begun_place("w") is None
    assert surgery.new_constant("w", HUGE)._values is HUGE


def asked_to_store(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Offset and length of what the disk was asked to begin with, for two large values and a small one on a shelf."""
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(shelves, "_beginning_to_store", lambda: lambda file, at, length, flag: asked.append((at, length)))
    shelf = Shelf()
    kept = [shelf.put(LARGE, "small"), shelf.put(HUGE, "put"), shelf.begin(HUGE, "begun").result()]
    parts = [file_part(values.tensor, None) for values in kept[1:]]
    until = time.monotonic() + 5
    while shelf._is_of_result and len(asked) < 2 and time.monotonic() < until:
        time.sleep(0.01)
    assert asked in ([], [(part.offset, part.length) for part in parts])
    return asked


def test_the_disk_begins_with_large_values_of_the_result(tmp_path, monkeypatch):
    with shelves.shelves_in(tmp_path, of_result=True):
        assert len(asked_to_store(monkeypatch)) == 2


def test_the_disk_does_not_begin_with_what_cannot_be_the_result(tmp_path, monkeypatch):
    assert asked_to_store(monkeypatch) == []
    with shelves.shelves_in(tmp_path):
        assert asked_to_store(monkeypatch) == []
    with shelves.shelves_in(tmp_path / "not-there", of_result=True):
        assert asked_to_store(monkeypatch) == []


def test_a_system_without_a_call_for_that_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(shelves, "_beginning_to_store", lambda: None)
    with shelves.shelves_in(tmp_path, of_result=True):
        shelf = Shelf()
        kept = shelf.begin(HUGE, "w").result()
    np.testing.assert_array_equal(tensor_array(kept.tensor), HUGE)


@pytest.mark.skipif(sys.platform != "linux", reason="a call of Linux")
def test_linux_has_the_call(tmp_path):
    with (tmp_path / "file").open("wb") as stream:
        stream.write(HUGE.tobytes())
        stream.flush()
        assert shelves._beginning_to_store()(stream.fileno(), 0, HUGE.nbytes, shelves._SYNC_FILE_RANGE_WRITE) == 0
