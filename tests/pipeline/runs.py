"""A small model that TensorRT takes, one that it refuses, and runs of ``trtnorm build`` on them."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import pytest

import trtnorm_cli
from tests.models import batchnorm, parse, random
from trtnorm_cli import build_job
from trtnorm_cli.cli import run
from trtnorm_cli.evaluate.ort_runner import _PARKING
from trtnorm_cli.tensorrt.launch import launch

GRAPH = (
    "g (float[N, 2, 9, 9] x) => (float[N, 4, 5, 5] y) {{ [conv1] c = Conv(x, w) [bn1] n = BatchNormalization"
    "(c, gamma, beta, mu, var) [relu1] r = Relu(n) [conv2] y = {last} }}"
)
PROFILE = "optimization_profiles:\n  - inputs:\n      x: {min: [1, 2, 9, 9], opt: [2, 2, 9, 9], max: [4, 2, 9, 9]}\n"


def model(last: str = "Conv(r, v)") -> onnx.ModelProto:
    weights = {"w": random(4, 2, 3, 3), "v": random(4, 4, 3, 3), **batchnorm(4)}
    return parse(GRAPH.format(last=last), weights)


def build(*arguments: str) -> int:
    """The exit code of a build in the working directory."""
    return run(["build", *arguments, "--profile", "cfg.yaml"])


def environment(**more: str) -> dict[str, str]:
    """What a program needs to find this package from another folder."""
    return {**os.environ, "PYTHONPATH": str(Path(trtnorm_cli.__file__).parents[1]), **more}


def left_in_temp(work: Path) -> list[str]:
    """What is among temporary files, but for the folder of the process that the next test takes (``shared_child``)."""
    parking = _PARKING.get()
    parked = None if parking is None or parking._parked is None else parking._parked[1].path
    return sorted(path.name for path in (work.parent / "temp").iterdir() if path != parked)


def hidden(work: Path) -> list[str]:
    """What is written on the way to an engine begins with a dot."""
    return [path.name for path in work.iterdir() if path.name.startswith(".")]


def manifest_of(path: Path) -> dict[str, Any]:
    manifest: dict[str, Any] = json.loads(path.with_name(path.name + ".json").read_text())
    return manifest


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def build_process(monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    """Let ``body`` run in place of TensorRT, with ``folder`` for the folder of the request."""
    prelude = "import os, signal, sys, time; from pathlib import Path; folder = Path(sys.argv[1]); "
    monkeypatch.setattr(build_job, "launch", partial(launch, worker=(sys.executable, "-c", prelude + body)))
    monkeypatch.setattr("trtnorm_cli.tensorrt.backend.require_backend", lambda name: None)
