"""The limits that every command has: memory, its children's too, and the nodes of a model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.models import parse, saved
from trtnorm_cli import limits
from trtnorm_cli.errors import UsageProblem

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux limits what is written to")
GREEDY = """
import sys
import numpy as np
import trtnorm_cli.rewrite.describe as describe
describe.describe_model = lambda *arguments: np.ones(1 << 28)
from trtnorm_cli.cli import main
main(["inspect", sys.argv[1], *sys.argv[2:]])
"""
CHILDREN = """
import sys, tempfile
from pathlib import Path
from trtnorm_cli import limits
from trtnorm_cli.child_process import Limits, run_child, exceeded
from trtnorm_cli.evaluate.ort_runner import OrtRunner
limits.limit_memory(3 << 30)
asked = ["-c", "import resource; print(resource.getrlimit(resource.RLIMIT_DATA)[0])"]
print(run_child([sys.executable, *asked], Path(tempfile.mkdtemp())).last_lines[-1])
with OrtRunner() as runner:
    runner.start()
    lines = Path(f"/proc/{runner._child._process.pid}/limits").read_text().splitlines()
    print(next(line.split()[3] for line in lines if line.startswith("Max data size")))
"""


@pytest.fixture
def model(tmp_path) -> Path:
    return saved(parse("g (float[1, 4] x) => (float[1, 4] y) { y = Relu(x) }"), tmp_path / "m.onnx")


def python(program: str, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program, *map(str, arguments)], capture_output=True, text=True, timeout=120)


@linux
def test_a_command_that_needs_more_memory_than_it_may_have(model):
    done = python(GREEDY, model, "--memory", "1GiB")
    assert done.returncode == 6
    assert done.stderr.startswith("error: Unable to allocate 2.00 GiB")
    assert "the command needs more memory than 1.0 GiB" in done.stderr
    assert "allow more with --memory SIZE" in done.stderr
    assert "Traceback" not in done.stderr


@linux
def test_onnx_runtime_has_the_limit_and_builders_are_watched_instead():
    done = python(CHILDREN)
    assert done.stdout.split() == ["-1", str(3 << 30)], done.stderr


def test_a_library_leaves_the_process_of_its_user_alone():
    limits.change_limit(1 << 30)
    assert limits.memory_limit() is None


def files(folder: Path, most: str, used: int, cached: int) -> None:
    (folder / "memory.max").write_text(most)
    (folder / "memory.current").write_text(str(used))
    (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\nactive_file 0\n")


def test_what_a_container_may_have_is_what_there_is(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "_CGROUP", tmp_path)
    free = limits.available_memory()
    files(tmp_path, "max", 0, 0)
    assert limits.available_memory() > free // 2
    files(tmp_path, str(100 << 20), 70 << 20, 50 << 20)
    assert limits.available_memory() == 80 << 20  # cached files can go


def test_more_nodes_can_be_allowed(monkeypatch):
    monkeypatch.setenv(limits.NODES_VARIABLE, "7")
    assert limits.most_nodes() == 7
    monkeypatch.setenv(limits.NODES_VARIABLE, "many")
    with pytest.raises(UsageProblem):
        limits.most_nodes()
