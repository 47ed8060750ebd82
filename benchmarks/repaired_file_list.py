"""Files that onnx.checker or ONNX Runtime objects to: a sound model, and one small edit for each objection."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import onnx
import onnx.parser
from onnx import AttributeProto, TensorProto, helper, numpy_helper

Edit = Callable[[onnx.ModelProto], object]

_GRAPH = """g (float[2,4,6,6] x) => (float[2,4,6,6] y) {
    a = Conv<pads = [1, 1, 1, 1]>(x, w)
    b = BatchNormalization(a, gamma, beta, mu, var)
    y = LeakyRelu<alpha = 0.25>(b)
}"""

_ERFC = """g (float[2,4,6,6] x) => (float[2,4,6,6] y) {
    a = Conv<pads = [1, 1, 1, 1]>(x, w)
    e = Erf(a)
    one = Constant<value_float = 1.0>()
    y = Sub(one, e)
}"""


@dataclass(frozen=True)
class BrokenFile:
    """``edit`` breaks the model of ``graph``, whose input is x and whose output is y."""

    name: str
    edit: Edit
    graph: str = _GRAPH
    opset: int = 17
    ir: int = 8

    def model(self) -> onnx.ModelProto:
        model = sound_model(self.graph, self.opset, self.ir)
        self.edit(model)
        return model


def sound_model(graph: str = _GRAPH, opset: int = 17, ir: int = 8) -> onnx.ModelProto:
    """The model before it is broken: every weight that ``graph`` reads is an initializer."""
    model = onnx.parser.parse_model(f'<ir_version: {ir}, opset_import: ["" : {opset}]> {graph}')
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((4, 4, 3, 3)),
        **{name: rng.standard_normal(4) for name in ("gamma", "beta", "mu")},
        "var": rng.uniform(0.5, 2, 4),
    }
    read = {name for node in model.graph.node for name in node.input}
    for name in weights.keys() & read:
        model.graph.initializer.append(numpy_helper.from_array(weights[name].astype(np.float32), name))
    model.graph.initializer.sort(key=lambda tensor: tensor.name)
    return model


def _held(model: onnx.ModelProto, name: str) -> TensorProto:
    return next(tensor for tensor in model.graph.initializer if tensor.name == name)


def _attribute(model: onnx.ModelProto, node: int, name: str) -> AttributeProto:
    return next(attribute for attribute in model.graph.node[node].attribute if attribute.name == name)


def _other_version(version: int) -> Edit:
    return lambda m: setattr(m, "ir_version", version)


def _swap(m: onnx.ModelProto) -> None:
    nodes = list(m.graph.node)[::-1]
    del m.graph.node[:]
    m.graph.node.extend(nodes)


def _typed_twice(m: onnx.ModelProto) -> None:
    _held(m, "beta").float_data.extend(numpy_helper.to_array(_held(m, "beta")).tolist())


def _typed_twice_differently(m: onnx.ModelProto) -> None:
    _held(m, "beta").float_data.extend([9.0] * 4)


def _in_the_field_of(field: str, dtype: int) -> Edit:
    def edit(m: onnx.ModelProto) -> None:
        tensor = m.graph.initializer.add(name="axes", data_type=dtype, dims=[1])
        getattr(tensor, field).append(1)
        m.graph.node.append(helper.make_node("ReduceSum", ["y"], ["s"], noop_with_empty_axes=0))
        m.graph.node[-1].input.append("axes")
        m.graph.output[0].CopyFrom(helper.make_tensor_value_info("s", 1, [2, 1, 6, 6]))

    return edit


def _repeat(m: onnx.ModelProto, name: str, value: float | None = None, new_name: str = "") -> None:
    tensor = m.graph.initializer.add()
    tensor.CopyFrom(_held(m, name) if value is None else numpy_helper.from_array(np.full(4, value, np.float32), name))
    tensor.name = new_name or name


def _state(name: str, shape: list[int]) -> Edit:
    return lambda m: m.graph.value_info.append(helper.make_tensor_value_info(name, 1, shape))


def _squeeze_long_axes(m: onnx.ModelProto) -> None:
    """As PyTorch's dynamo exporter writes ``torch.squeeze(b, (1, 2))``, which takes nothing away."""
    m.graph.initializer.append(numpy_helper.from_array(np.array([1, 2]), "long"))
    m.graph.node.insert(2, helper.make_node("Squeeze", ["b", "long"], ["squeezed"]))
    m.graph.node[3].input[0] = "squeezed"
    for name in ("b", "squeezed"):
        _state(name, [2, 4, 6, 6])(m)


def _leave_erfc(m: onnx.ModelProto) -> None:
    """As tf2onnx leaves the GELU of Keras, whose operator it does not know."""
    del m.graph.node[1:]
    m.graph.node.append(helper.make_node("Erfc", ["a"], ["y"]))


def _sparse(m: onnx.ModelProto) -> None:
    values = numpy_helper.from_array(np.array([1.0, 2.0], np.float32), "beta")
    indices = numpy_helper.from_array(np.array([0, 2], np.int64), "beta_indices")
    m.graph.initializer.remove(_held(m, "beta"))
    m.graph.sparse_initializer.append(onnx.SparseTensorProto(values=values, indices=indices, dims=[4]))


def _without_shape(value: onnx.ValueInfoProto) -> None:
    value.type.tensor_type.ClearField("shape")


def _opsets(*entries: tuple[str, int]) -> Edit:
    def edit(m: onnx.ModelProto) -> None:
        del m.opset_import[:]
        m.opset_import.extend(helper.make_opsetid(*entry) for entry in entries)

    return edit


def _all(*edits: Edit) -> Edit:
    return lambda m: [edit(m) for edit in edits]


def _in_domain(domain: str) -> Edit:
    return lambda m: [setattr(node, "domain", domain) for node in m.graph.node]


FILES: dict[str, tuple[BrokenFile, ...]] = {
    "The model": (
        BrokenFile("IR version 3, initializers are not inputs", lambda m: None, ir=3),
        BrokenFile("no IR version", lambda m: m.ClearField("ir_version")),
        BrokenFile("IR version 99, newer than any", _other_version(99)),
        BrokenFile("IR version 2 with an opset import", _other_version(2)),
        BrokenFile("no opset import", lambda m: m.ClearField("opset_import")),
        BrokenFile("opset imported twice, the same", _opsets(("", 17), ("", 17))),
        BrokenFile("opset imported twice, under both names", _opsets(("", 17), ("ai.onnx", 17))),
        BrokenFile("opset imported twice, differently", _opsets(("", 13), ("", 17))),
        BrokenFile("opset newer than any", _opsets(("", 999))),
        BrokenFile("opset 0", _opsets(("", 0))),
        BrokenFile("domain called ai.onnx", _all(_opsets(("ai.onnx", 17)), _in_domain("ai.onnx"))),
        BrokenFile("domain called ai.onnx in nodes alone", _in_domain("ai.onnx")),
        BrokenFile("domain called ai.onnx in the import alone", _opsets(("ai.onnx", 17))),
        BrokenFile(
            "domain of an operator is not imported",
            lambda m: m.graph.node[2].CopyFrom(helper.make_node("Gelu", ["b"], ["y"], domain="com.microsoft")),
        ),
        BrokenFile(
            "metadata with one key twice",
            lambda m: m.metadata_props.extend(onnx.StringStringEntryProto(key="k", value=v) for v in "ab"),
        ),
        BrokenFile("training information", lambda m: m.training_info.add()),
    ),
    "The graph": (
        BrokenFile("no name", lambda m: m.graph.ClearField("name")),
        BrokenFile("nodes not in order", _swap),
        BrokenFile("two nodes of one name", lambda m: [setattr(node, "name", "n") for node in m.graph.node]),
        BrokenFile("an output without a shape", lambda m: _without_shape(m.graph.output[0])),
        BrokenFile("an output without a type", lambda m: m.graph.output[0].ClearField("type")),
        BrokenFile(
            "an output of the wrong element type", lambda m: setattr(m.graph.output[0].type.tensor_type, "elem_type", 7)
        ),
        BrokenFile("an output of the wrong shape", lambda m: m.graph.output[0].type.tensor_type.shape.dim.add(dim_value=3)),
        BrokenFile("an inner tensor of the wrong shape", _state("a", [9])),
        BrokenFile("an inner tensor without a type", lambda m: m.graph.value_info.add(name="a")),
        BrokenFile("an input without a shape", lambda m: _without_shape(m.graph.input[0])),
        BrokenFile("an input without a type", lambda m: m.graph.input[0].ClearField("type")),
        BrokenFile("an input listed twice", lambda m: m.graph.input.append(m.graph.input[0])),
        BrokenFile("an output listed twice", lambda m: m.graph.output.append(m.graph.output[0])),
        BrokenFile(
            "an output that nothing makes", lambda m: m.graph.output.add(name="z").type.CopyFrom(m.graph.output[0].type)
        ),
        BrokenFile("an output that is an input", lambda m: m.graph.output.append(m.graph.input[0])),
        BrokenFile("an output without a name", lambda m: m.graph.output.append(helper.make_tensor_value_info("", 1, [1]))),
    ),
    "Nodes": (
        BrokenFile("a node without inputs and outputs", lambda m: m.graph.node.append(onnx.NodeProto(op_type="Relu"))),
        BrokenFile("an input that nothing makes", lambda m: m.graph.node[2].input.__setitem__(0, "nothing")),
        BrokenFile("two nodes that make one tensor", lambda m: m.graph.node.append(m.graph.node[2])),
        BrokenFile("a node that makes an initializer", lambda m: _repeat(m, "beta", 7.0, "b")),
        BrokenFile("an empty optional input at the end", lambda m: m.graph.node[0].input.append("")),
        BrokenFile("one empty input too many", lambda m: m.graph.node[2].input.append("")),
        BrokenFile("one input too many", lambda m: m.graph.node[2].input.append("x")),
        BrokenFile("one empty output too many", lambda m: m.graph.node[2].output.append("")),
        BrokenFile("one unused output too many", lambda m: m.graph.node[2].output.append("unused")),
        BrokenFile("a needed input left out", lambda m: m.graph.node[1].input.__setitem__(3, "")),
        BrokenFile("an operator that the opset does not have", lambda m: setattr(m.graph.node[2], "op_type", "Gelu")),
        BrokenFile("an operator without a name", lambda m: m.graph.node[2].ClearField("op_type")),
        BrokenFile(
            "an operator that is deprecated",
            lambda m: m.graph.node[2].CopyFrom(helper.make_node("Upsample", ["b", "gamma"], ["y"])),
        ),
        BrokenFile(
            "GroupNormalization of opset 18",
            lambda m: m.graph.node[1].CopyFrom(
                helper.make_node("GroupNormalization", ["a", "gamma", "beta"], ["b"], num_groups=4)
            ),
            opset=18,
        ),
        BrokenFile("a Squeeze of axes that are longer than 1", _squeeze_long_axes),
        BrokenFile("an Erfc of TensorFlow", _leave_erfc, _ERFC),
    ),
    "Attributes": (
        BrokenFile("no type", lambda m: _attribute(m, 2, "alpha").ClearField("type")),
        BrokenFile("no type, a list", lambda m: _attribute(m, 0, "pads").ClearField("type")),
        BrokenFile("the type of another field", lambda m: setattr(_attribute(m, 2, "alpha"), "type", AttributeProto.INT)),
        BrokenFile("two values", lambda m: setattr(_attribute(m, 2, "alpha"), "i", 1)),
        BrokenFile("an integer for a float", lambda m: _attribute(m, 2, "alpha").CopyFrom(helper.make_attribute("alpha", 1))),
        BrokenFile("one number for a list", lambda m: m.graph.node[0].attribute.append(helper.make_attribute("strides", 1))),
        BrokenFile("twice, the same", lambda m: m.graph.node[2].attribute.append(_attribute(m, 2, "alpha"))),
        BrokenFile("twice, differently", lambda m: m.graph.node[2].attribute.append(helper.make_attribute("alpha", 0.5))),
        BrokenFile("unknown to the operator", lambda m: m.graph.node[2].attribute.append(helper.make_attribute("note", 1))),
        BrokenFile("of an older opset", lambda m: m.graph.node[1].attribute.append(helper.make_attribute("is_test", 1))),
        BrokenFile(
            "consumed_inputs, of opset 1 to 5",
            lambda m: m.graph.node[2].attribute.append(helper.make_attribute("consumed_inputs", [0])),
        ),
        BrokenFile("no name", lambda m: m.graph.node[2].attribute[0].ClearField("name")),
    ),
    "Tensors": (
        BrokenFile("values in two fields, the same", _typed_twice),
        BrokenFile("values in two fields, not the same", _typed_twice_differently),
        BrokenFile("int64 in int32_data", _in_the_field_of("int32_data", TensorProto.INT64)),
        BrokenFile("an initializer twice, the same", lambda m: _repeat(m, "beta")),
        BrokenFile("an initializer twice, differently", lambda m: _repeat(m, "beta", 7.0)),
        BrokenFile("an initializer without a name", lambda m: m.graph.initializer.add(data_type=1, dims=[1], float_data=[1.0])),
        BrokenFile("an initializer of an unknown type", lambda m: setattr(_held(m, "beta"), "data_type", 0)),
        BrokenFile("a scalar with dims [0] that holds a value", lambda m: _held(m, "beta").dims.__setitem__(0, 0)),
        BrokenFile("a sparse initializer", _sparse),
    ),
}
