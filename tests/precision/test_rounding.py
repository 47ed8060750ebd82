"""Rounding in the graph is that of the type: to the nearest, ties to even, with subnormals and infinities."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.models import parse
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.precision.low_types import BF16, FP16, LowType
from trtnorm_cli.precision.rounding import Rounding


@pytest.fixture(scope="module")
def runner() -> Iterator[OrtRunner]:
    with OrtRunner() as one:
        yield one


def rounded(runner: OrtRunner, values: np.ndarray, low: LowType, opset: int, saturated: bool = False) -> np.ndarray:
    model = parse("g (float[n] x) => (float[n] y) { y = Identity (x) }", opset=opset)
    del model.graph.node[:]
    rounding = Rounding(low, opset, "r/")
    model.graph.node.extend(rounding.nodes("x", "y", saturated))
    model.graph.initializer.extend(rounding.constants.values())
    return runner.run(model, {"x": values})["y"]


def floats() -> np.ndarray:
    """Numbers of every size, those halfway between two of a low type among them, and what is not finite."""
    bits = np.random.default_rng(0).integers(0, 1 << 32, 1 << 16, dtype=np.uint64).astype(np.uint32)
    halfway = np.arange(0, 1 << 32, 1 << 12, dtype=np.uint64).astype(np.uint32)
    return np.concatenate([bits, halfway]).view(np.float32)


@pytest.mark.parametrize("low", [FP16, BF16], ids=lambda low: low.name)
def test_it_rounds_as_the_type_does(runner: OrtRunner, low: LowType) -> None:
    values = floats()

    np.testing.assert_array_equal(rounded(runner, values, low, 17), low.rounded(values).astype(np.float32))


def test_half_precision_goes_through_subnormals_to_zero_and_overflows_to_infinity(runner: OrtRunner) -> None:
    values = np.array([6e-8, 2.9e-8, 65519.0, 65520.0, -1e5], np.float32)

    np.testing.assert_array_equal(rounded(runner, values, FP16, 17), np.array([2.0**-24, 0, 65504, np.inf, -np.inf]))


def test_bfloat16_is_rounded_where_the_opset_has_no_cast_to_it(runner: OrtRunner) -> None:
    values = np.random.default_rng(1).standard_normal(1 << 16).astype(np.float32) * 1e3

    np.testing.assert_array_equal(rounded(runner, values, BF16, 11), BF16.rounded(values).astype(np.float32))


@pytest.mark.parametrize("opset", [9, 17])
def test_what_is_saturated_stays_finite(runner: OrtRunner, opset: int) -> None:
    values = np.array([-np.inf, -3.4e38, 1.0, 1e6], np.float32)

    np.testing.assert_array_equal(rounded(runner, values, FP16, opset, saturated=True), [-65504, -65504, 1, 65504])
