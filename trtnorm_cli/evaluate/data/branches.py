"""The values at which a Where passes an operand on.

Exporters wrap indices with ``Where(i < 0, i + n, i)``, and split tables so.
"""

from __future__ import annotations

from typing import NamedTuple

import onnx

from trtnorm_cli.evaluate.data.input_flow import Site
from trtnorm_cli.evaluate.data.tensor_facts import Facts, Scope, Tensor
from trtnorm_cli.evaluate.data.value_sets import Number, Values, between, union

_INFINITE = float("inf")
MIRRORED = {
    "Less": "Greater", "Greater": "Less", "LessOrEqual": "GreaterOrEqual", "GreaterOrEqual": "LessOrEqual", "Equal": "Equal"
}  # fmt: skip
_CONDITIONS = frozenset({*MIRRORED, "Not", "And", "Or", "Xor"})
_MOST_STEPS = 16


class _Form(NamedTuple):
    """``factor``·base + ``offset``."""

    base: str
    factor: Number
    offset: Number


def never_passed(site: Site, position: int) -> Values:
    """Values of the operand at ``position`` (1 or 2) of a Where that its condition does not let through."""
    return _blocked(site, position, 0, position == 1) if site.has(0) else Values(())


def never_multiplied(site: Site, position: int) -> Values:
    """Values of an operand of a Mul whose other operand is a condition, 0 and 1, that makes them zero."""
    return _blocked(site, position, 1 - position, True)


def is_selection(site: Site) -> bool:
    """True where both operands of an Add are products with conditions. Some exporters write a Where of integers so."""
    return all(_is_masked(site.facts, site.facts.origin(site.scope, name)) for name in site.node.input)


def _is_masked(facts: Facts, tensor: Tensor) -> bool:
    node = facts.producer(tensor)
    if node is None or node.op_type != "Mul":
        return False
    makers = (facts.producer(facts.origin(tensor.scope, name)) for name in node.input)
    return any(maker is not None and maker.op_type in _CONDITIONS for maker in makers)


def _blocked(site: Site, position: int, condition: int, when: bool) -> Values:
    """Values of the operand at ``position`` at which the ``condition`` is not ``when``."""
    nothing = Values(())
    facts = site.facts
    origin = facts.origin(site.scope, site.node.input[condition])
    node = facts.producer(origin)
    while node is not None and node.op_type == "Not":
        origin, when = facts.origin(origin.scope, node.input[0]), not when
        node = facts.producer(origin)
    found = None if node is None or node.op_type not in MIRRORED else _compared(node, facts, origin.scope)
    if found is None:
        return nothing
    form, where_true, where_false = found
    own = _form(facts, site.scope, site.node.input[position])
    if own.base != form.base or own.factor == 0:
        return nothing
    blocked = where_false if when else where_true
    # From the compared number to the base, and from there to the operand.
    base = blocked.shift(-form.offset).scale(1 / form.factor if abs(form.factor) != 1 else form.factor)
    return base.scale(own.factor).shift(own.offset)


def _compared(node: onnx.NodeProto, facts: Facts, scope: Scope) -> tuple[_Form, Values, Values] | None:
    """The tensor that is compared with a constant, and the sets in which the comparison holds and does not."""
    for position in (0, 1):
        bounds = facts.bounds(scope, node.input[1 - position])
        if bounds is not None and bounds[0] == bounds[1]:
            operator = node.op_type if position == 0 else MIRRORED[node.op_type]
            form = _form(facts, scope, node.input[position])
            return None if form.factor == 0 else (form, *where_compared(operator, bounds[0]))
    return None


def where_compared(operator: str, value: Number) -> tuple[Values, Values]:
    """The whole numbers for which ``number <operator> value`` holds, and those for which it does not."""
    below, above = between(-_INFINITE, value - 1), between(value + 1, _INFINITE)
    equal = between(value, value)
    true = {
        "Less": below, "LessOrEqual": union((*below.parts, *equal.parts)), "Greater": above,
        "GreaterOrEqual": union((*above.parts, *equal.parts)), "Equal": equal,
    }[operator]  # fmt: skip
    false = {
        "Less": between(value, _INFINITE), "LessOrEqual": above, "Greater": between(-_INFINITE, value),
        "GreaterOrEqual": below, "Equal": below.unite(above),
    }[operator]  # fmt: skip
    return true, false


def _form(facts: Facts, scope: Scope, name: str) -> _Form:
    """A tensor as a shifted and turned other one, as far back as that goes."""
    factor: Number = 1
    offset: Number = 0
    for _ in range(_MOST_STEPS):
        origin: Tensor = facts.origin(scope, name)
        scope, name = origin
        node = facts.producer(origin)
        if node is None or node.op_type not in ("Add", "Sub", "Neg"):
            break
        step = _step(facts, scope, node)
        if step is None:
            break
        name, by, plus = step
        factor, offset = factor * by, offset + factor * plus
    return _Form(name, factor, offset)


def _step(facts: Facts, scope: Scope, node: onnx.NodeProto) -> tuple[str, Number, Number] | None:
    """The operand that varies, its factor, and what is added."""
    if node.op_type == "Neg":
        return node.input[0], -1, 0
    for position in (0, 1):
        bounds = facts.bounds(scope, node.input[1 - position])
        if bounds is not None and bounds[0] == bounds[1]:
            if node.op_type == "Add":
                return node.input[position], 1, bounds[0]
            return (node.input[0], 1, -bounds[0]) if position == 0 else (node.input[1], -1, bounds[0])
    return None
