"""Shapes as users write them, and back."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from trtnorm_cli.onnx_model.shapes import format_shape
from trtnorm_cli.profile.dims import MAX_DIM, nearest_multiples, order_problems, read_shape
from trtnorm_cli.profile.load import parse_profile
from trtnorm_cli.profile.model import BuildProfile

shapes = st.lists(st.integers(1, MAX_DIM), min_size=1, max_size=8).map(tuple)


@st.composite
def ranges(draw: st.DrawFn) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    rank = draw(st.integers(1, 8))
    rows = [sorted(draw(st.tuples(*[st.integers(1, MAX_DIM)] * 3))) for _ in range(rank)]
    low, opt, high = zip(*rows, strict=True)
    return low, opt, high


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine draws slowly
@given(shapes)
def test_a_shape_reads_back_from_a_list_and_from_a_string(shape: tuple[int, ...]) -> None:
    assert read_shape(list(shape), zero_allowed=False) == shape
    assert read_shape("x".join(map(str, shape)), zero_allowed=False) == shape
    assert read_shape(" × ".join(map(str, shape)), zero_allowed=False) == shape


@given(ranges())
def test_a_range_survives_yaml_the_model_and_its_dump(shapes: tuple[tuple[int, ...], ...]) -> None:
    low, opt, high = shapes
    text = f"optimization_profiles:\n  - inputs:\n      x: {{min: {list(low)}, opt: {list(opt)}, max: {list(high)}}}\n"
    profile = parse_profile(text)
    assert profile.optimization_profiles[0].inputs["x"].corners() == shapes
    assert BuildProfile.model_validate(profile.model_dump(mode="json")) == profile


@given(ranges(), st.data())
def test_one_element_out_of_order_is_one_problem_at_that_element(
    shapes: tuple[tuple[int, ...], ...], data: st.DataObject
) -> None:
    low, opt, high = (list(shape) for shape in shapes)
    axis = data.draw(st.integers(0, len(low) - 1))
    opt[axis] = high[axis] + 1
    (problem,) = order_problems(tuple(low), tuple(opt), tuple(high))
    assert problem.path == ("opt", axis)
    assert problem.message == f"{opt[axis]} is above max {high[axis]}"


@given(ranges(), st.data())
def test_min_just_above_max_is_one_problem_at_min(shapes: tuple[tuple[int, ...], ...], data: st.DataObject) -> None:
    low, opt, high = (list(shape) for shape in shapes)
    axis = data.draw(st.integers(0, len(low) - 1))
    low[axis] = high[axis] + 1
    (problem,) = order_problems(tuple(low), tuple(opt), tuple(high))
    assert problem.path == ("min", axis)
    assert problem.message == f"{low[axis]} is above max {high[axis]}"


@given(st.integers(1, MAX_DIM), st.integers(1, 10_000))
def test_the_nearest_multiples_are_multiples_and_enclose_the_value(value: int, multiple: int) -> None:
    found = [int(word) for word in nearest_multiples(value, multiple).split(" and ")]
    assert all(dim % multiple == 0 and 0 < dim <= MAX_DIM and abs(dim - value) <= multiple for dim in found)
    assert min(found) <= value or min(found) == multiple


def test_nearest_multiples_never_offers_zero() -> None:
    assert nearest_multiples(5, 8) == "8"
    assert nearest_multiples(2156, 8) == "2152 and 2160"


@pytest.mark.parametrize("value", [None, True, 3, 2.5, "", "  ", {"a": 1}])
def test_what_is_no_shape_is_refused(value: object) -> None:
    with pytest.raises(ValidationError, match="expected a shape such as"):
        read_shape(value, zero_allowed=True)


def test_a_scalar_input_has_the_empty_shape() -> None:
    assert read_shape([], zero_allowed=False) == ()


def test_a_shape_is_shown_with_its_symbols() -> None:
    assert format_shape(("N", 3, None, 224)) == "[N, 3, ?, 224]"
