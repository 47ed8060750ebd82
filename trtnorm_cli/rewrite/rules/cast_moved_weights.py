"""Cast weights of signed 8 bits in the file, not while the model runs.

    y = cast(moved(q))    →    y = moved(cast(q))

Moved are rows of a table, say, that a Gather picks. TensorRT takes a constant of this type in front of DequantizeLinear only.
Source: Cast-13 and Gather-13 in the ONNX operator specification, onnx/onnx 2020.
"""

from __future__ import annotations

import numpy as np
import onnx

from trtnorm_cli.rewrite.parts.moves import moved
from trtnorm_cli.rewrite.pattern import Var, describe, op
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, Rule

_EXACT = tuple(
    getattr(onnx.TensorProto, name) for name in ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE", "INT16", "INT32", "INT64")
)


def weights_are_signed_bytes(m: Match) -> str | None:
    """its data are signed integers of 8 bits that stand in the file, or are picked from such."""
    weights = moved(m.given("x"))
    value = m.surgery.constant(weights.source)
    if value is None:
        return f"{weights.source.name} is computed at run time"
    return None if value.dtype == np.int8 else f"{weights.source.name} is of type {value.dtype}"


def the_type_holds_them(m: Match) -> str | None:
    """every one of them has the same value in the type that they are cast to."""
    return None if m.root.attrs.get("to") in _EXACT else f"{describe(m.root)} casts to another type"


def cast_in_the_file(m: Match) -> NewNode:
    weights = moved(m.given("x"))
    value = m.surgery.constant(weights.source)
    assert value is not None, "the precondition holds"
    made = NewConstant("weight", value.astype(onnx.helper.tensor_dtype_to_np_dtype(m.root.attrs["to"])))
    result = weights.after(made, m.surgery)
    return result if isinstance(result, NewNode) else NewNode("Identity", (made,), name=m.root.name, role="weight")


def as_the_file_has_it(m: Match) -> NewNode:
    weights = moved(m.given("x"))
    value = m.surgery.constant(weights.source)
    assert value is not None, "the precondition holds"
    return NewNode("Cast", (weights.after(NewConstant("weight", value), m.surgery),), dict(m.root.attrs), role="cast")


RULE = Rule(
    name="cast-moved-weights",
    pattern=op("Cast", Var("x"), name="cast"),
    preconditions=(weights_are_signed_bytes, the_type_holds_them),
    replacement=cast_in_the_file,
    because="constants of signed 8 bits stand in front of DequantizeLinear only, for TensorRT",
    reference=as_the_file_has_it,
    restates=True,
    subject=lambda m: None if weights_are_signed_bytes(m) else m.root,
)
