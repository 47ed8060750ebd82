"""Give model-local functions the version of the ONNX operators that the model imports.

ONNX asks that an operator be the same in both versions (``FunctionProto.opset_import``), and its checker refuses other files.
ONNX Runtime and TensorRT inline the function and read its nodes in the model's version: measured with Softmax of opset 11 in
a model of opset 17 and the reverse. A node that exists only in the function's own version runs nowhere, has one meaning, and is
converted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
from onnx import version_converter

from trtnorm_cli.errors import ModelError
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.walk import all_nodes, nodes_within, subgraphs

# Operators that the same node calls in both versions and that compute something else, and since when (operator changelog).
_NEW_MEANING_SINCE = {
    "Softmax": (13,),
    "LogSoftmax": (13,),
    "Hardmax": (13,),
    "RoiAlign": (16,),
    "GroupNormalization": (21,),
    "Scan": (9,),
}


def import_default_domain(model: onnx.ModelProto) -> list[str]:
    """Let a model whose graph only calls functions import the opset that these are written for; returns their names."""
    versions = {_version(function.opset_import) for function in model.functions} - {None}
    used = any(node.domain in DEFAULT_DOMAINS for node in nodes_within(model.graph.node))
    if _version(model.opset_import) is not None or used or len(versions) != 1:
        return []
    model.opset_import.add(domain="", version=versions.pop())
    return [function.name for function in model.functions]


def write_default_attributes(model: onnx.ModelProto) -> list[str]:
    """Write the default attribute values of functions into the calls that leave them out; returns these, as function/attribute.

    ``onnx.inliner`` and TensorRT's parser ignore the defaults (onnx 1.23 and TensorRT-RTX 1.7 were tried).
    """
    defaults = {(f.domain, f.name, f.overload): f.attribute_proto for f in model.functions if f.attribute_proto}
    written = []
    for node in all_nodes(model) if defaults else ():
        given = {attribute.name for attribute in node.attribute}
        for attribute in defaults.get((node.domain, node.op_type, node.overload), ()):
            if attribute.name not in given:
                node.attribute.append(attribute)
                written.append(f"{node.op_type}/{attribute.name}")
    return written


def convert_functions(model: onnx.ModelProto) -> list[str]:
    """Convert, in place, the nodes of functions that do not exist in the model's opset; returns them as function/operator.

    Raises ``ModelError`` for a node that cannot be converted.
    """
    return [
        f"{function.name}/{operator}"
        for function, own, wanted in _of_another_opset(model)
        for operator in _convert_all(function.node, function.name, own, wanted)
    ]


def adopt_new_meanings(model: onnx.ModelProto) -> list[str]:
    """Nodes of functions that compute something else in the model's opset than in their own, as function/operator.

    They stay as they are: this is what runtimes do.
    """
    return [
        f"{function.name}/{node.op_type} of opset {own} in {wanted}"
        for function, own, wanted in _of_another_opset(model)
        for node in nodes_within(function.node)
        if node.domain in DEFAULT_DOMAINS and _means_something_else(node, own, wanted)
    ]


def adopt_opsets(model: onnx.ModelProto) -> list[str]:
    """Let every function import what the model imports, in place; returns the functions that did not."""
    versions = {"" if entry.domain in DEFAULT_DOMAINS else entry.domain: entry.version for entry in model.opset_import}
    adopted = []
    for function in model.functions:
        before = function.SerializeToString(deterministic=True)
        for entry in function.opset_import:
            entry.domain = "" if entry.domain in DEFAULT_DOMAINS else entry.domain
            entry.version = versions.get(entry.domain, entry.version)
        if function.SerializeToString(deterministic=True) != before:
            adopted.append(function.name)
    return adopted


def _of_another_opset(model: onnx.ModelProto) -> Iterator[tuple[onnx.FunctionProto, int, int]]:
    """The functions that import another version of the ONNX operators than the model, with both versions."""
    wanted = _version(model.opset_import)
    for function in model.functions:
        own = _version(function.opset_import)
        if own is not None and wanted is not None and own != wanted:
            yield function, own, wanted


def _version(imports: Iterable[onnx.OperatorSetIdProto]) -> int | None:
    return next((entry.version for entry in imports if entry.domain in DEFAULT_DOMAINS), None)


def _means_something_else(node: onnx.NodeProto, own: int, wanted: int) -> bool:
    older, newer = sorted((own, wanted))
    if not any(older < since <= newer for since in _NEW_MEANING_SINCE.get(node.op_type, ())):
        return False
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), None)
    return not (node.op_type.endswith("max") and axis == -1)


def _convert_all(nodes: list[onnx.NodeProto], function: str, own: int, wanted: int) -> list[str]:
    """Convert ``nodes``, a repeated field, in place, bodies of If, Loop and Scan included; returns the operators."""
    converted: list[str] = []
    result: list[onnx.NodeProto] = []
    for node in nodes:
        for inner in subgraphs(node):
            converted += _convert_all(inner.node, function, own, wanted)
        if node.domain in DEFAULT_DOMAINS and not _exists(node, wanted):
            result += _converted(node, function, own, wanted)
            converted.append(node.op_type)
        else:
            kept = onnx.NodeProto()
            kept.CopyFrom(node)
            result.append(kept)
    del nodes[:]
    nodes.extend(result)
    return converted


def _exists(node: onnx.NodeProto, opset: int) -> bool:
    """True when the operator of ``opset`` has the attributes of ``node`` and takes as many inputs and outputs."""
    try:
        schema = onnx.defs.get_schema(node.op_type, opset, "")
    except onnx.defs.SchemaError:
        return False
    fits = schema.min_input <= len(node.input) <= schema.max_input and len(node.output) <= schema.max_output
    return fits and not schema.deprecated and all(attribute.name in schema.attributes for attribute in node.attribute)


def _converted(node: onnx.NodeProto, function: str, own: int, wanted: int) -> list[onnx.NodeProto]:
    """The nodes of opset ``wanted`` that do what ``node`` does in ``own``."""
    label = node.name or f"{node.op_type} -> {node.output[0]}"
    try:
        if any(attribute.ref_attr_name for attribute in node.attribute):
            raise ValueError("its attributes are those of the function, and would have to become inputs")
        alone = version_converter.convert_version(_model_of(node, _last_alike(node, own, wanted)), wanted).graph
        if not all(_exists(new, wanted) for new in alone.node):
            raise ValueError("onnx.version_converter has no conversion for it")
    except Exception as error:  # the converter raises RuntimeError and its own errors alike
        raise ModelError(
            f"the function {function} is written for opset {own} and the model for opset {wanted}, which has no such "
            f"{node.op_type}, and it cannot be converted: {' '.join(str(error).split())[:200]}",
            f"function {function}, node {label}",
            "convert the model with onnx.version_converter, or export it without functions",
        ) from error
    nodes = [onnx.helper.make_node("Constant", [], [held.name], value=held) for held in alone.initializer] + list(alone.node)
    kept = {*node.input, *node.output}
    inner = {name for new in nodes for name in (*new.input, *new.output)} - kept
    names = {**{name: name for name in kept}, **{name: f"{node.output[0]}_{name}" for name in inner}}
    for new in nodes:
        for field in (new.input, new.output):
            renamed = [names[name] if name else "" for name in field]
            del field[:]
            field.extend(renamed)
    return nodes


def _last_alike(node: onnx.NodeProto, own: int, wanted: int) -> int:
    """The version nearest to ``wanted`` in which the operator is that of ``own``: the converter does not know the oldest."""
    since = onnx.defs.get_schema(node.op_type, own, "").since_version
    alike = own
    while alike < wanted - 1 and onnx.defs.get_schema(node.op_type, alike + 1, "").since_version == since:
        alike += 1
    return alike


def _model_of(node: onnx.NodeProto, opset: int) -> onnx.ModelProto:
    """A model of ``node`` alone; of its inputs nothing is known but that they are tensors."""
    model = onnx.ModelProto(ir_version=8, opset_import=[onnx.helper.make_opsetid("", opset)])
    model.graph.name = "node"
    model.graph.node.append(node)
    for field, names in ((model.graph.input, node.input), (model.graph.output, node.output)):
        for name in dict.fromkeys(filter(None, names)):
            field.add(name=name).type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    return model
