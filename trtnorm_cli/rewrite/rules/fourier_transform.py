"""Write a DFT of a fixed length as a matrix product.

    y_k = Σ_n x_n · exp(∓2πi·kn/L) · (1/L where inverse)      for real and complex x, all of y or its first half

TensorRT has no layer for the operator. The table is computed in float64 and rounded once.
Source: DFT-17 and -20 in the ONNX operator specification; Cooley & Tukey 1965, eq. 1.
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.parts import fourier_tables
from trtnorm_cli.rewrite.parts.arithmetic import arithmetic_for, data_type
from trtnorm_cli.rewrite.parts.fourier_tables import (
    COMPLEX,
    REAL,
    components,
    data_are_floats,
    data_are_real_or_complex,
    table,
)
from trtnorm_cli.rewrite.pattern import Const, Var, describe, op, optional
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule

_AXIS_IS_AN_INPUT = 20


def axis_is_of_values(m: Match) -> str | None:
    """its axis is one of the data but the last, and its length is known."""
    rank, axis = len(m.shape("x") or ()), _axis(m)
    if not -rank <= axis < rank or axis % rank == rank - 1:
        return f"{describe(m.root)} has axis {axis} of {rank}"
    count = _shape(m)[axis % rank]
    return None if isinstance(count, int) and count > 0 else f"the length of axis {axis} of {describe(m.root)} is not known"


def is_defined(m: Match) -> str | None:
    """it is long enough, and half of a spectrum is that of real data, or real data come of it."""
    if _length(m) < 1:
        return f"{describe(m.root)} has a length of {_length(m)}"
    if not _is_onesided(m):
        return None
    wanted, half = COMPLEX if _is_inverse(m) else REAL, _length(m) // 2 + 1
    if components(m) != wanted:
        return f"{describe(m.root)} is one-sided, and its data are {'real' if wanted == COMPLEX else 'complex'}"
    if _is_inverse(m) and _count(m) > half:
        return f"{describe(m.root)} takes {half} values for half of a spectrum, and its data have {_count(m)}"
    return None


def table_is_small(m: Match) -> str | None:
    """its table has at most 33 million numbers."""
    return fourier_tables.is_too_large(_count(m), components(m), _length(m), _is_inverse(m), _is_onesided(m))


def _axis(m: Match) -> int:
    if m.opset < _AXIS_IS_AN_INPUT:
        return int(m.root.attrs.get("axis", 1))
    return int(np.ravel(m.value("axis"))[0]) if m.has("axis") else -2


def _shape(m: Match) -> tuple[int | str | None, ...]:
    shape = m.shape("x")
    assert shape is not None, "data_are_real_or_complex looked"
    return shape


def _count(m: Match) -> int:
    count = _shape(m)[_axis(m)]
    assert isinstance(count, int), "axis_is_of_values looked"
    return count


def _length(m: Match) -> int:
    if m.has("length"):
        return int(np.ravel(m.value("length"))[0])
    return 2 * (_count(m) - 1) if _is_inverse(m) and _is_onesided(m) else _count(m)


def _is_inverse(m: Match) -> bool:
    return bool(m.root.attrs.get("inverse", 0))


def _is_onesided(m: Match) -> bool:
    return bool(m.root.attrs.get("onesided", 0))


def as_product(m: Match) -> NewNode:
    a, rank = arithmetic_for(m), len(_shape(m))
    axis, count, parts = _axis(m) % rank, _count(m), components(m)
    numbers = table(count, parts, _length(m), _is_inverse(m), _is_onesided(m))
    others = [place for place in range(rank - 1) if place != axis]
    x = a.operand(a.raised(m.given("x"), "to_float32"), "data")
    if axis != rank - 2:
        x = NewNode("Transpose", (x,), {"perm": [*others, axis, rank - 1]}, role="values_last")
    # A zero keeps the length of an axis, which may be known at run time only.
    rows = NewNode("Reshape", (x, a.integers("rows_shape", [0] * (rank - 2) + [count * parts])), role="rows")
    weight = a.operand(numbers.reshape(count * parts, -1), "table")
    product = NewNode("MatMul", (rows, weight), role="transformed")
    made = NewNode("Reshape", (product, a.integers("pairs_shape", [0] * (rank - 2) + list(numbers.shape[2:]))), role="pairs")
    if axis != rank - 2:
        back = list(np.argsort([*others, axis, rank - 1]))
        made = NewNode("Transpose", (made,), {"perm": [int(place) for place in back]}, role="values_back")
    return a.lowered(made, data_type(m))


RULE = Rule(
    name="fourier-transform",
    pattern=op("DFT", Var("x"), optional(Const("length")), optional(Const("axis")), name="transform"),
    preconditions=(data_are_floats, data_are_real_or_complex, axis_is_of_values, is_defined, table_is_small),
    replacement=as_product,
    because="a DFT has no layer in TensorRT",
    since_opset=17,
)
