"""Examine the machine for versions, backends, GPU and driver, and tell which of them do not go together."""

from __future__ import annotations

import platform
import shutil
import subprocess
from dataclasses import field
from importlib import metadata
from typing import Any

from trtnorm_cli import __version__
from trtnorm_cli.child_process import ask_child, module_command
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import LEFT_OUT_BY_DEFAULT, Record
from trtnorm_cli.tensorrt.backend import SPECS, BackendSpec
from trtnorm_cli.tensorrt.gpu import driver_cuda
from trtnorm_cli.tensorrt.installation import incompatibilities, wheels_of
from trtnorm_cli.tensorrt.settings import SETTINGS

_PACKAGES = ("onnx", "onnx-graphsurgeon", "onnxruntime", "onnxscript", "polygraphy", "numpy", "torch", "safetensors")


@dataclass(frozen=True)
class BackendFindings(Record):
    """The findings about one package of TensorRT: how to install it, and whether it builds here, or why not."""

    name: str
    install: str
    needs: str
    wheels: dict[str, str]
    lacks: tuple[str, ...]
    installed: bool
    can_build: bool
    version: str | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
    strongly_typed_only: bool | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
    targets: tuple[str, ...] | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
    capabilities: tuple[str, ...] | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)
    reason: str | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)


@dataclass(frozen=True)
class Findings(Record):
    """Everything that ``trtnorm doctor`` reports. ``gpus`` are described in the words of the driver's own tool."""

    trtnorm: str
    python: str
    platform: str
    packages: dict[str, str | None]
    gpus: tuple[dict[str, str], ...]
    driver_cuda: str | None
    backends: tuple[BackendFindings, ...]
    problems: tuple[str, ...]


PROBE = module_command("trtnorm_cli.tensorrt.child.probe")
_PROBE_TIMEOUT_S = 120


def examine() -> dict[str, Any]:
    """Everything that ``trtnorm doctor`` reports, as JSON values."""
    gpus, driver = _gpus(), driver_cuda()
    backends = [_backend(spec) for spec in SPECS]
    return {
        "trtnorm": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "gpus": gpus,
        "driver_cuda": None if driver is None else f"{driver[0]}.{driver[1]}",
        "backends": backends,
        "problems": [*_problems(backends), *incompatibilities(backends, gpus, driver)],
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _gpus() -> list[dict[str, str]]:
    """The NVIDIA GPUs that the driver's own tool lists. There are none without a driver."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    fields = "name,compute_cap,driver_version,memory.total"
    command = [tool, f"--query-gpu={fields}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return []
    if done.returncode != 0:
        return []
    return [dict(zip(fields.split(","), map(str.strip, line.split(",")), strict=False)) for line in done.stdout.splitlines()]


def _backend(spec: BackendSpec) -> dict[str, Any]:
    """Import the backend and build a one-layer engine with it, in a process of its own because native code may abort."""
    ended = ask_child(PROBE, {"backend": spec.name}, _PROBE_TIMEOUT_S)
    reason = f"its process {ended.how}" if ended.excess is None else f"no answer within {_PROBE_TIMEOUT_S} s"
    answer = ended.result or {"installed": True, "can_build": False, "reason": reason}
    wheels = wheels_of(spec)
    lacks = _settings_that_it_lacks(answer) if answer.get("capabilities") is not None else []
    return {"name": spec.name, "install": spec.install, "needs": spec.needs, "wheels": wheels, "lacks": lacks, **answer}


def _settings_that_it_lacks(answer: dict[str, Any]) -> list[str]:
    """The keys of ``builder:`` that are an error, or have no effect, with this backend."""
    return [row.key for row in SETTINGS if row.needs and row.needs not in answer["capabilities"]]


def _problems(backends: list[dict[str, Any]]) -> list[str]:
    """Backends that are missing, or there and of no use."""
    found = []
    if not any(backend["installed"] for backend in backends):
        found.append("no TensorRT is installed: " + " or ".join(backend["install"] for backend in backends))
    for backend in backends:
        if backend["installed"] and not backend["can_build"]:
            found.append(f"{backend['name']} is installed but cannot build: {backend['reason']}")
    return found
