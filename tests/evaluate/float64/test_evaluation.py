"""An evaluation that is left and gone on with."""

from __future__ import annotations

import gc
import time
import weakref

import numpy as np
import pytest

from tests.models import parse, random
from trtnorm_cli.evaluate.float64 import BudgetExceeded, Evaluation, evaluate_float64

X = {"x": random(4, 8)}
MODEL = parse(
    "g (float[4, 8] x) => (float[4, 8] y) "
    "{ a = MatMul(x, w) b = Relu(a) c, d = Split <axis = 0> (b, s) e = Concat <axis = 0> (d, c) y = Add(e, a) }",
    {"w": random(8, 8), "s": np.array([1, 3])},
)


def test_it_gives_the_same_in_as_many_parts_as_one_likes():
    evaluation, seen = Evaluation(MODEL, X), []
    while not evaluation.is_done:
        steps = iter([False])
        seen.append((evaluation.remaining, evaluation.next_names))
        evaluation.go_on(until=lambda steps=steps: next(steps, True))
    assert seen == [(5, ["a"]), (4, ["b"]), (3, ["c", "d"]), (2, ["e"]), (1, ["y"])]
    assert (evaluation.next_names, evaluation.ahead) == ((), set())
    expected = evaluate_float64(MODEL, X).outputs["y"]
    np.testing.assert_array_equal(evaluation.reference().outputs["y"], expected)


def test_what_is_needed_later_is_held():
    evaluation = Evaluation(MODEL, X)
    evaluation.go_on(until=lambda: evaluation.next_names == ["c", "d"])
    held = [value.shape for value in evaluation.values() if isinstance(value, np.ndarray) and value.dtype == np.float64]
    assert held.count((4, 8)) == 2, "a and b; nobody reads x any more"
    assert evaluation.ahead == {"c", "d", "e", "y"}


def test_the_time_between_its_parts_does_not_count():
    evaluation = Evaluation(MODEL, X, budget_s=0.2)
    evaluation.go_on(until=lambda: evaluation.remaining < 3)
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    evaluation.go_on()
    assert evaluation.reference().seconds < 0.2


def test_the_time_of_its_parts_adds_up():
    def slow(name: str, value: np.ndarray) -> np.ndarray:
        end = time.process_time() + 0.05
        while time.process_time() < end:
            pass
        return value

    evaluation = Evaluation(MODEL, X, budget_s=0.12, watch=slow)
    for names in (["b"], ["c", "d"]):
        evaluation.go_on(until=lambda names=names: evaluation.next_names == names)
    with pytest.raises(BudgetExceeded):
        evaluation.go_on()


def test_what_nobody_needs_any_more_goes_without_being_collected():
    gc.disable()
    try:
        evaluation = Evaluation(MODEL, X)
        evaluation.go_on()
        gone = weakref.ref(evaluation)
        del evaluation
        assert gone() is None
    finally:
        gc.enable()
