"""A backend whose process dies, hangs, or prints rubbish while it is examined."""

from __future__ import annotations

import sys

import pytest

from trtnorm_cli.tensorrt import doctor
from trtnorm_cli.tensorrt.backend import SPECS

NOISE = (
    "import sys; from pathlib import Path; print('TensorRT prints to standard output'); "
    "Path(sys.argv[1], 'result.json').write_text('{\"installed\": false, \"can_build\": false}')"
)


@pytest.mark.parametrize(("script", "installed", "reason"), [
    ("import os; os.abort()", True, "its process was ended by SIGABRT"),
    ("raise SystemExit(3)", True, "its process ended with exit code 3"),
    ("import time; time.sleep(60)", True, "no answer within 0.5 s"),
    (NOISE, False, None),
])  # fmt: skip
def test_a_backend_is_examined_in_a_process_of_its_own(monkeypatch, script, installed, reason):
    monkeypatch.setattr(doctor, "_PROBE_TIMEOUT_S", 0.5 if "sleep" in script else 60)
    monkeypatch.setattr(doctor, "PROBE", (sys.executable, "-c", script))
    found = doctor._backend(SPECS[0])
    assert (found["installed"], found["can_build"], found.get("reason")) == (installed, False, reason)
