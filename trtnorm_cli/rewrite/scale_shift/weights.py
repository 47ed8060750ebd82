"""Scaled weights: whether they fit their type, and their values. Planning asks for the largest magnitudes only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.rewrite.parts.output_weights import scaled
from trtnorm_cli.rewrite.rule import NewConstant
from trtnorm_cli.rewrite.scale_shift.affine import CannotMove
from trtnorm_cli.rewrite.scale_shift.dequantized import DequantizedWeight, dequantized_weight, is_dequantized
from trtnorm_cli.rewrite.scale_shift.operation import Operation

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

FLOATS = tuple(np.dtype(kind) for kind in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64))
# Elements of a weight at a time: what is made of them stays in the processor's caches.
_BLOCK = 1 << 16
_UNSIGNED = {2: np.uint16, 4: np.uint32, 8: np.uint64}
# Bytes of a weight that two operators share above which it is not copied to save one multiplication or addition.
_LARGE_COPY = 16 << 20


def float_weight(op: Operation, index: int, rank: int | None = None) -> np.ndarray:
    """The constant input ``index``, of a floating type and, where given, of ``rank``. Raises ``CannotMove`` otherwise."""
    value = op.weight(index)
    if value.dtype not in FLOATS:
        raise CannotMove(f"input {index} of {op.name} is {value.dtype.name}, not a floating type")
    if rank is not None and value.ndim != rank:
        raise CannotMove(f"input {index} of {op.name} has shape {list(value.shape)}")
    return value


@dataclass(frozen=True)
class FloatWeight:
    """A constant of a floating type as input ``index`` of ``op``."""

    op: Operation
    index: int
    values: np.ndarray

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.values.shape)

    @property
    def ndim(self) -> int:
        return self.values.ndim

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    @property
    def nodes(self) -> tuple[gs.Node, ...]:
        """The nodes that make the weight: none."""
        return ()

    def require(self, factors: np.ndarray) -> None:
        """Raise ``CannotMove`` unless the weight times ``factors`` fits its type."""
        require_scalable(self.op, self.index, factors)

    def times(self, factors: np.ndarray) -> NewConstant:
        return NewConstant("weight", scaled(self.values, factors))


Weight = FloatWeight | DequantizedWeight


def has_weight(op: Operation, index: int) -> bool:
    """True where input ``index`` is a constant, or made of one by a DequantizeLinear."""
    return op.is_constant(index) or is_dequantized(op, index)


def weight_of(op: Operation, index: int, rank: int | None = None) -> Weight:
    """The weight that is input ``index``, of ``rank`` where given. Raises ``CannotMove`` otherwise."""
    if not is_dequantized(op, index):
        return FloatWeight(op, index, float_weight(op, index, rank))
    weight = dequantized_weight(op, index)
    if rank is not None and weight.ndim != rank:
        raise CannotMove(f"input {index} of {op.name} has shape {list(weight.shape)}")
    return weight


def require_scalable(op: Operation, index: int, factors: np.ndarray, what: str = "the folded weight") -> None:
    """Raise ``CannotMove`` unless input ``index`` times ``factors`` (same rank, size 1 where constant) fits its type.

    It must not overflow, and not shrink as a whole below the smallest normal number, where it would lose its precision.
    """
    weight = op.weight(index)
    kept = tuple(axis for axis, size in enumerate(factors.shape) if size > 1)
    limits = ml_dtypes.finfo(weight.dtype)
    largest = magnitude(op, index, kept)
    with np.errstate(over="ignore", invalid="ignore"):
        reached = largest * np.abs(factors)
    if not np.all(reached <= float(limits.max)):
        raise CannotMove(f"{what} of {op.name} reaches {np.max(reached):.3g}, more than {weight.dtype.name} holds")
    most, smallest = float(np.max(reached, initial=0.0)), float(limits.smallest_normal)
    if 0 < most < smallest <= float(np.max(largest)):
        raise CannotMove(f"{what} of {op.name} shrinks to {most:.3g}, too small for {weight.dtype.name}")


def require_representable(op: Operation, values: np.ndarray, dtype: np.dtype, what: str) -> None:
    """Raise ``CannotMove`` unless ``values`` stay finite in ``dtype``."""
    with np.errstate(over="ignore"):
        stored = values.astype(dtype).astype(np.float64)
    if not np.all(np.isfinite(stored)):
        raise CannotMove(f"{what} of {op.name} reaches {np.max(np.abs(values)):.3g}, more than {dtype.name} holds")


def require_cheap_copies(operations: Iterable[Operation]) -> None:
    """Raise ``CannotMove`` when a weight is large and used elsewhere too, so that folding would store it twice."""
    for op in operations:
        for index, tensor in enumerate(op.node.inputs):
            size = op.weight(index).nbytes if op.is_constant(index) and len(tensor.outputs) > 1 else 0
            if size > _LARGE_COPY:
                raise CannotMove(f"{tensor.name} ({size >> 20} MiB) is used elsewhere too and would have to be stored twice")


def magnitude(op: Operation, index: int, kept: tuple[int, ...] = ()) -> np.ndarray:
    """The largest absolute value along all axes but ``kept``, which stay; read once for each weight."""
    tensor = op.tensor(index)
    assert tensor is not None, "the weight has been read"
    known, key = op.match.cache.of_weights, ("magnitude", tensor.name, kept)
    if key not in known:
        known[key] = _largest(op.weight(index), kept)
    return known[key]


def _largest(values: np.ndarray, kept: tuple[int, ...]) -> np.ndarray:
    """IEEE numbers without their sign are ordered as the integers of the same bits, NaN above infinity."""
    unsigned = _UNSIGNED[values.dtype.itemsize]
    bits, without_sign = np.ascontiguousarray(values).view(unsigned), unsigned(np.iinfo(unsigned).max >> 1)
    reduced = tuple(axis for axis in range(values.ndim) if axis not in kept)
    if values.size > _BLOCK:
        step = max(1, _BLOCK // (values.size // len(values)))
        # Along the first axis first: the others may be short, and NumPy takes long for many short rows.
        now = (0,) if 0 in reduced else reduced
        parts = (bits[start : start + step] & without_sign for start in range(0, len(bits), step))
        most = [part.max(axis=now, keepdims=True) for part in parts]
        bits = np.maximum.reduce(most) if 0 in reduced else np.concatenate(most)
    else:
        bits = bits & without_sign
    return np.asarray(bits.max(axis=reduced, keepdims=True, initial=0)).view(values.dtype).astype(np.float64)
