"""Masks in front of a softmax: what hides a score is so low that a low type has no number for it.

Half makes −3.4e38 infinite, and so does bfloat16 with float32's lowest number; a row that is masked throughout becomes NaN.
A smaller number in half would swallow scores: at −65504 neighbours are 32 apart. So the mask, its addition and the softmax stay
float32. Between two matrix products that costs nothing: TensorRT for RTX 1.7.1 computes ``_gemm_mha_v2`` with float32 scores in
as many kernels (docs/precision.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import onnx

from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.onnx_model.walk import tensors_read
from trtnorm_cli.precision.connections import Connections, is_operator
from trtnorm_cli.precision.low_constants import Constants
from trtnorm_cli.precision.low_types import LowType
from trtnorm_cli.precision.operator_kinds import ELEMENTWISE, MOVES
from trtnorm_cli.precision.plan import kept, name_of
from trtnorm_cli.precision.units import SOFTMAX, Unit, scores_of
from trtnorm_cli.records.precision import Kept, Replaced

# Where a score is lowered by less, a low type still holds it beside the others.
_HIDES = 256.0
_MAKES_MASKS = ELEMENTWISE | MOVES | {"And", "Or", "Not", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Range"}
_LARGEST_MASK = 1 << 24
_LOWEST = float(np.finfo(np.float32).min)


class Masks:
    """The masks of the softmax units of a model."""

    def __init__(
        self, model: onnx.ModelProto, types: Mapping[str, TensorType], units: Iterable[Unit], constants: Constants
    ) -> None:
        self.graph, self.constants, self._types = Connections(model), constants, types
        self._units = [unit for unit in units if unit.kind == SOFTMAX]

    def kept(self, low: LowType) -> Iterator[Kept]:
        """The nodes of masked softmaxes, and those that make their masks."""
        for unit in self._units:
            makers = self._makers(unit)
            found = self._lowest(unit, makers)
            if found is None:
                continue
            tensor, value = found
            limit = -low.largest if value < -low.largest else -_HIDES
            why = (
                f"the mask adds {value:.3g} to scores, and {low.name} ends at {-low.largest:.3g}"
                if value < -low.largest
                else f"the mask adds {value:.3g} to scores, where {low.name} has only one number in {_gap(value, low):g}"
            )
            for node in (*self._nodes(unit), *makers):
                yield kept(node, "mask", why, tensor, value, limit)

    def finite(self) -> dict[str, tuple[np.ndarray, Replaced]]:
        """Constants that are only masks, with float32's lowest number instead of −∞: it hides as much, and costs no kernel.

        A row that is masked throughout becomes uniform instead of NaN. Where the model looks for NaN, the masks stay.
        """
        found: dict[str, tuple[np.ndarray, Replaced]] = {}
        owners = {id(node) for unit in self._units for node in (*self._nodes(unit), *self._makers(unit))}
        for unit in self._units:
            if any(is_operator(node, "IsNaN") for node in self.graph.consumers.get(unit.output, ())):
                owners -= {id(node) for node in (*self._nodes(unit), *self._makers(unit))}
        for unit in self._units:
            for node in (*self._nodes(unit), *self._makers(unit)):
                for name in self._mask_constants(node):
                    readers = {id(reader) for reader in self.graph.consumers.get(name, ())}
                    if name in found or not readers <= owners or name in self.graph.outputs:
                        continue
                    value = self.constants.value(name)
                    if np.isneginf(value).any():
                        why = "−∞ makes a row that is masked throughout NaN, and costs kernels"
                        replaced = Replaced(name, name_of(node), -np.inf, _LOWEST, why)
                        found[name] = np.where(np.isneginf(value), np.float32(_LOWEST), value), replaced
        return found

    def _nodes(self, unit: Unit) -> list[onnx.NodeProto]:
        return [self.graph.producers[key] for key in sorted(unit.keys) if key in self.graph.producers]

    def _makers(self, unit: Unit) -> list[onnx.NodeProto]:
        """The nodes that make what is added to the scores of ``unit``, or chosen instead, as far as they only make it."""
        names = [
            name
            for node in self._nodes(unit)
            for name in tensors_read(node)
            if name != scores_of(node, self.graph, self._types) and name not in unit.keys
        ]
        return self.graph.upstream(names, lambda node: is_operator(node, *_MAKES_MASKS))

    def _mask_constants(self, node: onnx.NodeProto) -> Iterator[str]:
        for name in tensors_read(node):
            if name in self.constants and self.constants.is_float32(name) and self.constants.size(name) <= _LARGEST_MASK:
                yield name

    def _lowest(self, unit: Unit, makers: list[onnx.NodeProto]) -> tuple[str, float] | None:
        """The constant in the mask of ``unit`` that is lowest, where it hides scores."""
        lowest: tuple[str, float] | None = None
        for node in (*self._nodes(unit), *makers):
            for name in self._mask_constants(node):
                value = self.constants.value(name)
                smallest = float(value.min()) if value.size else 0.0
                if is_operator(node, "Mul", "Sub", "Div", "Neg") and value.size:
                    smallest = min(smallest, -float(value.max()))
                if smallest <= -_HIDES and (lowest is None or smallest < lowest[1]):
                    lowest = name, smallest
        return lowest


def _gap(value: float, low: LowType) -> float:
    """The distance of neighbouring numbers of the type at ``value``."""
    return float(2.0 ** np.floor(np.log2(abs(value))) * 2 * low.half_ulp)
