"""What the tests themselves rest on: they run from any shell, and long ones are marked."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


def test_interrupts_reach_what_a_test_starts_also_from_a_shell_that_ignores_them(tmp_path):
    code = (
        "import os, signal, subprocess, sys\n"
        "def test_it():\n"
        "    child = 'import os, signal; os.kill(os.getpid(), signal.SIGINT)'\n"
        "    assert subprocess.run([sys.executable, '-c', child], stderr=subprocess.DEVNULL).returncode == -signal.SIGINT\n"
    )
    done = nested(tmp_path, code, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN))
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("mark", "code"), [("", 1), ("@pytest.mark.slow\n", 0)], ids=["unmarked", "slow"])
def test_a_long_test_is_marked_slow(tmp_path, mark, code):
    text = (
        "import subprocess, sys, time\nimport pytest\nimport tests.conftest\ntests.conftest._QUICK_S = 0.2\n"
        f"{mark}def test_it():\n"
        "    busy = 'import time\\nwhile time.process_time() < 0.4: pass'\n"
        "    subprocess.run([sys.executable, '-c', busy], check=True)\n"
    )
    done = nested(tmp_path, text)
    assert (done.returncode, "mark it slow" in done.stdout) == (code, bool(code)), done.stdout


def test_a_process_that_serves_many_tests_counts_for_the_one_that_it_works_for(tmp_path):
    """It counted for the test that ended it."""
    work = "end = time.process_time() + 0.4\n    while time.process_time() < end: pass\n    print(flush=True)"
    busy = f"import sys, time\nfor line in sys.stdin:\n    {work}"
    text = (
        "import subprocess, sys\nimport tests.conftest\ntests.conftest._QUICK_S = 0.3\n"
        f"child = subprocess.Popen([sys.executable, '-c', {busy!r}], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n"
        "def test_works():\n    child.stdin.write(b'go\\n'); child.stdin.flush(); child.stdout.readline()\n"
        "def test_ends():\n    child.kill(); child.wait()\n"
    )
    done = nested(tmp_path, text)
    assert "test_works - " in done.stdout, done.stdout
    assert "1 failed, 1 passed" in done.stdout, done.stdout


def nested(folder: Path, text: str, **options) -> subprocess.CompletedProcess[str]:
    """A run of its own, of the tests in ``text``, under the same rules as these."""
    (folder / "test_nested.py").write_text(text)
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = slow: as in the project\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tests.conftest", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "SLOW": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=folder, **options)
