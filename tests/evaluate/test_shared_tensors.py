"""Tensors in memory that two processes map."""

from __future__ import annotations

import os
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from trtnorm_cli.evaluate.shared_tensors import SharedTensors, read_there, shared_file
from trtnorm_cli.onnx_model.wire import FilePart


@pytest.fixture
def both(tmp_path):
    """The writer's side and the reader's."""
    descriptor = shared_file(str(tmp_path))
    writer, reader = SharedTensors(descriptor), SharedTensors(os.dup(descriptor))
    yield writer, reader
    writer.close()
    reader.close()


@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.int64, ml_dtypes.bfloat16, ml_dtypes.int4, ">f4"])
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 5)])
def test_what_one_side_writes_the_other_reads(both, dtype, shape):
    writer, reader = both
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    found = reader.get(writer.put(array))
    assert found.shape == shape
    np.testing.assert_array_equal(found.astype(float), array.astype(float))


def test_many_tensors_lie_beside_each_other(both):
    writer, reader = both
    arrays = [np.full(n, n, np.float32) for n in (1, 3_000_000, 7, 0, 500_000)]
    records = [writer.put(array) for array in arrays]
    for array, record in zip(arrays, records, strict=True):
        np.testing.assert_array_equal(reader.get(record), array)


def test_much_memory_is_given_back_once_little_is_needed(both):
    writer, reader = both
    first = writer.put(np.ones(20_000_000, np.float32))
    assert reader.get(first)[-1] == 1
    writer.clear()
    size = os.fstat(writer.descriptor).st_size
    assert size >= 80_000_000  # the next ones may be as large, and fresh memory costs more than what is written to it
    assert reader.get(writer.put(np.full(6_000_000, 2, np.float32)))[-1] == 2
    writer.clear()
    assert os.fstat(writer.descriptor).st_size == size
    assert reader.get(writer.put(np.arange(5)))[-1] == 4
    writer.clear()
    assert os.fstat(writer.descriptor).st_size == 0
    assert reader.get(writer.put(np.arange(5)))[-1] == 4


@pytest.mark.parametrize("offset", [0, 64, 4096, 4096 + 64, 3, 8193])
def test_a_tensor_in_a_file_is_read_there(both, tmp_path, offset):
    writer, reader = both
    array, file = np.arange(3000, dtype=np.float32).reshape(3, 1000), tmp_path / "weights"
    file.write_bytes(bytes(offset) + array.tobytes() + b"more")
    record = read_there(array, FilePart(file, offset, array.nbytes))
    found = reader.get(record)
    np.testing.assert_array_equal(found, array)
    assert found.ctypes.data % 4 == 0
    assert os.fstat(writer.descriptor).st_size == 0


def test_the_reader_may_have_another_working_folder(both, tmp_path, monkeypatch):
    (tmp_path / "weights").write_bytes(np.arange(3, dtype=np.float32).tobytes())
    monkeypatch.chdir(tmp_path)
    record = read_there(np.arange(3, dtype=np.float32), FilePart(Path("weights"), 0, 12))
    monkeypatch.chdir(tmp_path.parent)
    assert both[1].get(record).tolist() == [0, 1, 2]


def test_copies_of_a_file_lie_where_earlier_ones_did(both, tmp_path):
    """Those that are still read stay. What is too small, or much larger than what is read, is left."""
    reader, file = both[1], tmp_path / "weights"
    file.write_bytes(bytes(1) + np.arange(3000, dtype=np.float32).tobytes())

    def read(first: int, count: int) -> np.ndarray:
        array = np.arange(first, first + count, dtype=np.float32)
        return reader.get(read_there(array, FilePart(file, 1 + 4 * first, array.nbytes)))

    one, other = read(0, 1000), read(1000, 10)
    assert not np.shares_memory(one, other)
    reader.reuse_copies()
    again, further = read(500, 900), read(100, 2000)
    assert np.shares_memory(again, one)
    assert not np.shares_memory(further, other)
    np.testing.assert_array_equal(again, np.arange(500, 1400))
    np.testing.assert_array_equal(further, np.arange(100, 2100))
    reader.reuse_copies()
    assert not np.shares_memory(read(0, 5), further)
    for _ in range(20):
        reader.reuse_copies()
        read(0, 2500), read(3, 4), read(9, 700)
    reader.reuse_copies()
    assert sum(memory.nbytes for memory in reader._copies) < 30_000


@pytest.mark.parametrize("array", [np.ones(4, np.float32), np.ones(3, ">f4"), np.array(["abc"], object)])
def test_a_tensor_that_the_file_has_otherwise_is_not_read_there(tmp_path, array):
    assert read_there(array, FilePart(tmp_path / "weights", 0, 12)) is None
    assert read_there(array, None) is None


def test_strings_and_bytes(both):
    writer, reader = both
    assert reader.get(writer.put(np.array([["a", b"b"]], object))).tolist() == [["a", "b"]]
    assert reader.get(writer.put_bytes(b"model")).tobytes() == b"model"


def test_nothing_lies_in_the_folder(tmp_path, monkeypatch):
    monkeypatch.delattr(os, "memfd_create", raising=False)
    shared = SharedTensors(shared_file(str(tmp_path)))
    assert shared.get(shared.put(np.arange(4))).tolist() == [0, 1, 2, 3]
    assert list(tmp_path.iterdir()) == []
    shared.close()
