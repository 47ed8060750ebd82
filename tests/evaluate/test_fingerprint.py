"""The digest of an array, which stands for its values where proofs are known again."""

from __future__ import annotations

import numpy as np
import pytest

from trtnorm_cli.evaluate.fingerprint import fingerprint

# Fewer values than a row, one row, many rows, and some that fill none.
SIZES = (1, 7, 1024, 64 * 1024, 64 * 1024 + 3)


@pytest.fixture(params=SIZES)
def values(request: pytest.FixtureRequest) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(request.param).astype(np.float32)


def test_equal_values_have_the_same_wherever_they_lie(values: np.ndarray) -> None:
    behind = np.concatenate([np.zeros(1, np.float32), values])[1:]
    assert fingerprint(values) == fingerprint(values.copy()) == fingerprint(behind)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_any_value_counts(values: np.ndarray, share: float) -> None:
    changed = values.copy()
    place = int(share * values.size)
    changed[place] = np.nextafter(changed[place], np.float32(9))
    assert fingerprint(changed) != fingerprint(values)


def test_two_values_that_are_swapped_count(values: np.ndarray) -> None:
    for one, other in ((0, values.size - 1), (0, values.size // 2), (values.size // 2, values.size - 1)):
        swapped = values.copy()
        swapped[[one, other]] = swapped[[other, one]]
        assert one == other or fingerprint(swapped) != fingerprint(values)


def test_rows_and_columns_that_are_swapped_count() -> None:
    table = np.random.default_rng(0).standard_normal((256, 1024)).astype(np.float32)
    rows, columns = table[::-1], table[:, ::-1]
    assert len({fingerprint(one) for one in (table, rows, columns, table.T)}) == 4
