"""The metrics agree with polygraphy's comparator on the same outputs."""

from __future__ import annotations

import numpy as np
import pytest

from trtnorm_cli.evaluate.metrics import measure

pytest.importorskip("polygraphy")


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("noise", [1e-7, 1e-3, 1.0])
def test_errors_agree_with_polygraphys_comparator(seed: int, noise: float) -> None:
    from polygraphy.comparator import CompareFunc, IterationResult, RunResults

    rng = np.random.default_rng(seed)
    reference = rng.standard_normal((4, 3, 8, 8)).astype(np.float32)
    candidate = (reference + noise * rng.standard_normal(reference.shape)).astype(np.float32)
    results = RunResults()
    results.add([IterationResult({"y": reference})], runner_name="reference")
    results.add([IterationResult({"y": candidate})], runner_name="candidate")
    compare = CompareFunc.simple(check_error_stat="max", atol=10 * noise, rtol=0, infinities_compare_equal=False)
    theirs = compare(results["candidate"][0], results["reference"][0])["y"]
    ours = measure(reference, candidate)
    assert ours.max_abs == pytest.approx(float(theirs.max_absdiff), rel=1e-6)
    assert ours.mean_abs == pytest.approx(float(theirs.mean_absdiff), rel=1e-5)
    assert (ours.max_abs <= 10 * noise) == bool(theirs)
