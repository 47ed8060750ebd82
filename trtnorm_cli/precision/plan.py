"""The nodes of a model that stay float32, and why; all others may be computed in the low type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.precision.low_types import LowType
from trtnorm_cli.records.precision import Cause, Kept

# What becomes of a model's float32 inputs and outputs: they stay float32, or become the low type.
InputsAndOutputs = Literal["keep", "low"]


@dataclass(frozen=True)
class TypePlan:
    """The low type, and the nodes that stay float32 by their keys."""

    low: LowType
    kept: Mapping[str, Kept] = field(default_factory=dict)
    io: InputsAndOutputs = "keep"


def key_of(node: onnx.NodeProto) -> str:
    """The first output of ``node`` that has a name: it is unique in a graph."""
    return next((name for name in node.output if name), "")


def name_of(node: onnx.NodeProto) -> str:
    """``node`` as people know it."""
    return node.name or f"{node.op_type} -> {key_of(node)}"


def kept(
    node: onnx.NodeProto,
    cause: Cause,
    reason: str,
    tensor: str | None = None,
    value: float | None = None,
    limit: float | None = None,
) -> Kept:
    """The record that ``node`` stays float32."""
    return Kept(name_of(node), key_of(node), node.op_type, cause, reason, tensor, value, limit)
