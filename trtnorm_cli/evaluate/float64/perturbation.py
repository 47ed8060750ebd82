"""Seeded roundings: what finite precision may do to a model, played through in float64.

Stored constants, and what is computed from constants and sizes alone (a cleaner may store it), move by half a unit in the last
place, to either side. With arithmetic inputs and results move as well: a result by half a unit, a sum of n terms by what
adding them one after the other costs. With partial sums s₁ … sₙ and errors of half a unit each, that is about

    0.2·ε·√n·|y|  for terms of one sign,    0.2·ε·√n·rms(y)  for products of mixed signs,

in standard deviations (a random walk of roundings; Higham, Accuracy and Stability of Numerical Algorithms, §2.8 and §4.2).
Functions between fixed values, such as Sigmoid, are computed with an absolute error: near 0 nothing of it may be right.
Constants of an operator's definition, such as HardSwish's 1/6, are stored where it is written out, so they move as well.
So are the scale and shift that a BatchNormalization's parameters come to. Where many are alike, each rounds to the same side.
Whole numbers stay, because rounding keeps them: exponents, indices, masks and what Floor returns. What is rounded to steps
falls to either side of a tie that is near.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import NodeProto

from trtnorm_cli.evaluate.float64.raising import Stored
from trtnorm_cli.evaluate.float64.ties import Tie, nearness, next_to_ties

Constant = np.ndarray | Stored
_SUM = 0.2
# Elements that are moved at once, so that what lies between their value and their result stays in the processor's caches.
_BLOCK = 1 << 15
# These pass elements on, or choose among them: nothing is rounded.
_EXACT = frozenset(
    [
        "Abs",
        "Cast",
        "CastLike",
        "Clip",
        "Compress",
        "Concat",
        "ConcatFromSequence",
        "ConstantOfShape",
        "DepthToSpace",
        "Dropout",
        "Expand",
        "Flatten",
        "Gather",
        "GatherElements",
        "GatherND",
        "GlobalMaxPool",
        "Identity",
        "If",
        "Loop",
        "Max",
        "MaxPool",
        "MaxUnpool",
        "Min",
        "Neg",
        "Optional",
        "OptionalGetElement",
        "Pad",
        "ReduceMax",
        "ReduceMin",
        "Relu",
        "Reshape",
        "ReverseSequence",
        "Scan",
        "Scatter",
        "ScatterElements",
        "ScatterND",
        "SequenceAt",
        "SequenceConstruct",
        "SequenceInsert",
        "Slice",
        "SpaceToDepth",
        "Split",
        "SplitToSequence",
        "Squeeze",
        "Tile",
        "TopK",
        "Transpose",
        "Trilu",
        "Unsqueeze",
        "Where",
    ]
)
_REDUCTIONS = frozenset(
    [
        "GlobalAveragePool",
        "GlobalLpPool",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceMean",
        "ReduceSum",
        "ReduceSumSquare",
    ]
)
# Implementations approximate these to half a unit of 1, wherever the value lies.
_ABSOLUTE = frozenset(
    (
        *("BiasGelu", "Celu", "Cos", "Elu", "Erf", "FastGelu", "GRU", "Gelu", "LSTM", "LogSoftmax", "Mish", "QuickGelu", "RNN"),
        *("Selu", "Sigmoid", "Sin", "Softplus", "Swish", "Tanh"),
    )
)
# Their definitions hold constants that are no float32: 1/6, √½, √(2/π). All elements move alike.
_WITH_CONSTANTS = frozenset(("BiasGelu", "FastGelu", "Gelu", "HardSwish"))
_NORMALIZATIONS_OF_PLANES = frozenset(("InstanceNormalization", "GroupNormalization", "MeanVarianceNormalization"))


class Moves(enum.Enum):
    """Stored constants; these and all arithmetic; or only functions that implementations approximate."""

    CONSTANTS = enum.auto()
    ARITHMETIC = enum.auto()
    FUNCTIONS = enum.auto()


class Perturbation:
    """One draw of roundings with relative half-unit ``half_ulp``; the same seed gives the same draw.

    Constants of which ``kept`` is true stay as they are. ``decides`` says to decide ties otherwise where only constants move.
    """

    def __init__(
        self, half_ulp: float, seed: int, moves: Moves, kept: Callable[[Constant], bool] | None = None, decides: bool = False
    ) -> None:
        self.half_ulp, self.moves, self._kept = half_ulp, moves, kept
        self._rng = np.random.default_rng(seed)
        self._side = np.uint64(seed + 1)
        # The first draw decides every tie otherwise, so that even a single one of them is noticed; the others toss a coin.
        self._decides_all = seed == 0
        self._decides = decides or moves is Moves.ARITHMETIC

    def input(self, value: Any) -> Any:
        """An input of the model, which came from somewhere, rounded."""
        return self._moved(value) if self.moves is Moves.ARITHMETIC and _is_floating(value) else value

    def constant(self, value: Any) -> Any:
        """A constant rounded, in float64 if it moved. It may be given as it is stored."""
        is_floating = isinstance(value, Stored) or _is_floating(value)
        if not is_floating or self.moves is Moves.FUNCTIONS or (self._kept is not None and self._kept(value)):
            return value
        return self._moved(value.array if isinstance(value, Stored) else value)

    def result(self, node: NodeProto, attributes: Mapping[str, Any], inputs: Sequence[Any], value: Any, fixed: bool) -> Any:
        """``value`` as finite precision might give it; ``fixed`` means that it depends on no input's elements."""
        if self._decides and not fixed and isinstance(value, np.ndarray):
            tie = next_to_ties(node, attributes, inputs, value, nearness(2 * self.half_ulp))
            if tie is not None:
                return self._decided(value, tie)
        if not _is_floating(value) or value.size == 0:
            return value
        if node.op_type == "Constant":
            return self.constant(value)
        if self.moves is Moves.FUNCTIONS:
            return self._moved(value, np.ones_like(value)) if node.op_type in _ABSOLUTE else value
        if fixed:
            return value if node.op_type in _EXACT else self._moved(value)
        if node.op_type == "BatchNormalization" and not attributes.get("training_mode"):
            value = self._with_rounded_scale(attributes, inputs, value)
        if self.moves is Moves.CONSTANTS and node.op_type in _WITH_CONSTANTS:
            return value * (1.0 + self.half_ulp * self._rng.choice((-1.0, 1.0)))
        if self.moves is Moves.CONSTANTS or node.op_type in _EXACT:
            return value
        terms = _summands(node, attributes, inputs, value)
        size = np.abs(value) + (1.0 if node.op_type in _ABSOLUTE else 0.0)
        if terms > 1:
            size = size + _rms(inputs[0] if node.op_type in _REDUCTIONS else value) / (
                math.sqrt(terms) if node.op_type in _REDUCTIONS else 1.0
            )
        return self._moved(value, size * max(1.0, 2 * _SUM * math.sqrt(terms)))

    def _with_rounded_scale(self, attributes: Mapping[str, Any], inputs: Sequence[Any], value: np.ndarray) -> np.ndarray:
        """``value`` of a BatchNormalization whose parameters were folded into a scale and a shift, and these were rounded."""
        x, *parameters = inputs[:5]
        per_channel = value.shape[1:2]
        if any(np.shape(each) != per_channel for each in parameters):
            return value
        if self._kept is not None and all(map(self._kept, parameters)):
            return value
        gamma, beta, mean, variance = parameters
        with np.errstate(all="ignore"):
            scale = gamma / np.sqrt(variance + float(attributes.get("epsilon", 1e-5)))
            moves = self._rounding_of(scale), self._rounding_of(beta - mean * scale)
            of_scale, of_shift = (move.reshape(-1, *(1,) * (value.ndim - 2)) for move in moves)
            return value + (x * of_scale + of_shift)

    def _rounding_of(self, value: np.ndarray) -> np.ndarray:
        """Half a unit of ``value`` to the side that this draw has for just that number; 0 for whole numbers."""
        bits = np.ascontiguousarray(value).view(np.uint64) ^ self._side
        is_down = (bits * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(63) == 0
        return np.where(value == np.rint(value), 0.0, np.where(is_down, -value, value) * self.half_ulp)

    def _decided(self, value: np.ndarray, tie: Tie) -> np.ndarray:
        chosen = np.ones(tie.indices.size, bool) if self._decides_all else self._rng.integers(0, 2, tie.indices.size) == 0
        result = np.array(value)
        result.reshape(-1)[tie.indices[chosen]] = tie.other[chosen]
        return result

    def _moved(self, value: np.ndarray, size: np.ndarray | None = None) -> np.ndarray:
        """``value`` with half a unit of ``size``, or of itself, added or subtracted; whole numbers stay."""
        moved = np.empty(np.shape(value))
        values, sizes, results = _flat(value), None if size is None else _flat(size), moved.reshape(-1)
        for start in range(0, moved.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            self._move(values[block], None if sizes is None else sizes[block], results[block])
        return moved

    def _move(self, value: np.ndarray, size: np.ndarray | None, moved: np.ndarray) -> None:
        np.multiply(self._bits(value.size), 2 * self.half_ulp, out=moved)
        moved -= self.half_ulp
        moved *= value if size is None else size
        moved += value
        # Of numbers below 1 only 0 is whole, and moves by no part of itself.
        if size is not None or not (value.min() > -1.0 and value.max() < 1.0):
            np.copyto(moved, value, where=value == np.rint(value))

    def _bits(self, count: int) -> np.ndarray:
        """So many tosses of a coin, 0 or 1."""
        return np.unpackbits(np.frombuffer(self._rng.bytes(-(-count // 8)), np.uint8), count=count)


def _flat(value: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(value).reshape(-1)


def _is_floating(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype == np.float64


def _rms(value: np.ndarray) -> float:
    finite = value[np.isfinite(value)]
    return float(np.sqrt(np.mean(np.square(finite)))) if finite.size else 0.0


def _summands(node: NodeProto, attributes: Mapping[str, Any], inputs: Sequence[Any], value: np.ndarray) -> float:
    """How many terms one element of the result adds up; 1 for what works element by element."""
    kind = node.op_type
    arrays = [x for x in inputs if isinstance(x, np.ndarray)]
    if not arrays:
        return 1.0
    x = arrays[0]
    if kind in _REDUCTIONS:
        return x.size / value.size
    if kind in _NORMALIZATIONS_OF_PLANES:
        groups = x.shape[0] * int(attributes.get("num_groups") or (x.shape[1] if x.ndim > 1 else 1))
        return x.size / max(groups, 1)
    if kind in ("LayerNormalization", "RMSNormalization"):
        return math.prod(x.shape[int(attributes.get("axis", -1)) :])
    if kind in ("Softmax", "LogSoftmax", "LpNormalization", "CumSum"):
        return max(x.shape, default=1)
    if kind in ("AveragePool", "LpPool"):
        return math.prod(attributes.get("kernel_shape") or (1,))
    if len(arrays) > 1:
        return _terms_of_products(kind, attributes, arrays)
    return 1.0


def _terms_of_products(kind: str, attributes: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> float:
    x, weight = arrays[:2]
    if kind == "MatMul":
        return x.shape[-1] if x.ndim else 1
    if kind == "Gemm":
        return x.shape[0 if attributes.get("transA") else 1]
    if kind in ("Conv", "DeformConv"):
        return weight.size / max(weight.shape[0], 1)
    if kind == "ConvTranspose":
        return weight.size / max(weight.shape[1], 1)
    if kind in ("LSTM", "GRU", "RNN"):
        return weight.shape[-1] + (arrays[2].shape[-1] if len(arrays) > 2 else 0)
    if kind in ("Attention", "MultiHeadAttention", "Einsum"):
        return max(x.shape, default=1)
    return 1.0
