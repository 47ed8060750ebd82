"""Where an address of this process lies in the files that it has mapped."""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np
import pytest

from tests.models import parse, random, saved
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.tensorrt.network import mappings, places
from trtnorm_cli.tensorrt.network.mappings import Mappings
from trtnorm_cli.tensorrt.network.places import Places

PAGE = mmap.PAGESIZE


def mapped(path: Path, offset: int = 0, access: int = mmap.ACCESS_READ) -> np.ndarray:
    with path.open("r+b") as stream:
        return np.frombuffer(mmap.mmap(stream.fileno(), 0, access=access, offset=offset), np.uint8)


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights with a blank"
    path.write_bytes(os.urandom(3 * PAGE))
    return path


@pytest.mark.parametrize(("offset", "begin"), [(0, 0), (0, 5), (PAGE, 0), (PAGE, PAGE + 9)])
def test_an_address_is_a_place_in_a_file(file: Path, offset: int, begin: int) -> None:
    content, about = mapped(file, offset), file.stat()
    assert Mappings().place(address(content) + begin, 100) == ((about.st_dev, about.st_ino), offset + begin)


def test_what_reaches_beyond_the_mapping_is_no_place(file: Path) -> None:
    content = mapped(file)
    assert Mappings().place(address(content) + 2 * PAGE, 2 * PAGE) is None


def test_memory_that_somebody_may_change_is_no_place(file: Path) -> None:
    content = mapped(file, access=mmap.ACCESS_COPY)
    assert Mappings().place(address(content), 100) is None
    assert Mappings().place(address(np.zeros(1 << 20, np.uint8)), 100) is None
    assert Mappings().place(0, 100) is None


def test_a_system_that_does_not_tell_knows_no_place(file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    content = mapped(file)
    monkeypatch.setattr(mappings, "_MAPS", tmp_path / "nowhere")
    assert Mappings().place(address(content), 100) is None


class Values:
    """The values of a weight, as TensorRT's network gives them."""

    def __init__(self, content: np.ndarray) -> None:
        self.content = content


@pytest.mark.parametrize("is_mapped", [True, False])
def test_mapped_weights_are_not_read_to_find_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_mapped: bool
) -> None:
    weights = {"v": random(300, 300, seed=1), "w": random(300, 300, seed=2)}
    model = parse("g (float[2, 300] x) => (float[2, 300] y) { m = MatMul(x, v) y = MatMul(m, w) }", weights)
    saved(model, tmp_path / "source.onnx")
    save_model(model, tmp_path / "m.onnx", tmp_path, 1 << 10)
    (data,) = (path for path in tmp_path.iterdir() if path.suffix not in (".onnx",))
    content, compared = mapped(data), list[int]()
    real = np.array_equal
    monkeypatch.setattr(places.np, "array_equal", lambda a, b: compared.append(a.size) or real(a, b))
    found, wanted = Places(tmp_path / "m.onnx"), weights["w"].tobytes()
    begin = content.tobytes().index(wanted)
    values = content[begin : begin + len(wanted)]
    entries = found.entries(Values(values if is_mapped else values.copy()))
    assert entries is not None
    assert (entries["offset"], entries["length"]) == (str(begin), str(len(wanted)))
    assert bool(compared) is not is_mapped
