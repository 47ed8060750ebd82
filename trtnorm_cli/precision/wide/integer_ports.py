"""The integer operands of a node: those whose type follows the node's, and those that may be int32 or int64 as they come.

All that is here was built with TensorRT for RTX 1.7.1 in int32 (docs/types.md). Relu and MatMul are not: it refuses them.
"""

from __future__ import annotations

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS

INT64, INT32 = onnx.TensorProto.INT64, onnx.TensorProto.INT32
_ALL = frozenset(("Add", "Clip", "Concat", "Div", "Max", "Min", "Mod", "Mul", "Sub", "Sum"))
_COMPARES = frozenset(("Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"))
# They give elements of their first input again, in another order, number or shape.
PASSES_ON = frozenset(
    (
        *("Expand", "Flatten", "Identity", "ReduceMax", "ReduceMin", "Reshape", "ReverseSequence", "Slice", "Split", "Squeeze"),
        *("Tile", "Transpose", "Unsqueeze"),
    )
)
_FIRST = PASSES_ON | {"Abs", "CumSum", "Neg", "ReduceSum", "Sign", "Trilu"}
_SOME = {"Gather": (0,), "GatherElements": (0,), "Pad": (0, 2), "ScatterElements": (0, 2), "Where": (1, 2)}
_INDICES = {"Gather": 1, "GatherElements": 1, "ScatterElements": 1}
_MAKERS = frozenset(("Cast", "ConstantOfShape"))


@dataclass(frozen=True)
class IntegerPorts:
    """The places of one node. ``typed`` inputs and ``made`` outputs have one type, ``any`` inputs are read in any."""

    typed: tuple[int, ...] = ()
    any: tuple[int, ...] = ()
    made: tuple[int, ...] = ()


def integer_ports(node: onnx.NodeProto, types: dict[str, int]) -> IntegerPorts | None:
    """The places of ``node`` with int64 tensors; None where it computes no int64 that could be int32."""
    if node.domain not in DEFAULT_DOMAINS:
        return None
    wide = [place for place, name in enumerate(node.input) if types.get(name) == INT64]
    made = tuple(place for place, name in enumerate(node.output) if types.get(name) == INT64)
    typed = tuple(place for place in wide if place in _typed_places(node))
    anything = tuple(place for place in wide if place in _places_of_any(node))
    if node.op_type in _COMPARES:
        return IntegerPorts(typed, anything)
    if node.op_type in _MAKERS:
        return IntegerPorts((), anything, made)
    if not made or not typed or made != tuple(range(len(node.output))):
        return IntegerPorts((), anything) if anything else None
    return IntegerPorts(typed, anything, made)


def _typed_places(node: onnx.NodeProto) -> tuple[int, ...]:
    if node.op_type in _ALL or node.op_type in _COMPARES:
        return tuple(range(len(node.input)))
    return (0,) if node.op_type in _FIRST else _SOME.get(node.op_type, ())


def _places_of_any(node: onnx.NodeProto) -> tuple[int, ...]:
    if node.op_type == "Cast":
        return (0,)
    return (_INDICES[node.op_type],) if node.op_type in _INDICES else ()
