"""Dimensions that a layer has, and those that it has not."""

from __future__ import annotations

import pytest

from trtnorm_cli.tensorrt.network.reading import dims_of


class Unset:
    """What releases before 1.7 return for dimensions that are not set: a Dims of rank -1."""

    def __len__(self) -> int:
        return -1


@pytest.mark.parametrize(("dims", "numbers"), [(None, None), (Unset(), None), ((), ()), ((2, -1), (2, -1))])
def test_dims(dims, numbers):
    assert dims_of(dims) == numbers
