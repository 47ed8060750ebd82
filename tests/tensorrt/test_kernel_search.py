"""Which builds are repeated to see what changes did."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trtnorm_cli.tensorrt.engine_parts import Kernel
from trtnorm_cli.tensorrt.kernel_search import is_quick
from trtnorm_cli.tensorrt.request import BuildResult

SMALL = BuildResult(True, "done", "tensorrt-rtx", kernels=(Kernel("k", "kgen", "", (), (), ()),) * 300, engine_bytes=500 << 20)


@pytest.mark.parametrize(
    ("result", "quick"),
    [
        (SMALL, True),
        (replace(SMALL, kernels=SMALL.kernels * 3), False),
        (replace(SMALL, engine_bytes=2 << 30), False),
        (replace(SMALL, backend="tensorrt"), False),
    ],
    ids=["small", "many kernels", "large", "a backend that times kernels"],
)
@pytest.mark.parametrize("seconds", [0.1, 1000.0])
def test_whether_a_build_is_repeated_does_not_depend_on_the_clock(result: BuildResult, quick: bool, seconds: float) -> None:
    assert is_quick(replace(result, seconds={"build": seconds})) is quick
