"""Inputs whose elements decide sizes. TensorRT needs min, opt and max of the elements themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trtnorm_cli.profile.edits import Corners
from trtnorm_cli.profile.fit import FittedProfiles
from trtnorm_cli.profile.model import BuildProfile, ValueRange
from trtnorm_cli.profile.paste import values_line
from trtnorm_cli.profile.problems import Problem
from trtnorm_cli.shapes.expression import Expr
from trtnorm_cli.shapes.propagate import Propagation
from trtnorm_cli.shapes.repair import repaired
from trtnorm_cli.shapes.symbols import tensor_of_value, value_symbol


def shape_inputs(found: Propagation) -> dict[str, int]:
    """The inputs whose elements appear in the size of some tensor, with how many elements they have."""
    used = {
        name
        for tensor in found.tensors.values()
        for size in tensor.shape or ()
        if isinstance(size, Expr)
        for name in size.symbols
    }
    # A model may have thousands of constants with as many elements, and hardly a size comes from an element.
    named = set(map(tensor_of_value, used))
    counts = {}
    for name, tensor in found.tensors.items():
        if name not in named or tensor.elements is None:
            continue
        if used & {value_symbol(name, i) for i in range(tensor.elements.size)}:
            counts[name] = int(tensor.elements.size)
    return counts


def missing_values(
    found: Propagation, profile: BuildProfile, fitted: FittedProfiles, sizes: Sequence[Mapping[str, Corners]]
) -> list[Problem]:
    """A problem for each optimization profile that lacks values of such inputs, with values that fit the model."""
    needed = shape_inputs(found)
    problems = []
    for index, one in enumerate(fitted.profiles):
        lacking = {name: count for name, count in needed.items() if name not in one.values}
        if lacking:
            path = ("values",) if profile.values else ()
            lines = _lines(found, lacking, sizes[index])
            names = " and ".join(lacking)
            text = (
                f"the elements of the input {names} decide sizes in the model, and optimization profile {one.name!r} gives none"
            )
            hint = "\n".join(["add this and adjust the numbers:", *([] if profile.values else ["values:"]), *lines])
            problems.append(Problem(path, text, hint))
    return problems


def _lines(found: Propagation, lacking: Mapping[str, int], sizes: Mapping[str, Corners]) -> list[str]:
    unknown = {value_symbol(name, i): (1, 1, 1) for name, count in lacking.items() for i in range(count)}
    known = repaired([c.condition for c in found.constraints], {**sizes, **unknown}, unknown) or unknown
    lines = []
    for name, count in lacking.items():
        columns = [known[value_symbol(name, i)] for i in range(count)]
        lines.append(f"  {values_line(name, value_range(columns))}")
    return lines


def value_range(columns: Sequence[Corners]) -> ValueRange:
    """The elements of an input from min, opt and max of each."""
    low, opt, high = (tuple(column[corner] for column in columns) for corner in range(3))
    return ValueRange(min=low, opt=opt, max=high)
