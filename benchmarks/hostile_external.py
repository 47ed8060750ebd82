"""Weights in other files: names that lead out of the model's folder, things that are no files, and places that do not exist."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from benchmarks.hostile_cases import SECRET, SHAPE, Case, held, save, sound_model

_DATA = "weights.bin"
_BYTES = 16
FAMILY = "external data"


def refer(tensor: TensorProto, **entries: object) -> None:
    """Let ``tensor`` have its bytes where ``entries`` say."""
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))


def _case(name: str, prepare: Callable[[Path], object] | None = None, is_sound: bool = False, **entries: object) -> Case:
    """The BatchNormalization's ``gamma`` lies where ``entries`` say."""

    def write(folder: Path) -> None:
        (folder / _DATA).write_bytes(np.ones(1024, np.float32).tobytes())
        model = sound_model()
        refer(held(model, "gamma"), **{"location": _DATA, "offset": 0, "length": _BYTES, **entries})
        if prepare is not None:
            (folder / _DATA).unlink()
            prepare(folder)
        save(model, folder)

    return Case(FAMILY, name, write, is_sound)


def _edited(name: str, edit: Callable[[onnx.ModelProto], object], is_sound: bool = False) -> Case:
    def write(folder: Path) -> None:
        (folder / _DATA).write_bytes(np.ones(1024, np.float32).tobytes())
        model = sound_model()
        edit(model)
        save(model, folder)

    return Case(FAMILY, name, write, is_sound)


def _secret(folder: Path) -> Path:
    return folder.parent / SECRET


def _linked_folder(folder: Path) -> None:
    (folder / "inner").symlink_to(folder.parent)


def _no_length(model: onnx.ModelProto) -> None:
    refer(held(model, "gamma"), location=_DATA)


def _no_length_of_all(model: onnx.ModelProto) -> None:
    for tensor in model.graph.initializer:
        refer(tensor, location=_DATA)


def _twice(model: onnx.ModelProto) -> None:
    refer(held(model, "gamma"), location=_DATA, offset=0, length=_BYTES)
    held(model, "gamma").external_data.add(key="location", value=f"../{SECRET}")


def _overlapping(model: onnx.ModelProto) -> None:
    for offset, name in enumerate(("gamma", "beta", "mu", "var")):
        refer(held(model, name), location=_DATA, offset=4 * offset, length=_BYTES)


def _not_said(model: onnx.ModelProto) -> None:
    refer(held(model, "gamma"), location=f"../{SECRET}", length=_BYTES)
    held(model, "gamma").data_location = TensorProto.DEFAULT


def _in_a_constant(model: onnx.ModelProto) -> None:
    tensor = TensorProto(name="c", data_type=TensorProto.FLOAT, dims=[4])
    refer(tensor, location=f"../{SECRET}", length=_BYTES)
    model.graph.initializer.remove(held(model, "gamma"))
    model.graph.node.insert(0, helper.make_node("Constant", [], ["gamma"], value=tensor))


def _in_a_branch(model: onnx.ModelProto) -> None:
    tensor = TensorProto(name="k", data_type=TensorProto.FLOAT, dims=[4])
    refer(tensor, location=f"../{SECRET}", length=_BYTES)
    branch = helper.make_graph(
        [helper.make_node("Identity", ["k"], ["r"])],
        "branch",
        [],
        [helper.make_tensor_value_info("r", TensorProto.FLOAT, [4])],
        [tensor],
    )
    model.graph.initializer.remove(held(model, "gamma"))
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    model.graph.node.insert(0, helper.make_node("If", ["c"], ["gamma"], then_branch=branch, else_branch=branch))


def _in_a_function(model: onnx.ModelProto) -> None:
    tensor = TensorProto(name="c", data_type=TensorProto.FLOAT, dims=[4])
    refer(tensor, location=f"../{SECRET}", length=_BYTES)
    made = helper.make_function(
        "d", "F", [], ["r"], [helper.make_node("Constant", [], ["r"], value=tensor)], [helper.make_opsetid("", 17)]
    )
    model.functions.append(made)
    model.opset_import.append(helper.make_opsetid("d", 1))
    model.graph.initializer.remove(held(model, "gamma"))
    model.graph.node.insert(0, helper.make_node("F", [], ["gamma"], domain="d"))


def _sparse(model: onnx.ModelProto) -> None:
    values = TensorProto(name="gamma", data_type=TensorProto.FLOAT, dims=[4])
    refer(values, location=f"../{SECRET}", length=_BYTES)
    sparse = onnx.SparseTensorProto(dims=[4])
    sparse.values.CopyFrom(values)
    sparse.indices.CopyFrom(helper.make_tensor("", TensorProto.INT64, [4], [0, 1, 2, 3]))
    model.graph.initializer.remove(held(model, "gamma"))
    model.graph.sparse_initializer.append(sparse)


def _a_text(model: onnx.ModelProto) -> None:
    tensor = held(model, "gamma")
    tensor.data_type = TensorProto.STRING
    refer(tensor, location=_DATA, length=_BYTES)


def _many(model: onnx.ModelProto) -> None:
    for number in range(20_000):
        tensor = model.graph.initializer.add(name=f"unused{number}", data_type=TensorProto.FLOAT, dims=[4])
        refer(tensor, location=_DATA, offset=0, length=_BYTES)


def _large_hole(folder: Path) -> None:
    """Weights of 2.6 GB that take no place on the disk."""
    side = 13_000
    products = " ".join(f"t{i + 1} = MatMul(t{i}, w{i})" for i in range(4))
    graph = f"g (float[1,{side}] t0) => (float[1,{side}] y) {{ {products} y = Relu(t4) }}"
    model = sound_model(graph)
    for i in range(4):
        tensor = model.graph.initializer.add(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[side, side])
        refer(tensor, location=_DATA, offset=i * side * side * 4, length=side * side * 4)
    with (folder / _DATA).open("wb") as stream:
        stream.truncate(4 * side * side * 4)
    save(model, folder)


def cases() -> Iterator[Case]:
    """All of this family."""
    yield _case("a folder above", location=f"../{SECRET}")
    yield _case("out and in again", location=f"inner/../../{SECRET}")
    yield _case("back into the folder", lambda f: (f / _DATA).write_bytes(bytes(64)), location=f"./x/../{_DATA}")
    yield Case(FAMILY, "an absolute path", lambda f: _case("", location=str(_secret(f))).write(f))
    yield _case("a symbolic link to outside", lambda f: (f / _DATA).symlink_to(_secret(f)))
    yield _case("a folder that is a link to outside", _linked_folder, location=f"inner/{SECRET}")
    yield _case("a chain of links", lambda f: [(f / _DATA).symlink_to("b"), (f / "b").symlink_to(_secret(f))])
    yield _case("a link to itself", lambda f: (f / _DATA).symlink_to(_DATA))
    yield _case("a hard link to outside", lambda f: os.link(_secret(f), f / _DATA))
    yield _case("a pipe", lambda f: os.mkfifo(f / _DATA))
    yield _case("a folder", lambda f: (f / _DATA).mkdir())
    yield _case("nothing", lambda f: None)
    yield _case("an endless device", location="/dev/zero")
    yield _case("a link to an endless device", lambda f: (f / _DATA).symlink_to("/dev/zero"))
    yield _case("a link to the terminal", lambda f: (f / _DATA).symlink_to("/dev/tty"))
    yield _case("the memory of the process", location="/proc/self/mem")
    yield _case("the model's own file", location="model.onnx")
    yield _case("an empty name", location="")
    yield _case("a dot", location=".")
    yield _case("a name of 5000 bytes", location="a" * 5000)
    yield _case("a path of 5000 folders", location="a/" * 5000 + "b")
    yield _case("a name with a zero byte", location="weights\0.bin")
    yield _case("a name with a line break and an escape", location="a\n\x1b[2Jb")
    yield _case("a name of another system", location=f"..\\{SECRET}")
    yield _case("an address", location="http://127.0.0.1:9/w")
    yield _case("offset beyond the end", offset=1 << 20)
    yield _case("offset of 2^63", offset=1 << 63)
    yield _case("offset of 2^200", offset=1 << 200)
    yield _case("offset of 10000 digits", offset="9" * 10_000)
    yield _case("negative offset", offset=-16)
    yield _case("offset that is no number", offset="xyz")
    yield _case("offset in hexadecimal", offset="0x10")
    yield _case("offset with a fraction", offset="1.5")
    yield _case("length that is no number", length="abc")
    yield _case("length of 2^63", length=1 << 63)
    yield _case("negative length", length=-16)
    yield _case("length of zero", length=0)
    yield _case("length below the tensor's", length=12)
    yield _case("an unknown key", checksum="zz", is_sound=True)
    yield _case("a made-up folder", basepath="/etc")
    yield _edited("no length in a longer file", _no_length, is_sound=True)
    yield _edited("no length of any weight, too short a file for one", _no_length_of_all, is_sound=True)
    yield _edited("a key given twice", _twice)
    yield _edited("overlapping ranges", _overlapping, is_sound=True)
    yield _edited("a place without saying so", _not_said)
    yield _edited("in a Constant", _in_a_constant)
    yield _edited("in a branch", _in_a_branch)
    yield _edited("in a function", _in_a_function)
    yield _edited("in a sparse tensor", _sparse)
    yield _edited("of texts", _a_text)
    yield _edited("20,000 tensors", _many, is_sound=True)
    yield Case(FAMILY, "2.6 GB of weights", _large_hole, is_sound=True)


assert SHAPE
