"""Examine the machine: versions, backends, GPU and driver, and which of them do not go together."""

from __future__ import annotations

import json
import platform
import shutil
import subprocess
import sys
from importlib import metadata
from typing import Any

from trtnorm_cli import __version__
from trtnorm_cli.build.backend import SPECS, BackendSpec

_PACKAGES = ("onnx", "onnx-graphsurgeon", "onnxruntime", "onnxscript", "polygraphy", "numpy", "torch", "safetensors")
_PROBE_TIMEOUT_S = 120
# Compute capabilities that TensorRT for RTX compiles for (measured on 1.7): Turing to Blackwell without Hopper.
RTX_CAPABILITIES = ("7.5", "8.0", "8.6", "8.9", "12.0", "12.1")


def examine() -> dict[str, Any]:
    """Everything that ``trtnorm doctor`` reports, as JSON values."""
    gpus = _gpus()
    backends = [_backend(spec) for spec in SPECS]
    return {
        "trtnorm": __version__,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: _version(name) for name in _PACKAGES},
        "gpus": gpus,
        "backends": backends,
        "problems": _problems(gpus, backends),
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _gpus() -> list[dict[str, str]]:
    """The NVIDIA GPUs that the driver's own tool lists; empty without a driver."""
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
    """Import the backend and build a one-layer engine with it, in a process of its own: native code may abort."""
    command = [sys.executable, "-m", "trtnorm_cli.build.probe", spec.name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PROBE_TIMEOUT_S, check=False)
        answer: dict[str, Any] = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        answer = {"installed": True, "can_build": False, "reason": f"no answer within {_PROBE_TIMEOUT_S} s"}
    except json.JSONDecodeError:
        answer = {"installed": True, "can_build": False, "reason": f"its process ended with exit code {done.returncode}"}
    return {"name": spec.name, "install": spec.install, "needs": spec.needs, **answer}


def _problems(gpus: list[dict[str, str]], backends: list[dict[str, Any]]) -> list[str]:
    """What will go wrong on this machine, and what to do about it."""
    found = []
    if not any(backend["installed"] for backend in backends):
        found.append("no TensorRT is installed: " + " or ".join(backend["install"] for backend in backends))
    for backend in backends:
        if backend["installed"] and not backend["can_build"]:
            found.append(f"{backend['name']} is installed but cannot build: {backend['reason']}")
    if not gpus:
        found.append("there is no NVIDIA GPU (or no driver): engines can be built with tensorrt-rtx, but not loaded or run")
    for gpu in gpus:
        if gpu["compute_cap"] not in RTX_CAPABILITIES:
            found.append(
                f"{gpu['name']} has compute capability {gpu['compute_cap']}, for which tensorrt-rtx does not compile; "
                "use the backend tensorrt there"
            )
    return found
