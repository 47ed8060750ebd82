"""Mismatches of a build profile and a model's inputs, in words, each with the text to write instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trtnorm_cli.onnx_model.placeholders import names_nothing
from trtnorm_cli.onnx_model.shapes import format_shape
from trtnorm_cli.profile.dims import CORNERS, counted, entry_text
from trtnorm_cli.profile.model import BuildProfile, Normal, Uniform
from trtnorm_cli.profile.model_input import ModelInput, dimensions_of, meant_by
from trtnorm_cli.profile.paste import default_ranges
from trtnorm_cli.profile.positions import KeyPath
from trtnorm_cli.profile.problems import Problem
from trtnorm_cli.profile.ranges import DimRange, ShapeRange, ValueRange
from trtnorm_cli.profile.yaml_keys import yaml_key
from trtnorm_cli.shapes.symbols import axis_symbol
from trtnorm_cli.suggest import did_you_mean, listing, nearest


def value_fault(path: KeyPath, entry: ValueRange, name: str, inputs: Mapping[str, ModelInput]) -> Problem | None:
    """Say why values cannot be those of the input ``name``.

    There may be no such input, no integers, or another number of elements.
    """
    model_input = inputs.get(name)
    if model_input is None:
        return unknown_input(path, name, list(inputs.values()))
    if model_input.dtype not in ("int32", "int64", "bool") or len(model_input.shape) > 1:
        return Problem(path, f"only an int32, int64 or bool scalar or vector takes values, but the input is {model_input}")
    if model_input.dtype == "bool" and (set(entry.opt) - {0, 1} or entry.min != entry.max):
        return Problem(path, f"a bool input takes one value, true or false, for each element: {model_input}")
    count = model_input.shape[0] if model_input.shape else 1
    if isinstance(count, int) and count != len(entry.min):
        return Problem(path, f"{len(entry.min)} values where the model's input has {count}: {model_input}")
    return None


def data_problems(profile: BuildProfile, inputs: Sequence[ModelInput]) -> list[Problem]:
    """Say which random data the inputs cannot take."""
    by_name = {model_input.name: model_input for model_input in inputs}
    problems = []
    for name, data in profile.data.items():
        if name not in by_name:
            problems.append(unknown_input(("data", name), name, inputs))
        elif by_name[name].takes_integers and isinstance(data, (Normal, Uniform)):
            message = f"{data.distribution} values are no integers, but the input is {by_name[name]}"
            problems.append(Problem(("data", name), message, "write {distribution: integers, below: 100}"))
    return problems


def unknown_dims(dims: Mapping[str, DimRange], path: KeyPath, inputs: Sequence[ModelInput]) -> list[Problem]:
    """Say which dimensions no input has."""
    symbols = dimensions_of(inputs)
    return [
        Problem((*path, name), _unknown_dim_message(name, symbols, inputs), _dim_advice(name, symbols) + _inputs_hint(inputs))
        for name in dims
        if not meant_by(name, inputs)
    ]


def _dim_advice(name: str, symbols: Sequence[str]) -> str:
    meant = nearest(name, symbols)
    return f"write {yaml_key(meant)} instead; " if meant else "leave it out; "


def _unknown_dim_message(name: str, symbols: Sequence[str], inputs: Sequence[ModelInput]) -> str:
    message = f"no input of the model has a dimension named {name!r}{did_you_mean(name, symbols)}"
    if names_nothing(name):
        return f"{name!r} says that a size is unknown and names no dimension; {_called(symbols)}"
    if nearest(name, symbols) is None:
        message += f"; {_called(symbols)}"
    return message


def _called(symbols: Sequence[str]) -> str:
    return f"dynamic dimensions: {listing(symbols)}" if symbols else "the model has no dynamic dimension at all"


def rank_fault(path: KeyPath, entry: ShapeRange, model_input: ModelInput) -> Problem:
    """Say that ``entry`` has another number of dimensions than the model's input."""
    given = f"{format_shape(entry.opt)} has {counted(len(entry.opt))}"
    message = f"{given} but the model's input has {len(model_input.shape)}: {model_input}"
    return Problem(path, message, f"write {entry_text(_with_rank(entry, model_input))}")


def _with_rank(entry: ShapeRange, model_input: ModelInput) -> list[tuple[int, ...]]:
    """The sizes that were given, counted from the last dimension, and usual ones for the dimensions before them."""
    usual = default_ranges([model_input])
    given = dict(enumerate(reversed(list(zip(*entry.corners(), strict=True)))))
    rows: list[tuple[int, ...]] = []
    for axis, dim in enumerate(model_input.shape):
        name = axis_symbol(model_input.name, axis) if dim is None else dim
        from_end = len(model_input.shape) - 1 - axis
        rows.append((name,) * 3 if isinstance(name, int) else given.get(from_end, usual[str(name)].corners()))
    return [tuple(row[corner] for row in rows) for corner in range(3)]


def unknown_input(path: KeyPath, name: str, inputs: Sequence[ModelInput]) -> Problem:
    """Say that the model has no input ``name``."""
    known = [model_input.name for model_input in inputs]
    meant = nearest(name, known)
    advice = f"write {yaml_key(meant)} instead" if meant else "leave it out"
    return Problem(path, f"the model has no input {name!r}{did_you_mean(name, known)}", f"{advice}; {_inputs_hint(inputs)}")


def static_faults(path: KeyPath, entry: ShapeRange, model_input: ModelInput) -> list[Problem]:
    """Say which dimensions of ``entry`` the model fixes to other numbers."""
    fixed = [(axis, dim) for axis, dim in enumerate(model_input.shape) if isinstance(dim, int)]
    found = []
    for axis, dim in fixed:
        wrong = next(((c, shape) for c, shape in zip(CORNERS, entry.corners(), strict=True) if shape[axis] != dim), None)
        if wrong is not None:
            message = f"{wrong[1][axis]} where the model fixes dimension {axis} to {dim}: {model_input}"
            columns = list(zip(*entry.corners(), strict=True))
            for other, size in fixed:
                columns[other] = (size,) * 3
            right = entry_text([tuple(column[corner] for column in columns) for corner in range(3)])
            hint = f"write {right}, or export the model with a dynamic dimension {axis}"
            found.append(Problem((*path, wrong[0], axis), message, hint))
    return found


def _inputs_hint(inputs: Sequence[ModelInput]) -> str:
    return "inputs of the model: " + (listing(str(model_input) for model_input in inputs) or "none")
