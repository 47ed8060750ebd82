"""The time of a GroupNorm of float32 between convolutions, in the kernels that TensorRT for RTX 1.7 makes of each form.

    own:         clear 3072 · G bytes; read x, write y and the statistics
    along rows:  read x in rows that lie apart, write y
    short rows:  read x in rows that lie apart, write x − mean; read x − mean, write y

Each line's parts are kernels of their own. Measured in 146 networks of two norms each (docs/normalization_kernels.md).
"""

from __future__ import annotations

from trtnorm_cli.cost.device import Device
from trtnorm_cli.cost.roofline import Rows, Work, estimate
from trtnorm_cli.light_dataclass import dataclass

_ELEMENT_BYTES = 4
_STATISTICS_BYTES = 3072  # Of each group, in all samples together.
_SHORT_ROW = 320  # Values; rows of 392 and more take one kernel.


@dataclass(frozen=True)
class GroupNormSeconds:
    """The estimated seconds of TensorRT's own GroupNorm, and of one along rows."""

    own: float
    along_rows: float


def group_norm_seconds(samples: int, groups: int, row: int, device: Device) -> GroupNormSeconds:
    """The time of both forms for ``groups`` of ``row`` values in each of some ``samples``."""
    count, kind = samples * groups, "float32"
    data = count * row * _ELEMENT_BYTES
    own = (Work(0, 0, 0, kind), Work(data, data + groups * _STATISTICS_BYTES, 0, kind))
    along_rows = [Work(data, data, 0, kind, Rows(count, row, _ELEMENT_BYTES, contiguous=False))]
    if row <= _SHORT_ROW:
        along_rows.append(Work(data, data, 0, kind))
    return GroupNormSeconds(*(sum(estimate(one, device).seconds for one in kernels) for kernels in (own, along_rows)))
