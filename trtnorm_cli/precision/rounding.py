"""Nodes that round a float32 tensor to a low type and give it back as float32.

ONNX Runtime keeps such pairs of Casts where graph optimisation is off, and rounds to the nearest, ties to even, as hardware
does: to subnormals below the normal range, to infinity beyond the largest value.
"""

from __future__ import annotations

import math

import onnx
from onnx import TensorProto
from onnx.helper import make_node

from trtnorm_cli.precision.low_types import LowType

# Cast takes bfloat16 from here on; Clip takes its bounds as inputs.
_CAST_TAKES_BFLOAT16, _CLIP_TAKES_INPUTS = 13, 11
_FLOAT32_DIGITS = 24


class Rounding:
    """Rounds tensors of a model of ``opset`` to the type ``low``. ``constants`` are read by its nodes and belong there."""

    def __init__(self, low: LowType, opset: int, prefix: str) -> None:
        self._low, self._opset, self._prefix = low, opset, prefix
        self._is_direct = low.onnx_type != TensorProto.BFLOAT16 or opset >= _CAST_TAKES_BFLOAT16
        self.constants: dict[str, onnx.TensorProto] = {}

    def nodes(self, source: str, result: str, saturated: bool = False) -> list[onnx.NodeProto]:
        """The nodes that make ``result`` from ``source``. What is ``saturated`` is limited to the type's range before."""
        before: list[onnx.NodeProto] = []
        if saturated:
            before.append(self._limited(source, f"{result}/limited"))
            source = f"{result}/limited"
        if not self._is_direct:
            return [*before, *self._split(source, result)]
        return [
            *before,
            make_node("Cast", [source], [f"{result}/low"], to=self._low.onnx_type),
            make_node("Cast", [f"{result}/low"], [result], to=TensorProto.FLOAT),
        ]

    def _limited(self, source: str, result: str) -> onnx.NodeProto:
        largest = self._low.largest
        if self._opset < _CLIP_TAKES_INPUTS:
            return make_node("Clip", [source], [result], min=-largest, max=largest)
        return make_node("Clip", [source, self.scalar("lowest", -largest), self.scalar("largest", largest)], [result])

    def _split(self, source: str, result: str) -> list[onnx.NodeProto]:
        """The leading digits by Veltkamp's splitting (Dekker 1971), which needs no value beyond 2**111."""
        digits = round(-math.log2(self._low.half_ulp))
        factor = self.scalar("factor", 2.0 ** (_FLOAT32_DIGITS - digits) + 1)
        return [
            make_node("Mul", [source, factor], [f"{result}/scaled"]),
            make_node("Sub", [f"{result}/scaled", source], [f"{result}/rest"]),
            make_node("Sub", [f"{result}/scaled", f"{result}/rest"], [result]),
        ]

    def scalar(self, role: str, value: float) -> str:
        """The name of a float32 constant."""
        name = f"{self._prefix}{role}"
        self.constants[name] = onnx.helper.make_tensor(name, TensorProto.FLOAT, [], [value])
        return name
