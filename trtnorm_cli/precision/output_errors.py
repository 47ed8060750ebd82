"""How far the outputs of a low-precision run are from those in float32."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import field

import numpy as np

from trtnorm_cli.evaluate.metrics import distance
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import Record

# Outputs whose root mean square is below this, the smallest number of half precision, are held against it instead.
SMALLEST_SCALE = 2.0**-24
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class OutputErrors(Record):
    """The error of each output, the largest of all runs.

    ``relative`` holds ‖low − float32‖₂ / ‖float32‖₂ of floating outputs, over what is finite in float32; it is infinite where
    the low type is not finite there.
    ``differing`` holds the share of elements that differ: of integers and truth values, and of outputs whose shape differs.
    """

    relative: Mapping[str, float] = field(default_factory=dict)
    differing: Mapping[str, float] = field(default_factory=dict)

    @property
    def judged(self) -> Mapping[str, float]:
        """The errors that a budget is for: relative ones, or where no output is floating, shares of different elements."""
        return self.relative or self.differing

    @property
    def largest(self) -> float:
        return max(self.judged.values(), default=0.0)


def output_errors(reference: Arrays, low: Arrays) -> OutputErrors:
    """The errors of one run."""
    relative: dict[str, float] = {}
    differing: dict[str, float] = {}
    for name, wanted in reference.items():
        found = low[name]
        if wanted.shape != found.shape:
            differing[name] = 1.0
        elif np.issubdtype(wanted.dtype, np.floating):
            relative[name] = _relative(wanted, found)
        elif wanted.size:
            differing[name] = float(np.mean(wanted != found))
    return OutputErrors(relative, differing)


def worst(errors: Iterable[OutputErrors]) -> OutputErrors:
    """The largest errors of several runs."""
    relative: dict[str, float] = {}
    differing: dict[str, float] = {}
    for one in errors:
        for table, more in ((relative, one.relative), (differing, one.differing)):
            for name, value in more.items():
                table[name] = max(value, table.get(name, 0.0))
    return OutputErrors(relative, differing)


def _relative(wanted: np.ndarray, found: np.ndarray) -> float:
    """Relative L2 of what is finite in float32. An output of zeros is held against 1: it does not say its scale."""
    judged = np.isfinite(wanted)
    r, c = wanted[judged], found[judged]
    if not np.isfinite(c).all():
        return math.inf
    scale = float(np.sqrt(np.mean(np.square(r, dtype=np.float64)))) if r.size else 0.0
    if scale >= SMALLEST_SCALE:
        return distance(r, c).relative_l2
    moved = float(np.sqrt(np.mean(np.square(c.astype(np.float64) - r.astype(np.float64))))) if r.size else 0.0
    return moved / (SMALLEST_SCALE if scale > 0 else 1.0)
