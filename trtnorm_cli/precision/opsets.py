"""Raise a model to opset 22, the first in which every operator that has half precision also has bfloat16.

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
from trtnorm_cli.precision.low_constants import Constants

TARGET = 22
_OLDEST = 13
# New attributes and inputs whose defaults mean what the operator did before.
_ONLY_ADDED = frozenset({
    "AveragePool", "BatchNormalization", "Cast", "CastLike", "DequantizeLinear", "GRU", "LSTM", "LpPool", "Pad",
    "QuantizeLinear", "RNN", "Reshape", "Resize", "ScatterElements", "ScatterND", "Shape",
})  # fmt: skip
_GRID_MODES = {b"bilinear": b"linear", b"bicubic": b"cubic"}


def raised_opset(model: onnx.ModelProto, constants: Constants) -> tuple[onnx.ModelProto | None, str]:
    """``model`` in opset 22, or None and why not. ``model`` is not changed, and its weights are not read."""
    opset = default_opset(model.opset_import)
    if opset >= TARGET:
        return model, ""
    if opset < _OLDEST:
        return None, f"opset {opset} is too far from opset {TARGET}"
    nodes = [node for node in all_nodes(model) if node.domain in DEFAULT_DOMAINS]
    if foreign := sorted({node.op_type for node in nodes if not _is_known(node.op_type, opset)}):
        return None, f"{', '.join(foreign)} changed between opset {opset} and {TARGET}"
    result = onnx.ModelProto()
    result.CopyFrom(model)
    for entry in result.opset_import:
        if entry.domain in DEFAULT_DOMAINS:
            entry.version = TARGET
    raising = _Raising(result, constants, opset)
    for graph in all_graphs(result.graph):
        raising.graph = graph
        for node in graph.node:
            change = _change_of(node.op_type, opset) if node.domain in DEFAULT_DOMAINS else None
            if change is not None and (why_not := change(raising, node)):
                return None, why_not
    return result, ""


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
        return before.since_version >= _SAME_SIGNATURE[operator]
    return before.since_version == after.since_version or _signature(before) == _signature(after)


def _signature(schema: onnx.defs.OpSchema) -> tuple[object, ...]:
    inputs, outputs = ([(p.name, str(p.option)) for p in formals] for formals in (schema.inputs, schema.outputs))
    given = sorted((a.name, str(a.type), a.required, str(a.default_value)) for a in schema.attributes.values())
    return inputs, outputs, given


class _Raising:
    """Nodes in the form of opset 22, in place. Each change returns why it cannot be made, or nothing."""

    def __init__(self, model: onnx.ModelProto, constants: Constants, opset: int) -> None:
        self.graph, self._constants, self._opset = model.graph, constants, opset
        self._main = model.graph
        self._taken = {name for node in all_nodes(model) for name in (*node.input, *node.output)}
        self._taken |= {tensor.name for graph in all_graphs(model.graph) for tensor in graph.initializer}

    def _constant(self, wanted: str, value: np.ndarray) -> str:
        name = free_name(wanted, self._taken)
        self._main.initializer.append(numpy_helper.from_array(value, name))
        return name

    def reduce(self, node: onnx.NodeProto) -> str:
        axes = _taken(node, "axes")
        if axes is not None and len(node.input) == 1:
            node.input.append(self._constant(f"{node.output[0]}_axes", np.array(axes.ints, np.int64)))
        return ""

    def split(self, node: onnx.NodeProto) -> str:
        if len(node.input) < 2 or not node.input[1]:
            node.attribute.append(onnx.helper.make_attribute("num_outputs", len(node.output)))
        return ""

    def roi_align(self, node: onnx.NodeProto) -> str:
        if not any(a.name == "coordinate_transformation_mode" for a in node.attribute):
            node.attribute.append(onnx.helper.make_attribute("coordinate_transformation_mode", "output_half_pixel"))
        return ""

    def grid_sample(self, node: onnx.NodeProto) -> str:
        for attribute in node.attribute:
            if attribute.name == "mode":
                attribute.s = _GRID_MODES.get(attribute.s, attribute.s)
        return ""

    def group_normalization(self, node: onnx.NodeProto) -> str:
        """Give each channel the scale and bias of its group, where these are constants and the channels are known."""
        channels = self._channels(node.input[0])
        for place in (1, 2):
            if node.input[place] not in self._constants or channels is None:
                return f"GroupNormalization {node.name} of opset {self._opset} has parameters of run time"
            values = self._constants.value(node.input[place])
            repeated = np.repeat(values, channels // values.size)
            node.input[place] = self._constant(f"{node.input[place]}_per_channel", repeated)
        return ""

    def _channels(self, name: str) -> int | None:
        for value in (*self._main.value_info, *self._main.input):
            if value.name == name and len(value.type.tensor_type.shape.dim) > 1:
                return int(value.type.tensor_type.shape.dim[1].dim_value) or None
        return None


_Change = Callable[[_Raising, onnx.NodeProto], str]
_REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
_CHANGES: dict[str, _Change] = {
    **{f"Reduce{name}": _Raising.reduce for name in _REDUCTIONS},
    "GridSample": _Raising.grid_sample,
    "GroupNormalization": _Raising.group_normalization,
    "RoiAlign": _Raising.roi_align,
    "Split": _Raising.split,
}
# Operators whose meaning changed though their signature may not have: the version from which it is that of opset 22.
_SAME_SIGNATURE = {"GridSample": 20, "GroupNormalization": 21, "RoiAlign": 16}


def _taken(node: onnx.NodeProto, name: str) -> onnx.AttributeProto | None:
    """The attribute of that name, taken off ``node``."""
    for index, attribute in enumerate(node.attribute):
        if attribute.name == name:
            copy = onnx.AttributeProto()
            copy.CopyFrom(attribute)
            del node.attribute[index]
            return copy
    return None
