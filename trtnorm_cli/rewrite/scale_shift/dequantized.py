"""A weight that a DequantizeLinear makes of constants, and its product with one factor per output channel.

    (q · s) · f = q · (s·f)                 f > 0: the factor goes into the scales, and no integer changes
                = (−q) · (s·|f|)            f < 0: the integers change their sign, where the lowest of all is not among them
                = 0 · s                     f = 0: the integers become 0, since scales have to be positive

One scale for the whole weight becomes one for each channel. Scales along an axis, or one for each block of elements, stay so.
Behind a QuantizeLinear of float weights the sign changes there, before the rounding: half to even rounds both signs alike.
Source: Jacob et al. 2018, "Quantization and Training of Neural Networks", §3.2; QuantizeLinear and DequantizeLinear as in the
ONNX operator specification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.rewrite.rule import NewConstant, NewNode
from trtnorm_cli.rewrite.scale_shift.affine import CannotMove
from trtnorm_cli.rewrite.scale_shift.operation import Operation

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

# Before, DequantizeLinear has a single scale.
_AXIS_SINCE = 13
_FLOATS = tuple(np.dtype(kind) for kind in (np.float16, ml_dtypes.bfloat16, np.float32))


def is_dequantized(op: Operation, index: int) -> bool:
    """True where a DequantizeLinear makes input ``index`` of a constant, which a QuantizeLinear may have rounded before."""
    found = _producer(op, index, "DequantizeLinear")
    if found is None:
        return False
    before = _producer(found, 0, "QuantizeLinear")
    return (found if before is None else before).is_constant(0)


def _producer(op: Operation, index: int, kind: str) -> Operation | None:
    tensor = op.tensor(index)
    node = None if tensor is None or len(tensor.inputs) != 1 else tensor.inputs[0]
    return Operation(node, op.match) if node is not None and node.op == kind and node.domain in DEFAULT_DOMAINS else None


@dataclass(frozen=True)
class DequantizedWeight:
    """The weight. ``values`` are integers or narrow floats, or the floats that ``quantize`` rounds to such.

    ``scale`` holds one value, or one for each index along ``axis``, or with ``block`` one for each so many elements along it.
    """

    dequantize: Operation
    quantize: Operation | None
    values: np.ndarray
    scale: np.ndarray
    axis: int
    block: int

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    @property
    def ndim(self) -> int:
        return self.values.ndim

    @property
    def dtype(self) -> np.dtype:
        return self.scale.dtype

    @property
    def nodes(self) -> tuple[gs.Node, ...]:
        """The nodes that make the weight."""
        return (self.dequantize.node, *(() if self.quantize is None else (self.quantize.node,)))

    def require(self, factors: np.ndarray) -> None:
        """Raise ``CannotMove`` unless the weight can be multiplied by ``factors``, which have its rank."""
        self._scaled(factors)
        self._require_signs(factors)

    def times(self, factors: np.ndarray) -> NewNode:
        """The DequantizeLinear of the weight times ``factors``."""
        scale, axis = self._scaled(factors)
        attrs = {**self.dequantize.node.attrs, "axis": axis} if scale.ndim else dict(self.dequantize.node.attrs)
        inputs = (self._source(factors), NewConstant("scale", scale))
        old = self.dequantize.node
        return NewNode("DequantizeLinear", inputs, attrs, "dequantize", old.name, instead_of=old)

    def _source(self, factors: np.ndarray) -> Any:
        first = self.dequantize if self.quantize is None else self.quantize
        values: Any = first.tensor(0)
        if np.any(factors <= 0):
            values = NewConstant("weight", self._signed(factors))
        if self.quantize is None:
            return values
        old = self.quantize.node
        rest = tuple(tensor if tensor.name else None for tensor in old.inputs[1:])
        return NewNode("QuantizeLinear", (values, *rest), dict(old.attrs), "quantize", old.name, instead_of=old)

    def _signed(self, factors: np.ndarray) -> np.ndarray:
        """The values with the signs of the factors, 0 for those of 0."""
        wide = self.values.astype(np.float64)
        # Not a product with 0: it leaves -0.0 behind, and in narrow floats that has bits of its own.
        return np.where(factors == 0, 0.0, np.where(factors < 0, -wide, wide)).astype(self.values.dtype)

    def _require_signs(self, factors: np.ndarray) -> None:
        if np.any(factors < 0) and _is_integer(self.values.dtype):
            lowest = int(ml_dtypes.iinfo(self.values.dtype).min)
            if np.any((self.values.astype(np.int32) == lowest) & (factors < 0)):
                name = self.dequantize.name
                raise CannotMove(
                    f"{name} holds {lowest} in a channel that changes its sign, and {-lowest} is no {self.values.dtype}"
                )

    def _scaled(self, factors: np.ndarray) -> tuple[np.ndarray, int]:
        """The scales times the sizes of the factors, and the axis along which they lie."""
        sizes, axis = self._by_scale(_shortened(np.abs(factors)))
        wide = self.scale.astype(np.float64)
        with np.errstate(over="ignore"):
            scale = np.where(sizes == 0, wide, wide * sizes).astype(self.dtype)
        stored = scale.astype(np.float64)
        if not np.all(np.isfinite(stored)) or np.any(stored < float(ml_dtypes.finfo(self.dtype).smallest_normal)):
            raise CannotMove(
                f"a scale of {self.dequantize.name} becomes {np.max(wide * sizes):.3g} or {np.min(wide * sizes):.3g}, "
                f"which {self.dtype.name} does not hold"
            )
        return scale, axis

    def _by_scale(self, sizes: np.ndarray) -> tuple[np.ndarray, int]:
        """Factors as an array that multiplies the scales."""
        varying = [axis for axis, size in enumerate(sizes.shape) if size > 1]
        if not varying:
            return sizes.reshape(()), self.axis
        if self.block:
            return self._by_block(sizes), self.axis
        if len(varying) > 1:
            raise CannotMove(f"{self.dequantize.name} has scales along one axis, and the factors differ along two")
        if self.scale.size > 1 and varying[0] != self.axis:
            raise CannotMove(
                f"the scales of {self.dequantize.name} lie along axis {self.axis}, the channels along axis {varying[0]}"
            )
        if self.scale.ndim == 0 and self.dequantize.opset < _AXIS_SINCE:
            raise CannotMove(f"{self.dequantize.name} has a single scale, as always before opset {_AXIS_SINCE}")
        return sizes.reshape(-1), varying[0]

    def _by_block(self, sizes: np.ndarray) -> np.ndarray:
        if sizes.shape[self.axis] == 1:
            return sizes
        first = sizes.take(range(0, self.shape[self.axis], self.block), self.axis)
        again = np.repeat(first, self.block, self.axis).take(range(self.shape[self.axis]), self.axis)
        if not np.array_equal(again, sizes):
            raise CannotMove(f"a block of {self.block} elements of {self.dequantize.name} holds several channels")
        return first


def _shortened(factors: np.ndarray) -> np.ndarray:
    """``factors`` with length 1 along every axis on which they do not depend."""
    for axis, size in enumerate(factors.shape):
        if size > 1 and np.array_equal(factors, np.broadcast_to(factors.take([0], axis), factors.shape)):
            factors = factors.take([0], axis)
    return factors


def _is_integer(dtype: np.dtype) -> bool:
    try:
        ml_dtypes.iinfo(dtype)
    except ValueError:
        return False
    return True


def dequantized_weight(op: Operation, index: int) -> DequantizedWeight:
    """Input ``index`` of ``op``, where ``is_dequantized``. Raises ``CannotMove`` for a form that is not understood."""
    dequantize = _producer(op, index, "DequantizeLinear")
    assert dequantize is not None, "is_dequantized holds"
    quantize = _producer(dequantize, 0, "QuantizeLinear")
    values = (dequantize if quantize is None else quantize).weight(0)
    scale, block = dequantize.weight(1), int(dequantize.attr("block_size", 0))
    for one in (dequantize, *(() if quantize is None else (quantize,))):
        _require_no_zero_point(one)
    if scale.dtype not in _FLOATS or not np.all(scale.astype(np.float64) > 0):
        raise CannotMove(f"the scales of {dequantize.name} are not all positive floats")
    axis = dequantize.axis("axis", 1, values.ndim) if scale.size > 1 or block else 0
    if not block:
        scale = scale.reshape(-1) if scale.size > 1 else scale.reshape(())
        if scale.ndim and scale.size != values.shape[axis]:
            raise CannotMove(f"{dequantize.name} has {scale.size} scales along an axis of {values.shape[axis]}")
    return DequantizedWeight(dequantize, quantize, values, scale, axis, block)


def _require_no_zero_point(op: Operation) -> None:
    zero = op.constant(2)
    if zero is not None and np.any(zero.astype(np.float64)):
        raise CannotMove(f"{op.name} has a zero point that is not 0")
