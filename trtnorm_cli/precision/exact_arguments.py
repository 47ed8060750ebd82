"""Values whose last digits count: arguments of sines, indices, and positions at which something is sampled.

A position of 3000 is rounded to a multiple of 2 in half and of 16 in bfloat16. Its sine is then another one, and an index
another element.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx

from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.precision.connections import Connections, is_operator
from trtnorm_cli.precision.low_types import LowType
from trtnorm_cli.precision.operator_kinds import ELEMENTWISE, MOVES
from trtnorm_cli.precision.plan import kept
from trtnorm_cli.records.precision import Kept

_PERIODIC = ("Sin", "Cos", "Tan")
_INTEGERS = frozenset({
    onnx.TensorProto.INT8, onnx.TensorProto.INT16, onnx.TensorProto.INT32, onnx.TensorProto.INT64,
    onnx.TensorProto.UINT8, onnx.TensorProto.UINT16, onnx.TensorProto.UINT32, onnx.TensorProto.UINT64,
})  # fmt: skip


def kept_exact(model: onnx.ModelProto, types: Mapping[str, TensorType], low: LowType) -> Iterator[Kept]:
    """The nodes that compute such values, back to the first product of matrices, and those that use them."""
    graph = Connections(model)
    for node in model.graph.node:
        if is_operator(node, *_PERIODIC):
            reason = (
                f"{low.name} has the integers only up to {low.exact_integers}, and {node.op_type} needs the digits after them"
            )
            names, user = list(node.input), node
        elif is_operator(node, "GridSample") and len(node.input) > 1:
            reason = f"positions to sample at are told apart only to {low.half_ulp:.1g} of the width in {low.name}"
            names, user = [node.input[1]], node
        elif is_operator(node, "Cast") and _to_integers(node):
            reason = f"integers are made of it, and {low.name} has them only up to {low.exact_integers}"
            names, user = list(node.input), None
        else:
            continue
        if user is not None:
            yield kept(user, "range", reason, limit=float(low.exact_integers))
        for before in graph.upstream(names, lambda one: _is_arithmetic(one, types)):
            if user is not None or _makes_only_integers(before, graph):
                yield kept(before, "range", reason, limit=float(low.exact_integers))


def _to_integers(node: onnx.NodeProto) -> bool:
    return any(a.name == "to" and a.i in _INTEGERS for a in node.attribute)


def _is_arithmetic(node: onnx.NodeProto, types: Mapping[str, TensorType]) -> bool:
    """True of what computes one value from one value, and of products without a sum."""
    if is_operator(node, *ELEMENTWISE, *MOVES, "Range"):
        return True
    return is_operator(node, "MatMul") and any(_contracts_nothing(name, place, types) for place, name in enumerate(node.input))


def _contracts_nothing(name: str, place: int, types: Mapping[str, TensorType]) -> bool:
    kind = types.get(name)
    if kind is None or kind.shape is None or len(kind.shape) < 2:
        return False
    return kind.shape[-1 if place == 0 else -2] == 1


def _makes_only_integers(node: onnx.NodeProto, graph: Connections) -> bool:
    """True where all that reads the node's results is arithmetic for integers as well."""
    waiting, seen = list(node.output), set(node.output)
    while waiting:
        name = waiting.pop()
        readers = graph.consumers.get(name, ())
        if name in graph.outputs or not readers:
            return False
        for reader in readers:
            if is_operator(reader, "Cast") and _to_integers(reader):
                continue
            if not is_operator(reader, *ELEMENTWISE, *MOVES):
                return False
            new = [output for output in reader.output if output not in seen]
            seen.update(new)
            waiting.extend(new)
    return True
