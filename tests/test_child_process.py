"""The one way to run a child process, against children that answer, fail, crash, hang, take memory, and start others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.work import when_busy
from trtnorm_cli import child_process
from trtnorm_cli.child_process import Child, Ended, Limits, ask_child, run_child

PRELUDE = """
import json, os, signal, sys, time
from pathlib import Path
folder = Path(sys.argv[1])
(folder / "pid").write_text(str(os.getpid()))
def answer(**record): (folder / "result.json").write_text(json.dumps(record))
def events(): return os.fdopen(int(sys.argv[2]), "w", buffering=1)
"""
STUBBORN = """
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
"""
# A child with a child, both of which only SIGKILL ends; neither watches its parent.
FAMILY = (
    STUBBORN
    + """
grandchild = os.fork()
if grandchild:
    (folder / "grandchild").write_text(str(grandchild))
    (folder / "ready").touch()
"""
)


def command(folder: Path, body: str) -> list[str]:
    return [sys.executable, "-c", PRELUDE + body, str(folder)]


def run(folder: Path, body: str, **more) -> Ended:
    return run_child(command(folder, body), folder, **more)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_until(condition: Callable[[], object], seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return bool(condition())


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def is_gone(folder: Path, *names: str) -> bool:
    return wait_until(lambda: not any(is_running(int((folder / name).read_text())) for name in names), 5)


def test_a_result(tmp_path):
    ended = run(tmp_path, "print('a word'); print('another', file=sys.stderr); answer(sum=3)")
    assert (ended.code, ended.excess, ended.result) == (0, None, {"sum": 3})
    assert set(ended.last_lines) == {"a word", "another"}


@pytest.mark.parametrize(("body", "how", "printed"), [
    ("sys.exit(3)", "ended with exit code 3", ""),
    ("pass", "ended with exit code 0", ""),
    ("raise RuntimeError('unforeseen')", "ended with exit code 1", "RuntimeError: unforeseen"),
    ("os.write(2, b'terminate called\\n'); os.abort()", "was ended by SIGABRT", "terminate called"),
    ("os.kill(os.getpid(), signal.SIGSEGV)", "was ended by SIGSEGV", ""),
    ("os.kill(os.getpid(), signal.SIGKILL)", "was ended by SIGKILL", ""),
    ("os.kill(os.getpid(), signal.SIGRTMIN + 2); time.sleep(60)", f"was ended by signal {signal.SIGRTMIN + 2}", ""),
])  # fmt: skip
def test_every_way_to_die_has_its_words(tmp_path, body, how, printed):
    ended = run(tmp_path, body)
    assert (ended.how, ended.excess, ended.result) == (how, None, None)
    assert printed in "\n".join(ended.last_lines)


@pytest.mark.parametrize(
    "written", ["'{\"ok\": tr'", "'[1]'", "'null'", "bytes(range(256)).decode('latin-1')", "''"], ids=range(5)
)
def test_what_is_not_a_result(tmp_path, written):
    assert run(tmp_path, f"(folder / 'result.json').write_text({written}, 'latin-1')").result is None


def test_a_result_of_an_earlier_run_does_not_count(tmp_path):
    assert run(tmp_path, "answer(n=1)").result == {"n": 1}
    assert run(tmp_path, "pass").result is None


def test_of_a_long_log_the_end_is_told(tmp_path):
    ended = run(tmp_path, "print('x' * (1 << 20)); [print('line', n) for n in range(30)]", log="words.log")
    assert ended.last_lines == tuple(f"line {n}" for n in range(10, 30))
    assert (tmp_path / "words.log").stat().st_size > 1 << 20


def test_a_child_that_hangs_is_stopped_with_its_children(tmp_path):
    start = time.monotonic()
    ended = run(tmp_path, FAMILY + "time.sleep(60)", limits=Limits(timeout_s=1.0))
    assert time.monotonic() - start < when_busy(5)
    assert (ended.excess.limit, ended.how) == ("time", "took longer than 1 s and was stopped")
    assert is_gone(tmp_path, "pid", "grandchild")


def test_a_child_that_takes_too_much_memory_is_stopped(tmp_path):
    ended = run(tmp_path, "held = b'x' * (200 << 20); time.sleep(60)", limits=Limits(60, 100 << 20))
    assert ended.excess.limit == "memory"
    assert ended.how.endswith("MiB of memory, more than 100 MiB, and was stopped")
    assert is_gone(tmp_path, "pid")


@pytest.mark.parametrize("last", ["answer(); os._exit(0)", "os.abort()"])
def test_what_a_child_leaves_running_ends_with_it(tmp_path, last):
    ended = run(tmp_path, FAMILY + f"if grandchild: {last}\ntime.sleep(60)")
    assert ended.code == (-signal.SIGABRT if "abort" in last else 0)
    assert is_gone(tmp_path, "grandchild")


def test_events_arrive_in_order_and_before_the_end(tmp_path):
    seen = []
    body = (
        "out = events(); [out.write(json.dumps({'n': n}) + '\\n') for n in range(500)]; out.write('no JSON\\n[1]\\n{\"n\": 5')"
    )
    run(tmp_path, body, listen=seen.append)
    assert [event["n"] for event in seen] == list(range(500))


def test_events_end_although_a_grandchild_holds_the_pipe(tmp_path):
    seen = []
    start = time.monotonic()
    run(tmp_path, FAMILY + "if grandchild: events().write('{}\\n'); os._exit(0)\ntime.sleep(60)", listen=seen.append)
    assert (seen, time.monotonic() - start < when_busy(4)) == ([{}], True)


def test_a_request_is_answered():
    code = "from trtnorm_cli.child_process import answer_request; answer_request(lambda request: {'twice': 2 * request['n']})"
    ended = ask_child([sys.executable, "-c", code], {"n": 4}, timeout_s=60)
    assert (ended.code, ended.result) == (0, {"twice": 8})


def test_an_error_in_an_answer_is_in_the_log():
    code = "from trtnorm_cli.child_process import answer_request; answer_request(lambda request: {'half': request['n'] / 0})"
    ended = ask_child([sys.executable, "-c", code], {"n": 4}, timeout_s=60)
    assert (ended.how, ended.result) == ("ended with exit code 1", None)
    assert ended.last_lines[-1] == "ZeroDivisionError: division by zero"


PARENT = """
import signal, sys
from pathlib import Path
import tests.test_child_process as here
signal.signal(signal.SIGINT, signal.default_int_handler)   # the starting shell may ignore it
signal.signal(signal.SIGTERM, signal.default_int_handler)  # as the command line does
try:
    here.run(Path(sys.argv[1]), here.FAMILY + "time.sleep(60)")
except KeyboardInterrupt:
    sys.exit(130)
"""


@pytest.fixture
def parent(tmp_path):
    """A process that runs a child with a child, both running and stubborn."""
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], start_new_session=True) as process:
        try:
            assert wait_until((tmp_path / "ready").exists)
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_all_at_once(tmp_path, parent, sent):
    start = time.monotonic()
    os.killpg(parent.pid, sent)
    assert parent.wait(timeout=10) == 130
    assert time.monotonic() - start < when_busy(1)
    assert is_gone(tmp_path, "pid", "grandchild")


def test_a_second_interrupt_leaves_nothing_either(tmp_path, parent):
    for _ in range(2):
        os.killpg(parent.pid, signal.SIGINT)
        time.sleep(0.002)
    assert parent.wait(timeout=10) in (130, 1, -signal.SIGINT)  # the second may strike on the way out
    assert is_gone(tmp_path, "pid", "grandchild")


def test_a_killed_parent_leaves_nothing(tmp_path, parent):
    """Neither the child nor its child asked the kernel for it, and the parent could do nothing."""
    parent.kill()
    parent.wait()
    assert is_gone(tmp_path, "pid", "grandchild")


def test_an_interrupt_while_a_child_starts_leaves_no_descriptor(tmp_path, monkeypatch):
    def interrupted(*arguments: object, **more: object) -> None:
        raise KeyboardInterrupt

    before = open_descriptors()
    monkeypatch.setattr(child_process.subprocess, "Popen", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, "pass", listen=lambda event: None)
    assert wait_until(lambda: open_descriptors() == before, 5)


def test_no_thread_or_descriptor_is_left(tmp_path):
    before = open_descriptors(), threading.active_count()
    for _ in range(3):
        run(tmp_path, "answer()", listen=lambda event: None)
    assert (open_descriptors(), threading.active_count()) == before


def test_a_child_may_be_ended_twice(tmp_path):
    with Child(command(tmp_path, "time.sleep(60)"), tmp_path / "log") as child:
        assert child.wait(Limits(0.05)) is not None
        assert child.end() == -signal.SIGKILL
    assert child.end() == -signal.SIGKILL


def test_a_shell_that_ignores_sigchld(tmp_path):
    """The kernel collects the child then, and its exit code is lost; the result is not."""
    code = (
        "import signal; from pathlib import Path; import tests.test_child_process as here; "
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN); "
        f"print(here.run(Path({str(tmp_path)!r}), 'answer(n=1)').result)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout == "{'n': 1}\n", done.stderr


def test_the_child_imports_the_parents_package_and_the_users_modules_first(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/users/own")
    ended = run(tmp_path, "answer(paths=os.environ['PYTHONPATH'].split(os.pathsep), parent=os.environ['TRTNORM_PARENT_PID'])")
    package_root = str(Path(child_process.__file__).resolve().parents[1])
    assert ended.result == {"paths": ["/users/own", package_root], "parent": str(os.getpid())}


def test_variables_are_added(tmp_path):
    ended = run(tmp_path, "answer(said=os.environ['SAID'], home=os.environ['PATH'])", environment={"SAID": "yes"})
    assert ended.result == {"said": "yes", "home": os.environ["PATH"]}


def test_only_this_module_starts_processes():
    """But for the driver's own tool, which is not a child of ours to follow: it answers at once. And a child may make a
    copy of itself."""
    package = Path(child_process.__file__).parent
    starts = ("subprocess.Popen(", "subprocess.run(", "subprocess.check_", "os.system(", "os.fork(")
    found = {str(path.relative_to(package)) for path in package.rglob("*.py") if any(s in path.read_text() for s in starts)}
    assert found == {"child_process.py", "tensorrt/doctor.py", "tensorrt/child/process_copy.py"}
