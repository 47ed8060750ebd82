"""Read the list of compiled layers out of TensorRT's log.

A VERBOSE logger with detailed profiling verbosity receives one message that starts with ``Layers:`` and lists every layer
of the compiled engine, also on a machine where the engine cannot be loaded.
"""

from __future__ import annotations

import re

from trtnorm_cli.records.engine_parts import CompiledLayer, Kernel, KernelTensor, UnreadKernel

_LAYER = re.compile(
    r"^Name: (?P<name>.*?), LayerType: (?P<type>\w+), Inputs: \[(?P<inputs>.*?)\], "
    r"(?:Constants: \[(?P<constants>.*?)\], )?Outputs: \[(?P<outputs>.*?)\], "
    r"TacticName: (?P<tactic>.*?), StreamId: (?P<stream>\d+)(?:, EventId: \d+)?"
    r"(?:, Metadata: (?P<metadata>.*))?$"
)
# Before release 1.7 type and layout are one entry, and constants are not listed.
_TENSOR = re.compile(
    r"\{ Name: (?P<name>.*?), Dimensions: \[(?P<shape>[-\d,]*)\]"
    r"(?:, Format/Datatype: (?P<both>.*?)|.*?Datatype: (?P<dtype>\w+), Format: (?P<format>.*?)) \}"
)
# The entries are separated by a control character; a node's name may itself end in a bracket.
_ONNX_LAYER = re.compile(r"\[ONNX Layer: (.*?)\](?=\x1f|$)")
_FORMAT = re.compile(r"^\(([^)]*)\)")


def is_layer_table(message: str) -> bool:
    """True for the one log message that lists the compiled layers."""
    return message.startswith("Layers:\n")


def read_layer_table(message: str) -> tuple[CompiledLayer, ...]:
    """The compiled layers. A line that does not have the known form is kept as it is rather than dropped."""
    body = message.split("Layers:\n", 1)[1].split("\n\n", 1)[0]
    return tuple(_read_layer(line) for line in body.splitlines() if line.startswith("Name: "))


def _read_layer(line: str) -> CompiledLayer:
    found = _LAYER.match(line)
    if found is None:
        return UnreadKernel(line)
    return Kernel(
        name=found["name"],
        type=found["type"],
        tactic=found["tactic"],
        inputs=_read_tensors(found["inputs"]),
        outputs=_read_tensors(found["outputs"]),
        onnx_nodes=tuple(_ONNX_LAYER.findall(found["metadata"] or "")),
        constants=_read_tensors(found["constants"] or ""),
    )


def _read_tensors(text: str) -> tuple[KernelTensor, ...]:
    return tuple(_read_tensor(found) for found in _TENSOR.finditer(text))


def _read_tensor(found: re.Match[str]) -> KernelTensor:
    layout = _FORMAT.match(found["format"] or "")
    return KernelTensor(
        name=found["name"],
        shape=tuple(int(size) for size in found["shape"].split(",") if size),
        dtype=found["dtype"] or found["both"],
        format=layout[1] if layout else found["format"] or "",
    )
