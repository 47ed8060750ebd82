"""Write an LRN as sums of shifted slices.

    y_c = x_c / (k + α/n · Σ_i x²_i)^β      i from c − ⌊(n−1)/2⌋ to c + ⌈(n−1)/2⌉, as far as there are channels

TensorRT has it for an odd n of 3 to 15, k ≥ 1e-5, β ≥ 0.01 and four axes; with five it takes the third from the end for the
channels, without a word. The slices of the squares are one kernel of its own making, where its LRN and what arranges the data
for it are three.
Source: Krizhevsky, Sutskever & Hinton 2012, §3.3; LRN-13 in the ONNX operator specification.
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.parts.arithmetic import Arithmetic, Operand, arithmetic_for, data_type
from trtnorm_cli.rewrite.parts.data_channels import type_and_rank_are_known
from trtnorm_cli.rewrite.pattern import Var, describe, op
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, Rule

_DEFAULTS = {"alpha": 1e-4, "beta": 0.75, "bias": 1.0}
_TO_THE_END = np.iinfo(np.int64).max
_MOST_SLICES = 64
# Before, the bounds of Slice and the widths of Pad are attributes.
_BOUNDS_ARE_INPUTS = 11


def data_has_channels(m: Match) -> str | None:
    """the data has two axes at least, the second for the channels."""
    return None if len(m.shape("x") or ()) > 1 else f"the data of {describe(m.root)} has no channels"


def window_is_positive(m: Match) -> str | None:
    """size is stated, above zero, and not so large that there would be hundreds of slices."""
    size = m.root.attrs.get("size", 0)
    return None if 0 < size <= _MOST_SLICES else f"{describe(m.root)} has size={size}"


def is_taken_by_tensorrt(m: Match) -> bool:
    """True where TensorRT has a layer for it and computes it rightly."""
    size, beta, k = m.root.attrs["size"], _number(m, "beta"), _number(m, "bias")
    return m.rank("x") == 4 and size in range(1, 16, 2) and k >= 1e-5 and beta >= 0.01


def _number(m: Match, name: str) -> float:
    return float(m.root.attrs.get(name, np.float32(_DEFAULTS[name])))


def sums_of_slices(m: Match) -> NewNode:
    a, size = arithmetic_for(m), int(m.root.attrs["size"])
    x = a.raised(m.given("x"), "to_float32")
    total = _window_sums(m, a, a.binary("Mul", x, x, "squared"), size)
    share = a.binary("Mul", total, np.full((), _number(m, "alpha") / size), "share")
    base = a.binary("Add", share, np.full((), _number(m, "bias")), "base")
    power = NewNode("Pow", (a.operand(base, "base"), a.operand(np.full((), _number(m, "beta")), "beta")), role="power")
    return a.lowered(a.binary("Div", x, power, "normalized"), data_type(m))


def _window_sums(m: Match, a: Arithmetic, squares: Operand, size: int) -> Operand:
    """For each channel the sum over its window; beyond the first and the last channel there are zeros."""
    if size == 1:
        return squares
    before, rank = (size - 1) // 2, len(m.shape("x") or ())
    widths = [0, before, *[0] * (rank - 2), 0, size - 1 - before, *[0] * (rank - 2)]
    padded = _padded(m, a, squares, widths)
    return NewNode("Sum", tuple(_slice(m, a, padded, first, first - size + 1) for first in range(size)), role="sum")


def _padded(m: Match, a: Arithmetic, x: Operand, widths: list[int]) -> NewNode:
    if m.opset < _BOUNDS_ARE_INPUTS:
        return NewNode("Pad", (a.operand(x, "squares"),), {"pads": widths}, role="padded")
    return NewNode("Pad", (a.operand(x, "squares"), a.integers("pads", widths)), role="padded")


def _slice(m: Match, a: Arithmetic, padded: NewNode, start: int, end: int) -> NewNode:
    """The channels from ``start`` to ``end``, counted from the last; an end of zero is the end."""
    stop, role = end or _TO_THE_END, f"slice_{start}"
    if m.opset < _BOUNDS_ARE_INPUTS - 1:
        return NewNode("Slice", (padded,), {"starts": [start], "ends": [stop], "axes": [1]}, role=role)
    bounds: list[NewConstant] = [a.integers(f"{role}_{n}", (v,)) for n, v in (("start", start), ("end", stop), ("axis", 1))]
    return NewNode("Slice", (padded, *bounds), role=role)


RULE = Rule(
    name="local-response-normalization",
    pattern=op("LRN", Var("x"), name="normalization"),
    preconditions=(type_and_rank_are_known, data_has_channels, window_is_positive),
    replacement=sums_of_slices,
    because="only some windows have a layer in TensorRT, and sums of slices have fewer kernels than that",
    optional=is_taken_by_tensorrt,
)
