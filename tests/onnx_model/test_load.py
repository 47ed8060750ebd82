"""Reading a model: what is taken, and one clear error for everything else."""

from __future__ import annotations

import hashlib
import os

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, parse, random, saved
from trtnorm_cli.errors import ModelError
from trtnorm_cli.onnx_model.load import load_model
from trtnorm_cli.onnx_model.stored import tensor_bytes

GRAPH = "g (float[N, 2, 7, 7] x) => (float[N, 4, 5, 5] y) { c = Conv(x, w) y = BatchNormalization(c, gamma, beta, mu, var) }"
WEIGHT_BYTES = 4 * 4 * 2 * 3 * 3


def model() -> onnx.ModelProto:
    return parse(GRAPH, {"w": random(4, 2, 3, 3), **batchnorm(4)})


def with_external(entries: dict[str, str]) -> onnx.ModelProto:
    """The model with its convolution's weight in another file."""
    changed = model()
    tensor = changed.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    return changed


def refusal(path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        load_model(path)
    assert caught.value.exit_code == 3
    return caught.value


def test_a_model_stays_as_it_is(tmp_path):
    path = saved(model(), tmp_path / "m.onnx")
    loaded = load_model(path)
    assert loaded.proto == model()
    assert (loaded.path, loaded.folder, loaded.warnings) == (path, tmp_path, ())
    assert loaded.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_external_data_counts_in_the_digest(tmp_path):
    path = saved(with_external({"location": "w.bin"}), tmp_path / "m.onnx")
    digests = set()
    for content in (b"\0", b"\1"):
        (tmp_path / "w.bin").write_bytes(content * WEIGHT_BYTES)
        digests.add(load_model(path).sha256)
    assert len(digests) == 2


def test_a_length_that_is_left_out_is_that_of_the_tensor(tmp_path):
    """Readers would take the rest of the file instead, here four bytes too many."""
    path = saved(with_external({"location": "w.bin", "offset": "8"}), tmp_path / "m.onnx")
    (tmp_path / "w.bin").write_bytes(bytes(8 + WEIGHT_BYTES + 4))
    tensor = load_model(path).proto.graph.initializer[0]
    assert {e.key: e.value for e in tensor.external_data}["length"] == str(WEIGHT_BYTES)


BAD_FILES = {
    "empty": (b"", "the file is empty"),
    "random bytes": (bytes(np.random.default_rng(0).integers(0, 256, 4096, dtype=np.uint8)), "this is not an ONNX model"),
    "zeros": (bytes(4096), "this is not an ONNX model"),
    "text": (b"optimization_profiles:\n  - inputs:\n", "this is not an ONNX model"),
    "HTML": (b"<!DOCTYPE html><html><body>404</body></html>\n", "this is not an ONNX model"),
    "JSON": (b'{"irVersion": "8"}', "this is not an ONNX model"),
    "a pointer of Git LFS": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
        "this is not an ONNX model",
    ),
}


@pytest.mark.parametrize(("content", "summary"), BAD_FILES.values(), ids=BAD_FILES)
def test_a_file_that_is_no_model(tmp_path, content, summary):
    path = tmp_path / "m.onnx"
    path.write_bytes(content)
    error = refusal(path)
    assert error.summary.startswith(summary)
    assert error.where == str(path)


def test_truncated_at_any_place(tmp_path):
    """Cut between two fields, protobuf sees a complete message: then the graph or the opset is missing."""
    whole = model().SerializeToString()
    path = tmp_path / "m.onnx"
    for size in range(1, len(whole), 7):
        path.write_bytes(whole[:size])
        assert refusal(path).where == str(path)


def test_not_a_file(tmp_path):
    assert refusal(tmp_path).summary.startswith("this is a folder")
    assert refusal(tmp_path / "nothing.onnx").summary == "there is no such file"
    assert "cannot be read: File name too long" in refusal(tmp_path / ("n" * 300)).summary
    os.mkfifo(tmp_path / "pipe.onnx")  # opening it would wait for ever
    assert refusal(tmp_path / "pipe.onnx").summary == "there is no such file"


def changed(edit) -> onnx.ModelProto:
    made = model()
    edit(made)
    return made


def set_raw(m, data):
    m.graph.initializer[0].raw_data = data


def set_values(m, count):
    m.graph.initializer[1].ClearField("raw_data")
    m.graph.initializer[1].float_data.extend([1.0] * count)


# The checker of an older onnx says nothing of these.
TOO_FEW = ("this is not a valid ONNX model: TensorProto", "the tensor holds")
INVALID = {
    "without a graph": (lambda m: m.ClearField("graph"), "this is not an ONNX model: it has no graph"),
    "without outputs": (lambda m: m.graph.ClearField("output"), "this is not an ONNX model: it has no graph with outputs"),
    "without an opset": (lambda m: m.ClearField("opset_import"), "the model does not say which ONNX opset"),
    "only another domain": (lambda m: setattr(m.opset_import[0], "domain", "my"), "the model does not say which ONNX opset"),
    "too few bytes": (lambda m: set_raw(m, bytes(WEIGHT_BYTES - 8)), TOO_FEW),
    "too many bytes": (lambda m: set_raw(m, bytes(WEIGHT_BYTES + 4)), "the tensor holds 292 bytes"),
    "too many values": (lambda m: set_values(m, 9), "the tensor holds 9 values, its shape and type need 4"),
    "too few values": (lambda m: set_values(m, 3), TOO_FEW),
    "an unknown type": (lambda m: setattr(m.graph.initializer[0], "data_type", 99), "the tensor is of type 99"),
    "a cycle": (lambda m: m.graph.node[0].input.__setitem__(0, "y"), "this is not a valid ONNX model: Nodes in a graph must"),
    "two writers": (lambda m: m.graph.node.append(m.graph.node[1]), "this is not a valid ONNX model: Graph must be in single"),
    "a missing input": (lambda m: m.graph.node[1].input.pop(), "this is not a valid ONNX model: Node with schema"),
    "an unproduced output": (lambda m: m.graph.node.pop(), "this is not a valid ONNX model: Graph output 'y'"),
    "an input without type": (
        lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 0), "the input x has no element type"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("edit", "summary"), INVALID.values(), ids=INVALID)
def test_an_invalid_model(tmp_path, edit, summary):
    path = saved(changed(edit), tmp_path / "m.onnx")
    assert refusal(path).summary.startswith(summary)


TAKEN = {
    "an operator without schema": (lambda m: setattr(m.graph.node[0], "op_type", "Convv"), "No Op registered for Convv"),
    "an output without shape": (lambda m: m.graph.output[0].type.tensor_type.ClearField("shape"), "Field 'shape'"),
}


@pytest.mark.parametrize(("edit", "words"), TAKEN.values(), ids=TAKEN)
def test_objections_of_the_checker_that_do_not_stop_anybody(tmp_path, edit, words):
    (warning,) = load_model(saved(changed(edit), tmp_path / "m.onnx")).warnings
    assert warning.startswith("the ONNX checker objects, and the model is taken as it is: ")
    assert words in warning


HIDDEN = {
    "two writers": (lambda m: m.graph.node.append(m.graph.node[1]), "Graph must be in single static assignment"),
    "a cycle": (lambda m: m.graph.node[0].input.__setitem__(0, "y"), "Nodes in a graph must be topologically sorted"),
    "wrong arity": (lambda m: m.graph.node[1].input.pop(), "Node with schema(::BatchNormalization"),
    "a wrong attribute": (
        lambda m: m.graph.node[1].attribute.add(name="epsilon", type=3, s=b"x"), "Mismatched attribute type in ' : epsilon'"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("edit", "summary"), HIDDEN.values(), ids=HIDDEN)
@pytest.mark.parametrize("tolerated", ["an operator without schema", "an output without shape"])
def test_an_objection_behind_one_that_does_not_count(tmp_path, edit, summary, tolerated):
    """The checker stops at the first."""
    made = changed(edit)
    if tolerated == "an output without shape":
        made.graph.output[0].type.tensor_type.ClearField("shape")
    else:
        made.graph.node.insert(0, onnx.helper.make_node("Odd", ["x"], ["unused"]))
    assert summary in refusal(saved(made, tmp_path / "m.onnx")).summary


def test_an_unknown_operator_in_a_function(tmp_path):
    made = parse("g (float[2] x) => (float[2] y) { y = f(x) }")
    made.graph.node[0].domain = "mine"
    made.opset_import.add(domain="mine", version=1)
    function = made.functions.add(name="f", domain="mine", input=["a"], output=["b"])
    function.opset_import.add(domain="", version=17)
    function.node.add(op_type="Odd", input=["a"], output=["b"])
    (warning,) = load_model(saved(made, tmp_path / "m.onnx")).warnings
    assert "No Op registered for Odd" in warning


def test_group_normalization_of_opset_18_is_taken(tmp_path):
    made = parse(
        "g (float[N, 4, 7, 7] x) => (float[N, 4, 7, 7] y) { y = GroupNormalization <num_groups=2>(x, s, b) }",
        {"s": random(2), "b": random(2)},
        opset=18,
    )
    (warning,) = load_model(saved(made, tmp_path / "m.onnx")).warnings
    assert "GroupNormalization is deprecated" in warning


EXTERNAL = {
    "missing": ({"location": "other.bin"}, "the external data file other.bin is missing"),
    "a folder": ({"location": "folder"}, "the external data file folder is missing"),
    "a pipe": ({"location": "pipe"}, "the external data file pipe is missing"),
    "an absolute path": ({"location": "/etc/passwd"}, "the external data '/etc/passwd' is outside the model's folder"),
    "a parent": ({"location": "../w.bin"}, "the external data '../w.bin' is outside"),
    "a link out of the folder": ({"location": "link"}, "the external data 'link' is outside"),
    "no location": ({}, "the external data '' is outside"),
    "NUL in the name": ({"location": "a\0b"}, "the external data 'a\\x00b' is outside"),
    "a name that is too long": ({"location": "n" * 300}, "the external data file nnn"),
    "offset is no number": ({"location": "w.bin", "offset": "xyz"}, "offset and length of the external data are not numbers"),
    "length is no number": ({"location": "w.bin", "length": "abc"}, "offset and length of the external data are not numbers"),
    "negative offset": ({"location": "w.bin", "offset": "-4"}, "the external data is 288 bytes from -4 on"),
    "negative length": ({"location": "w.bin", "length": "-1"}, "the external data is -1 bytes"),
    "too short a length": ({"location": "w.bin", "length": "100"}, "the external data is 100 bytes from 0 on, the tensor"),
    "truncated": ({"location": "short.bin"}, "the external data file short.bin is truncated: 288 bytes are needed, it has 100"),
    "a hard link": ({"location": "hard"}, "the external data file hard is a hard link"),
    "past the end": (
        {"location": "w.bin", "offset": "8"}, "the external data file w.bin is truncated: 296 bytes are needed, it has 288"
    ),
}  # fmt: skip


@pytest.mark.parametrize(("entries", "summary"), EXTERNAL.values(), ids=EXTERNAL)
def test_external_data_that_cannot_be_used(tmp_path, entries, summary):
    folder = tmp_path / "m"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(bytes(WEIGHT_BYTES))
    (folder / "w.bin").write_bytes(bytes(WEIGHT_BYTES))
    (folder / "short.bin").write_bytes(bytes(100))
    (folder / "folder").mkdir()
    (folder / "link").symlink_to(tmp_path / "w.bin")
    os.mkfifo(folder / "pipe")
    (tmp_path / "secret").write_bytes(bytes(WEIGHT_BYTES))
    os.link(tmp_path / "secret", folder / "hard")
    error = refusal(saved(with_external(entries), folder / "m.onnx"))
    assert error.summary.startswith(summary)
    assert error.where == f"{folder / 'm.onnx'}, tensor w"
    assert error.hint


def test_links_to_a_model_and_its_data_are_followed(tmp_path):
    """As Hugging Face's cache has them: the files lie beside each other, under names that tell nothing."""
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    snapshot.mkdir()
    saved(with_external({"location": "w.bin"}), blobs / "4f1c")
    (blobs / "9a02").write_bytes(bytes(WEIGHT_BYTES))
    (snapshot / "m.onnx").symlink_to("../blobs/4f1c")
    (snapshot / "w.bin").symlink_to("../blobs/9a02")
    loaded = load_model(snapshot / "m.onnx")
    assert (loaded.warnings, loaded.data_files) == ((), (snapshot / "w.bin",))
    # What a location says outright is no link, and data that lie elsewhere are none of the model's.
    saved(with_external({"location": "../blobs/9a02"}), blobs / "4f1c")
    assert refusal(snapshot / "m.onnx").summary.startswith("the external data '../blobs/9a02' is outside")
    saved(with_external({"location": "w.bin"}), blobs / "4f1c")
    (tmp_path / "secret").write_bytes(bytes(WEIGHT_BYTES))
    (snapshot / "w.bin").unlink()
    (snapshot / "w.bin").symlink_to("../secret")
    assert refusal(snapshot / "m.onnx").summary.startswith("the external data 'w.bin' is outside")


def test_a_folder_below_the_model_is_inside(tmp_path):
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "w.bin").write_bytes(bytes(WEIGHT_BYTES))
    path = saved(with_external({"location": "weights/w.bin"}), tmp_path / "m.onnx")
    assert load_model(path).warnings == ()


def test_external_data_of_a_constant_in_a_branch_is_asked_for(tmp_path):
    made = parse(
        "g (bool c, float[2] x) => (float[2] y) { y = If (c) <then_branch = a () => (float[2] p)"
        " { k = Constant <value = float[2] {1, 2}>() p = Add(x, k) }, else_branch = b () => (float[2] q) { q = Neg(x) }> }"
    )
    tensor = made.graph.node[0].attribute[0].g.node[0].attribute[0].t
    tensor.Clear()
    tensor.CopyFrom(onnx.TensorProto(data_type=1, dims=[2], data_location=onnx.TensorProto.EXTERNAL))
    tensor.external_data.add(key="location", value="k.bin")
    assert refusal(saved(made, tmp_path / "m.onnx")).summary == "the external data file k.bin is missing"


@pytest.mark.parametrize(("data_type", "dims", "size"), [
    ("FLOAT", [2, 3], 24), ("FLOAT", [], 4), ("FLOAT", [0, 5], 0), ("DOUBLE", [3], 24), ("FLOAT16", [3], 6),
    ("BFLOAT16", [3], 6), ("INT64", [2], 16), ("BOOL", [7], 7), ("FLOAT8E4M3FN", [5], 5), ("INT4", [5], 3), ("UINT4", [4], 2),
    ("COMPLEX64", [2], 16),
])  # fmt: skip
def test_bytes_of_a_tensor(data_type, dims, size):
    tensor = onnx.TensorProto(data_type=onnx.TensorProto.DataType.Value(data_type), dims=dims)
    assert tensor_bytes(tensor) == size
