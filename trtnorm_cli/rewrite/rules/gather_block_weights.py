"""Write ONNX Runtime's look-up in a table of few bits as a look-up in the dequantised table.

    y = W[indices]      W = s · (q − z),  a scale and a zero point for each block along one axis

Integers less their zero points stay integers of 8 bits where the blocks are along the rows, behind a DequantizeLinear with a
scale for each block.
Source: GatherBlockQuantized in the contributed operators of ONNX Runtime, 2024.
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.parts.dynamic_quantization import dequantised
from trtnorm_cli.rewrite.pattern import Const, Var, describe, op, optional
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, Rule

_BITS = (2, 4, 8)
_AXIS_SINCE = 13
_DEFAULTS = {"bits": 4, "block_size": 128, "gather_axis": 0, "quantize_axis": 1}


def _setting(m: Match, name: str) -> int:
    return int(m.root.attrs.get(name, _DEFAULTS[name]))


def table_is_of_integers(m: Match) -> str | None:
    """its table has integers of 2, 4 or 8 bits."""
    kind = m.value("table").dtype
    if kind.name not in ("uint8", "int4", "uint4"):
        return f"the table of {describe(m.root)} is of {kind.name}"
    if kind == np.uint8 and _setting(m, "bits") not in _BITS:
        return f"the table of {describe(m.root)} has {_setting(m, 'bits')} bits"
    return None


def scales_fit_the_table(m: Match) -> str | None:
    """there is a scale of float32 for each block of the table."""
    table, scales, axis, block = (
        _integers(m, "table"),
        m.value("scales"),
        _setting(m, "quantize_axis"),
        _setting(m, "block_size"),
    )
    if scales.dtype != np.float32:
        return f"the scales of {describe(m.root)} are not float32"
    wanted = list(table.shape)
    if block <= 0 or not -table.ndim <= axis < table.ndim:
        return f"{describe(m.root)} has blocks of {block} along axis {axis}"
    wanted[axis] = -(-wanted[axis] // block)
    if list(scales.shape) != wanted:
        return f"{describe(m.root)} has scales of {list(scales.shape)} for a table of {list(table.shape)} in blocks of {block}"
    return None


def _integers(m: Match, name: str) -> np.ndarray:
    """The integers of a constant, unpacked where a byte holds several along the last axis, the lowest first."""
    stored, bits = m.value(name), _setting(m, "bits")
    if stored.dtype != np.uint8 or bits == 8:
        return stored.astype(np.int16)
    parts = [(stored >> shift) & (2**bits - 1) for shift in range(0, 8, bits)]
    return np.stack(parts, axis=-1).reshape(*stored.shape[:-1], -1).astype(np.int16)


def _zeros(m: Match, like: np.ndarray) -> np.ndarray:
    """A zero point for each scale."""
    if m.has("zero"):
        zeros = _integers(m, "zero")
        return zeros[..., : like.shape[-1]]  # the last byte may be filled up
    is_packed = m.value("table").dtype == np.uint8
    return np.full(like.shape, 2 ** (_setting(m, "bits") - 1) if is_packed else 0, np.int16)


def look_up(m: Match) -> NewNode:
    table, scales, block = _integers(m, "table"), m.value("scales"), _setting(m, "block_size")
    axis = _setting(m, "quantize_axis") % table.ndim
    places = np.arange(table.shape[axis]) // block
    zeros = np.take(_zeros(m, scales), places, axis)
    centred = table - zeros
    is_in_rows = axis == table.ndim - 1 and table.shape[axis] % block == 0 and m.opset >= _AXIS_SINCE
    values: NewNode | NewConstant
    if is_in_rows and np.abs(centred).max(initial=0) <= np.iinfo(np.int8).max:
        constants = (
            NewConstant("table", centred.astype(np.int8).reshape(-1, block)),
            NewConstant("scales", scales.reshape(-1)),
        )
        blocks = NewNode("DequantizeLinear", constants, {"axis": 0}, role="dequantised")
        values = NewNode("Reshape", (blocks, NewConstant("rows", np.array(table.shape, np.int64))), role="rows")
    else:
        values = NewConstant("table", dequantised(table, np.take(scales, places, axis), zeros))
    return NewNode("Gather", (values, m.given("indices")), {"axis": _setting(m, "gather_axis")}, name=m.root.name)


RULE = Rule(
    name="gather-block-weights",
    pattern=op(
        "GatherBlockQuantized",
        Const("table"),
        Var("indices"),
        Const("scales"),
        optional(Const("zero")),
        name="look-up",
        domain="com.microsoft",
    ),
    preconditions=(table_is_of_integers, scales_fit_the_table),
    replacement=look_up,
    because="the operator, which TensorRT does not have, looks up rows of a dequantised table",
)
