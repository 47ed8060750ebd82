"""Raise a model to opset 22, the first in which every operator that has half precision also has bfloat16.

Half precision needs that of quantised models alone, whose QuantizeLinear and DequantizeLinear are float32 before opset 19.

Most operators changed in nothing but the types that they take. The others are written in their new form, or the model stays as
it is (ONNX operator changelog, opset 13 to 22).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import onnx
from onnx import numpy_helper

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS, default_opset
from trtnorm_cli.onnx_model.names import free_name
from trtnorm_cli.onnx_model.walk import all_graphs, all_nodes
from trtnorm_cli.precision.connections import is_operator
from trtnorm_cli.precision.low_constants import Constants
from trtnorm_cli.precision.low_types import BF16, LowType

TARGET = 22
_OLDEST = 9
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
# New attributes and inputs whose defaults mean what the operator did before.
_ONLY_ADDED = frozenset({
    "ArgMax", "ArgMin", "AveragePool", "BatchNormalization", "Cast", "CastLike", "Constant", "DepthToSpace", "DequantizeLinear",
    "GRU", "GatherND", "Gemm", "LSTM", "Loop", "LpPool", "MaxPool", "QuantizeLinear", "RNN", "Reshape", "ScatterElements",
    "ScatterND", "Shape",
})  # fmt: skip
# Attributes that became inputs: name and place.
_BECAME_INPUTS: dict[str, tuple[tuple[str, int], ...]] = {
    **{f"Reduce{name}": (("axes", 1),) for name in _REDUCTIONS},
    "Clip": (("min", 1), ("max", 2)),
    "Pad": (("pads", 1), ("value", 2)),
    "Slice": (("starts", 1), ("ends", 2), ("axes", 3)),
    "Split": (("split", 1),),
    "Squeeze": (("axes", 1),),
    "TopK": (("k", 1),),
    "Unsqueeze": (("axes", 1),),
}
_QUANTISE, _QUANTISES_HALF = ("QuantizeLinear", "DequantizeLinear"), 19
_OVER_ONE_AXIS = frozenset({"Hardmax", "LogSoftmax", "Softmax"})
_ONE_AXIS = 13
_GRID_MODES = {b"bilinear": b"linear", b"bicubic": b"cubic"}


def why_not_raised(model: onnx.ModelProto, constants: Constants) -> str:
    """The reason why ``model`` cannot be raised to opset 22; empty where it can, or is as new. Reads no weights."""
    opset = default_opset(model.opset_import)
    if opset >= TARGET:
        return ""
    if opset < _OLDEST:
        return f"opset {opset} is too far from opset {TARGET}"
    nodes = [node for node in all_nodes(model) if node.domain in DEFAULT_DOMAINS]
    if foreign := sorted({node.op_type for node in nodes if not _is_known(node.op_type, opset)}):
        return f"{', '.join(foreign)} changed between opset {opset} and {TARGET}"
    if any(node.op_type in _OVER_ONE_AXIS and opset < _ONE_AXIS and not _is_over_the_last(node, model) for node in nodes):
        return f"a softmax of opset {opset} goes over more than the last axis"
    for node in nodes:
        is_grouped = node.op_type == "GroupNormalization" and not _is_the_same(node.op_type, opset)
        if is_grouped and (any(name not in constants for name in node.input[1:3]) or _channels(model, node.input[0]) is None):
            return f"GroupNormalization {node.name} of opset {opset} has parameters of run time, or channels that are not known"
    return ""


def needs_raising(model: onnx.ModelProto, low: LowType) -> bool:
    """True where operators of ``model`` may lack ``low`` only because of its opset."""
    opset = default_opset(model.opset_import)
    if low is BF16:
        return opset < TARGET
    return opset < _QUANTISES_HALF and any(is_operator(node, *_QUANTISE) for node in model.graph.node)


def opset_for(model: onnx.ModelProto, constants: Constants, low: LowType) -> int:
    """The opset that ``model`` will have in ``low``."""
    opset = default_opset(model.opset_import)
    return TARGET if needs_raising(model, low) and not why_not_raised(model, constants) else opset


def raised_opset(model: onnx.ModelProto, constants: Constants) -> onnx.ModelProto:
    """``model`` in opset 22, or as it is where that cannot be or need not be. ``model`` is not changed."""
    opset = default_opset(model.opset_import)
    if opset >= TARGET or why_not_raised(model, constants):
        return model
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for entry in result.opset_import:
        if entry.domain in DEFAULT_DOMAINS:
            entry.version = TARGET
    raising = _Raising(result, constants)
    for graph in all_graphs(result.graph):
        for node in graph.node:
            change = _change_of(node.op_type, opset) if node.domain in DEFAULT_DOMAINS else None
            if change is not None:
                change(raising, node)
    return result


def _is_over_the_last(node: onnx.NodeProto, model: onnx.ModelProto) -> bool:
    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
    ranks = [
        len(value.type.tensor_type.shape.dim)
        for graph in all_graphs(model.graph)
        for value in (*graph.value_info, *graph.input, *graph.output)
        if value.name in (node.input[0], node.output[0]) and value.type.tensor_type.HasField("shape")
    ]
    return axis == -1 or (bool(ranks) and axis == ranks[0] - 1)


def _is_known(operator: str, opset: int) -> bool:
    return _is_the_same(operator, opset) or operator in _ONLY_ADDED or operator in _CHANGES


def _change_of(operator: str, opset: int) -> _Change | None:
    return None if _is_the_same(operator, opset) else _CHANGES.get(operator)


@lru_cache(maxsize=1024)
def _is_the_same(operator: str, opset: int) -> bool:
    """True when nothing but the types of an operator changed; also of one that ONNX does not know."""
    if not onnx.defs.has(operator, max_inclusive_version=opset):
        return True
    try:
        before, after = (onnx.defs.get_schema(operator, version, "") for version in (opset, TARGET))
    except onnx.defs.SchemaError:
        return False
    if operator in _SAME_SIGNATURE:
        # Of these the version alone tells.
        return before.since_version >= _SAME_SIGNATURE[operator]
    return before.since_version == after.since_version or _signature(before) == _signature(after)


def _signature(schema: onnx.defs.OpSchema) -> tuple[object, ...]:
    inputs, outputs = ([(p.name, str(p.option)) for p in formals] for formals in (schema.inputs, schema.outputs))
    given = sorted((a.name, str(a.type), a.required, str(a.default_value)) for a in schema.attributes.values())
    return inputs, outputs, given


class _Raising:
    """Nodes in the form of opset 22, in place."""

    def __init__(self, model: onnx.ModelProto, constants: Constants) -> None:
        self._model, self._constants = model, constants
        self._main = model.graph
        self._taken = {name for node in all_nodes(model) for name in (*node.input, *node.output)}
        self._taken |= {tensor.name for graph in all_graphs(model.graph) for tensor in graph.initializer}

    def _constant(self, wanted: str, value: np.ndarray) -> str:
        name = free_name(wanted, self._taken)
        self._main.initializer.append(numpy_helper.from_array(value, name))
        return name

    def attributes_to_inputs(self, node: onnx.NodeProto) -> None:
        for name, place in _BECAME_INPUTS[node.op_type]:
            given = _taken(node, name)
            if given is None or (len(node.input) > place and node.input[place]):
                continue
            node.input.extend([""] * (place + 1 - len(node.input)))
            value = onnx.helper.get_attribute_value(given)
            dtype = np.float32 if given.type == onnx.AttributeProto.FLOAT else np.int64
            is_scalar = given.type == onnx.AttributeProto.FLOAT
            made = np.asarray(value, dtype) if is_scalar else np.atleast_1d(np.asarray(value, dtype))
            node.input[place] = self._constant(f"{node.output[0]}_{name}", made)

    def split(self, node: onnx.NodeProto) -> None:
        self.attributes_to_inputs(node)
        if len(node.input) < 2 or not node.input[1]:
            node.attribute.append(onnx.helper.make_attribute("num_outputs", len(node.output)))

    def dropout(self, node: onnx.NodeProto) -> None:
        _taken(node, "ratio")  # outside of training nothing is dropped

    def softmax(self, node: onnx.NodeProto) -> None:
        _taken(node, "axis")
        node.attribute.append(onnx.helper.make_attribute("axis", -1))

    def roi_align(self, node: onnx.NodeProto) -> None:
        if not any(a.name == "coordinate_transformation_mode" for a in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("coordinate_transformation_mode", "output_half_pixel"))

    def grid_sample(self, node: onnx.NodeProto) -> None:
        for attribute in node.attribute:
            if attribute.name == "mode":
                attribute.s = _GRID_MODES.get(attribute.s, attribute.s)

    def group_normalization(self, node: onnx.NodeProto) -> None:
        """Give each channel the scale and bias of its group."""
        channels = _channels(self._model, node.input[0])
        assert channels is not None
        for place in (1, 2):
            values = self._constants.value(node.input[place])
            repeated = np.repeat(values, channels // values.size)
            node.input[place] = self._constant(f"{node.input[place]}_per_channel", repeated)


def _channels(model: onnx.ModelProto, name: str) -> int | None:
    for value in (*model.graph.value_info, *model.graph.input):
        if value.name == name and len(value.type.tensor_type.shape.dim) > 1:
            return int(value.type.tensor_type.shape.dim[1].dim_value) or None
    return None


_Change = Callable[[_Raising, onnx.NodeProto], None]
_CHANGES: dict[str, _Change] = {
    **dict.fromkeys(_BECAME_INPUTS, _Raising.attributes_to_inputs),
    "Dropout": _Raising.dropout,
    "GridSample": _Raising.grid_sample,
    "GroupNormalization": _Raising.group_normalization,
    "Hardmax": _Raising.softmax,
    "LogSoftmax": _Raising.softmax,
    "RoiAlign": _Raising.roi_align,
    "Softmax": _Raising.softmax,
    "Split": _Raising.split,
}
# Operators whose meaning changed though their signature may not have: the version from which it is that of opset 22.
_SAME_SIGNATURE = {
    "GridSample": 20, "GroupNormalization": 21, "Hardmax": 13, "LogSoftmax": 13, "Resize": 11, "RoiAlign": 16, "Softmax": 13,
}  # fmt: skip


def _taken(node: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    """The attribute of that name, taken off ``node``."""
    for index, attribute in enumerate(node.attribute):
        if attribute.name == name:
            copy = onnx.AttributeProto()
            copy.CopyFrom(attribute)
            del node.attribute[index]
            return copy
    return None
