"""Normalize in the wider type where data and parameters are of different types.

    y = cast(norm(cast(x), γ, β))      in float32, or in float64 where the data are

ONNX has one type for all of them, and so has TensorRT, but exporters of half-precision models leave the parameters in float32.
Rounding those to the type of the data would lose what is beyond its range; casting the data costs no kernel.
Source: Micikevicius et al. 2018, "Mixed Precision Training", §3 (normalization and its parameters in float32).
"""

from __future__ import annotations

import numpy as np
import onnx

from trtnorm_cli.rewrite.parts import group_parameters as group
from trtnorm_cli.rewrite.parts.arithmetic import Arithmetic, data_type
from trtnorm_cli.rewrite.parts.batchnorm import not_representable
from trtnorm_cli.rewrite.parts.data_channels import type_and_rank_are_known
from trtnorm_cli.rewrite.pattern import Var, describe, op, optional
from trtnorm_cli.rewrite.rule import Match, NewNode, Rule

_PARAMETERS = ("scale", "shift")


def parameters_are_of_another_type(m: Match) -> str | None:
    """scale or bias is of another type than the data, and the types of all three are known."""
    kinds = {name: data_type(m, name) for name in _PARAMETERS if m.has(name)}
    if 0 in kinds.values():
        return f"the type of a parameter of {describe(m.root)} is not known"
    if set(kinds.values()) <= {data_type(m)}:
        return f"{describe(m.root)} has data and parameters of one type"
    return None


def parameters_are_representable(m: Match) -> str | None:
    """the parameters stay finite in the type in which they are applied."""
    values = {name: m.value(name) for name in _PARAMETERS if m.has(name) and m.surgery.is_constant(m.given(name))}
    finite = {name: value[np.isfinite(value)] for name, value in values.items()}
    reasons = (not_representable(v.astype(np.float64), _wide(m).dtype, m.given(n).name) for n, v in finite.items() if v.size)
    return next((reason for reason in reasons if reason is not None), None)


def _wide(m: Match) -> Arithmetic:
    double = onnx.TensorProto.DOUBLE
    return Arithmetic(m, double if data_type(m) == double else onnx.TensorProto.FLOAT)


def in_the_wider_type(m: Match) -> NewNode:
    a = _wide(m)
    data = a.operand(a.raised(m.given("x"), "data"), "data")
    parameters = [a.operand(a.raised(m.given(name), f"{name}_raised"), name) for name in _PARAMETERS if m.has(name)]
    node = NewNode(m.root.op, (data, *parameters), dict(m.root.attrs), name=m.root.name, role="wide")
    return a.lowered(node, data_type(m))


RULE = Rule(
    name="normalization-parameter-types",
    pattern=op(
        (group.INSTANCE, group.GROUP, "LayerNormalization"),
        Var("x"),
        Var("scale"),
        optional(Var("shift")),
        name="normalization",
    ),
    preconditions=(type_and_rank_are_known, parameters_are_of_another_type, parameters_are_representable),
    replacement=in_the_wider_type,
    because="data and parameters have to be of one type, and the wider one holds them all",
    since_opset=1,
)
