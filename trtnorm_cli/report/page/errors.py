"""The distance of the results from the original: by output, by shape and along the depth of the model."""

from __future__ import annotations

import math
from collections.abc import Sequence

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.records.comparison import CandidateRecord, DepthRecord, OutputVerdict
from trtnorm_cli.report.page import plots
from trtnorm_cli.tensorrt.manifest import Manifest

_NAMES = {"rewriting": "the rewritten model", "network:rewriting": "TensorRT's network"}
_MOST_ROWS_IN_PLOT = 24


@dataclass(frozen=True)
class Row:
    """One output of one candidate at one set of inputs. ``allowed`` bounds ``native_distance``, ``allowed_exact`` ``exact``."""

    candidate: str
    verdict: OutputVerdict
    allowed: float | None
    allowed_exact: float | None

    @property
    def says(self) -> str:
        if self.verdict.passed is None:
            return f"not decided: {self.verdict.reason}"
        return "passed" if self.verdict.passed else f"failed: {self.verdict.reason}"


@dataclass(frozen=True)
class Errors:
    """All verdicts. ``plot`` has the distances as run, ``depths`` those of inner tensors by candidate.

    ``remarks`` say what was not compared, and why.
    """

    rows: tuple[Row, ...]
    plot: str
    depths: tuple[tuple[str, DepthRecord], ...]
    depth_plot: str
    reference: str
    inputs: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]
    was_compared: bool

    @staticmethod
    def of(manifest: Manifest) -> Errors:
        comparison = manifest.comparison
        if comparison is None:
            return Errors((), "", (), "", manifest.source.file, (), (), False)
        rows = tuple(row for candidate in comparison.candidates for row in _rows(candidate))
        notes = [f"{_name(candidate)}: {note}" for candidate in comparison.candidates for note in candidate.notes]
        remarks = (*comparison.not_compared, *comparison.skipped, *comparison.notes, *notes)
        depths = tuple((_name(c), c.depth) for c in comparison.candidates if c.depth is not None and c.depth.points)
        return Errors(
            rows,
            _plot(rows),
            depths,
            _depth_plot(depths),
            comparison.reference,
            tuple(comparison.inputs.items()),
            remarks,
            True,
        )


def _name(candidate: CandidateRecord) -> str:
    return _NAMES.get(candidate.label, candidate.label)


def _rows(candidate: CandidateRecord) -> list[Row]:
    found = []
    for verdict in candidate.outputs:
        bound = verdict.bound
        native, exact = (None, None) if bound is None else (bound.native.largest, bound.exact.largest)
        found.append(Row(_name(candidate), verdict, native, exact))
    return found


def _depth_plot(depths: Sequence[tuple[str, DepthRecord]]) -> str:
    """The distances along the depth; empty where nothing moved."""
    values = [(point.place, point.distance, name) for name, depth in depths for point in depth.points if point.distance > 0]
    return plots.line(values, "difference in float64", "tensor, in the order of execution") if values else ""


def _plot(rows: Sequence[Row]) -> str:
    dots = [
        plots.Dot(f"{row.verdict.output} {row.verdict.trial}", row.verdict.native_distance, row.allowed, row.candidate)
        for row in rows
        if math.isfinite(row.verdict.native_distance)
    ]
    kept = list(dict.fromkeys(dot.row for dot in dots))[:_MOST_ROWS_IN_PLOT]
    shown = [dot for dot in dots if dot.row in kept]
    return plots.dots(shown, "difference as run") if shown else ""
