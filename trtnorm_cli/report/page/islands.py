"""Types: what computes in which, and the nodes that stay float32 with the ranges that keep them there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.records.precision import Kept, PrecisionRecord
from trtnorm_cli.report.page import plots
from trtnorm_cli.report.types import type_rows
from trtnorm_cli.tensorrt.manifest import Manifest

_MOST_ROWS_IN_PLOT = 24


@dataclass(frozen=True)
class Types:
    """The types of the network's tensors, what was replaced, and the record of another precision, where one was asked for."""

    io: tuple[tuple[str, str, str], ...]
    tensors: tuple[tuple[str, int], ...]
    replaced: tuple[tuple[str, str], ...]
    precision: PrecisionRecord | None
    ranges: str

    @staticmethod
    def of(manifest: Manifest) -> Types:
        network, record = manifest.network, manifest.precision
        io = [(t.name, "input", t.dtype) for t in network.inputs] + [(t.name, "output", t.dtype) for t in network.outputs]
        tensors = Counter(tensor.dtype for layer in network.layers for tensor in layer.outputs)
        ranges = "" if record is None else _ranges(record.kept)
        return Types(tuple(io), tuple(tensors.most_common()), tuple(type_rows(manifest.types)), record, ranges)


def _ranges(kept: Sequence[Kept]) -> str:
    """Values that were seen against the limits that they break."""
    dots = [plots.Dot(one.node, abs(one.value), abs(one.limit)) for one in kept if one.value and one.limit]
    return plots.dots(dots[:_MOST_ROWS_IN_PLOT], "value, and the limit of the type") if dots else ""
