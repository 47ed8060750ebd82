"""The file of a shelf that becomes the file of a model."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper

from tests.models import parse, random
from trtnorm_cli.onnx_model import shelf_message
from trtnorm_cli.onnx_model.light_file import read_light
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.onnx_model.shelf import Shelf
from trtnorm_cli.onnx_model.shelf_message import _Lying, _with_graph
from trtnorm_cli.onnx_model.stored import brought_in, file_part
from trtnorm_cli.onnx_model.wire import FilePart

FIRST, SECOND, SMALL = random(128, 256), random(256, 128), random(128)
TEXT = """chain (float[N, 128] x) => (float[N, 128] y) { a = MatMul(x, first) b = MatMul(a, second) y = Add(b, small) }
"""


@pytest.fixture(autouse=True)
def _of_any_size(monkeypatch):
    monkeypatch.setattr(shelf_message, "_FROM_BYTES", 1)


def shelved(names: tuple[str, ...] = ("first", "second")) -> tuple[Shelf, onnx.ModelProto]:
    """A model with those of its weights on a shelf, and the others in its message."""
    shelf, model = Shelf(), parse(TEXT)
    model.producer_name = "somebody"
    model.metadata_props.add(key="one", value="two")
    for name, value in (("small", SMALL), ("first", FIRST), ("second", SECOND)):
        kept = shelf.put(value, name) if name in names else None
        model.graph.initializer.append(numpy_helper.from_array(value, name) if kept is None else kept.tensor)
    return shelf, model


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    (path,) = save_model(model, folder / "m.onnx", is_result=True)
    return path


def in_order(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with its initializers by name: those of a shelf stand first."""
    tensors = sorted(model.graph.initializer, key=lambda tensor: tensor.name)
    result = onnx.ModelProto()
    result.CopyFrom(model)
    del result.graph.initializer[:]
    result.graph.initializer.extend(tensors)
    return result


def is_of_the_shelf(path: Path, model: onnx.ModelProto) -> bool:
    """True where the file is one on which tensors of ``model`` lie."""
    places = [file_part(tensor, None).file for tensor in model.graph.initializer if tensor.external_data]
    return path.stat().st_ino in [place.stat().st_ino for place in places]


@pytest.mark.parametrize("names", [("first", "second"), ("second", "first"), ("first",)], ids="+".join)
def test_it_is_the_same_model(tmp_path, names):
    shelf, model = shelved(names)
    path = saved(model, tmp_path)
    assert is_of_the_shelf(path, model)
    assert in_order(onnx.load(path)) == in_order(brought_in(model))
    assert in_order(brought_in(read_light(path))) == in_order(brought_in(model))
    onnx.checker.check_model(str(path), full_check=True)
    (found,) = onnxruntime.InferenceSession(path).run(None, {"x": FIRST[:, :128]})
    np.testing.assert_allclose(found, FIRST[:, :128] @ FIRST @ SECOND + SMALL, rtol=2e-3, atol=2e-3)
    assert shelf is not None


def test_it_can_be_read_as_before_and_written_again(tmp_path):
    _shelf, model = shelved()
    first = saved(model, tmp_path)
    (second,) = save_model(model, tmp_path / "again.onnx", is_result=True)
    assert first.stat().st_ino != second.stat().st_ino
    assert in_order(onnx.load(second)) == in_order(onnx.load(first)) == in_order(brought_in(model))


def test_weights_of_other_files_are_copied_behind(tmp_path):
    (tmp_path / "source").mkdir()
    _shelf, model = shelved()
    light = read_light(saved(brought_in(model), tmp_path / "source"))
    _shelf, model = shelved(("first",))
    next(t for t in light.graph.initializer if t.name == "second").name = "third"
    model.graph.initializer.extend(tensor for tensor in light.graph.initializer if tensor.name == "third")
    path = saved(model, tmp_path)
    assert is_of_the_shelf(path, model)
    found = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(path).graph.initializer}
    np.testing.assert_array_equal(found["third"], SECOND)
    np.testing.assert_array_equal(found["first"], FIRST)


def test_one_value_under_two_names(tmp_path):
    _shelf, model = shelved()
    twin = model.graph.initializer.add()
    twin.CopyFrom(next(tensor for tensor in model.graph.initializer if tensor.name == "first"))
    twin.name = "twin"
    path = saved(model, tmp_path)
    assert is_of_the_shelf(path, model)
    assert in_order(onnx.load(path)) == in_order(brought_in(model))


def unused(model: onnx.ModelProto, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    shelf.put(FIRST, "unused")


def taken_back(model: onnx.ModelProto, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    large = random(1024, 512)
    begun, behind = shelf.begin(large, "begun"), shelf.begin(large, "behind")
    begun.take_back()
    model.graph.initializer.append(behind.result().tensor)


def inside_a_node(model: onnx.ModelProto, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    node = model.graph.node.add(op_type="Constant", output=["c"])
    node.attribute.add(name="value", type=onnx.AttributeProto.TENSOR).t.CopyFrom(shelf.put(FIRST, "c").tensor)


def without_a_name(model: onnx.ModelProto, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    model.graph.name = ""


def long_text(model: onnx.ModelProto, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    model.doc_string = "text" * 2000


def long_name(model: onnx.ModelProto, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    for tensor in model.graph.initializer:
        tensor.name += "." * 9000


def another_disk(model: onnx.ModelProto, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args, **further):
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "link", fails)


def too_small(model: onnx.ModelProto, shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shelf_message, "_FROM_BYTES", 1 << 24)


CASES = (unused, taken_back, inside_a_node, without_a_name, long_text, long_name, another_disk, too_small)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_otherwise_it_is_copied(tmp_path, monkeypatch, case):
    shelf, model = shelved()
    case(model, shelf, monkeypatch)
    path = saved(model, tmp_path)
    assert not is_of_the_shelf(path, model)
    assert onnx.load(path) == brought_in(model)


def test_text_and_names_that_fit(tmp_path):
    shelf, model = shelved(("first",))
    model.doc_string = "text" * 200
    model.graph.initializer[-2].doc_string = "of the tensor"
    path = saved(model, tmp_path)
    assert is_of_the_shelf(path, model)
    assert in_order(onnx.load(path)) == in_order(brought_in(model))
    assert shelf is not None


def test_any_room_is_filled():
    raw = bytes(range(64))
    tensor = onnx.TensorProto(name="t", dims=(64,), data_type=onnx.TensorProto.UINT8)
    whole = onnx.TensorProto(name="t", dims=(64,), data_type=onnx.TensorProto.UINT8, raw_data=raw)

    def filled(room: int) -> bytes | None:
        return _Lying(0, FilePart(Path("f"), 5 + room, len(raw)), tensor.SerializeToString()).behind(5)

    least = len(onnx.GraphProto(initializer=[whole]).SerializeToString()) - len(raw)
    assert filled(least - 1) is None
    for room in (*range(least, least + 400), *range(16_000, 17_000)):
        found = filled(room)
        assert found is not None
        assert len(found) == room
        graph = onnx.GraphProto.FromString(found + raw + onnx.GraphProto(name="own").SerializeToString())
        assert graph == onnx.GraphProto(name="own", initializer=[whole])


def test_a_length_takes_as_many_bytes_as_a_parser_reads():
    """Where one byte is left before values of a quarter of a GiB and more, the length cannot be longer than it is."""
    large = 1 << 28
    described = onnx.TensorProto(name="t", dims=(large,), data_type=onnx.TensorProto.UINT8).SerializeToString()
    least = next(n for n in range(100) if _Lying(0, FilePart(Path("f"), n, large), described).behind(0) is not None)
    assert _Lying(0, FilePart(Path("f"), least + 1, large), described).behind(0) is None
    assert _Lying(0, FilePart(Path("f"), least + 2, large), described).behind(0) is not None


@pytest.mark.parametrize("length", [0, 1, 127, 128, 129, 1 << 14, (1 << 21) + 3, (1 << 28) + 3, (1 << 28) + 4, (1 << 28) + 5])
def test_the_graph_ends_where_its_head_says(length):
    before = onnx.ModelProto(ir_version=8).SerializeToString()
    beginning = _with_graph(before, len(before) + 2 + length)
    encoded = beginning[len(before) + 1 :]
    assert len(encoded) <= 5
    said = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(encoded))
    assert len(beginning) + said == len(before) + 2 + length
    assert [byte >= 0x80 for byte in encoded] == [True] * (len(encoded) - 1) + [False]


def test_other_files_than_the_result_are_copied(tmp_path):
    _shelf, model = shelved()
    (path,) = save_model(model, tmp_path / "m.onnx")
    assert not is_of_the_shelf(path, model)


def test_what_nobody_needs_is_not_filled(tmp_path, monkeypatch):
    """The filling would be as long as what lies between, and be thrown away."""
    shelf, model = Shelf(), parse(TEXT)
    lengths: list[int] = []
    fill = shelf_message._filling
    monkeypatch.setattr(shelf_message, "_filling", lambda length: lengths.append(length) or fill(length))
    for name, value in (("first", FIRST), ("unused", random(1024, 512)), ("second", SECOND)):
        kept = shelf.put(value, name)
        if name != "unused":
            model.graph.initializer.append(kept.tensor)
    model.graph.initializer.append(numpy_helper.from_array(SMALL, "small"))
    path = saved(model, tmp_path)
    assert not is_of_the_shelf(path, model)
    assert in_order(onnx.load(path)) == in_order(brought_in(model))
    assert lengths == []
