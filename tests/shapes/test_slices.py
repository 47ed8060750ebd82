"""Slices with every beginning, end and step, held against Python's.

One difference: backwards from before the first element, ONNX begins with that one.
"""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest

from tests.shapes.runs import ints
from trtnorm_cli.shapes.evaluate import values_at
from trtnorm_cli.shapes.expression import symbol
from trtnorm_cli.shapes.node import Node
from trtnorm_cli.shapes.operators import OPERATORS
from trtnorm_cli.shapes.tensor import SymbolicTensor, constant, vector_of

FAR = (2**63 - 1, 2**31 - 1, -(2**31), -(2**63) + 1)
PLACES = (*range(-6, 7), *FAR)
PROTO = onnx.helper.make_node("Slice", ["x", "starts", "ends", "axes", "steps"], ["y"])
LENGTH = symbol("L", 1)


def picked(size: int, start: int, end: int, step: int) -> range:
    return range(size)[max(start, -size) if step < 0 else start : end : step]


def sliced(x: SymbolicTensor, start: object, end: object, step: int) -> SymbolicTensor:
    given = [x, vector_of([start]), vector_of([end]), constant(ints(-1), 7), constant(ints(step), 7)]
    (made,) = OPERATORS["Slice"](Node(PROTO, given, 17, lambda constraint: None))
    return made


@pytest.mark.parametrize("step", [1, 2, 3, -1, -2, -3])
def test_the_length_of_a_slice(step):
    x = SymbolicTensor(1, (2, LENGTH))
    pairs = list(itertools.product(PLACES, PLACES))
    lengths = [sliced(x, start, end, step).shape[1] for start, end in pairs]
    for size in (1, 2, 5):
        expected = [len(picked(size, start, end, step)) for start, end in pairs]
        assert values_at(lengths, {"L": size}) == expected


@pytest.mark.parametrize("step", [1, 2, -1, -2])
@pytest.mark.parametrize("offset", [0, -2, 1])
def test_ends_that_are_sizes(step, offset):
    """One that may be negative is counted from the end there."""
    x = SymbolicTensor(1, (2, LENGTH))
    other = LENGTH + offset
    lengths = [sliced(x, *ends, step).shape[1] for ends in ((0, other), (other, 2**63 - 1), (other, -(2**63) + 1), (-2, other))]
    for size in range(1, 6):
        end, whole = size + offset, range(size)
        expected = [whole[0:end:step], whole[end : 2**63 - 1 : step], whole[end : -(2**63) : step], whole[-2:end:step]]
        assert values_at(lengths, {"L": size}) == [len(part) for part in expected]


@pytest.mark.parametrize("step", [1, 2, 3, -1, -2, -3])
def test_the_elements_of_a_slice(step):
    values = np.arange(5)
    for start, end in itertools.product(PLACES, PLACES):
        made = sliced(constant(values, 7), start, end, step)
        assert made.vector() == list(picked(5, start, end, step)), (start, end)
        assert made.shape == (len(picked(5, start, end, step)),)


def test_a_step_of_zero_and_one_that_is_a_size_tell_nothing():
    x = SymbolicTensor(1, (2, LENGTH))
    assert sliced(x, 0, 3, 0).shape == (2, None)
    assert sliced(constant(np.arange(5), 7), 0, 3, 0).elements is None
    given = [x, vector_of([0]), vector_of([3]), constant(ints(-1), 7), vector_of([LENGTH])]
    assert OPERATORS["Slice"](Node(PROTO, given, 17, lambda constraint: None))[0].shape == (2, None)
