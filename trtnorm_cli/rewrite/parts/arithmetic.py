"""Elementwise expressions for replacements: what is known is computed in float64, the rest becomes nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

Operand: TypeAlias = "np.ndarray | gs.Tensor | NewNode"

HALF_TYPES = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
_KNOWN: dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": np.divide,
}
# Since this opset the axes of a reduction are an input; before, an attribute.
_AXES_ARE_AN_INPUT = {"ReduceSum": 13, "ReduceMax": 18, "ReduceMean": 18}


@dataclass(frozen=True)
class Arithmetic:
    """Builds expressions over ``data``, which are computed in ``data_type`` (an ``onnx.TensorProto`` number).

    An operand is a node, a tensor of the graph, or an array in float64 for what is known.
    """

    match: Match
    data_type: int

    @property
    def dtype(self) -> np.dtype:
        return onnx.helper.tensor_dtype_to_np_dtype(self.data_type)

    def binary(self, op: str, a: Operand, b: Operand, role: str = "") -> NewNode | np.ndarray:
        """Add, Sub, Mul or Div with broadcasting."""
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            return _KNOWN[op](a, b)
        return NewNode(op, (self.operand(a, role), self.operand(b, role)), role=role or op.lower())

    def sqrt(self, a: Operand) -> NewNode | np.ndarray:
        return np.sqrt(a) if isinstance(a, np.ndarray) else NewNode("Sqrt", (a,), role="sqrt")

    def operand(self, value: Operand, role: str) -> gs.Tensor | NewNode | NewConstant:
        """``value`` as the input of a node; what is known is rounded once, here."""
        return NewConstant(role or "constant", value.astype(self.dtype)) if isinstance(value, np.ndarray) else value

    @staticmethod
    def integers(role: str, values: Sequence[int]) -> NewConstant:
        """Axes, a shape, and whatever else is a vector of int64."""
        return NewConstant(role, np.array(values, np.int64))

    def reshape(self, a: Operand, shape: tuple[int, ...], role: str = "reshape") -> NewNode | np.ndarray:
        """``shape`` may hold one -1."""
        if isinstance(a, np.ndarray):
            return a.reshape(shape)
        return NewNode("Reshape", (a, NewConstant(f"{role}_shape", np.array(shape, np.int64))), role=role)

    def mean(self, a: Operand, axes: tuple[int, ...], keepdims: bool = True, role: str = "mean") -> NewNode:
        """The mean over ``axes``."""
        return self.reduced("ReduceMean", a, axes, role, keepdims)

    def reduced(self, op: str, a: Operand, axes: tuple[int, ...], role: str, keepdims: bool = True) -> NewNode:
        """ReduceMax, ReduceMean or ReduceSum over ``axes``."""
        node = (self.operand(a, role),)
        if self.match.opset < _AXES_ARE_AN_INPUT[op]:
            return NewNode(op, node, {"axes": list(axes), "keepdims": int(keepdims)}, role=role)
        return NewNode(op, (*node, self.integers(f"{role}_axes", axes)), {"keepdims": int(keepdims)}, role=role)

    def raised(self, tensor: gs.Tensor, role: str = "raise") -> Operand:
        """A tensor of the match in the type of the computation: its value in float64 where it is a constant."""
        value = self.match.surgery.constant(tensor)
        if value is not None:
            return value.astype(np.float64)
        kind = self.match.type_of(tensor)
        if kind is not None and kind.dtype == self.data_type:
            return tensor
        return NewNode("Cast", (tensor,), {"to": self.data_type}, role=role)

    def lowered(self, a: Operand, data_type: int, role: str = "cast_back") -> NewNode:
        """The node ``a`` in the type ``data_type``; one that makes it, where all of it is constant."""
        if not isinstance(a, NewNode):
            a = NewNode("Identity", (self.operand(a, "value"),), role="value")
        return a if data_type == self.data_type else NewNode("Cast", (a,), {"to": data_type}, role=role)


def arithmetic_for(m: Match, data: str = "x") -> Arithmetic:
    """Arithmetic for the tensor named ``data``: half-precision data are computed in float32, all others in their own type.

    Sums and products of half-precision parameters overflow and cancel where their result would not.
    """
    kind = data_type(m, data)
    return Arithmetic(m, onnx.TensorProto.FLOAT if kind in HALF_TYPES else kind)


def data_type(m: Match, data: str = "x") -> int:
    """The element type of a tensor of the match; 0 when it is not known."""
    tensor = m.given(data)
    value = m.surgery.constant(tensor)
    if value is not None:
        return int(onnx.helper.np_dtype_to_tensor_dtype(value.dtype))
    kind = m.type_of(tensor)
    return 0 if kind is None else kind.dtype
