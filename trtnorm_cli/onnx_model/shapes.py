"""Shapes of a model's tensors, as declared and at pinned sizes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.inference import inferred_or_stated_types
from trtnorm_cli.onnx_model.light_copy import light_copy
from trtnorm_cli.onnx_model.placeholders import names_nothing
from trtnorm_cli.onnx_model.walk import all_graphs
from trtnorm_cli.record import Record

# The sizes that symbolic and unknown dimensions take when nothing else says.
_BATCH_PIN = 2
_SPATIAL_PIN = 32


@dataclass(frozen=True)
class TensorType:
    """Element type (an ``onnx.TensorProto`` number) and shape; a dimension is a number, a symbol, or None."""

    dtype: int
    shape: tuple[int | str | None, ...] | None

    @property
    def is_static(self) -> bool:
        return self.shape is not None and all(isinstance(size, int) for size in self.shape)


def format_shape(shape: Sequence[int | str | None]) -> str:
    """``[N, 3, ?, 224]``: a symbol by its name, an unknown dimension as ``?``."""
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in shape) + "]"


@dataclass(frozen=True)
class NamedType(Record):
    """A tensor as users are told of it; ``dtype`` is a word."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None

    @staticmethod
    def of(name: str, kind: TensorType | None) -> NamedType:
        if kind is None:
            return NamedType(name, "?", None)
        return NamedType(name, onnx.TensorProto.DataType.Name(kind.dtype).lower(), kind.shape)


def tensor_type(value: onnx.ValueInfoProto) -> TensorType | None:
    """The type of a tensor, or None for sequences, maps and values without a type."""
    # This runs for every tensor many times, and few types of a model differ.
    return _read_type(value.type.SerializeToString())


@lru_cache(maxsize=4096)
def _read_type(stored: bytes) -> TensorType | None:
    kind = onnx.TypeProto.FromString(stored)
    if not kind.HasField("tensor_type"):
        return None
    tensor = kind.tensor_type
    if not tensor.HasField("shape"):
        return TensorType(tensor.elem_type, None)
    return TensorType(tensor.elem_type, tuple(_dimension(dim) for dim in tensor.shape.dim))


def _dimension(dim: onnx.TensorShapeProto.Dimension) -> int | str | None:
    if dim.HasField("dim_value"):
        return int(dim.dim_value) if dim.dim_value >= 0 else None  # some exporters write -1 for a dynamic dimension
    return None if names_nothing(dim.dim_param) else dim.dim_param


def model_inputs(model: onnx.ModelProto) -> dict[str, TensorType]:
    """The inputs that a user feeds: graph inputs that are not initializers. Inputs that are not tensors are left out."""
    initializers = {tensor.name for tensor in model.graph.initializer}
    found = {}
    for value in model.graph.input:
        kind = tensor_type(value)
        if value.name not in initializers and kind is not None:
            found[value.name] = kind
    return found


def declared_types(model: onnx.ModelProto) -> dict[str, TensorType]:
    """The types that the file states for inputs, outputs and inner tensors of all graphs.

    The branches of an If may use one name for different tensors; what is stated differently counts as not known.
    """
    found: dict[str, TensorType] = {}
    for graph in all_graphs(model.graph):
        here = {value.name: tensor_type(value) for value in (*graph.value_info, *graph.input, *graph.output)}
        for name, kind in here.items():
            if kind is not None:
                found[name] = _common(found[name], kind) if name in found else kind
    return found


def _common(one: TensorType, other: TensorType) -> TensorType:
    """The common part of two statements about tensors of one name."""
    dtype = one.dtype if one.dtype == other.dtype else onnx.TensorProto.UNDEFINED
    if one.shape is None or other.shape is None or len(one.shape) != len(other.shape):
        return TensorType(dtype, None)
    return TensorType(dtype, tuple(a if a == b else None for a, b in zip(one.shape, other.shape, strict=True)))


def default_pins(model: onnx.ModelProto, spatial: int = _SPATIAL_PIN) -> dict[str, tuple[int, ...]]:
    """A shape for every input: static sizes stay, an unknown first axis is 2, the other unknown axes are ``spatial``."""
    return {
        name: tuple(
            size if isinstance(size, int) else (_BATCH_PIN if axis == 0 else spatial)
            for axis, size in enumerate(kind.shape or ())
        )
        for name, kind in model_inputs(model).items()
    }


def pinned_types(model: onnx.ModelProto, pins: Mapping[str, tuple[int, ...]]) -> dict[str, TensorType]:
    """Types of all tensors when the inputs have the shapes of ``pins``, as far as ONNX shape inference can tell.

    Weights are not read, so that a model of any size can be asked.
    """
    light = light_copy(model)
    del light.graph.value_info[:]
    for value in light.graph.input:
        if value.name in pins and value.type.HasField("tensor_type"):
            _set_shape(value, pins[value.name])
    for value in light.graph.output:
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.ClearField("shape")
    return declared_types(inferred_or_stated_types(light))


def _set_shape(value: onnx.ValueInfoProto, shape: tuple[int, ...]) -> None:
    value.type.tensor_type.ClearField("shape")
    value.type.tensor_type.shape.SetInParent()
    for size in shape:
        value.type.tensor_type.shape.dim.add(dim_value=size)
