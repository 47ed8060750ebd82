"""Progress as it is shown: a live line, lines in a log, JSON lines."""

from __future__ import annotations

import io
import json
import re
import sys
from pathlib import Path

import pytest

from tests.models import batchnorm, parse, random, saved
from trtnorm_cli.cli import run
from trtnorm_cli.progress import listening, stage
from trtnorm_cli.report import progress, running
from trtnorm_cli.report.progress import JsonLines, LiveLine, LogLines, ProgressChoice, shown_progress
from trtnorm_cli.report.running import Stages
from trtnorm_cli.report.verbosity import Verbosity
from trtnorm_cli.tensorrt.build_stages import BuildStages

DOCUMENT = Path(__file__).parents[2] / "docs" / "progress.md"
# What TensorRT's build process says, with steps of phases that nobody announced.
BUILD = [
    {"event": "stage", "stage": "load"}, {"event": "stage", "stage": "build"},
    {"event": "phase", "phase": "Building engine", "parent": "", "steps": 6},
    {"event": "phase", "phase": "Timing", "parent": "Building engine", "steps": 3},
    {"event": "step", "phase": "Timing", "step": 0}, {"event": "step", "phase": "nobody announced this", "step": 1},
    {"event": "finish", "phase": "nor this"}, {"event": "network"},
]  # fmt: skip


class Clock:
    """A clock that is set by hand."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    for module in (progress, running):
        monkeypatch.setattr(module, "time", made)
    return made


def quick() -> None:
    with stage("load"):
        pass


def test_a_log_hears_of_what_lasts_and_of_nothing_else(capsys, monkeypatch):
    """A line when it has ended, and one before that where it takes long."""
    monkeypatch.setattr(progress, "_WORTH_A_LINE_S", 0.03)
    monkeypatch.setattr(progress, "_ANNOUNCED_S", 0.05)
    with shown_progress("build", ProgressChoice("lines")):
        quick()
        with stage("rewrite"), stage("prove", 12, "changes") as told:
            told.advance(3)
            told.at("bn\x1b[31m1")
            import time

            time.sleep(0.6)
    shown = capsys.readouterr()
    assert shown.out == ""
    announced, ended = shown.err.splitlines()
    assert announced.startswith("trtnorm: rewriting and checking: proving changes 3/12 (bn\\x1b[31m1)")
    assert announced.endswith(" …")
    assert re.fullmatch(r"trtnorm: rewriting and checking: 0\.[67] s", ended)


def test_a_long_stage_is_told_of_again_and_again_and_not_too_often(clock, capsys):
    log = LogLines()
    with listening(log.hear), stage("build"), stage("prove", 10, "changes") as told:
        for second in range(1, 50):
            clock.now = 100.0 + second
            told.reach(second // 5)
            log.on_tick(clock.now)
    told_of = capsys.readouterr().err.splitlines()
    assert [line.split(": ", 1)[1] for line in told_of[:3]] == [
        "building the engine: proving changes 0/10 …",
        "building the engine: proving changes 4/10, about 33 s left …",
        "building the engine: proving changes 8/10, about 10 s left …",
    ]


@pytest.mark.parametrize(("choice", "verbosity"), [("auto", Verbosity.QUIET), ("none", Verbosity.VERBOSE)])
def test_nothing_is_shown_when_quiet_or_not_wanted(capsys, choice, verbosity):
    with shown_progress("build", ProgressChoice(choice), verbosity):
        quick()
    assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def terminal(monkeypatch) -> Terminal:
    """A terminal of 70 columns in the place of stderr. A fixture cannot do that: pytest puts its own there after it."""
    made = Terminal()
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "70")
    return made


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(monkeypatch):
    terminal(monkeypatch)
    monkeypatch.setenv("TERM", "dumb")
    assert isinstance(progress._display("build", progress.AUTO, Verbosity.NORMAL), LogLines)


def test_a_terminal_gets_one_line_that_fits_it_and_goes_away(monkeypatch, clock):
    screen = terminal(monkeypatch)
    line = progress._display("build", progress.AUTO, Verbosity.NORMAL)
    assert isinstance(line, LiveLine)
    with listening(line.hear), stage("compare", 6, "sets of inputs") as told:
        with stage("float64", 300, "nodes") as inner:
            inner.at("a-name-that-is-longer-than-the-terminal/" * 3)
            clock.now += 3.0
            line.on_tick(clock.now)
        told.advance(share=0.25)
        line.on_tick(clock.now)
    line.close()
    said = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", part) for part in re.split(r"[\r\n]+", screen.getvalue())]
    texts = [text for text in said if text.strip()]
    assert max(map(len, texts)) <= 70
    assert any(re.search(r"comparing 0/6 sets of inputs: evaluating in float64.*…$", text) for text in texts)
    assert texts[-1].endswith("comparing 1/6 sets of inputs, about 9 s left")
    assert screen.getvalue().endswith("\x1b[2K")


def test_quick_commands_draw_nothing(monkeypatch):
    screen = terminal(monkeypatch)
    with shown_progress("inspect"):
        quick()
    assert screen.getvalue() == ""


def test_an_error_ends_the_line(monkeypatch):
    terminal(monkeypatch)
    with pytest.raises(ZeroDivisionError), shown_progress("build"):
        raise ZeroDivisionError
    assert not any(thread.name == "trtnorm-progress" for thread in progress.threading.enumerate())


def test_tensorrts_phases_are_stages_and_their_steps_no_estimate(clock):
    stages, texts = Stages(), []
    with listening(stages.hear), stage("search", 8, "builds"), BuildStages() as build:
        for event in BUILD:
            build.hear(event)
            clock.now += 1
            texts.append([one.text(clock.now) for one in stages.innermost()])
    assert texts[0] == ["searching for the fewest kernels 0/8 builds: starting TensorRT"]
    assert texts[3] == ["searching for the fewest kernels 0/8 builds: building the engine: Timing 0/3"]
    assert texts[4:] == 4 * [["searching for the fewest kernels 0/8 builds: building the engine: Timing 1/3"]]
    assert stages.innermost() == []


def documented() -> dict[str, dict[str, str]]:
    """The keys of each kind of event, as the page lists them."""
    found: dict[str, dict[str, str]] = {}
    for row in re.findall(r"^\| `(\w+)` \| (.*) \| .* \|$", DOCUMENT.read_text(encoding="utf-8"), re.M):
        for kind in re.findall(r"`(\w+)`", row[1]):
            found.setdefault(kind, {})[row[0]] = ""
    return found


def test_json_lines_are_as_documented(tmp_path, capsys):
    file, page = tmp_path / "progress.jsonl", documented()
    with shown_progress("build", ProgressChoice("json", file)), stage("rewrite"), stage("prove", 40, "changes") as told:
        for number in range(40):
            told.at(f"bn{number}")
            told.advance()
    events = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    assert [event["event"] for event in events[:3]] == ["start", "begin", "begin"]
    assert events[0] == {"event": "start", "format": 1, "command": "build"}
    assert events[-1]["event"] == "done"
    last = [event for event in events if event["event"] == "advance"][-1]
    assert (last["done"], last["total"], last["at"], last["words"]) == (40, 40, "bn39", "proving changes")
    assert len(events) < 20  # not each of them, but the last
    for event in events:
        assert event.keys() <= page[event["event"]].keys(), event
    assert capsys.readouterr() == ("", "")


def test_a_stream_that_nobody_reads_stops_no_work(tmp_path):
    lines = JsonLines("build", tmp_path / "progress.jsonl")
    lines._stream.close()
    lines.start()
    with listening(lines.hear):
        quick()
    lines.close()


def test_the_option(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    body = "{ c = Conv(x, w) [bn] y = BatchNormalization(c, gamma, beta, mu, var) }"
    graph = f"g (float[2, 2, 9, 9] x) => (float[2, 4, 7, 7] y) {body}"
    saved(parse(graph, {"w": random(4, 2, 3, 3), **batchnorm(4)}), tmp_path / "m.onnx")
    assert run(["rewrite", "m.onnx", "--dry-run", "--json", "--progress", "json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["changes"]
    events = [json.loads(line) for line in shown.err.splitlines() if line.startswith("{")]
    begun = [event["stage"] for event in events if event["event"] == "begin"]
    assert begun[:2] == ["load", "rewrite"]
    assert {"clean", "find-norms", "plan", "prove", "audit"} <= set(begun)
    assert run(["diff", "m.onnx", "m.onnx", "--progress", "json"]) == 0
    assert json.loads(capsys.readouterr().err.splitlines()[0]) == {"event": "start", "format": 1, "command": "diff"}
    assert run(["rewrite", "m.onnx", "--dry-run", "--progress", "json:no/such/folder"]) == 2
    assert "no/such/folder" in capsys.readouterr().err
    for wrong in ("bar", "lines:file", "json:"):
        assert run(["rewrite", "m.onnx", "--dry-run", "--progress", wrong]) == 2
        assert "is none of auto, lines, json, none, json:FILE" in capsys.readouterr().err
