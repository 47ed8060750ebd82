"""Writing a model: complete or not at all, whatever its size."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.models import batchnorm, parse, random, saved
from trtnorm_cli.errors import NoRoom, UsageProblem
from trtnorm_cli.onnx_model import save
from trtnorm_cli.onnx_model.load import load_model
from trtnorm_cli.onnx_model.save import save_model

GRAPH = "g (float[N, 16, 7, 7] x) => (float[N, 32, 5, 5] y) { c = Conv(x, w) y = BatchNormalization(c, gamma, beta, mu, var) }"


def model() -> onnx.ModelProto:
    return parse(GRAPH, {"w": random(32, 16, 3, 3), **batchnorm(32)})


def values(path) -> dict[str, np.ndarray]:
    return {t.name: numpy_helper.to_array(t) for t in onnx.load(str(path)).graph.initializer}


def assert_same_weights(path):
    expected = {t.name: numpy_helper.to_array(t) for t in model().graph.initializer}
    found = values(path)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_a_small_model_is_one_file(tmp_path):
    source = model()
    assert save_model(source, tmp_path / "out.onnx") == [tmp_path / "out.onnx"]
    assert [p.name for p in tmp_path.iterdir()] == ["out.onnx"]
    assert source == model()
    assert onnx.load(str(tmp_path / "out.onnx")) == source


def test_the_bytes_do_not_depend_on_the_run(tmp_path):
    files = [save_model(model(), tmp_path / f"{n}.onnx")[0].read_bytes() for n in range(2)]
    assert files[0] == files[1]


def test_a_large_model_is_two_files(tmp_path, monkeypatch):
    monkeypatch.setattr(save, "SINGLE_FILE_LIMIT", 1000)
    source = model()
    written = save_model(source, tmp_path / "out.onnx")
    assert sorted(p.name for p in written) == ["out.onnx", "out.onnx.data"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.onnx", "out.onnx.data"]
    assert source == model()
    assert_same_weights(tmp_path / "out.onnx")
    stored = onnx.load(str(tmp_path / "out.onnx"), load_external_data=False).graph.initializer
    assert [t.name for t in stored if t.data_location == onnx.TensorProto.EXTERNAL] == ["w"]
    assert load_model(tmp_path / "out.onnx").warnings == ()


@pytest.mark.parametrize("limit", [1 << 30, 1000])
def test_external_weights_come_along(tmp_path, monkeypatch, limit):
    """From the folder of the source to wherever the result is written, in one file or two."""
    monkeypatch.setattr(save, "SINGLE_FILE_LIMIT", limit)
    (tmp_path / "source").mkdir()
    (tmp_path / "target").mkdir()
    onnx.save(model(), str(tmp_path / "source" / "m.onnx"), save_as_external_data=True, location="m.bin", size_threshold=0)
    loaded = load_model(tmp_path / "source" / "m.onnx")
    written = save_model(loaded.proto, tmp_path / "target" / "out.onnx", loaded.folder)
    assert len(written) == (1 if limit > 1000 else 2)
    assert_same_weights(tmp_path / "target" / "out.onnx")
    assert loaded.proto == onnx.load(str(tmp_path / "source" / "m.onnx"), load_external_data=False)


def test_external_weights_count_towards_the_limit(tmp_path, monkeypatch):
    monkeypatch.setattr(save, "SINGLE_FILE_LIMIT", 10_000)
    onnx.save(model(), str(tmp_path / "m.onnx"), save_as_external_data=True, location="m.bin", size_threshold=0)
    loaded = load_model(tmp_path / "m.onnx")
    assert loaded.proto.ByteSize() < 10_000 < 4 * 32 * 16 * 3 * 3
    assert len(save_model(loaded.proto, tmp_path / "out.onnx", loaded.folder)) == 2


def test_an_earlier_file_is_replaced_whole(tmp_path):
    (tmp_path / "out.onnx").write_bytes(b"earlier")
    save_model(model(), tmp_path / "out.onnx")
    assert_same_weights(tmp_path / "out.onnx")


def test_an_earlier_file_stays_when_writing_fails(tmp_path, monkeypatch):
    (tmp_path / "out.onnx").write_bytes(b"earlier")

    def full(*args, **kwargs):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(save.Path, "open", full)
        with pytest.raises(NoRoom, match="No space left on device"):
            save_model(model(), tmp_path / "out.onnx")
    assert [p.name for p in tmp_path.iterdir()] == ["out.onnx"]
    assert (tmp_path / "out.onnx").read_text() == "earlier"


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(UsageProblem, match="No such file or directory") as caught:
        save_model(model(), tmp_path / "nowhere" / "out.onnx")
    assert caught.value.where == str(tmp_path / "nowhere" / "out.onnx")


@pytest.mark.slow
def test_above_two_gibibytes(tmp_path):
    """Weights in memory that no single protobuf can hold; 5 GB of memory, 2.3 GB of disk."""
    weights = {f"w{i}": np.full((75, 1 << 20), i, np.float32) for i in range(8)}
    nodes = " ".join(f"y{i} = MatMul(x, w{i})" for i in range(8))
    outputs = ", ".join(f"float[N, 1048576] y{i}" for i in range(8))
    source = parse(f"g (float[N, 75] x) => ({outputs}) {{ {nodes} }}")
    for name in list(weights):
        source.graph.initializer.append(numpy_helper.from_array(weights.pop(name), name))
    written = save_model(source, tmp_path / "out.onnx")
    assert sum(p.stat().st_size for p in written) > 2 << 30
    assert load_model(tmp_path / "out.onnx").warnings == ()


def test_external_data_of_a_broken_link_is_explained(tmp_path):
    """The data file went away after the model was read."""
    onnx.save(model(), str(tmp_path / "m.onnx"), save_as_external_data=True, location="m.bin", size_threshold=0)
    loaded = load_model(saved(onnx.load(str(tmp_path / "m.onnx"), load_external_data=False), tmp_path / "m.onnx"))
    (tmp_path / "m.bin").unlink()
    with pytest.raises(Exception, match=r"m\.bin"):
        save_model(loaded.proto, tmp_path / "out.onnx", loaded.folder)
    assert not (tmp_path / "out.onnx").exists()
