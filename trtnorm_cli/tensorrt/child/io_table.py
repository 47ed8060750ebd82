"""Read the inputs and outputs of the compiled engine out of TensorRT's log.

They follow the compiled layers in the same message (see ``layer_table``), with type, shape, and the range of each profile.
"""

from __future__ import annotations

import re

from trtnorm_cli.records.engine_parts import Binding, BindingRange, Sizes

_TENSOR = re.compile(
    r"^ Name: (?P<name>.*), IOMode: (?P<mode>Input|Output), DataType: (?P<dtype>\w+), Dimensions: \[(?P<shape>[-\d,]*)\], "
    r"Location: (?P<location>\w+).*?, ProfileInfo: \[ (?P<profiles>.*)\]$"
)
_ONE_PROFILE = re.compile(r"\{ (.*?) \}")
_RANGE = re.compile(r"(Min|Opt|Max)Shape: \[([-\d,]*)\]")
# The builder's log writes types in its own way; these are the names of ``trt.DataType``.
_TYPE_NAMES = {"BFLOAT16": "BF16"}


def read_io_table(message: str) -> tuple[Binding, ...]:
    """Each input and output. Empty where the message has no such part."""
    _, found, rest = message.partition("\nI/O Tensors:\n")
    matches = (_TENSOR.match(line) for line in rest.splitlines()) if found else ()
    return tuple(_read(match) for match in matches if match is not None)


def _read(found: re.Match[str]) -> Binding:
    dtype = found["dtype"].upper()
    ranges = (
        BindingRange(**{corner.lower(): _sizes(sizes) for corner, sizes in _RANGE.findall(profile)})
        for profile in _ONE_PROFILE.findall(found["profiles"])
    )
    return Binding(
        name=found["name"],
        mode=found["mode"].lower(),
        dtype=_TYPE_NAMES.get(dtype, dtype),
        shape=_sizes(found["shape"]),
        location=found["location"].lower(),
        profiles=tuple(ranges),
    )


def _sizes(text: str) -> Sizes:
    return tuple(int(size) for size in text.split(",") if size)
