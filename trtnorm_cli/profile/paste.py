"""The YAML to paste, which is a build profile that fits a model, with numbers to start from."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field

from trtnorm_cli.cost.device import DEFAULT
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.dims import entry_text
from trtnorm_cli.profile.model import DimRange, ValueRange
from trtnorm_cli.profile.model_input import ModelInput, symbols_of
from trtnorm_cli.profile.yaml_keys import yaml_key
from trtnorm_cli.shapes.symbols import axis_symbol

_BATCH = DimRange(min=1, opt=8, max=32)
_IMAGE = DimRange(min=224, opt=224, max=448)
_VOLUME = DimRange(min=32, opt=64, max=128)
_CHANNELS = DimRange(min=3, opt=3, max=3)
_MOST_NAMED = 3
_AXES_OF_A_SIGNAL = 3
_SEQUENCE = DimRange(min=1, opt=128, max=512)

_BATCH_NAME = re.compile(r"n|b|bs|.*batch.*")
_SPATIAL_NAME = re.compile(r"[hw]|.*(height|width|depth).*")
# The third size of a volume. In what has fewer axes it is any other.
_DEPTH_NAME = re.compile(r"d")
_SEQUENCE_NAME = re.compile(r"[tls]|.*(seq|len|token|time|frame).*")
_MULTIPLE_NAME = re.compile(r"([0-9]{1,4})\s*\*\s*\w+")  # torch.export names a dimension 16*_H when it must be one
_RANGES = (
    "# The engine takes every size from min to max and is tuned for opt. Sizes that must be a multiple of something say so",
    "# with multiple_of. Change the numbers to what you will feed.",
)
_NOTHING_TO_RANGE = (
    "# Every input has one fixed shape, so no optimization profile is needed, and the model builds without this file. It is",
    "# the place for other settings: builder, data, tolerances, rules.",
)
# The GPU that costs are estimated for, as a comment with what is the default.
_DEVICE = (
    f"# device: {DEFAULT}   # the GPU that costs are estimated for: a name, or numbers of its data sheet (docs/profiles.md)"
)


@dataclass(frozen=True)
class Start:
    """Numbers to start from, as ranges by symbolic dimension (``x[2]`` for one without a name) and elements by input.

    ``rules`` say in words what a model demands of a dimension.
    """

    ranges: Mapping[str, DimRange]
    values: Mapping[str, ValueRange] = field(default_factory=dict)
    rules: Mapping[str, str] = field(default_factory=dict)


def paste_block(inputs: Sequence[ModelInput], start: Start | None = None) -> str:
    """A whole build profile for ``inputs``, which loads and fits, and whose numbers are meant to be changed.

    Symbolic dimensions go under ``dims``. An input with a dimension that has no name gets its shapes written out. The numbers
    are those of ``start``, or else what names and places of the dimensions suggest.
    """
    start = start or Start(default_ranges(inputs))
    ranges = start.ranges
    unnamed = [model_input for model_input in inputs if None in model_input.shape]
    lines = [f"# {_comment(model_input)}" for model_input in inputs if model_input.is_dynamic]
    if unnamed:
        lines += ["optimization_profiles:", "  - inputs:"]
        lines += [f"      {input_line(model_input, ranges)}" for model_input in unnamed]
        lines += [f"      # {rule}" for name, rule in start.rules.items() if name not in symbols_of(inputs)]
    if symbols := symbols_of(inputs):
        lines += ["dims:", *(f"  {dim_line(s, ranges[s])}{_rule_comment(start.rules.get(s))}" for s in symbols)]
    if start.values:
        lines += ["values:", *(f"  {values_line(name, values)}" for name, values in start.values.items())]
    return "\n".join(lines or ["{}"]) + "\n"


def _rule_comment(rule: str | None) -> str:
    return f"  # {rule}" if rule else ""


def values_line(name: str, values: ValueRange) -> str:
    """``shape: {min: [1, 3], opt: [2, 3], max: [4, 3]}``."""
    return f"{yaml_key(name)}: {entry_text(values.corners())}"


def starting_profile(model: str, inputs: Sequence[ModelInput], start: Start | None = None, comments: Sequence[str] = ()) -> str:
    """``paste_block`` with the comments that a file of its own needs. ``model`` is the model's file name.

    ``comments`` are further lines, each with its ``#``.
    """
    fixed = start is not None and not (start.ranges or start.values)
    lines = [
        "# yaml-language-server: $schema=profile.schema.json",
        "# (the schema for editors: trtnorm schema > profile.schema.json)",
        f"# Build profile of {model}:  trtnorm build {model}{'' if fixed else ' --profile THIS.yaml'}",
        "#",
        *(_NOTHING_TO_RANGE if fixed else _RANGES),
        *(["#", *comments] if comments else []),
        "",
    ]
    return "\n".join([*lines, paste_block(inputs, start), *type_lines(inputs), _DEVICE, ""])


def type_lines(inputs: Sequence[ModelInput]) -> list[str]:
    """Keys about types that inputs have and may be treated otherwise, as comments with what is the default."""
    named = {kind: [one.name for one in inputs if one.dtype == kind] for kind in ("int64", "float64")}
    lines = []
    if named["int64"]:
        lines.append(f"# int64: keep        # {_listed(named['int64'])}; narrow computes in int32 inside where all values fit")
    if named["float64"]:
        doubles = _listed(named["float64"])
        lines.append(f"# io_double: float   # {doubles} will be float32 in the engine; keep makes that an error")
    return lines


def _listed(names: Sequence[str]) -> str:
    """Up to three names, and how many more there are."""
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


def is_batch_name(name: str) -> bool:
    """True where the name of a dimension says that it is the batch."""
    return _BATCH_NAME.fullmatch(name.lower()) is not None


def default_ranges(inputs: Sequence[ModelInput]) -> dict[str, DimRange]:
    """Values to start from for every dynamic dimension, by its name, else by where it first stands."""
    ranges: dict[str, DimRange] = {}
    for model_input in inputs:
        for axis, dim in enumerate(model_input.shape):
            name = axis_symbol(model_input.name, axis) if dim is None else dim
            if isinstance(name, str) and name not in ranges:
                ranges[name] = _default_range(model_input, axis)
    return ranges


def dim_line(symbol: str, values: DimRange) -> str:
    """``N: {min: 1, opt: 8, max: 32}``."""
    return f"{yaml_key(symbol)}: {entry_text(values.corners(), values.multiple_of)}"


def input_line(model_input: ModelInput, ranges: Mapping[str, DimRange]) -> str:
    """An entry as ``image: {min: [1, 3, 224, 224], opt: …, max: …}``. ``ranges`` gives those that are not fixed."""
    rows = []
    for axis, dim in enumerate(model_input.shape):
        if isinstance(dim, int):
            rows.append((dim, dim, dim))
        else:
            rows.append(ranges[axis_symbol(model_input.name, axis) if dim is None else dim].corners())
    return f"{yaml_key(model_input.name)}: {entry_text([tuple(row[corner] for row in rows) for corner in range(3)])}"


def _default_range(model_input: ModelInput, axis: int) -> DimRange:
    symbol = model_input.shape[axis]
    named = symbol.lower() if isinstance(symbol, str) else ""
    spatial = _VOLUME if len(model_input.shape) == 5 else _IMAGE
    by_name = [(_BATCH_NAME, _BATCH), (_SPATIAL_NAME, spatial), (_SEQUENCE_NAME, _SEQUENCE)]
    if len(model_input.shape) > _AXES_OF_A_SIGNAL:
        by_name.append((_DEPTH_NAME, spatial))
    values = next((values for pattern, values in by_name if pattern.fullmatch(named)), None)
    values = values or _by_position(model_input, axis, spatial)
    multiple = _MULTIPLE_NAME.fullmatch(named)
    return _rounded_up(values, int(multiple[1])) if multiple and int(multiple[1]) > 1 else values


def _by_position(model_input: ModelInput, axis: int, spatial: DimRange) -> DimRange:
    if axis == 0:
        return _BATCH
    last = model_input.shape[-1]
    if len(model_input.shape) not in (4, 5) or (model_input.takes_integers and isinstance(last, int) and last > 4):
        return _SEQUENCE
    channels_are_last = isinstance(last, int) and last <= 4
    return _CHANNELS if axis == 1 and not channels_are_last else spatial


def _rounded_up(values: DimRange, multiple: int) -> DimRange:
    low, opt, high = (-(-value // multiple) * multiple for value in values.corners())
    return DimRange(min=low, opt=opt, max=high, multiple_of=multiple)


def _comment(model_input: ModelInput) -> str:
    dims = ["?" if dim is None else yaml_key(dim) if isinstance(dim, str) else str(dim) for dim in model_input.shape]
    return f"{yaml_key(model_input.name)}: {model_input.dtype} [{', '.join(dims)}]"
