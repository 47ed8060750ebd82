"""The type of each node: what is kept stays float32 with its unit, and what may have either costs the fewest casts."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterable, Mapping

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.precision.cut import Choice, Flow
from trtnorm_cli.precision.operator_kinds import HEAVY, MOVES
from trtnorm_cli.precision.ports import Role, TypedNode
from trtnorm_cli.precision.units import Unit

# In hundredths of the launch that a cast may be.
_CAST, _PER_DOUBLING = 100, 1
# At an input or output a cast is wanted: otherwise what is cheap would be float32 from one to the other.
_AT_BORDER = 3
_MOVING, _COMPUTING = 4, 10


@dataclass(frozen=True)
class Borders:
    """The tensors whose types are given: graph inputs and outputs by name, True where it is low."""

    inputs: Mapping[str, bool]
    outputs: Mapping[str, bool]


def labels(
    nodes: Iterable[TypedNode],
    kept: Collection[str],
    units: Iterable[Unit],
    constants: Collection[str],
    types: Mapping[str, TensorType],
    borders: Borders,
) -> dict[str, bool]:
    """Nodes that have a type, by their keys: True where it is the low one."""
    nodes = [node for node in nodes if node.role is not Role.NONE]
    variables = _variables(nodes, units)
    choice = Choice({}, {}, [])
    for node in nodes:
        one = variables[node.key]
        choice.float_cost[one] = choice.float_cost.get(one, 0) + _cost_of_float(node)
        if node.role is Role.FIXED or node.key in kept:
            choice.forced[one] = False
        elif node.role in (Role.WIDENS, Role.NARROWS) or node.node.op_type in HEAVY:
            choice.forced.setdefault(one, True)
    choice.flows = _flows(nodes, variables, constants, types, borders, choice.forced)
    settled = choice.settled()
    return {node.key: settled[variables[node.key]] for node in nodes}


def _variables(nodes: Iterable[TypedNode], units: Iterable[Unit]) -> dict[str, Hashable]:
    """The variable of each node: one for all nodes of a unit."""
    of_unit = {key: ("unit", unit.output) for unit in units for key in unit.keys}
    return {node.key: of_unit.get(node.key, ("node", node.key)) for node in nodes}


def _cost_of_float(node: TypedNode) -> int:
    return _MOVING if node.node.op_type in MOVES else _COMPUTING


def _flows(
    nodes: list[TypedNode],
    variables: Mapping[str, Hashable],
    constants: Collection[str],
    types: Mapping[str, TensorType],
    borders: Borders,
    forced: dict[Hashable, bool],
) -> list[Flow]:
    makers: dict[str, Hashable] = {}
    readers: dict[str, set[Hashable]] = {}

    def given(tensor: str, what: str, is_low: bool) -> Hashable:
        forced[what, tensor] = is_low
        return what, tensor

    for tensor, is_low in borders.inputs.items():
        makers[tensor] = given(tensor, "made", is_low)
    for node in nodes:
        for place in node.writes:
            makers[node.node.output[place]] = variables[node.key]
        for place in node.writes_float:
            makers[node.node.output[place]] = given(node.node.output[place], "made", False)
    for node in nodes:
        for name in node.names(node.reads):
            readers.setdefault(name, set()).add(variables[node.key])
        for name in (*node.names(node.reads_float), *node.captured):
            readers.setdefault(name, set()).add(given(name, "read", False))
    for tensor, is_low in borders.outputs.items():
        readers.setdefault(tensor, set()).add(given(tensor, "output", is_low))
    return [
        Flow(makers[name], frozenset(reading), _cost_of_cast(name, types.get(name), borders))
        for name, reading in readers.items()
        if name in makers and name not in constants
    ]


def _cost_of_cast(name: str, kind: TensorType | None, borders: Borders) -> int:
    """More for larger tensors, but never as much as a second cast."""
    if name in borders.inputs or name in borders.outputs:
        return _AT_BORDER
    sizes = [size for size in (kind.shape if kind and kind.shape else ()) if isinstance(size, int) and size > 0]
    return _CAST + _PER_DOUBLING * int(math.log2(math.prod(sizes) or 1))
