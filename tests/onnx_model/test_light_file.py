"""Reading a model without its weights, and writing one with weights that are copied from file to file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.models import batchnorm, parse, random, saved
from trtnorm_cli.errors import ModelError
from trtnorm_cli.onnx_model import light_file, stored
from trtnorm_cli.onnx_model.clean import clean
from trtnorm_cli.onnx_model.light_copy import light_copy
from trtnorm_cli.onnx_model.light_file import read_light, whole_message
from trtnorm_cli.onnx_model.load import load_model
from trtnorm_cli.onnx_model.save import save_model
from trtnorm_cli.onnx_model.stored import (
    brought_in,
    external_tensors,
    is_own_reference,
    is_within_the_model,
    read_part,
    tensor_array,
)
from trtnorm_cli.onnx_model.surgery import open_model
from trtnorm_cli.onnx_model.walk import all_tensors
from trtnorm_cli.onnx_model.wire import varint

GRAPH = "g (float[N, 16, 7, 7] x) => (float[N, 32, 5, 5] y) { c = Conv(x, w) y = BatchNormalization(c, gamma, beta, mu, var) }"


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch):
    monkeypatch.setattr(light_file, "LARGE_BYTES", 64)


def model() -> onnx.ModelProto:
    return parse(GRAPH, {"w": random(32, 16, 3, 3), **batchnorm(32)})


def own(proto: onnx.ModelProto) -> list[str]:
    return [tensor.name for tensor in external_tensors(proto) if is_own_reference(tensor)]


def canonical(proto: onnx.ModelProto) -> bytes:
    """The bytes of a model, in which a location that is said to be the default says nothing."""
    for tensor in all_tensors(proto):
        if tensor.data_location == TensorProto.DEFAULT:
            tensor.ClearField("data_location")
    return proto.SerializeToString(deterministic=True)


def written(light: onnx.ModelProto, folder: Path) -> onnx.ModelProto:
    pieces = whole_message(light, folder)
    content = b"".join(p if isinstance(p, bytes) else read_part(p, "").tobytes() for p in pieces)
    return onnx.ModelProto.FromString(content)


def with_inner_weights() -> onnx.ModelProto:
    """Weights in a Constant node, in a branch, and in a function."""
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(random(30, 50), "held"))
    branch = helper.make_graph(
        [helper.make_node("Add", ["x", "b"], ["sum"])], "branch", [],
        [helper.make_tensor_value_info("sum", 1, [30, 50])], [numpy_helper.from_array(random(30, 50), "b")],
    )  # fmt: skip
    inner = helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(random(30, 50)))
    function = helper.make_function(
        "own", "f", ["a"], ["r"], [inner, helper.make_node("Mul", ["a", "k"], ["r"])], [helper.make_opsetid("", 17)]
    )
    nodes = [
        constant,
        helper.make_node("Add", ["x", "c"], ["d"]),
        helper.make_node("If", ["flag"], ["e"], then_branch=branch, else_branch=branch),
        helper.make_node("f", ["e"], ["g"], domain="own"),
        helper.make_node("Sub", ["d", "g"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, [30, 50]), helper.make_tensor_value_info("flag", 9, [])],
        [helper.make_tensor_value_info("y", 1, [30, 50])],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, functions=[function], opset_imports=imports, ir_version=8)


@pytest.mark.parametrize("make", [model, with_inner_weights])
def test_what_is_read_and_filled_again_is_the_file(tmp_path, make):
    path = saved(make(), tmp_path / "m.onnx")
    light = read_light(path)
    assert own(light)
    assert canonical(brought_in(light)) == canonical(make())
    assert canonical(written(light, tmp_path)) == canonical(make())


def test_large_tensors_are_not_in_the_message(tmp_path):
    light = read_light(saved(model(), tmp_path / "m.onnx"))
    assert own(light) == ["w", "gamma", "beta", "mu", "var"]
    assert not any(tensor.raw_data for tensor in all_tensors(light))
    np.testing.assert_array_equal(tensor_array(light.graph.initializer[0]), numpy_helper.to_array(model().graph.initializer[0]))


def test_inner_weights_are_references_and_the_model_is_valid(tmp_path):
    loaded = load_model(saved(with_inner_weights(), tmp_path / "m.onnx"))
    assert len(own(loaded.proto)) == 4
    assert loaded.warnings == ()
    onnx.checker.check_model(light_copy(loaded.proto), full_check=True)
    surgery = open_model(loaded.proto, loaded.folder)
    held = next(node for node in surgery.graph.nodes if node.op == "Constant").outputs[0]
    np.testing.assert_array_equal(
        surgery.constant(held), numpy_helper.to_array(with_inner_weights().graph.node[0].attribute[0].t)
    )


def test_a_cleaned_model_refers_to_the_file_too(tmp_path):
    """Constants become initializers, functions are inlined: what is left alone stays known as the model's own."""
    loaded = load_model(saved(with_inner_weights(), tmp_path / "m.onnx"))
    light = clean(loaded.proto, loaded.folder).model
    assert len(own(light)) == 4
    assert canonical(brought_in(light)) == canonical(clean(with_inner_weights()).model)


def test_before_sparse_constants_inner_weights_stay_in_the_message(tmp_path):
    source = with_inner_weights()
    source.opset_import[0].version = 10
    assert own(read_light(saved(source, tmp_path / "m.onnx"))) == []


def typed(m):
    m.graph.initializer[0].ClearField("raw_data")
    m.graph.initializer[0].float_data.extend([0.0] * 4608)


def both_fields(m):
    m.graph.initializer[1].float_data.extend([0.0] * 32)


def two_of_one_name(m):
    m.graph.initializer.add().CopyFrom(m.graph.initializer[0])


LEFT_IN = {
    "values of a typed field": (typed, "w"),
    "values in two fields": (both_fields, "gamma"),
    "two tensors of one name": (two_of_one_name, "w"),
    "text": (lambda m: m.graph.initializer.append(helper.make_tensor("s", TensorProto.STRING, [2], [b"a" * 99, b"b"])), "s"),
}  # fmt: skip


@pytest.mark.parametrize(("edit", "name"), LEFT_IN.values(), ids=LEFT_IN)
def test_left_in_the_message(tmp_path, edit, name):
    source = model()
    edit(source)
    light = read_light(saved(source, tmp_path / "m.onnx"))
    assert name not in own(light)
    assert canonical(brought_in(light)) == canonical(source)


def test_a_tensor_given_twice_is_dropped_as_before(tmp_path):
    source = model()
    two_of_one_name(source)
    assert "are there again" in load_model(saved(source, tmp_path / "m.onnx")).warnings[0]


def field(number: int, content: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(content)) + content


def graph_bytes() -> bytes:
    return model().graph.SerializeToString()


def rest() -> bytes:
    source = model()
    source.ClearField("graph")
    return source.SerializeToString()


def twice_raw() -> bytes:
    tensor = model().graph.initializer[0].SerializeToString() + field(9, random(32, 16, 3, 3).tobytes())
    graph = model().graph
    del graph.initializer[0]
    return rest() + field(7, graph.SerializeToString() + field(5, tensor))


def long_length() -> bytes:
    """The length of the graph in five bytes where two or three suffice."""
    content = graph_bytes()
    low = [len(content) >> shift & 0x7F | 0x80 for shift in (0, 7, 14, 21)]
    return rest() + varint(7 << 3 | 2) + bytes([*low, 0]) + content


UNUSUAL = {
    "unknown fields": lambda: rest() + field(7, graph_bytes() + field(901, b"?" * 300) + varint(902 << 3) + b"\x05"),
    "an unknown fixed field": lambda: rest() + field(7, graph_bytes() + varint(903 << 3 | 5) + b"1234"),
    "an unknown wide field": lambda: rest() + field(7, graph_bytes() + varint(904 << 3 | 1) + b"12345678"),
    "a group": lambda: rest() + field(7, graph_bytes() + varint(905 << 3 | 3) + varint(905 << 3 | 4)),
    "the graph in two parts": lambda: rest() + field(7, graph_bytes()) + field(7, field(10, b"documented")),
    "raw bytes twice": twice_raw,
    "a long length": long_length,
}  # fmt: skip


@pytest.mark.parametrize("make", UNUSUAL.values(), ids=UNUSUAL)
def test_unusual_encodings_are_read_as_protobuf_reads_them(tmp_path, make):
    path = tmp_path / "m.onnx"
    path.write_bytes(make())
    loaded = load_model(path)
    assert brought_in(loaded.proto) == onnx.ModelProto.FromString(path.read_bytes())


def test_cut_or_damaged_anywhere_it_is_told_or_read_as_protobuf_reads_it(tmp_path):
    whole = model().SerializeToString()
    path = tmp_path / "m.onnx"
    generator = np.random.default_rng(0)
    for _ in range(300):
        content = bytearray(whole)
        content[int(generator.integers(len(content)))] = int(generator.integers(256))
        path.write_bytes(content[: int(generator.integers(1, len(content) + 1))] if generator.integers(2) else content)
        light = read_light(path)
        if light is not None:
            assert canonical(brought_in(light)) == canonical(onnx.ModelProto.FromString(path.read_bytes()))


def test_where_files_cannot_be_mapped_the_model_is_read_whole(tmp_path, monkeypatch):
    def refused(*args, **kwargs):
        raise OSError(19, "No such device")

    monkeypatch.setattr(light_file.mmap, "mmap", refused)
    loaded = load_model(saved(model(), tmp_path / "m.onnx"))
    assert own(loaded.proto) == []
    assert loaded.proto == model()


def test_a_folder_that_the_file_names_is_not_believed(tmp_path):
    """The bytes of an external tensor are looked for beside the model, whatever else the file says."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "w.bin").write_bytes(bytes(4 * 4608))
    source = model()
    stored.refer(source.graph.initializer[0], {"location": "w.bin", "basepath": str(tmp_path / "elsewhere")})
    path = saved(source, tmp_path / "m.onnx")
    assert not is_within_the_model(read_light(path).graph.initializer[0])
    with pytest.raises(ModelError, match=r"w\.bin is missing"):
        load_model(path)


@pytest.mark.parametrize("link", [os.link, os.symlink])
def test_a_model_under_a_second_name(tmp_path, link):
    """Links are refused of external data, not of the model itself."""
    saved(model(), tmp_path / "m.onnx")
    (tmp_path / "other").mkdir()
    link(tmp_path / "m.onnx", tmp_path / "other" / "linked.onnx")
    loaded = load_model(tmp_path / "other" / "linked.onnx")
    save_model(loaded.proto, tmp_path / "out.onnx", loaded.folder)
    assert canonical(onnx.load(str(tmp_path / "out.onnx"))) == canonical(model())


def test_a_file_that_became_shorter_is_told(tmp_path):
    path = saved(model(), tmp_path / "m.onnx")
    light = read_light(path)
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ModelError, match="became shorter"):
        tensor_array(light.graph.initializer[0])
    with pytest.raises(ModelError, match="became shorter"):
        save_model(light, tmp_path / "out.onnx", tmp_path)
    assert not (tmp_path / "out.onnx").exists()


@pytest.mark.parametrize("kernel", ["copies", "cannot", "stops"])
def test_copying_where_the_kernel_cannot(tmp_path, monkeypatch, kernel):
    def refused(*args):
        raise OSError(18, "Invalid cross-device link")

    if kernel != "copies":
        monkeypatch.setattr(os, "copy_file_range", refused if kernel == "cannot" else lambda *args: 0)
    light = read_light(saved(model(), tmp_path / "m.onnx"))
    save_model(light, tmp_path / "out.onnx", tmp_path)
    assert canonical(onnx.load(str(tmp_path / "out.onnx"))) == canonical(model())


TYPES = [
    "FLOAT",
    "FLOAT16",
    "BFLOAT16",
    "DOUBLE",
    "INT8",
    "UINT16",
    "INT64",
    "BOOL",
    "COMPLEX64",
    "FLOAT8E4M3FN",
    "INT4",
    "UINT2",
]


@pytest.mark.parametrize("name", TYPES)
def test_every_type_is_read_as_onnx_reads_it(tmp_path, name):
    tensor = TensorProto(name="t", data_type=TensorProto.DataType.Value(name), dims=[8, 25])
    tensor.raw_data = np.random.default_rng(0).integers(0, 2, stored.tensor_bytes(tensor), dtype=np.uint8).tobytes()
    (tmp_path / "t.bin").write_bytes(b"12345" + tensor.raw_data)
    outside = TensorProto()
    outside.CopyFrom(tensor)
    stored.refer(outside, stored.reference("t.bin", 5, len(tensor.raw_data)))
    expected, found = numpy_helper.to_array(tensor), tensor_array(outside, tmp_path)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()
    assert found.flags.aligned


def test_a_model_in_a_folder_whose_name_is_not_utf8_is_read_whole(tmp_path, monkeypatch):
    folder = tmp_path / os.fsdecode(b"\xff")
    try:
        folder.mkdir()
    except OSError:
        pytest.skip("this file system takes no such names")
    saved(model(), folder / "m.onnx")
    monkeypatch.chdir(folder)
    loaded = load_model(Path("m.onnx"))
    assert own(loaded.proto) == []
    assert canonical(loaded.proto) == canonical(model())
