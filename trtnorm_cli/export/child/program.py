"""A saved exported program, whose dimensions were decided when it was exported. The build profile has to fit them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import torch

from trtnorm_cli.errors import ModelError
from trtnorm_cli.export.child.arguments import Call
from trtnorm_cli.export.child.sizes.dimensions import Dimension, Requested
from trtnorm_cli.export.child.sizes.guards import Sizes
from trtnorm_cli.export.child.sizes.solver import placeholder_shapes

_MULTIPLE = re.compile(r"(\d+)\*\w+")


def take_program(program: torch.export.ExportedProgram, wanted: Requested, call: Call) -> Requested:
    """``wanted`` with each dimension narrowed to what the program takes. Its notes say which sizes became fixed.

    Raises ``ModelError`` for a dimension that the program fixes, or that has no common size.
    """
    shapes = placeholder_shapes(program, call.order)
    dimensions, notes = dict(wanted.dimensions), list[str]()
    for name, held in wanted.inputs.items():
        for axis, (asked, size) in enumerate(zip(held.shape, shapes.get(name, held.shape), strict=True)):
            if isinstance(asked, str) and isinstance(size, int):
                raise ModelError(
                    f"{asked} ({name}[{axis}]) is fixed to {size} in the exported program",
                    None,
                    f"write {asked}: {size} in the build profile, or export the program with a dynamic dimension {axis}",
                )
            if isinstance(asked, int) and not isinstance(size, int):
                notes.append(f"{name}[{axis}] is dynamic in the exported program, and {asked} in the model that is written")
            if isinstance(asked, str):
                dimensions[asked] = _narrowed(dimensions[asked], program, size)
    return replace(wanted, dimensions=dimensions, notes=tuple(notes))


def _narrowed(dimension: Dimension, program: torch.export.ExportedProgram, size: Any) -> Dimension:
    expression = size.node.expr
    bounds = next((b for symbol, b in program.range_constraints.items() if symbol == expression), None)
    found = _MULTIPLE.fullmatch(str(expression))
    m = int(found[1]) if found else 1
    sizes = dimension.sizes
    low = max(sizes.low, int(bounds.lower)) if bounds is not None else sizes.low
    high = min(sizes.high, int(bounds.upper)) if bounds is not None and bounds.upper < (1 << 31) else sizes.high
    step = m * sizes.multiple_of if sizes.multiple_of % m and m % sizes.multiple_of else max(m, sizes.multiple_of)
    if -(-low // step) > high // step:
        raise ModelError(
            f"the exported program takes no size of {dimension.name} from {sizes.low} to {sizes.high}",
            f"{dimension.name} is {expression} there" + (f", from {bounds.lower} to {bounds.upper}" if bounds else ""),
        )
    return dimension.narrowed(Sizes(low, high, step), [f"the exported program has {dimension.name} = {expression}"])
