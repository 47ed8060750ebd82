"""The launcher against workers that answer, refuse, crash, hang, are killed, or write rubbish."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from trtnorm_cli.child_process import Ended, Excess, Limits, can_fix_addresses
from trtnorm_cli.errors import BuilderDied
from trtnorm_cli.progress import listening
from trtnorm_cli.records.engine_parts import NetworkLayer
from trtnorm_cli.tensorrt import launch as launching
from trtnorm_cli.tensorrt.launch import WORKER, launch, repeat_command
from trtnorm_cli.tensorrt.request import CANNOT_WRITE, BuildRequest, BuildResult

REQUEST = BuildRequest("fixed.onnx", "out.engine", None, ({"x": ((1, 3), (2, 3), (4, 3))},), {"optimization_level": 2})
PRELUDE = """
import json, os, signal, sys, time
from pathlib import Path
from trtnorm_cli.tensorrt.request import BuildRequest, BuildResult, TensorRTMessage
folder, events = Path(sys.argv[1]), os.fdopen(int(sys.argv[2]), "w", buffering=1)
request = BuildRequest.load(folder)
ok = BuildResult(ok=True, stage="done", backend="fake", version="1", engine_bytes=3)
refused = BuildResult(ok=False, stage="parse", errors=(TensorRTMessage("no", "conv", "Conv", "UNSUPPORTED"),))
(folder / "pid").write_text(str(os.getpid()))
"""


def run(folder: Path, body: str, timeout_s: float | None = 60, on_event=lambda event: None) -> BuildResult:
    return launch(REQUEST, folder, on_event, Limits(timeout_s), (sys.executable, "-c", PRELUDE + body))


def death(folder: Path, body: str, timeout_s: float | None = 60) -> BuilderDied:
    with pytest.raises(BuilderDied) as caught:
        run(folder, body, timeout_s)
    assert caught.value.exit_code == 6
    assert str(folder) in caught.value.where
    assert repeat_command(folder) in caught.value.hint
    return caught.value


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def wait_until(condition, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return bool(condition())


def test_a_good_result(tmp_path):
    assert run(tmp_path, "ok.save(folder)") == BuildResult(ok=True, stage="done", backend="fake", version="1", engine_bytes=3)


def test_a_refusal_is_a_result(tmp_path):
    result = run(tmp_path, "refused.save(folder); sys.exit(1)")
    assert not result.ok
    assert (result.errors[0].node, result.errors[0].text) == ("conv", "no")


def test_the_request_arrives(tmp_path):
    run(
        tmp_path,
        "(folder / 'seen').write_text(json.dumps([request.model, request.profiles, request.settings])); ok.save(folder)",
    )
    assert json.loads((tmp_path / "seen").read_text()) == [
        "fixed.onnx",
        [{"x": [[1, 3], [2, 3], [4, 3]]}],
        {"optimization_level": 2},
    ]


def test_events_arrive_in_order(tmp_path):
    seen = []
    body = "[events.write(json.dumps({'event': 'step', 'step': n}) + chr(10)) for n in range(500)]; ok.save(folder)"
    run(tmp_path, body, on_event=seen.append)
    assert [event["step"] for event in seen] == list(range(500))


def test_lines_that_are_no_events_are_left_out(tmp_path):
    """A line cut short by the child's death, and what a library prints to the wrong place."""
    seen = []
    body = "events.write('not JSON\\n[1]\\n\\n' + json.dumps({'event': 'stage'}) + '\\n{\"event\": \"st'); ok.save(folder)"
    run(tmp_path, body, on_event=seen.append)
    assert seen == [{"event": "stage"}]


def test_a_pipe_that_the_worker_closes_at_once(tmp_path):
    assert run(tmp_path, "events.close(); time.sleep(0.3); ok.save(folder)").ok


@pytest.mark.parametrize(("name", "advice"), [
    ("SIGABRT", "TensorRT itself gave up"), ("SIGSEGV", "TensorRT itself crashed"), ("SIGKILL", "it was killed from outside"),
    ("SIGTERM", "the log says how far it came"),
])  # fmt: skip
def test_a_signal(tmp_path, name, advice):
    error = death(tmp_path, f"os.kill(os.getpid(), signal.{name}); time.sleep(60)")
    assert error.summary == f"the build process was ended by {name}"
    assert error.hint.startswith(advice)


def test_a_real_abort_with_words(tmp_path):
    body = "os.write(2, b'terminate called without an active exception\\n'); os.abort()"
    error = death(tmp_path, body)
    assert error.summary == "the build process was ended by SIGABRT"
    assert "terminate called without an active exception" in error.where


def test_a_python_error_in_the_worker_is_shown(tmp_path):
    error = death(tmp_path, "raise RuntimeError('unexpected')")
    assert error.summary == "the build process ended with exit code 1 and without a result"
    assert "RuntimeError: unexpected" in error.where


NO_RESULT = {
    "nothing": "sys.exit(0)",
    "nothing, and a code": "sys.exit(3)",
    "half of it": "(folder / 'result.json').write_text('{\"ok\": true, \"sta')",
    "not what was agreed": "(folder / 'result.json').write_text('{\"ok\": true}')",
    "a list": "(folder / 'result.json').write_text('[]')",
    "bytes": "(folder / 'result.json').write_bytes(bytes(range(256)))",
    "left under its temporary name": "ok.save(folder); (folder / 'result.json').rename(folder / 'result.json.partial')",
    "good, but the exit code is not": "ok.save(folder); sys.exit(1)",
    "bad, but the exit code is good": "refused.save(folder)",
    "good, then it crashed": "ok.save(folder); os.abort()",
}


@pytest.mark.parametrize("body", NO_RESULT.values(), ids=NO_RESULT)
def test_no_usable_result(tmp_path, body):
    death(tmp_path, body)


def test_a_result_of_an_earlier_run_does_not_count(tmp_path):
    run(tmp_path, "ok.save(folder)")
    death(tmp_path, "sys.exit(0)")


def test_a_worker_that_hangs_is_stopped(tmp_path):
    start = time.monotonic()
    error = death(tmp_path, "time.sleep(60)", timeout_s=1.0)
    assert time.monotonic() - start < 10
    assert error.summary == "the build took longer than 1 s and was stopped"
    assert "--timeout" in error.hint
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_a_worker_that_does_not_want_to_end_is_stopped_with_its_children(tmp_path):
    body = """
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
child = os.fork()
if child:
    (folder / "child").write_text(str(child))
time.sleep(60)
"""
    start = time.monotonic()
    death(tmp_path, body, timeout_s=1.0)
    assert time.monotonic() - start < 10
    assert wait_until(lambda: not is_running(int((tmp_path / "child").read_text())), 5)


def test_an_interrupt_stops_the_worker_at_once(tmp_path):
    """Ctrl-C in the terminal reaches the parent only; the child has a session of its own."""
    parent = """
import sys
from pathlib import Path
from tests.tensorrt.test_launch import run
try:
    run(Path(sys.argv[1]), "signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(60)", None)
except KeyboardInterrupt:
    sys.exit(130)
"""
    process = subprocess.Popen([sys.executable, "-c", parent, str(tmp_path)], start_new_session=True)
    assert wait_until((tmp_path / "pid").exists)
    assert wait_until(lambda: (tmp_path / "pid").read_text())
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(timeout=10) == 130
    assert not is_running(int((tmp_path / "pid").read_text()))


def test_nothing_survives_the_death_of_the_parent(tmp_path):
    parent = """
import sys
from pathlib import Path
from tests.tensorrt.test_launch import run
run(Path(sys.argv[1]), "from trtnorm_cli.child_process import die_with_parent; die_with_parent(); "
    "(folder / 'ready').touch(); time.sleep(60)", None)
"""
    process = subprocess.Popen([sys.executable, "-c", parent, str(tmp_path)])
    assert wait_until((tmp_path / "ready").exists)
    process.kill()
    process.wait()
    assert wait_until(lambda: not is_running(int((tmp_path / "pid").read_text())), 5)


def test_a_parent_that_is_process_one_is_a_parent(tmp_path):
    """In a container trtnorm itself may be process 1; what counts is who started the child."""
    code = "from trtnorm_cli.child_process import die_with_parent; die_with_parent(); print('lives')"
    for expected, lives in ((str(os.getpid()), True), ("1", False), (None, True)):
        environment = {k: v for k, v in os.environ.items() if k != "TRTNORM_PARENT_PID"}
        if expected is not None:
            environment["TRTNORM_PARENT_PID"] = expected
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
        assert (done.stdout == "lives\n") is lives, done.stderr


def test_the_child_finds_the_package_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(sys, "path", [])
    assert run(tmp_path, "ok.save(folder)").ok


def test_no_threads_or_descriptors_are_left(tmp_path):
    run(tmp_path, "ok.save(folder)")
    before = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    for _ in range(5):
        run(tmp_path, "ok.save(folder)")
    assert (len(list(Path("/proc/self/fd").iterdir())), threading.active_count()) == before


def test_the_command_that_repeats_a_build_can_be_pasted():
    folder = Path("/somewhere/a folder; with $signs")
    assert shlex.split(repeat_command(folder)) == [*WORKER, str(folder)]


def test_a_request_and_a_result_survive_json(tmp_path):
    REQUEST.save(tmp_path)
    loaded = BuildRequest.load(tmp_path)
    assert (loaded.model, loaded.engine, loaded.backend, loaded.settings) == (
        "fixed.onnx",
        "out.engine",
        None,
        REQUEST.settings,
    )
    result = BuildResult(
        ok=True, stage="done", layers=(NetworkLayer("conv", "CONVOLUTION"),), warnings=("w",), seconds={"parse": 0.1}
    )
    result.save(tmp_path)
    assert BuildResult.load(json.loads((tmp_path / "result.json").read_text())) == result
    assert not list(tmp_path.glob("*.partial"))


GOOD, REFUSED = {"ok": True, "stage": "done"}, {"ok": False, "stage": "parse"}
SLOW, LARGE = Excess("time", "took too long and was stopped"), Excess("memory", "used too much and was stopped")


@pytest.mark.parametrize(
    ("code", "result", "excess", "summary", "advice"),
    [
        (0, GOOD, None, "", ""),
        (1, REFUSED, None, "", ""),
        (2, REFUSED, None, "", ""),
        (0, GOOD, SLOW, "the build took too long and was stopped", "allow more time with --timeout, or repeat"),
        (1, REFUSED, LARGE, "the build used too much and was stopped", "allow more with --memory: "),
        (1, GOOD, None, "the build process ended with exit code 1 and without a result", "the log says how far it came"),
        (0, REFUSED, None, "the build process ended with exit code 0 and without a result", "the log says how far it came"),
        (0, None, None, "the build process ended with exit code 0 and without a result", "the log says how far it came"),
        (0, {"ok": 1}, None, "the build process ended with exit code 0 and without a result", "the log says how far it came"),
        (-signal.SIGTERM, REFUSED, None, "the build process was ended by SIGTERM", "the log says how far it came"),
        (-signal.SIGSEGV, GOOD, None, "the build process was ended by SIGSEGV", "TensorRT itself crashed"),
        (CANNOT_WRITE, None, None, "the build process could not write its files", "make room on the disk"),
        (CANNOT_WRITE, GOOD, None, "the build process could not write its files", "make room on the disk"),
    ],
)
def test_a_result_counts_where_the_end_of_the_process_says_the_same(
    tmp_path, monkeypatch, code, result, excess, summary, advice
):
    """One that exceeded a limit is over that limit, whatever it could still write."""
    lines = tuple(f"line {number}" for number in range(7))
    monkeypatch.setattr(launching, "run_child", lambda *given, **named: Ended(code, excess, result, lines))
    if not summary:
        assert launch(REQUEST, tmp_path).ok == result["ok"]
        return
    with pytest.raises(BuilderDied) as caught:
        launch(REQUEST, tmp_path)
    assert caught.value.summary == summary
    assert caught.value.hint.startswith(advice)
    assert repeat_command(tmp_path) in caught.value.hint
    assert caught.value.where.splitlines()[1:] == [f"  line {number}" for number in range(2, 7)]


def test_a_work_folder_that_cannot_be_written(tmp_path):
    with pytest.raises(BuilderDied, match="the work folder cannot be written: No such file or directory") as caught:
        launch(REQUEST, tmp_path / "gone")
    assert (caught.value.where, caught.value.hint.partition(",")[0]) == (
        str(tmp_path / "gone"),
        "make room on the disk of the work folder",
    )


@pytest.mark.parametrize("repeatable", [False, True])
def test_only_a_build_that_is_to_be_repeated_has_fixed_addresses_and_hashes(tmp_path, monkeypatch, repeatable):
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    body = (
        "(folder / 'seen').write_text(json.dumps([os.environ.get('PYTHONHASHSEED'), "
        "int(Path('/proc/self/personality').read_text(), 16) & 0x40000])); ok.save(folder)"
    )
    worker = (sys.executable, "-c", PRELUDE + body)
    assert launch(REQUEST, tmp_path, limits=Limits(60), worker=worker, is_repeatable=repeatable).ok
    fixed = 0x40000 if repeatable and can_fix_addresses() else 0
    assert json.loads((tmp_path / "seen").read_text()) == (["0", fixed] if repeatable else [None, 0])


def test_stages_of_the_process_are_stages_of_this_one_whoever_listens(tmp_path):
    heard = []
    body = "events.write(json.dumps({'event': 'stage', 'stage': 'parse'}) + chr(10)); ok.save(folder)"
    with listening(heard.append):
        assert run(tmp_path, body, on_event=None).ok
    assert [(event["event"], event["stage"]) for event in heard] == [("begin", "parse"), ("end", "parse")]
