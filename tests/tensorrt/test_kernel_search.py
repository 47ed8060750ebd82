"""Which builds are repeated to see what changes did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trtnorm_cli.records.engine_parts import Kernel
from trtnorm_cli.tensorrt.kernel_search import TO_DECIDE, TO_TELL, Bounds, is_quick
from trtnorm_cli.tensorrt.request import BuildResult

SMALL = BuildResult(True, "done", "tensorrt-rtx", kernels=(Kernel("k", "kgen", "", (), (), ()),) * 80, engine_bytes=50 << 20)


@pytest.mark.parametrize(
    ("result", "bounds", "quick"),
    [
        (SMALL, TO_DECIDE, True),
        (SMALL, TO_TELL, False),
        (replace(SMALL, kernels=SMALL.kernels[:8], engine_bytes=1 << 20), TO_TELL, True),
        (replace(SMALL, kernels=SMALL.kernels * 8), TO_DECIDE, False),
        (replace(SMALL, engine_bytes=2 << 30), TO_DECIDE, False),
        (replace(SMALL, backend="tensorrt"), TO_DECIDE, False),
    ],
    ids=["small", "small, to be told", "tiny, to be told", "many kernels", "large", "a backend that times kernels"],
)
@pytest.mark.parametrize("seconds", [0.1, 1000.0])
def test_whether_a_build_is_repeated_does_not_depend_on_the_clock(
    result: BuildResult, bounds: Bounds, quick: bool, seconds: float
) -> None:
    assert is_quick(replace(result, seconds={"build": seconds}), bounds) is quick
