"""Sizes to start from that fit a model. They are what names and places suggest, moved to what the model demands."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import onnx

from trtnorm_cli.profile.deciding_inputs import deciding_inputs
from trtnorm_cli.profile.edits import Corners
from trtnorm_cli.profile.memory import MOST_BYTES, estimate_memory
from trtnorm_cli.profile.model import DimRange
from trtnorm_cli.profile.model_input import ModelInput
from trtnorm_cli.profile.paste import Start, default_ranges
from trtnorm_cli.profile.shape_inputs import shape_inputs, value_range
from trtnorm_cli.shapes.condition import equal
from trtnorm_cli.shapes.evaluate import values_at
from trtnorm_cli.shapes.expression import Size, modulo, symbol
from trtnorm_cli.shapes.propagate import Propagation, propagate
from trtnorm_cli.shapes.repair import repaired, solve_each
from trtnorm_cli.shapes.solve import LegalSizes
from trtnorm_cli.shapes.symbols import value_symbol

_STEPS = (64, 32, 16, 8, 4)
_DECIDES = "has one size: it decides between branches whose results differ in rank"


def start_for(model: onnx.ModelProto, inputs: Sequence[ModelInput], known: Mapping[str, DimRange] | None = None) -> Start:
    """Sizes that satisfy all that ``model`` demands, where some can be found near the usual ones.

    Dimensions that are ``known`` keep their values, and the others are made to go with them.
    """
    found = propagate(model)
    settled = frozenset(name for condition in found.decisions for name in condition.symbols)
    single = {name: DimRange(min=1, opt=1, max=1) for name in default_ranges(inputs) if name in settled}
    usual = {**_within_reach(found, default_ranges(inputs)), **single, **(known or {})}
    decisions = deciding_inputs(model)
    elements = {**shape_inputs(found), **dict.fromkeys(decisions, 1)}
    values: dict[str, Corners] = {value_symbol(name, i): (1, 1, 1) for name, count in elements.items() for i in range(count)}
    values |= {value_symbol(name, 0): (value, value, value) for name, value in decisions.items()}
    sizes = {**{name: dim.corners() for name, dim in usual.items()}, **values}
    conditions: list[Size] = [constraint.condition for constraint in found.constraints]
    conditions += _rounder(conditions, sizes)
    free = [name for name in sizes if name not in (known or {})]
    fitting = repaired(conditions, sizes, values or free) or repaired(conditions, sizes, free) or sizes
    fitting = _rounded(conditions, fitting, values)
    fitting = next((s for s in _smaller(fitting) if estimate_memory(model, found, "", s).total <= MOST_BYTES), fitting)
    legal = solve_each([constraint.condition for constraint in found.constraints], fitting)
    return Start(
        {name: _range(fitting[name], legal[name], dim) for name, dim in usual.items()},
        {name: value_range([fitting[value_symbol(name, i)] for i in range(count)]) for name, count in elements.items()},
        {**_rules(usual, legal), **{name: f"{name} {_DECIDES}" for name in single}},
    )


def _within_reach(found: Propagation, usual: Mapping[str, DimRange]) -> dict[str, DimRange]:
    """The usual sizes, or larger ones where the model takes none before the usual maximum, so that there is a range."""
    conditions = [constraint.condition for constraint in found.constraints]
    ranges = dict(usual)
    for name, legal in solve_each(conditions, {name: dim.corners() for name, dim in usual.items()}).items():
        rule = legal.rule()
        if rule is not None and rule.residues and rule.most is None and rule.least >= usual[name].max:
            least = rule.least
            ranges[name] = DimRange(min=least, opt=2 * least, max=4 * least)
    return ranges


def _rounder(conditions: Sequence[Size], sizes: Mapping[str, Corners]) -> list[Size]:
    """The condition that a size is a multiple where several residues are legal, because a multiple can be stated as such."""
    found: list[Size] = []
    for name, legal in solve_each(conditions, sizes).items():
        rule = legal.rule()
        if rule is not None and rule.modulus > 1 and 0 in rule.residues:
            found.append(equal(modulo(symbol(name), rule.modulus), 0))
    return found


def _rounded(conditions: Sequence[Size], sizes: dict[str, Corners], kept: Collection[str]) -> dict[str, Corners]:
    """Sizes that cannot vary, brought down to a multiple of a power of two where that fits, such as 64 rather than 79."""
    fixed = [name for name, corners in sizes.items() if corners[0] == corners[2] and name not in kept]
    for step in _STEPS if fixed else ():
        candidate = {**sizes, **{name: (sizes[name][0] // step * step,) * 3 for name in fixed}}
        corners = [{name: values[corner] for name, values in candidate.items()} for corner in range(3)]
        if all(0 not in values_at(conditions, at) and all(at[name] > 0 for name in fixed) for at in corners):
            return candidate
    return sizes


def _smaller(sizes: dict[str, Corners]) -> Iterator[dict[str, Corners]]:
    """The sizes, and smaller ones that fit as well, which are those up to opt and min alone."""
    yield sizes
    yield {name: (low, opt, opt) for name, (low, opt, _) in sizes.items()}
    yield {name: (low, low, low) for name, (low, _, _) in sizes.items()}


def _range(corners: Corners, legal: LegalSizes, usual: DimRange) -> DimRange:
    low, opt, high = corners
    rule = legal.rule()
    multiple = rule.modulus if rule is not None and rule.modulus > 1 and 0 in rule.residues else usual.multiple_of
    stated = None if multiple is None or low == high or any(value % multiple for value in corners) else multiple
    return DimRange(min=low, opt=opt, max=high, multiple_of=stated)


def _rules(names: Mapping[str, DimRange], legal: Mapping[str, LegalSizes]) -> dict[str, str]:
    texts = {name: legal[name].text() for name in names}
    return {name: text for name, text in texts.items() if text}
