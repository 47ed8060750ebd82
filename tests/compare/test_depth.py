"""The differences of inner tensors along the depth of a model."""

from __future__ import annotations

import numpy as np
import pytest

from tests.models import batchnorm, parse, random, saved
from trtnorm_cli import compare
from trtnorm_cli.compare.inner_tensors import relative_distance
from trtnorm_cli.compare.record import comparison_record
from trtnorm_cli.compare.result import CandidateReport, Comparison
from trtnorm_cli.records.comparison import DepthRecord

THREE = (
    "g (float[2, 3, 9, 9] x) => (float[2, 4, 7, 7] y) { p = Relu(x) c = Conv(p, w) "
    "[bn1] n = BatchNormalization(c, gamma, beta, mu, var) r = Relu(n) y = Mul(r, r) }"
)


def depth_of(depth: dict[str, float]) -> DepthRecord | None:
    report = CandidateReport("rewriting", "onnx", depth=depth, depth_at="min")
    return comparison_record(Comparison("m.onnx", candidates=[report]), 0).candidates[0].depth


def test_a_folded_normalization_is_off_by_rounding_and_what_is_before_it_not_at_all(tmp_path):
    model = saved(parse(THREE, {"w": random(4, 3, 3, 3), **batchnorm(4)}), tmp_path / "m.onnx")
    depth = comparison_record(compare(model), 0).candidates[0].depth
    assert depth is not None
    assert depth.at == "default min"
    assert depth.other == 0
    off = {point.tensor: point.distance for point in depth.points}
    assert off["p"] == 0
    assert 1e-9 < off["n"] < 1e-6
    assert 1e-9 < off["r"] < 1e-6
    assert [point.place for point in depth.points] == sorted(point.place for point in depth.points)


def test_neighbours_are_told_by_the_worst_of_them():
    found = depth_of({f"t{i}": (1e-4 if i == 777 else 1e-8) for i in range(1000)})
    assert found is not None
    assert found.tensors == 1000
    assert len(found.points) == 200
    assert [(point.place, point.tensor) for point in found.points if point.distance == 1e-4] == [(778, "t777")]


def test_what_carries_another_meaning_is_left_out():
    found = depth_of({"a": 1e-8, "moved": 0.5, "b": 2e-8, "worse": float("inf"), "none": float("nan")})
    assert found is not None
    assert (found.tensors, found.other) == (5, 3)
    assert [point.tensor for point in found.points] == ["a", "b"]


def test_nothing_is_said_where_nothing_was_looked_at():
    assert depth_of({}) is None


@pytest.mark.parametrize(
    ("wanted", "got", "expected"),
    [([3.0, 4.0], [3.0, 4.5], 0.1), ([0.0], [1.0], np.inf), ([], [], np.inf)],
)
def test_the_distance_of_a_tensor(wanted, got, expected):
    assert relative_distance(np.array(wanted), np.array(got)) == pytest.approx(expected)
