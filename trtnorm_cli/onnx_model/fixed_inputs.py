"""Inputs whose rank, sizes or elements are settled from outside: written into the model, so that all behind them folds.

A branch on ``Shape(x)`` or on a sampling rate is a question to which a build profile may be the answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

import numpy as np
import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.walk import all_graphs, all_tensors


@dataclass(frozen=True)
class FixedInputs:
    """``sizes`` holds a number for each axis of an input that has one size, None for the others; ``values`` the elements."""

    sizes: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    values: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


def with_ranks(model: onnx.ModelProto, ranks: Mapping[str, int]) -> onnx.ModelProto:
    """``model`` with as many dimensions as ``ranks`` says for each input of unknown rank that it names."""
    unknown = {value.name for value in model.graph.input if is_of_unknown_rank(value)} & set(ranks)
    if not unknown:
        return model
    copy = _copy(model)
    for value in copy.graph.input:
        if value.name in unknown:
            value.type.tensor_type.shape.SetInParent()
            for _ in range(ranks[value.name]):
                value.type.tensor_type.shape.dim.add()
    return copy


def is_of_unknown_rank(value: onnx.ValueInfoProto) -> bool:
    """True for a tensor of which the file does not even say how many dimensions it has."""
    return value.type.HasField("tensor_type") and not value.type.tensor_type.HasField("shape")


def with_fixed(model: onnx.ModelProto, fixed: FixedInputs) -> onnx.ModelProto:
    """``model`` with the sizes of ``fixed`` as static dimensions, and constants in the place of its values.

    An input with values stays an input, so that callers need not change; nothing reads it any more.
    """
    if not fixed.sizes and not fixed.values:
        return model
    copy = _copy(model)
    for value in copy.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, fixed.sizes.get(value.name, ()), strict=False):
            if size is not None:
                dim.dim_value = size
    stored = {t.name for t in copy.graph.initializer}
    types = {v.name: v.type.tensor_type for v in copy.graph.input if v.name not in stored}
    renamed = {name: _free_name(copy, name) for name in fixed.values if name in types}
    for graph in all_graphs(copy.graph):
        for node in graph.node:
            for index, name in enumerate(node.input):
                node.input[index] = renamed.get(name, name)
    for name, constant in renamed.items():
        copy.graph.node.insert(0, _constant(types[name], fixed.values[name], constant))
    return copy


def unread_inputs(fixed: FixedInputs) -> list[str]:
    """Notes for the user about inputs that are constants now."""
    return [
        f"{name} is always {list(values) if len(values) > 1 else values[0]} in the build profile: it stays an input, "
        "but what is fed to it is not read"
        for name, values in fixed.values.items()
    ]


def redeclared(model: onnx.ModelProto, original: onnx.ModelProto) -> onnx.ModelProto:
    """``model`` with its inputs declared as they are in ``original``."""
    declared = {value.name: value for value in original.graph.input}
    copy = _copy(model)
    for value in copy.graph.input:
        if value.name in declared:
            value.CopyFrom(declared[value.name])
    return copy


def _constant(kind: onnx.TypeProto.Tensor, elements: tuple[int, ...], name: str) -> onnx.NodeProto:
    dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
    array = np.array(elements).astype(dtype).reshape((len(elements),) if kind.shape.dim else ())
    return onnx.helper.make_node("Constant", [], [name], name=name, value=onnx.numpy_helper.from_array(array))


def _free_name(model: onnx.ModelProto, name: str) -> str:
    taken = {tensor.name for tensor in all_tensors(model)}
    taken |= {n for graph in all_graphs(model.graph) for node in graph.node for n in (*node.input, *node.output)}
    free = f"{name}/fixed"
    while free in taken:
        free += "_"
    return free


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    return copy
