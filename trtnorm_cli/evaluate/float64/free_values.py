"""Any values in place of those that two models compute alike.

Where a product has the same operands, the same weights and the same attributes in both, what it gives is the same, whatever
that is. So nobody has to compute it to tell the models apart: what follows from any values is the same in both, or they differ.
A convolution and a matrix product may give any number, which an activation does not. Some are a hundred times as large as most,
so that they reach what an activation cuts off, and some a hundredth.

It is the cut-point method of equivalence checking: Kuehlmann & Krohm 1997, "Equivalence Checking Using Cuts and Heaps".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from typing import Any

import numpy as np

from trtnorm_cli.evaluate.float64.cost import multiply_adds
from trtnorm_cli.evaluate.float64.errors import ReferenceUnavailable
from trtnorm_cli.evaluate.float64.kernels.call import Call
from trtnorm_cli.evaluate.float64.kernels.windows import windows_of

DESCRIPTION = "any values, where both models have the same product"
LEAST_MULTIPLY_ADDS = 1 << 20
"""A smaller product is computed: that takes no time."""
MOST_BYTES = 1 << 27
"""What follows from a larger result may not be remembered for the other model: there is room for a few of them only."""
# The pattern repeats after so many numbers, and each array begins elsewhere in it. Both are prime.
_PERIOD, _STEP = 1_000_003, 7_919
# How large numbers are, so many in a row, and how often.
_SIZES, _SHARES, _IN_A_ROW = (1.0, 10.0, 100.0, 0.01), (0.8, 0.12, 0.04, 0.04), 61


class OtherProduct(ReferenceUnavailable):
    """A product of the other model whose result is no longer that of the first."""


class LargeProduct(ReferenceUnavailable):
    """A product with so large a result that the models are not told apart in this way."""


class FreeValues:
    """Gives arrays of any values for the products whose results are ``names``. It has ``given`` some of them."""

    def __init__(self, names: Set[str], seed: int) -> None:
        self.given: set[str] = set()
        self._names = names
        rng = np.random.default_rng(seed)
        sizes = rng.choice(_SIZES, _PERIOD // _IN_A_ROW + 1, p=_SHARES).repeat(_IN_A_ROW)[:_PERIOD]
        self._pattern = rng.standard_normal(_PERIOD) * sizes
        self._values = self._pattern
        self._made = 0

    def of(self, call: Call, learns: Callable[[Sequence[Any]], bool]) -> np.ndarray | None:
        """An array of the shape of the result of ``call``, which no other call has; None where it is to be computed.

        That is so where ``learns``, which is to remember it for the other model, says that it cannot. Raises ``LargeProduct``.
        """
        if call.outputs[0] not in self._names or multiply_adds(call) < LEAST_MULTIPLY_ADDS:
            return None
        shape = _shape(call)
        if shape is None or not all(isinstance(one, np.ndarray) for one in call.inputs if one is not None):
            return None
        if is_too_large(shape):
            raise LargeProduct("its result is large", where=call.outputs[0])
        self._made += 1
        start = self._made * _STEP % _PERIOD
        if start + math.prod(shape) > self._values.size:
            self._values = np.resize(self._pattern, start + math.prod(shape) + _PERIOD)
        # An array of its own for whoever tells arrays by the memory that they own.
        found = np.ndarray(shape, np.float64, self._values.data.toreadonly(), start * np.float64().itemsize)
        if not learns([found]):
            return None
        self.given.add(call.outputs[0])
        return found


def is_too_large(shape: Sequence[Any]) -> bool:
    """True for the shape of a result for which no values stand: ``LargeProduct`` would be raised."""
    return math.prod(shape) * np.float64().itemsize > MOST_BYTES


class SameProducts:
    """The other side of free values: a product to which they were ``given`` is known there, or is another one."""

    def __init__(self, values: FreeValues) -> None:
        self.are_refuted = False
        self._given = values.given

    def of(self, call: Call, learns: Callable[[Sequence[Any]], bool]) -> None:
        """Raises ``OtherProduct`` for one that is not known although it has the name of one that is."""
        if call.outputs[0] in self._given:
            self.are_refuted = True
            raise OtherProduct("its operands are not those of the product of the same name", where=call.outputs[0])


def _shape(call: Call) -> tuple[int, ...] | None:
    x, weight = call.inputs[:2]
    if x.dtype != np.float64:
        return None
    if call.op_type == "Conv":
        return (len(x), len(weight), *windows_of(call, x.shape[2:], weight.shape[2:]).output)
    if call.op_type == "MatMul" and x.ndim > 1 and weight.ndim > 1:
        return (*np.broadcast_shapes(x.shape[:-2], weight.shape[:-2]), x.shape[-2], weight.shape[-1])
    return None
