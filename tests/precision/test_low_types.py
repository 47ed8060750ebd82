"""The two types that a model can be made low in."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.precision.low_types import BF16, FP16, LowType, low_type


@pytest.mark.parametrize("low", [FP16, BF16])
def test_the_limits_are_those_of_the_type(low: LowType) -> None:
    facts = ml_dtypes.finfo(low.numpy_dtype)
    assert low.largest == float(facts.max)
    assert low.smallest_normal == float(facts.tiny)
    assert low.smallest == float(facts.smallest_subnormal)
    assert low.half_ulp == float(facts.eps) / 2


@pytest.mark.parametrize("low", [FP16, BF16])
def test_integers_are_exact_up_to_the_limit(low: LowType) -> None:
    up_to = np.arange(low.exact_integers + 2, dtype=np.float32)
    assert np.flatnonzero(low.rounded(up_to).astype(np.float32) != up_to).tolist() == [low.exact_integers + 1]


def test_rounding_what_is_too_large_gives_infinity_without_a_warning() -> None:
    assert np.isinf(FP16.rounded(np.float32([65520, -1e30])).astype(np.float32)).all()


def test_an_unknown_name_is_refused_with_the_choices() -> None:
    assert low_type("bf16") is BF16
    with pytest.raises(UsageProblem) as refused:
        low_type("half")
    assert "fp16, bf16" in (refused.value.hint or "")
