"""Tensors in memory that two processes map."""

from __future__ import annotations

import os

import ml_dtypes
import numpy as np
import pytest

from trtnorm_cli.evaluate.shared_tensors import SharedTensors, shared_file


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
