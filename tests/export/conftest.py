"""Exports without the seconds that PyTorch takes to be imported."""

from __future__ import annotations

import os
import socket
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from trtnorm_cli.child_process import Child
from trtnorm_cli.export import export_model, inspecting, module_session
from trtnorm_cli.export.launch import launch

SCRIPT = Path(__file__).with_name("warm_worker.py")
LONGEST_START_S = 240


@pytest.fixture(scope="session")
def warm_worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    """The command of an export process that has PyTorch in memory."""
    pytest.importorskip("torch")
    name, log = f"trtnorm-warm-{os.getpid()}", tmp_path_factory.mktemp("warm") / "log"
    with Child([sys.executable, str(SCRIPT), name], log, environment={"PYTHONPATH": os.pathsep.join(sys.path)}):
        latest = time.monotonic() + LONGEST_START_S
        while not answers(name):
            assert time.monotonic() < latest, log.read_text()
            time.sleep(0.05)
        # Who asks needs nothing but the interpreter.
        yield (sys.executable, "-S", "-E", str(SCRIPT), name)


def answers(name: str) -> bool:
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect("\0" + name)
        except ConnectionRefusedError:
            return False
    return True


@pytest.fixture
def warm_exports(warm_worker: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each export be a fork of a process that has PyTorch in memory."""
    for module in (export_model, inspecting, module_session):
        monkeypatch.setattr(module, "launch", partial(launch, worker=warm_worker))
