"""Nodes that TensorRT computes by a plugin: written so that everybody else can run them, stripped for the builder.

A plugin node that trtnorm writes is in a domain of its own, with a model-local function that says in standard ONNX what the
plugin computes. ONNX Runtime and the ONNX checker follow the function. TensorRT's parser follows it too where it has no such
plugin, and before TensorRT 10.7 even where it has one.
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx
import onnx.inliner

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.walk import all_graphs, all_nodes
from trtnorm_cli.record import Record

DOMAIN = "trtnorm.plugins"
DEFAULT_VERSION, DEFAULT_NAMESPACE = "1", ""
# These attributes tell the parser which plugin it is; all others are the plugin's own.
ADDRESS = ("plugin_version", "plugin_namespace")
# How many inputs the plugin itself reads; a definition may read more.
PLUGIN_INPUTS = {"InstanceNormalization_TRT": 1, "GroupNormalizationPlugin": 3}


@dataclass(frozen=True)
class PluginNode(Record):
    """A node that asks TensorRT for a plugin. ``attributes`` maps the plugin's own to their ONNX types (``FLOATS``, …).

    ``is_own`` is true of one that trtnorm has written, instead of an operator of ONNX. ``domain`` is that of others: the parser
    takes it for a namespace too.
    """

    node: str
    operator: str
    is_own: bool
    domain: str
    version: str
    namespace: str
    attributes: dict[str, str]
    has_function: bool


def plugin_nodes(model: onnx.ModelProto, every: bool = False) -> list[PluginNode]:
    """The nodes that say which plugin they want, by a domain of trtnorm or by a version or namespace.

    With ``every``, also those whose operator neither ONNX nor the model defines.
    """
    functions = {(function.domain, function.name) for function in model.functions}
    found = []
    for node in _called_nodes(model):
        has_function = (node.domain, node.op_type) in functions
        says_so = node.domain == DOMAIN or any(attribute.name in ADDRESS for attribute in node.attribute)
        if says_so or (every and not has_function and not onnx.defs.has(node.op_type, node.domain)):
            found.append(_read(node, has_function))
    return found


def _called_nodes(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """All nodes but those that only define what a plugin of trtnorm means."""
    for graph in all_graphs(model.graph):
        yield from graph.node
    for function in model.functions:
        if function.domain != DOMAIN:
            yield from function.node


def _read(node: onnx.NodeProto, has_function: bool) -> PluginNode:
    address = {a.name: a.s.decode("utf-8", "replace") for a in node.attribute if _is_address(a)}
    own = {a.name: onnx.AttributeProto.AttributeType.Name(a.type) for a in node.attribute if not _is_address(a)}
    return PluginNode(
        node.name or f"{node.op_type} -> {node.output[0]}",
        node.op_type,
        node.domain == DOMAIN,
        "" if node.domain == DOMAIN else node.domain,
        address.get("plugin_version", DEFAULT_VERSION),
        address.get("plugin_namespace", DEFAULT_NAMESPACE),
        own,
        has_function,
    )


def _is_address(attribute: onnx.AttributeProto) -> bool:
    """The parser ignores a version or namespace that is not a string."""
    return attribute.name in ADDRESS and attribute.type == onnx.AttributeProto.STRING


def has_definitions(model: onnx.ModelProto) -> bool:
    """True when functions in the model say what plugins of trtnorm compute."""
    return any(function.domain == DOMAIN for function in model.functions)


def by_definition(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with the functions that say what plugins compute in the place of the plugin nodes."""
    return onnx.inliner.inline_selected_functions(model, [(f.domain, f.name) for f in model.functions if f.domain == DOMAIN])


def for_builder(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` as TensorRT should get it: its plugin nodes without domain and function, so that the parser asks for plugins.

    The same object where there are none. The result is not for anybody else: no checker and no runtime takes it.
    """
    if not has_definitions(model):
        return model
    stripped = onnx.ModelProto()
    stripped.CopyFrom(model)
    for node in all_nodes(stripped):
        if node.domain == DOMAIN:
            node.ClearField("domain")
            del node.input[PLUGIN_INPUTS.get(node.op_type, len(node.input)) :]
    for field in (stripped.functions, stripped.opset_import):
        kept = [entry for entry in field if entry.domain != DOMAIN]
        del field[:]
        field.extend(kept)
    return stripped
