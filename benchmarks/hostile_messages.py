"""Bytes that are no model, names that are no names, and attributes and parameters that fit nothing."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto, helper

from benchmarks.hostile_cases import MODEL, Case, built, edited, field, held, node, sound_model, varint

BYTES, NAMES, ATTRIBUTES, PARAMETERS = "bytes that are no model", "names", "attributes and operators", "parameters"
make = helper.make_node
_ESCAPES = "\x1b]0;owned\x07\x1b[2J\r\n[/red][bold]<script>alert(1)</script>"


def _content(make_bytes: Callable[[], bytes]) -> Callable[[Path], object]:
    def write(folder: Path) -> None:
        (folder / MODEL).write_bytes(make_bytes())

    return write


def _sound() -> bytes:
    return bytes(sound_model().SerializeToString())


def _nested(depth: int) -> bytes:
    """A graph in a node of a graph in a node, deeper than any parser goes."""
    content = b""
    for _ in range(depth):
        content = field(1, field(5, field(6, content)))  # node, attribute, graph
    return field(7, content)


def _flipped(seed: int) -> bytes:
    content = bytearray(_sound())
    rng = np.random.default_rng(seed)
    for place in rng.integers(0, len(content), 8):
        content[place] = rng.integers(0, 256)
    return bytes(content)


def _sparse_file(folder: Path) -> None:
    with (folder / MODEL).open("wb") as stream:
        stream.truncate(3 << 30)


def _sparse_tail(folder: Path) -> None:
    (folder / MODEL).write_bytes(_sound())
    with (folder / MODEL).open("r+b") as stream:
        stream.truncate(3 << 30)


def _claimed_length(folder: Path) -> None:
    """A field that says it is 2.9 GB long, in a file with a hole of that size."""
    with (folder / MODEL).open("wb") as stream:
        stream.write(varint(8 << 3 | 2) + varint(2_900_000_000))
        stream.truncate(3 << 30)


def _bytes_cases() -> Iterator[Case]:
    rng = np.random.default_rng(1)
    yield Case(BYTES, "noise", _content(lambda: rng.bytes(5000)))
    yield Case(BYTES, "zeros", _content(lambda: bytes(4096)))
    yield Case(BYTES, "a page of the web", _content(lambda: b"<!DOCTYPE html><html><body>404</body></html>" * 50))
    yield Case(BYTES, "compressed", _content(lambda: gzip.compress(_sound())))
    yield Case(BYTES, "an archive's beginning", _content(lambda: b"PK\x03\x04" + bytes(100)))
    yield Case(BYTES, "an engine's beginning", _content(lambda: b"vtrt" + bytes(100)))
    for part in (1, 2, 3):
        yield Case(BYTES, f"cut off after {part} quarters", _content(lambda part=part: _sound()[: len(_sound()) * part // 4]))
    yield Case(BYTES, "a hole of 3 GB", _sparse_file)
    yield Case(BYTES, "a model and a hole of 3 GB", _sparse_tail)
    yield Case(BYTES, "a field of 2.9 GB", _claimed_length)
    yield Case(BYTES, "a length beyond the end", _content(lambda: varint(7 << 3 | 2) + varint(1 << 40)))
    yield Case(BYTES, "a length of 2^64 - 1", _content(lambda: varint(7 << 3 | 2) + varint((1 << 64) - 1)))
    yield Case(BYTES, "a number of 20 bytes", _content(lambda: b"\x08" + b"\xff" * 20))
    yield Case(BYTES, "groups in groups", _content(lambda: b"\x3b" * 100_000))
    yield Case(BYTES, "graphs 3000 deep", _content(lambda: _nested(3000)))
    yield Case(BYTES, "graphs 30 deep without anything", _content(lambda: _nested(30)))
    yield Case(BYTES, "the graph twice", _content(lambda: _sound() * 2))
    yield Case(BYTES, "the graph as a number", _content(lambda: b"\x38\x05" + _sound()))
    yield Case(BYTES, "unknown fields of 10 MB", _content(lambda: _sound() + field(9999, bytes(10_000_000))), is_sound=True)
    yield Case(BYTES, "10^5 unknown fields", _content(lambda: _sound() + field(9999, b"x") * 100_000), is_sound=True)
    yield Case(BYTES, "10^6 empty nodes", _content(lambda: _sound() + field(7, field(1, b"") * 1_000_000)))
    yield Case(BYTES, "10^6 empty opsets", _content(lambda: _sound() + field(8, b"") * 1_000_000))
    yield Case(BYTES, "10^6 empty functions", _content(lambda: _sound() + field(25, b"") * 1_000_000))
    for seed in range(4):
        yield Case(BYTES, f"eight wrong bytes, {seed}", _content(lambda seed=seed: _flipped(seed)))


def _renamed(name: str) -> Callable[[Path], object]:
    """Calls the tensor between the last two nodes, the node, the input and the output like this."""

    def edit(model: onnx.ModelProto) -> None:
        norm, relu = node(model, "BatchNormalization"), node(model, "Relu")
        norm.output[0] = relu.input[0] = name
        norm.name = name
        node(model, "Conv").input[0] = model.graph.input[0].name = f"{name}in"
        relu.output[0] = model.graph.output[0].name = f"{name}out"

    return edited(edit)


def _not_utf8() -> bytes:
    """Names of protobuf strings that are no UTF-8; the parsers of TensorRT and of ONNX Runtime do not look."""
    model = sound_model()
    node(model, "BatchNormalization").name = "QQQQ"
    held(model, "gamma").name = node(model, "BatchNormalization").input[1] = "ZZZZ"
    return bytes(model.SerializeToString()).replace(b"QQQQ", b"\xff\xfe\xfd\xfc").replace(b"ZZZZ", b"\xc3\x28\xa0\xa1")


def _documented(text: str) -> Callable[[onnx.ModelProto], object]:
    def edit(model: onnx.ModelProto) -> None:
        model.doc_string = model.producer_name = model.graph.doc_string = model.graph.name = text
        model.metadata_props.add(key=text, value=text)

    return edit


def _names_cases() -> Iterator[Case]:
    yield Case(NAMES, "of 5000 bytes", _renamed("n" * 5000))
    yield Case(NAMES, "of 10 MB", _renamed("n" * 10_000_000))
    yield Case(NAMES, "with a zero byte", _renamed("a\0b"))
    yield Case(NAMES, "with escapes and markup", _renamed(_ESCAPES), is_sound=True)
    yield Case(NAMES, "written from right to left", _renamed("\u202egnp.exe\u2066\U0001f600"), is_sound=True)
    yield Case(NAMES, "like paths", _renamed("../../../../trtnorm-hostile"), is_sound=True)
    yield Case(NAMES, "like formats", _renamed("{0.__class__}%s%n${HOME}$(id)"), is_sound=True)
    yield Case(NAMES, "that are no UTF-8", _content(_not_utf8))
    yield Case(NAMES, "of a model with escapes and markup", edited(_documented(_ESCAPES)), is_sound=True)
    yield Case(NAMES, "of a model of 10 MB", edited(_documented("d" * 10_000_000)), is_sound=True)
    yield Case(NAMES, "of an operator of 10 MB", edited(lambda m: node(m, "Relu").__setattr__("op_type", "R" * 10_000_000)))
    yield Case(
        NAMES, "of an operator with escapes and markup", edited(lambda m: node(m, "Relu").__setattr__("op_type", _ESCAPES))
    )


def _set(operator: str, attribute: AttributeProto) -> Callable[[Path], object]:
    return edited(lambda model: node(model, operator).attribute.append(attribute))


def _opset(*versions: int) -> Callable[[onnx.ModelProto], object]:
    def edit(model: onnx.ModelProto) -> None:
        del model.opset_import[:]
        model.opset_import.extend(helper.make_opsetid("", version) for version in versions)

    return edit


def _constant(**attributes: object) -> Callable[[onnx.ModelProto], object]:
    def edit(model: onnx.ModelProto) -> None:
        model.graph.initializer.remove(held(model, "gamma"))
        model.graph.node.insert(0, make("Constant", [], ["gamma"], **attributes))

    return edit


def _operator(operator: str, domain: str = "", inputs: int = 1) -> Callable[[onnx.ModelProto], object]:
    def edit(model: onnx.ModelProto) -> None:
        last = node(model, "Relu")
        last.op_type, last.domain = operator, domain
        last.input.extend(["b"] * (inputs - 1))

    return edit


def _deep_reference() -> AttributeProto:
    return AttributeProto(name="epsilon", type=AttributeProto.FLOAT, ref_attr_name="nowhere")


def _attribute_cases() -> Iterator[Case]:
    yield Case(ATTRIBUTES, "epsilon as a whole number", _set("BatchNormalization", helper.make_attribute("epsilon", 1)))
    yield Case(ATTRIBUTES, "epsilon as a text", _set("BatchNormalization", helper.make_attribute("epsilon", "1e-5")))
    yield Case(ATTRIBUTES, "epsilon as a list", _set("BatchNormalization", helper.make_attribute("epsilon", [1e-5])))
    yield Case(
        ATTRIBUTES, "epsilon without a type", _set("BatchNormalization", AttributeProto(name="epsilon", f=1e-5)), is_sound=True
    )
    yield Case(
        ATTRIBUTES,
        "epsilon of type 99",
        _set("BatchNormalization", AttributeProto.FromString(field(1, b"epsilon") + varint(20 << 3) + varint(99))),
    )
    yield Case(ATTRIBUTES, "epsilon of a function's caller", _set("BatchNormalization", _deep_reference()))
    yield Case(ATTRIBUTES, "an unknown attribute", _set("Relu", helper.make_attribute("alpha", 1.0)))
    yield Case(ATTRIBUTES, "an attribute without a name", _set("Relu", AttributeProto(type=AttributeProto.INT, i=1)))
    yield Case(
        ATTRIBUTES,
        "an attribute with two values",
        _set("BatchNormalization", AttributeProto(name="epsilon", type=AttributeProto.FLOAT, f=1e-5, i=3)),
    )
    yield Case(
        ATTRIBUTES,
        "an attribute given twice",
        edited(
            lambda m: node(m, "BatchNormalization").attribute.extend(
                [helper.make_attribute("epsilon", 1e-5), helper.make_attribute("epsilon", 0.5)]
            )
        ),
    )
    yield Case(ATTRIBUTES, "a Constant without a value", edited(_constant()))
    yield Case(ATTRIBUTES, "a Constant with two values", edited(_constant(value_float=1.0, value_int=3)))
    yield Case(ATTRIBUTES, "a Constant that is a text", edited(_constant(value_string="abc")))
    yield Case(ATTRIBUTES, "a Constant whose tensor has no type", edited(_constant(value=TensorProto(dims=[4]))))
    yield Case(
        ATTRIBUTES,
        "an If without branches",
        built(lambda: [make("If", ["c"], ["y"])], inputs=[helper.make_tensor_value_info("c", TensorProto.BOOL, [])]),
    )
    yield Case(ATTRIBUTES, "a Loop without a body", built(lambda: [make("Loop", ["", "", "x"], ["y"])]))
    yield Case(
        ATTRIBUTES,
        "a Loop whose body has nothing",
        built(lambda: [make("Loop", ["", "", "x"], ["y"], body=onnx.GraphProto(name="b"))]),
    )
    yield Case(
        ATTRIBUTES,
        "a Scan whose body has nothing",
        built(lambda: [make("Scan", ["x"], ["y"], body=onnx.GraphProto(name="b"), num_scan_inputs=1)]),
    )
    yield Case(
        ATTRIBUTES,
        "a Scan over -5 inputs",
        built(lambda: [make("Scan", ["x"], ["y"], body=onnx.GraphProto(name="b"), num_scan_inputs=-5)]),
    )
    yield Case(ATTRIBUTES, "a Cast to type 999", built(lambda: [make("Cast", ["x"], ["y"], to=999)]))
    yield Case(ATTRIBUTES, "a Cast without a type", built(lambda: [make("Cast", ["x"], ["y"])]))
    yield Case(ATTRIBUTES, "an unknown domain", edited(_operator("Relu", "nowhere")))
    yield Case(ATTRIBUTES, "an unknown operator", edited(_operator("Nonsense")))
    yield Case(ATTRIBUTES, "an operator of another file", edited(_operator("../../etc/passwd", "../..")))
    yield Case(ATTRIBUTES, "an operator with too many inputs", edited(_operator("Relu", inputs=50)))
    yield Case(ATTRIBUTES, "an operator with 10^5 inputs", edited(_operator("Relu", inputs=100_000)))
    yield Case(ATTRIBUTES, "an operator of training", edited(_operator("Gradient", "ai.onnx.preview.training")))
    yield Case(
        ATTRIBUTES,
        "a BatchNormalization without parameters",
        edited(lambda m: node(m, "BatchNormalization").ClearField("input")),
    )
    yield Case(
        ATTRIBUTES,
        "a BatchNormalization with three inputs",
        edited(lambda m: node(m, "BatchNormalization").input.__delitem__(slice(3, None))),
    )
    yield Case(
        ATTRIBUTES,
        "a BatchNormalization of empty names",
        edited(lambda m: node(m, "BatchNormalization").input.__setitem__(slice(1, 5), [""] * 4)),
    )
    yield Case(ATTRIBUTES, "opset 0", edited(_opset(0)))
    yield Case(ATTRIBUTES, "opset -1", edited(_opset(-1)))
    yield Case(ATTRIBUTES, "opset 10^9", edited(_opset(10**9)))
    yield Case(ATTRIBUTES, "opset 2^62", edited(_opset(1 << 62)))
    yield Case(ATTRIBUTES, "no opset", edited(_opset()))
    yield Case(ATTRIBUTES, "two opsets", edited(_opset(9, 21)))
    yield Case(ATTRIBUTES, "IR version -1", edited(lambda m: m.__setattr__("ir_version", -1)))
    yield Case(ATTRIBUTES, "IR version 2^62", edited(lambda m: m.__setattr__("ir_version", 1 << 62)))


def _parameter(name: str, value: float, dtype: type = np.float32) -> Callable[[Path], object]:
    def edit(model: onnx.ModelProto) -> None:
        held(model, name).CopyFrom(onnx.numpy_helper.from_array(np.full(4, value, dtype), name))

    return edited(edit)


def _parameter_cases() -> Iterator[Case]:
    for name, value in (("NaN", np.nan), ("infinity", np.inf), ("minus infinity", -np.inf), ("a denormal number", 1e-42)):
        for parameter in ("gamma", "var"):
            yield Case(PARAMETERS, f"{name} as {parameter}", _parameter(parameter, value))
    yield Case(
        PARAMETERS,
        "NaN as a weight",
        edited(lambda m: held(m, "w").CopyFrom(onnx.numpy_helper.from_array(np.full((4, 4, 3, 3), np.nan, np.float32), "w"))),
    )
    yield Case(PARAMETERS, "a negative variance", _parameter("var", -1))
    yield Case(PARAMETERS, "no variance", _parameter("var", 0))
    yield Case(PARAMETERS, "the largest float as gamma", _parameter("gamma", float(np.finfo(np.float32).max)))
    yield Case(PARAMETERS, "gamma of whole numbers", _parameter("gamma", 2, np.int32))
    yield Case(PARAMETERS, "gamma of doubles beyond float", _parameter("gamma", 1e300, np.float64))
    for name, value in (("NaN", np.nan), ("infinity", np.inf), ("-1", -1.0), ("1e38", 1e38)):
        yield Case(PARAMETERS, f"epsilon of {name}", _set("BatchNormalization", helper.make_attribute("epsilon", value)))


def cases() -> Iterator[Case]:
    """All of these four families."""
    yield from _bytes_cases()
    yield from _names_cases()
    yield from _attribute_cases()
    yield from _parameter_cases()
