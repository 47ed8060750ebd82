"""Sizes to start from that fit a model: what names and places suggest, moved to what the model demands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx

from trtnorm_cli.profile.edits import Corners
from trtnorm_cli.profile.memory import MOST_BYTES, estimate_memory
from trtnorm_cli.profile.model import DimRange
from trtnorm_cli.profile.model_input import ModelInput, value_symbol
from trtnorm_cli.profile.paste import Start, default_ranges
from trtnorm_cli.profile.shape_inputs import shape_inputs, value_range
from trtnorm_cli.shapes.propagate import propagate
from trtnorm_cli.shapes.repair import legal_sizes, repaired
from trtnorm_cli.shapes.solve import LegalSizes


def start_for(model: onnx.ModelProto, inputs: Sequence[ModelInput], known: Mapping[str, DimRange] | None = None) -> Start:
    """Sizes that satisfy all that ``model`` demands, where some can be found near the usual ones.

    Dimensions that are ``known`` keep their values, and the others are made to go with them.
    """
    found = propagate(model)
    usual = {**default_ranges(inputs), **(known or {})}
    elements = shape_inputs(found)
    values: dict[str, Corners] = {value_symbol(name, i): (1, 1, 1) for name, count in elements.items() for i in range(count)}
    sizes = {**{name: dim.corners() for name, dim in usual.items()}, **values}
    conditions = [constraint.condition for constraint in found.constraints]
    free = [name for name in sizes if name not in (known or {})]
    fitting = repaired(conditions, sizes, values or free) or repaired(conditions, sizes, free) or sizes
    fitting = next((s for s in _smaller(fitting) if estimate_memory(model, found, "", s).total <= MOST_BYTES), fitting)
    legal = legal_sizes(conditions, fitting)
    return Start(
        {name: _range(fitting[name], legal[name], dim) for name, dim in usual.items()},
        {name: value_range([fitting[value_symbol(name, i)] for i in range(count)]) for name, count in elements.items()},
        _rules(usual, legal),
    )


def _smaller(sizes: dict[str, Corners]) -> Iterator[dict[str, Corners]]:
    """The sizes, and smaller ones that fit as well: up to opt, and only min."""
    yield sizes
    yield {name: (low, opt, opt) for name, (low, opt, _) in sizes.items()}
    yield {name: (low, low, low) for name, (low, _, _) in sizes.items()}


def _range(corners: Corners, legal: LegalSizes, usual: DimRange) -> DimRange:
    low, opt, high = corners
    rule = legal.rule()
    multiple = (rule.multiple_of if rule is not None else None) or usual.multiple_of
    multiple = None if multiple is not None and any(value % multiple for value in corners) else multiple
    return DimRange(min=low, opt=opt, max=high, multiple_of=multiple)


def _rules(names: Mapping[str, DimRange], legal: Mapping[str, LegalSizes]) -> dict[str, str]:
    texts = {name: legal[name].text() for name in names}
    return {name: text for name, text in texts.items() if text}
