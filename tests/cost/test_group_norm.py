"""The time of a GroupNorm in TensorRT's own kernels and along rows, beside what the estimates of compiled engines gave."""

from __future__ import annotations

import pytest

from trtnorm_cli.cost.device import DEFAULT, DEVICES
from trtnorm_cli.cost.group_norm import group_norm_seconds


@pytest.mark.parametrize(
    ("samples", "groups", "row", "more"),
    [
        (1, 32, 32, -0.29),
        (4, 32, 256, 0.97),
        (2, 32, 288, 0.41),
        (4, 16, 256, 0.49),
        (2, 32, 512, -1.69),
        (1, 32, 8192, 1.04),
        (8, 32, 2048, 4.14),
        (2, 32, 3920, 0.90),
    ],
)
def test_a_launch_and_rows_that_lie_apart_make_the_difference(samples: int, groups: int, row: int, more: float) -> None:
    """``more`` are the microseconds that one norm of an engine with rows took more, halved from two of TensorRT for RTX 1.7."""
    seconds = group_norm_seconds(samples, groups, row, DEVICES[DEFAULT])
    assert 1e6 * (seconds.along_rows - seconds.own) == pytest.approx(more, abs=0.06)


def test_a_device_of_more_bandwidth_takes_longer_to_launch_than_to_read() -> None:
    along_rows, own = (
        [getattr(group_norm_seconds(1, 32, 8192, DEVICES[name]), form) for name in (DEFAULT, "rtx-5090")]
        for form in ("along_rows", "own")
    )
    assert along_rows[0] > own[0]
    assert along_rows[1] < own[1]
