"""The nodes that a change takes out and those that come instead, as records from which the change can be drawn."""

from __future__ import annotations

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import Record


@dataclass(frozen=True)
class RegionNode(Record):
    """A node with the tensors that it reads and makes; one that is left out is the empty text."""

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Region(Record):
    """The nodes of a change in the order of execution, and the type and shape of each constant that they read."""

    before: tuple[RegionNode, ...]
    after: tuple[RegionNode, ...]
    constants: dict[str, str]
