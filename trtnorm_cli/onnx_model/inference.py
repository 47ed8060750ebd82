"""ONNX's shape inference, told of operators that it does not know, and kept off what it would write out element by element."""

from __future__ import annotations

import onnx
from google.protobuf.message import DecodeError

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.resized import with_scales_for_inference
from trtnorm_cli.onnx_model.walk import all_graphs, all_nodes, all_tensors, subgraphs

# Data propagation keeps about 140 bytes for every element of every vector that a node reads, whatever it holds.
_LONG = 1 << 16
# What makes vectors of any length from few elements.
_MAKES_VECTORS = frozenset(
    {"Range", "ConstantOfShape", "Expand", "Tile", "OneHot", "Pad", "Resize", "Upsample", "Loop", "Scan"}
)
_OPAQUE = "trtnorm.opaque"
# What has the type and shape of the first input, and no inference in ONNX: the outputs that have them, by operator.
_OWN = {"GroupNormalization": (0,), "SimplifiedLayerNormalization": (0,)}
_CONTRIBUTED = {
    **dict.fromkeys(("BiasGelu", "FastGelu", "Gelu", "GroupNorm", "QuickGelu"), (0,)),
    **dict.fromkeys(("SkipLayerNormalization", "SkipSimplifiedLayerNormalization"), (0, 3)),
    "SkipGroupNorm": (0, 1),
}


def infer_types(light: onnx.ModelProto, data_prop: bool) -> onnx.ModelProto:
    """``light``, a model without large data, with the types that follow from what it states.

    ``data_prop`` follows single dimensions through shape arithmetic; the nodes about long vectors then have another domain in
    the result, and those that ONNX does not know may be other ones. Raises whatever the inference library does: RuntimeError,
    ValueError and its own errors.
    """
    if any(map(outputs_like_the_first_input, all_nodes(light))):
        light = _without_unknown_operators(light)
    asked = _without_long_vectors(light) if data_prop and _may_have_long_vectors(light) else light
    found = _inferred(asked, data_prop)
    # What is resized behind another Resize has its size in the next round.
    while (resized := with_scales_for_inference(asked, found)) is not None:
        asked = resized
        found = _inferred(asked, data_prop)
    return found


def _inferred(model: onnx.ModelProto, data_prop: bool) -> onnx.ModelProto:
    return onnx.shape_inference.infer_shapes(model, check_type=False, strict_mode=False, data_prop=data_prop)


def inferred_or_stated_types(light: onnx.ModelProto) -> onnx.ModelProto:
    """As ``infer_types`` with data, or ``light`` itself where its graphs are nested so deep that protobuf reads no answer."""
    try:
        return infer_types(light, data_prop=True)
    except DecodeError:
        return light


def outputs_like_the_first_input(node: onnx.NodeProto) -> tuple[int, ...]:
    """The outputs of ``node``, by number, that have the type and shape of its first input, where ONNX cannot tell that."""
    table = _OWN if node.domain in DEFAULT_DOMAINS else _CONTRIBUTED if node.domain == "com.microsoft" else {}
    return table.get(node.op_type, ())


def _without_unknown_operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy in which Identities stand for what has the type and shape of its first input."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for graph in all_graphs(copy.graph):
        told = [same for node in graph.node for same in _told(node)]
        del graph.node[:]
        graph.node.extend(told)
    return copy


def _told(node: onnx.NodeProto) -> list[onnx.NodeProto]:
    places = outputs_like_the_first_input(node)
    if not places or not node.input:
        return [node]
    names = [node.output[place] for place in places if place < len(node.output) and node.output[place]]
    return [onnx.helper.make_node("Identity", node.input[:1], [name]) for name in names]


def _may_have_long_vectors(model: onnx.ModelProto) -> bool:
    """False where nothing in the model makes, holds or takes one, so that it need not be looked for."""
    graphs = list(all_graphs(model.graph))
    if any(node.op_type in _MAKES_VECTORS for node in all_nodes(model)):
        return True
    stated = (value for graph in graphs for value in (*graph.value_info, *graph.input, *graph.output))
    return any(map(_is_long_vector, stated)) or any(len(t.dims) == 1 and t.dims[0] > _LONG for t in all_tensors(model))


def _without_long_vectors(model: onnx.ModelProto) -> onnx.ModelProto:
    """``model``, or a copy where nodes that read or make long vectors have no data propagator, and what they make is stated."""
    try:
        inferred = infer_types(model, data_prop=False)
    except Exception:  # it has several classes of errors, and says them again to whom it matters
        return model
    graphs = list(all_graphs(inferred.graph))
    long = {value.name for g in graphs for value in (*g.value_info, *g.input, *g.output) if _is_long_vector(value)}
    if not long:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    copy.opset_import.append(onnx.helper.make_opsetid(_OPAQUE, 1))
    for graph, known in zip(all_graphs(copy.graph), graphs, strict=False):
        types = {value.name: value for value in (*known.value_info, *known.input, *known.output)}
        stated = {value.name for value in (*graph.value_info, *graph.output)}
        for node in graph.node:
            if not long.isdisjoint([*node.input, *node.output]) and not any(True for _ in subgraphs(node)):
                node.domain = _OPAQUE
                graph.value_info.extend(types[name] for name in node.output if name in types and name not in stated)
    return copy


def _is_long_vector(value: onnx.ValueInfoProto) -> bool:
    dims = value.type.tensor_type.shape.dim
    return len(dims) == 1 and dims[0].dim_value > _LONG
