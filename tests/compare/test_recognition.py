"""Tensors of a candidate that are those of an earlier one: what was measured of these counts, and is not measured again."""

from __future__ import annotations

import numpy as np
import pytest

from trtnorm_cli.compare import inner_tensors
from trtnorm_cli.compare.inner_tensors import InnerTensors, Recognition, SliceDistances
from trtnorm_cli.evaluate.float64 import Follower, Ties, nearness

ULP = 2.0**-24
WANTED = np.random.default_rng(0).standard_normal((3, 5))
OFF = WANTED + np.array([[0.0], [1e-4], [0.0]])


@pytest.fixture
def measured(monkeypatch) -> list[np.ndarray]:
    """The values of candidates that were held to the reference."""
    found, real = [], inner_tensors.apart
    monkeypatch.setattr(inner_tensors, "apart", lambda one, other: found.append(other) or real(one, other))
    return found


def candidate(reference: InnerTensors, *others: Recognition, ulp: float = ULP) -> Recognition:
    return Recognition(SliceDistances(reference, 16 * ulp), others, ulp, Follower(Ties(nearness(ulp))))


def reference(value: np.ndarray = WANTED) -> InnerTensors:
    inner = InnerTensors()
    inner.keep("t", value)
    return inner


@pytest.mark.parametrize("again", [OFF, OFF.copy(), OFF.reshape(5, 3)], ids=["itself", "its equal", "in another shape"])
def test_a_tensor_of_two_candidates_is_measured_once(measured, again):
    inner = reference()
    first = candidate(inner)
    assert first.watch("t", OFF) is OFF
    second = candidate(inner, first)
    assert np.shares_memory(second.watch("t", again), OFF)
    assert len(measured) == 1
    assert second.depth == first.depth == {"t": pytest.approx(np.linalg.norm(OFF - WANTED) / np.linalg.norm(WANTED))}
    assert second.slices.found["t"] is first.slices.found["t"]
    assert inner_tensors.suspicious(second.slices) == ["t"]


def test_the_very_tensor_of_an_earlier_candidate_is_not_held_to_the_reference_again(monkeypatch):
    inner = reference()
    first = candidate(inner)
    first.watch("t", OFF)
    compared = []
    monkeypatch.setattr(inner_tensors, "_held_to", lambda *arrays: compared.append(arrays) or (False, None))
    second, coarser = candidate(inner, first), candidate(inner, first, ulp=2.0**-11)
    assert second.watch("t", OFF) is OFF
    assert (compared, second.depth) == ([], first.depth)
    coarser.watch("t", OFF)
    assert len(compared) == 1


def test_a_tensor_of_the_reference_is_at_no_distance(measured):
    inner = reference()
    first = candidate(inner)
    assert np.shares_memory(first.watch("t", WANTED.copy()), WANTED)
    assert (first.depth, first.slices.found, measured) == ({"t": 0.0}, {}, [])


def test_it_is_measured_again_where_less_of_it_counts(measured):
    """The first candidate is of half precision, in which this distance is nothing."""
    inner = reference()
    first = candidate(inner, ulp=2.0**-11)
    first.watch("t", OFF)
    second = candidate(inner, first)
    second.watch("t", OFF)
    assert (list(first.slices.found), list(second.slices.found), len(measured)) == ([], ["t"], 2)


@pytest.mark.filterwarnings("ignore:invalid value")
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_is_no_other_tensor_not_even_itself(measured, value):
    broken = np.where(np.arange(15).reshape(3, 5) == 7, value, WANTED)
    inner = reference(broken)
    first = candidate(inner)
    first.watch("t", broken)
    second = candidate(inner, first)
    assert second.watch("t", broken) is broken
    assert len(measured) == 2
    assert not np.isfinite(second.depth["t"])


def test_a_tensor_that_an_earlier_candidate_had_no_room_for_is_measured(measured):
    inner = reference()
    first = candidate(inner)
    first.own._room = 0
    first.watch("t", OFF)
    second = candidate(inner, first)
    second.watch("t", OFF)
    assert len(measured) == 2
    assert second.depth == first.depth
