"""Which tests run where, and how long: slow ones on demand, and those that need an extra or a GPU where there is one."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

EXTRAS = {"batch": "distributed", "report": "vl_convert", "rtx": "tensorrt_rtx", "torch": "torch"}
# Ten seconds on two cores, in processor time: what else a machine does makes a test wait, not compute.
_QUICK_S = 20.0
# Their fixtures take longest: at the end of a run the other workers would have nothing left to do meanwhile.
_FIRST = ("test_samples.py", "test_torch_samples.py")
# On a busy machine any example may take long by the clock.
settings.register_profile("trtnorm", deadline=None)
settings.load_profile("trtnorm")


@pytest.fixture(autouse=True)
def wide_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests read what is said, not where lines are broken; those about the width set it themselves."""
    monkeypatch.setenv("COLUMNS", "160")


@pytest.fixture(autouse=True)
def described_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hold what commands print as JSON against the schema of its name, in every test that has it printed."""
    from trtnorm_cli.report import json_output

    printed = json_output.json_text

    def checked(name: str, values: dict[str, Any]) -> str:
        text = printed(name, values)
        if _has("jsonschema"):
            validator(name).validate(json.loads(text))
        return text

    monkeypatch.setattr(json_output, "json_text", checked)


@pytest.fixture(scope="session", autouse=True)
def shared_child() -> Iterator[None]:
    """One process of ONNX Runtime for all tests of this worker: to start it takes longer than most of them."""
    from trtnorm_cli.evaluate.ort_runner import one_child

    with one_child():
        yield


@pytest.fixture
def unshared_child() -> Iterator[None]:
    """Runners start a process each, and commands one, as they do outside tests."""
    from trtnorm_cli.evaluate.ort_runner import _PARKING

    token = _PARKING.set(None)
    try:
        yield
    finally:
        _PARKING.reset(token)


@cache
def validator(name: str) -> Any:
    """The validator of an output, by the schema that its records make."""
    import jsonschema

    from trtnorm_cli.report.json_schemas import schema_of

    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("trtnorm")
    group.addoption("--extras-required", action="store_true", help="fail instead of skipping where an extra is missing")
    group.addoption("--gpu-required", action="store_true", help="fail instead of skipping where there is no GPU")


def pytest_configure(config: pytest.Config) -> None:
    # A shell starts what runs in the background with interrupts ignored, and so would be every program that a test starts.
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    missing = [extra for extra, module in EXTRAS.items() if not _has(module)]
    if missing and config.getoption("--extras-required"):
        raise pytest.UsageError(f"not installed: pip install -e '.[{','.join(missing)}]'")
    if config.getoption("--gpu-required") and not _has_gpu():
        raise pytest.UsageError("there is no NVIDIA GPU with a working driver here")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reasons = {extra: f"{module} is not installed" for extra, module in EXTRAS.items() if not _has(module)}
    if os.environ.get("SLOW") != "1":
        reasons["slow"] = "slow; run with SLOW=1 or `make test-slow`"
    if not _has_gpu():
        reasons["gpu"] = "there is no NVIDIA GPU here"
    items.sort(key=lambda item: item.path.name not in _FIRST)
    for item in items:
        for marker, reason in reasons.items():
            if item.get_closest_marker(marker):
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Fail a test that takes long and is not marked so, with its processes."""
    before = _processor_seconds()
    yield
    used = _processor_seconds() - before
    if used > _QUICK_S and not item.get_closest_marker("slow"):
        pytest.fail(f"took {used:.0f} s of processor time: make it cheaper, or mark it slow", pytrace=False)


def _processor_seconds() -> float:
    """Of this process and its children, also of those that run on: one may serve many tests."""
    own, ended = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime + ended.ru_utime + ended.ru_stime + _seconds_of_running_children()


def _seconds_of_running_children() -> float:
    """0 where Linux does not tell."""
    threads = _LISTDIR("/proc/self/task") if Path("/proc/self/task").is_dir() else []
    pids = [pid for thread in threads for pid in _content(f"/proc/self/task/{thread}/children").split()]
    fields = [_content(f"/proc/{pid}/stat").rpartition(")")[2].split()[11:15] for pid in pids]
    return sum(int(ticks) for of_one in fields for ticks in of_one) / os.sysconf("SC_CLK_TCK")


# Tests put others in their places, and are still at work when their time is asked for.
_LISTDIR, _OPEN, _READ, _CLOSE = os.listdir, os.open, os.read, os.close


def _content(file: str) -> str:
    """Empty for a file that is gone."""
    with suppress(OSError):
        descriptor = _OPEN(file, os.O_RDONLY)
        try:
            return _READ(descriptor, 1 << 16).decode()
        finally:
            _CLOSE(descriptor)
    return ""


def _has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _has_gpu() -> bool:
    """True where the CUDA driver starts and knows a device."""
    count = ctypes.c_int(0)
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0
