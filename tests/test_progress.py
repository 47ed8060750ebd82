"""The stages that a command goes through, as whoever listens hears of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from trtnorm_cli.progress import OpenStages, current, each, listening, stage
from trtnorm_cli.side_work import SideWork

CHILD = """import os, sys
from trtnorm_cli.progress import listening, stage, telling_parent
with listening(telling_parent(int(sys.argv[1]))), stage("trace"), stage("run-module", 4, "inputs") as told:
    told.at("min")
    told.reach(2)
    os._exit(0)
"""


@pytest.fixture
def heard():
    """The events of the block, without the seconds."""
    found: list[dict[str, object]] = []
    with listening(lambda event: found.append({key: value for key, value in event.items() if key != "seconds"})):
        yield found


def test_where_nobody_listens_nothing_is_told():
    with stage("build", 3, "steps") as told:
        told.advance()
        told.at("here")
        current().reach(3)
    assert [item for item, _ in each("prove", [1, 2], "changes")] == [1, 2]
    assert not OpenStages().is_heard


def test_stages_are_nested_as_their_blocks(heard):
    with stage("rewrite"), stage("prove", 2, "changes") as told:
        told.at("bn1")
        current().advance()
    assert heard == [
        {"event": "begin", "id": 1, "stage": "rewrite"},
        {"event": "begin", "id": 2, "stage": "prove", "parent": 1, "total": 2, "unit": "changes"},
        {"event": "advance", "id": 2, "stage": "prove", "at": "bn1"},
        {"event": "advance", "id": 2, "stage": "prove", "done": 1},
        {"event": "end", "id": 2, "stage": "prove"},
        {"event": "end", "id": 1, "stage": "rewrite"},
    ]


def test_a_stage_ends_with_an_error(heard):
    with pytest.raises(ZeroDivisionError), stage("build"):
        raise ZeroDivisionError
    assert [event["event"] for event in heard] == ["begin", "end"]
    assert current() is not None
    with stage("later"):
        pass
    assert "parent" not in heard[2]


def test_work_beside_is_heard_where_it_was_begun(heard):
    def work() -> int:
        with stage("build"):
            return 1

    with SideWork() as side, stage("compare"):
        assert side.start(work).result() == 1
    begun = [(event["stage"], event.get("parent")) for event in heard if event["event"] == "begin"]
    assert begun == [("compare", None), ("build", 1)]


def test_what_a_child_process_tells_is_numbered_anew(heard):
    """Its stages end with it, whether it said so or not."""
    reader, writer = os.pipe()
    with stage("load"), stage("export"), OpenStages() as stages:
        process = subprocess.Popen([sys.executable, "-c", CHILD, str(writer)], pass_fds=(writer,))
        os.close(writer)
        with os.fdopen(reader, encoding="utf-8") as lines:
            for line in lines:
                stages.relay(json.loads(line))
        assert process.wait() == 0
        stages.relay({"event": "end", "id": 77})
        stages.relay({"event": "something newer"})
    stages.relay({"event": "begin", "id": 9, "stage": "late"})
    assert heard[2:] == [
        {"event": "begin", "id": 3, "stage": "trace", "parent": 2},
        {"event": "begin", "id": 4, "stage": "run-module", "parent": 3, "total": 4, "unit": "inputs"},
        {"event": "advance", "id": 4, "stage": "run-module", "at": "min"},
        {"event": "advance", "id": 4, "stage": "run-module", "done": 2},
        {"event": "end", "id": 4, "stage": "run-module"},
        {"event": "end", "id": 3, "stage": "trace"},
        {"event": "end", "id": 2, "stage": "export"},
        {"event": "end", "id": 1, "stage": "load"},
    ]
