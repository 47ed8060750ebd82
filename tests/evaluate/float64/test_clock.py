"""The clock of evaluations: what other programs do to the machine does not count."""

from __future__ import annotations

import time

import pytest

from trtnorm_cli.evaluate.float64.clock import Clock


def test_waiting_is_not_working():
    clock = Clock()
    time.sleep(0.2)
    assert clock.seconds() < 0.1


@pytest.mark.parametrize(("wall", "processor"), [(3.0, 7.0), (7.0, 3.0)], ids=["several threads", "a busy machine"])
def test_the_shorter_counts(monkeypatch: pytest.MonkeyPatch, wall: float, processor: float):
    clock = Clock()
    monkeypatch.setattr(clock, "_start", (time.perf_counter() - wall, time.process_time() - processor))
    assert clock.seconds() == pytest.approx(3.0, abs=0.2)
