"""The demands that each operator passes back from its output to an operand, as a table."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from trtnorm_cli.evaluate.data.branches import MIRRORED, is_selection, never_multiplied, never_passed, where_compared
from trtnorm_cli.evaluate.data.demand import NOTHING, Demand, merged
from trtnorm_cli.evaluate.data.input_flow import Site
from trtnorm_cli.evaluate.data.value_sets import EVERYTHING, NOT_NEGATIVE, Number, Values, between

Pass = Callable[[Site, int, Demand], Demand]
# These leave the last axis what it is, or do not move elements at all.
_KEEPS_LAST_AXIS = frozenset({"Identity", "Cast", "Add", "Sub", "Mul", "Where", "Clip", "Min", "Max"})


def passed_back(site: Site, position: int, wanted: Demand) -> Demand:
    """The demand on the operand at ``position`` where ``wanted`` is asked of the first output."""
    if wanted is NOTHING:
        return NOTHING
    operator = site.node.op_type
    if operator == "Concat":
        return _concat(site, position, wanted)
    if wanted.components is not None and operator not in _KEEPS_LAST_AXIS:
        wanted = wanted.whole_rows()
    rule = _PASSES.get(operator)
    return wanted if rule is None else rule(site, position, wanted)


def _mapped(wanted: Demand, change: Callable[[Values], Values]) -> Demand:
    return replace(
        wanted,
        legal=change(wanted.legal),
        preferred=change(wanted.preferred),
        shown=change(wanted.shown),
        components=None if wanted.components is None else tuple(map(change, wanted.components)),
        constants=frozenset(),
    )


def _affine(wanted: Demand, factor: Number, low: Number, high: Number) -> Demand:
    """The demand on t where ``wanted`` is asked of factor·t + b, for every b from ``low`` to ``high``."""

    def change(values: Values) -> Values:
        moved = values.shift(-low).intersect(values.shift(-high))
        return moved if factor == 1 else moved.scale(1 / factor if abs(factor) != 1 else factor)

    found = _mapped(wanted, change)
    if low == high:
        constants = frozenset((c - low) / factor for c in wanted.constants)
        found = replace(found, constants=frozenset(int(c) if float(c).is_integer() else c for c in constants))
    if wanted.penalty is not None:
        slope, offset = wanted.penalty
        found = replace(found, penalty=(slope * factor, slope * low + offset) if low == high else None)
    return found


def _add(site: Site, position: int, wanted: Demand) -> Demand:
    other = _other_bounds(site, position)
    if other is not None:
        return _affine(wanted, 1, *other)
    return wanted if len(site.node.input) == 2 and is_selection(site) else _halved(wanted)


def _sub(site: Site, position: int, wanted: Demand) -> Demand:
    other = _other_bounds(site, position)
    if other is None:
        return _halved(wanted) if position == 0 else NOTHING
    return _affine(wanted, 1, -other[1], -other[0]) if position == 0 else _affine(wanted, -1, *other)


def _other_bounds(site: Site, position: int) -> tuple[Number, Number] | None:
    return site.bounds(1 - position) if len(site.node.input) == 2 else None


def _halved(wanted: Demand) -> Demand:
    """Half of the range, for each of two unknown numbers that are added."""
    return _mapped(wanted, lambda values: values.scale(0.5))


def _mul(site: Site, position: int, wanted: Demand) -> Demand:
    other = _other_bounds(site, position)
    if other is None or other == (0, 0):
        # A factor that is not known is taken for a mask of zeros and ones, which leaves a value or makes it zero.
        free = never_multiplied(site, position) if len(site.node.input) == 2 else Values(())
        return wanted if free.empty else _mapped(wanted, free.unite)
    found: Demand = NOTHING
    for factor in dict.fromkeys(b for b in other if b != 0):
        found = merged(found, _affine(wanted, factor, 0, 0))
    return found


def _div(site: Site, position: int, wanted: Demand) -> Demand:
    other = site.constant(1)
    if other is None or other == 0:
        return _mapped(wanted, lambda values: values)
    if not site.reads[position].whole:
        return _affine(wanted, 1 / other, 0, 0)
    if other < 0:
        return wanted
    # A quotient of whole numbers is cut off: q stands for q·c to q·c + c − 1.
    return _mapped(wanted, lambda values: Values(tuple((a * other, b * other + other - 1) for a, b in values.parts)))


def _neg(site: Site, position: int, wanted: Demand) -> Demand:
    return _affine(wanted, -1, 0, 0)


def _clip(site: Site, position: int, wanted: Demand) -> Demand:
    if site.opset < 11 and not site.has(1) and not site.has(2):
        limits = {a.name: a.f for a in site.node.attribute}
        return _limited(wanted, limits.get("min", -math.inf), limits.get("max", math.inf))
    ends = [site.constant(i) if site.has(i) else end for i, end in ((1, -math.inf), (2, math.inf))]
    low, high = (known if known is not None else end for known, end in zip(ends, (-math.inf, math.inf), strict=True))
    return _limited(wanted, low, high)


def _max(site: Site, position: int, wanted: Demand) -> Demand:
    other = _other_bounds(site, position)
    return wanted if other is None else _limited(wanted, other[1], math.inf)


def _min(site: Site, position: int, wanted: Demand) -> Demand:
    other = _other_bounds(site, position)
    return wanted if other is None else _limited(wanted, -math.inf, other[0])


def _limited(wanted: Demand, low: Number, high: Number) -> Demand:
    """Values beyond ``low`` and ``high`` become these.

    They are legal where these are, and the values in between are preferred.
    """

    def change(values: Values) -> Values:
        found = values.intersect(between(low, high))
        if low > -math.inf and values.contains(low):
            found = found.unite(between(-math.inf, low))
        if high < math.inf and values.contains(high):
            found = found.unite(between(high, math.inf))
        return found

    preferred = wanted.preferred.intersect(between(low, high))
    found = _mapped(wanted, change)
    return replace(found, preferred=found.preferred if preferred.empty else preferred)


def _mod(site: Site, position: int, wanted: Demand) -> Demand:
    divisor = site.constant(1)
    if divisor is None or divisor <= 0:
        return NOTHING
    if wanted.legal.includes(0, divisor - 1):
        return replace(wanted, legal=EVERYTHING, preferred=between(0, 2 * divisor - 1), components=None)
    return _mapped(wanted, lambda values: values.intersect(between(0, divisor - 1)))


def _abs(site: Site, position: int, wanted: Demand) -> Demand:
    return _mapped(wanted, lambda values: values.intersect(NOT_NEGATIVE))


def _summed(site: Site, position: int, wanted: Demand) -> Demand:
    """Sums of a row of numbers from 0 on reach at most the row's length times the greatest."""
    shape = site.shape(0) or ()
    terms = max([size for size in shape if size is not None], default=1) if None not in shape else 0

    def change(values: Values) -> Values:
        return between(0, values.high / terms if terms else math.inf) if not values.empty else values

    legal = EVERYTHING if wanted.legal == EVERYTHING else change(wanted.legal)
    return Demand(legal, roles=wanted.roles - {"index", "length", "distinct", "position"})


def _without_index(site: Site, position: int, wanted: Demand) -> Demand:
    return replace(wanted, roles=wanted.roles - {"distinct"}, constants=frozenset())


def _where(site: Site, position: int, wanted: Demand) -> Demand:
    """A branch matters only where the condition chooses it."""
    if position == 0:
        return NOTHING
    wanted = replace(wanted, penalty=None, constants=frozenset())
    free = never_passed(site, position)
    return wanted if free.empty else _mapped(wanted, free.unite)


def _not(site: Site, position: int, wanted: Demand) -> Demand:
    return _affine(wanted, -1, 1, 1)


def _equal(site: Site, position: int, wanted: Demand) -> Demand:
    """Comparing a number with 0 or 1 makes a mask of one that is 0 or 1."""
    value = site.constant(1 - position)
    operator = site.node.op_type
    if site.reads[position].truth:
        return wanted if value in (None, 1) else _not(site, position, wanted)
    shown = EVERYTHING
    if value is not None and wanted.hides is not None:
        shown = where_compared(operator if position == 0 else MIRRORED[operator], value)[wanted.hides]
    roles = frozenset({"mask"}) if "mask" in wanted.roles else frozenset({"flag"}) & wanted.roles
    if value not in (0, 1) or not roles:
        return Demand(shown=shown)
    turned = (
        {("Equal", 0), ("Less", 1), ("LessOrEqual", 0)}
        if position == 0
        else {("Equal", 0), ("Greater", 1), ("GreaterOrEqual", 0)}
    )
    found = Demand(roles=roles, reasons=wanted.reasons, penalty=wanted.penalty, shown=shown)
    return _affine(found, -1, 1, 1) if (operator, value) in turned else found


def _cast(site: Site, position: int, wanted: Demand) -> Demand:
    if site.attribute("to", 1) == 9 and not site.reads[position].truth:
        return Demand(roles=wanted.roles & {"mask", "flag"}, reasons=wanted.reasons, penalty=wanted.penalty)
    return wanted


def _product(site: Site, position: int, wanted: Demand) -> Demand:
    return Demand(roles=wanted.roles & {"position"})


def _concat(site: Site, position: int, wanted: Demand) -> Demand:
    """Of components along the last axis, each operand has its own."""
    if wanted.components is None:
        return wanted
    axis, rank = site.attribute("axis", 0), site.rank(0)
    if axis != -1 and axis + 1 != rank:
        return wanted.whole_rows()
    sizes = [site.size(i, -1) for i in range(position + 1)]
    if any(size is None for size in sizes):
        return wanted.whole_rows()
    known = [size for size in sizes if size is not None]
    start = sum(known[:-1])
    own = wanted.components[start : start + known[-1]]
    found = replace(wanted, components=own, roles=wanted.roles - {"distinct"})
    return found.whole_rows() if len(own) == 1 else found


_PASSES: Mapping[str, Pass] = {
    "Add": _add,
    "Sum": _add,
    "Sub": _sub,
    "Mul": _mul,
    "Div": _div,
    "Neg": _neg,
    "Clip": _clip,
    "Max": _max,
    "Min": _min,
    "Mod": _mod,
    "Abs": _abs,
    "CumSum": _summed,
    "ReduceSum": _summed,
    "ReduceMax": _without_index,
    "ReduceMin": _without_index,
    "ReduceMean": _without_index,
    "Where": _where,
    "Not": _not,
    "Equal": _equal,
    "Less": _equal,
    "LessOrEqual": _equal,
    "Greater": _equal,
    "GreaterOrEqual": _equal,
    "Cast": _cast,
    "MatMul": _product,
    "Einsum": _product,
}
