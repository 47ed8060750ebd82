"""Runners that come one after the other and share one process."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator

import numpy as np
import pytest

from tests.models import parse
from trtnorm_cli.evaluate.ort_child import OrtChild
from trtnorm_cli.evaluate.ort_runner import OrtRunner, one_child

pytestmark = pytest.mark.usefixtures("unshared_child")
X = {"x": np.arange(4, dtype=np.float32)}
DOUBLED = parse("g (float[4] x) => (float[4] y) { y = Add(x, x) }")
LIMIT = 4 << 30


@pytest.fixture
def pids(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The processes that were started, all of which are gone at the end."""
    found: list[int] = []
    start = OrtChild.__init__

    def started(self, *arguments):
        start(self, *arguments)
        found.append(self._process.pid)

    monkeypatch.setattr(OrtChild, "__init__", started)
    yield found
    for pid in found:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def doubled(runner: OrtRunner) -> None:
    for asked in (runner.run(DOUBLED, X), runner.ask(DOUBLED.SerializeToString(), {}, [X]).results()[0]):
        assert np.array_equal(asked["y"], 2 * X["x"])


def test_the_next_runner_takes_the_process_with_its_own_limits(pids):
    with one_child():
        with OrtRunner() as first:
            doubled(first)
        with OrtRunner(memory_bytes=LIMIT, threads=1) as second:
            doubled(second)
            assert resource.prlimit(pids[0], resource.RLIMIT_DATA) == (LIMIT, LIMIT)
        first.close()
        assert len(pids) == 1


def test_closing_twice_leaves_the_process_to_who_has_it(pids):
    with one_child():
        first = OrtRunner()
        doubled(first)
        first.close()
        with OrtRunner() as second:
            doubled(second)
            first.close()
            doubled(second)
        assert len(pids) == 1


def test_a_limit_cannot_be_raised_so_that_a_limited_process_ends_with_its_runner(pids):
    with one_child():
        with OrtRunner(memory_bytes=LIMIT) as first:
            doubled(first)
        with OrtRunner() as second:
            doubled(second)
        assert len(pids) == 2


def test_a_process_that_died_in_between_is_replaced(pids):
    with one_child():
        with OrtRunner() as first:
            doubled(first)
        os.kill(pids[0], signal.SIGKILL)
        os.waitid(os.P_PID, pids[0], os.WEXITED | os.WNOWAIT)
        with OrtRunner() as second:
            doubled(second)
        assert len(pids) == 2


def test_outside_of_a_block_each_runner_has_its_own(pids):
    for _ in range(2):
        with OrtRunner() as runner:
            doubled(runner)
    assert len(pids) == 2


def test_a_block_inside_another_has_its_process(pids):
    with one_child():
        with one_child(), OrtRunner() as first:
            doubled(first)
        with OrtRunner() as second:
            doubled(second)
    assert len(pids) == 1
