"""The input shapes at which changes are proved."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

import onnx

from trtnorm_cli.onnx_model.light_copy import light_copy
from trtnorm_cli.onnx_model.shapes import TensorType, declared_types, default_pins, model_inputs, pinned_types
from trtnorm_cli.shapes.evaluate import value_at
from trtnorm_cli.shapes.parse import NotAnExpression, parse_expression

# Sizes tried for unknown spatial dimensions when no profile says which sizes the model takes.
_SPATIAL_PINS = (32, 64, 128, 224, 256, 512)


def check_types(model: onnx.ModelProto, proof_shapes: Mapping[str, tuple[int, ...]] | None) -> dict[str, TensorType]:
    """Types of all tensors at the shapes at which changes are proved."""
    if proof_shapes is not None:
        return _types_at(model, proof_shapes)
    if all(kind.is_static for kind in model_inputs(model).values()):
        return _types_at(model, default_pins(model))
    for size in _SPATIAL_PINS:
        types = _types_at(model, default_pins(model, size))
        if not any(_vanishes(kind) for kind in types.values()):
            break
    return types


def completed(model: onnx.ModelProto, types: Mapping[str, TensorType]) -> dict[str, TensorType]:
    """``types``, with those that ONNX's inference leaves open worked out from those of the inputs, as far as they can be."""
    made = [name for node in model.graph.node for name in node.output if name]
    unknown = [name for name in made if name not in types or not types[name].is_static]
    if not unknown:
        return dict(types)
    from trtnorm_cli.shapes.propagate import propagate

    light = light_copy(model)
    for value in light.graph.input:
        kind = types.get(value.name)
        if kind is not None and kind.is_static:
            value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, kind.dtype, kind.shape))
    found = propagate(light).tensors
    result = dict(types)
    for name in unknown:
        worked_out = found.get(name)
        if worked_out is None or worked_out.shape is None or not all(isinstance(size, int) for size in worked_out.shape):
            continue
        dtype = types[name].dtype if name in types else 0
        result[name] = TensorType(dtype or worked_out.dtype, worked_out.shape)  # type: ignore[arg-type]  # all are numbers
    return result


class CompletedTypes(Mapping[str, TensorType]):
    """Types of which those that ONNX's inference leaves open are worked out when the first of them is asked for."""

    def __init__(self, model: onnx.ModelProto, types: Mapping[str, TensorType]) -> None:
        self._model, self._types, self._are_completed = model, types, False

    def __getitem__(self, name: str) -> TensorType:
        kind = self._types.get(name)
        if not self._are_completed and (name in self._made if kind is None else not kind.is_static):
            self._types, self._are_completed = completed(self._model, self._types), True
        return self._types[name]

    @cached_property
    def _made(self) -> frozenset[str]:
        return frozenset(name for node in self._model.graph.node for name in node.output if name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def __len__(self) -> int:
        return len(self._types)


def _types_at(model: onnx.ModelProto, proof_shapes: Mapping[str, tuple[int, ...]]) -> dict[str, TensorType]:
    """The types that ONNX infers, completed by those that the model states in symbols of its inputs' sizes, as ``s0//4``."""
    types, values = pinned_types(model, proof_shapes), _symbols(model, proof_shapes)
    for name, stated in declared_types(model).items():
        kind = types.get(name)
        if kind is None or kind.is_static or kind.shape is None or stated.shape is None or len(kind.shape) != len(stated.shape):
            continue
        sizes = zip(kind.shape, stated.shape, strict=True)
        shape = tuple(own if isinstance(own, int) else size_of(other, values) or own for own, other in sizes)
        types[name] = TensorType(kind.dtype, shape)
    return types


def _symbols(model: onnx.ModelProto, proof_shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
    """The values of the symbols in the shapes of the inputs."""
    values: dict[str, int] = {}
    for name, kind in model_inputs(model).items():
        for size, pin in zip(kind.shape or (), proof_shapes.get(name, ()), strict=False):
            if isinstance(size, str):
                values.setdefault(size, pin)
    return values


def size_of(stated: int | str | None, values: Mapping[str, int]) -> int | None:
    """The size that is ``stated``, where its symbols have ``values``; None when that cannot be told, or is below zero."""
    if not isinstance(stated, str):
        return stated
    if stated in values:
        return values[stated]
    try:
        size = value_at(parse_expression(stated), values)
    except NotAnExpression:
        return None
    return None if size is None or size < 0 else size


def _vanishes(kind: TensorType) -> bool:
    """True for a tensor without elements: the input was too small for the model."""
    return any(isinstance(size, int) and size <= 0 for size in kind.shape or ())
