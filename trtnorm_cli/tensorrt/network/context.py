"""The view that the translation of one layer has, with its inputs by ONNX name, its parameters, and a place to write nodes.

Arithmetic in a type narrower than float32 is evaluated in float32 and rounded once, to the type of the layer's output. TensorRT
states the types of a layer's inputs and outputs but not the precision in between (accumulation of convolutions, matrix products
and reductions, steps inside a fused kernel), so this is one admissible evaluation, not the engine's bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np
from onnx import TensorProto

from trtnorm_cli.tensorrt.network.datatypes import NARROW_FLOATS, PACKED
from trtnorm_cli.tensorrt.network.graph import GraphWriter
from trtnorm_cli.tensorrt.network.reading import Layer, Tensor
from trtnorm_cli.tensorrt.network.weights import TensorValues, read_weights

#: Operators that move data without computing, and that ONNX Runtime's CPU provider lacks for a type: the type that the
#: data travels in instead, losslessly.
_CARRIER = {
    TensorProto.BFLOAT16: TensorProto.FLOAT,
    TensorProto.FLOAT8E4M3FN: TensorProto.FLOAT,
    TensorProto.BOOL: TensorProto.UINT8,
    TensorProto.INT8: TensorProto.INT32,
}
_NATIVE_BFLOAT16 = frozenset({"Concat", "Gather", "GatherElements", "GatherND", "ScatterElements", "ScatterND", "Slice"})
_NOT_NATIVE = {TensorProto.BOOL: frozenset({"Where"}), TensorProto.INT8: frozenset({"Where"})}

# Attributes of an ONNX node by name.
Attributes = dict[str, Any]


class Scope:
    """The ONNX name of each tensor, in one graph and the graphs around it."""

    def __init__(self, outer: Scope | None = None) -> None:
        self._outer = outer
        self._names: dict[Tensor, str] = {}

    def bind(self, tensor: Tensor, name: str) -> None:
        """From here on ``tensor`` is read under ``name``."""
        self._names[tensor] = name

    def find(self, tensor: Tensor) -> str | None:
        """The tensor's ONNX name, or None when nothing has produced it yet."""
        if tensor in self._names:
            return self._names[tensor]
        return self._outer.find(tensor) if self._outer else None


class LayerContext:
    """One layer under translation."""

    def __init__(self, layer: Layer, writer: GraphWriter, scope: Scope, trt: Any, notes: list[str]) -> None:
        self.layer = layer
        self.handle = layer.handle
        self.writer = writer
        self.scope = scope
        self._trt = trt
        self._notes = notes

    def note(self, text: str) -> None:
        """Record a choice that TensorRT's documentation leaves open."""
        self._notes.append(f"{self.layer.name}: {text}")

    # What the layer has.

    def has(self, index: int) -> bool:
        """True where the optional input is connected."""
        return index < len(self.layer.inputs) and self.layer.inputs[index] is not None

    def tensor(self, index: int) -> Tensor:
        """The input tensor. A missing one is a refusal."""
        if not self.has(index):
            raise self.layer.refused(f"it has no input {index}")
        return cast(Tensor, self.layer.inputs[index])

    def output(self, index: int = 0) -> Tensor:
        """The output tensor."""
        return self.layer.outputs[index]

    def name_of(self, tensor: Tensor) -> str:
        """The ONNX name of a tensor that has been produced."""
        name = self.scope.find(tensor)
        if name is None:
            raise self.layer.refused(f"its input '{tensor.name}' is produced by no layer that comes before it")
        return name

    def value(self, index: int) -> str:
        """The ONNX name of an input."""
        return self.name_of(self.tensor(index))

    def shape(self, index: int) -> tuple[int, ...]:
        """The input's shape, with -1 for run-time dimensions. An unknown rank is a refusal."""
        return self.shape_of(self.tensor(index))

    def shape_of(self, tensor: Tensor) -> tuple[int, ...]:
        """The shape of any tensor. An unknown rank is a refusal."""
        if tensor.shape is None:
            raise self.layer.refused(f"TensorRT cannot compute the shape of '{tensor.name}'")
        return tensor.shape

    def rank(self, index: int) -> int:
        """The number of dimensions of an input."""
        return len(self.shape(index))

    def weights(self, values: Any) -> TensorValues | None:
        """A copy of a weights property, None when it is empty."""
        return None if values is None else read_weights(values, self._trt)

    def constant(self, index: int) -> np.ndarray | None:
        """The value of an input that a constant layer feeds, else None."""
        return self.constant_of(self.tensor(index))

    def constant_of(self, tensor: Tensor) -> np.ndarray | None:
        """The value of any tensor that a constant layer makes, else None."""
        producer = tensor.producer
        if producer is None or producer.kind != "CONSTANT" or tensor.onnx_type in PACKED:
            return None
        values, shape = self.weights(producer.handle.weights), self.shape_of(tensor)
        return np.zeros(shape, np.float32) if values is None else values.array().reshape(shape)

    # Nodes.

    def op(self, op: str, *inputs: str, **attributes: Any) -> str:
        """Write a node with one output and return its name."""
        return self.writer.node(op, inputs, self.layer.name, **attributes)[0]

    def ops(self, op: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Write a node with several outputs and return their names."""
        return self.writer.node(op, inputs, self.layer.name, outputs, **attributes)

    def cast(self, name: str, have: int, want: int) -> str:
        """Convert between ONNX types, and nothing when they are equal."""
        if have == want:
            return name
        # bfloat16 and float8 are exact in float32, so the detour rounds once; ONNX Runtime lacks the direct conversions.
        unusual = {TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN}
        if {have, want} & unusual and TensorProto.FLOAT not in (have, want):
            return self.op("Cast", self.op("Cast", name, to=TensorProto.FLOAT), to=want)
        return self.op("Cast", name, to=want)

    def move(self, op: str, inputs: Sequence[str], onnx_type: int, data: Sequence[int] = (0,), **attributes: Any) -> str:
        """Write an operator that only moves data, in a type that ONNX Runtime moves. ``data`` are the moved inputs."""
        carrier = _carrier(op, onnx_type)
        carried = [self.cast(x, onnx_type, carrier) if i in data and x else x for i, x in enumerate(inputs)]
        return self.cast(self.op(op, *carried, **attributes), carrier, onnx_type)

    # Types.

    def wide(self, index: int) -> str:
        """An input for arithmetic, with narrow floating-point types as float32 and everything else as it is."""
        return self.widened(self.value(index), self.tensor(index).onnx_type)

    def widened(self, name: str, onnx_type: int) -> str:
        """The same for any tensor."""
        return self.cast(name, onnx_type, TensorProto.FLOAT) if onnx_type in NARROW_FLOATS else name

    def wide_type(self, index: int = 0) -> int:
        """The type that ``wide`` returns."""
        onnx_type = self.tensor(index).onnx_type
        return TensorProto.FLOAT if onnx_type in NARROW_FLOATS else onnx_type

    def narrow(self, name: str, output: int = 0) -> str:
        """A float32 result rounded to the type of the layer's output."""
        onnx_type = self.output(output).onnx_type
        return self.cast(name, TensorProto.FLOAT, onnx_type) if onnx_type in NARROW_FLOATS else name

    def int64(self, index: int) -> str:
        """An integer input as int64, which ONNX wants for shapes, axes and indices."""
        return self.cast(self.value(index), self.tensor(index).onnx_type, TensorProto.INT64)

    # Small constants.

    def array(self, values: Any, dtype: Any) -> str:
        """A constant of the given NumPy type."""
        return self.writer.constants.array(np.asarray(values, dtype=dtype), f"{self.layer.name}/const")

    def ints(self, *values: int) -> str:
        """A one-dimensional int64 constant."""
        return self.array(list(values), np.int64)

    def scalar(self, value: float, onnx_type: int = TensorProto.FLOAT) -> str:
        """A scalar constant of float32 or an integer type."""
        return self.array(value, _SCALAR[onnx_type])

    def initializer(self, values: TensorValues, dims: Sequence[int], role: str) -> str:
        """Weights of the layer, in their own type."""
        return self.writer.constants.add(values, dims, f"{self.layer.name}/{role}")

    def larger(self, a: str, b: str, onnx_type: int) -> str:
        """The elementwise maximum."""
        return self._extreme("Max", "Greater", a, b, onnx_type)

    def smaller(self, a: str, b: str, onnx_type: int) -> str:
        """The elementwise minimum."""
        return self._extreme("Min", "Less", a, b, onnx_type)

    def _extreme(self, op: str, comparison: str, a: str, b: str, onnx_type: int) -> str:
        if onnx_type != TensorProto.INT64:
            return self.op(op, a, b)
        # ONNX Runtime 1.31 compares the lower halves of int64 values as signed numbers in Max, Min and Clip.
        return self.op("Where", self.op(comparison, a, b), a, b)

    # Shapes at run time.

    def dims(self, name: str) -> str:
        """The shape of a tensor as int64 values."""
        return self.op("Shape", name)

    def dim(self, index: int, axis: int) -> str:
        """One dimension of an input as a one-element int64 tensor, which is a constant if known, or else read at run time."""
        known = self.shape(index)[axis]
        if known >= 0:
            return self.ints(known)
        return self.op("Shape", self.value(index), start=axis, end=axis + 1)


_SCALAR = {
    TensorProto.FLOAT: np.float32,
    TensorProto.INT32: np.int32,
    TensorProto.INT64: np.int64,
    TensorProto.INT8: np.int8,
    TensorProto.UINT8: np.uint8,
}


def _carrier(op: str, onnx_type: int) -> int:
    if onnx_type in _NOT_NATIVE and op not in _NOT_NATIVE[onnx_type]:
        return onnx_type
    if onnx_type == TensorProto.BFLOAT16 and op in _NATIVE_BFLOAT16:
        return onnx_type
    return _CARRIER.get(onnx_type, onnx_type)


def axes_of(mask: int) -> list[int]:
    """The axes whose bits are set, lowest first."""
    return [axis for axis in range(mask.bit_length()) if mask >> axis & 1]
