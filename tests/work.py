"""Work counted: seconds depend on the machine, and what grows faster than the model shows in counts too."""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import onnx
import onnx.shape_inference
import pytest

from tests.models import batchnorm, parse, random
from trtnorm_cli import child_process
from trtnorm_cli.evaluate.float64.kernels import KERNELS
from trtnorm_cli.evaluate.ort_runner import OrtRunner

CHANNELS = 8


def when_busy(seconds: float) -> float:
    """``seconds`` where each process that works has a core of its own, by the clock of this machine as it is now."""
    return seconds * max(1.0, os.getloadavg()[0] / len(os.sched_getaffinity(0)))


def convolutions(links: int) -> onnx.ModelProto:
    """``links`` times Conv, BatchNormalization and Relu, each with weights of its own and of one size."""
    nodes = " ".join(
        f"[conv{i}] c{i} = Conv <pads=[1, 1, 1, 1]> (r{i}, w{i}) "
        f"[bn{i}] n{i} = BatchNormalization(c{i}, gamma{i}, beta{i}, mu{i}, var{i}) [relu{i}] r{i + 1} = Relu(n{i})"
        for i in range(links)
    )
    weights = {f"w{i}": random(CHANNELS, CHANNELS, 3, 3, seed=i) for i in range(links)}
    for i in range(links):
        weights.update(batchnorm(CHANNELS, seed=i, suffix=str(i)))
    sizes = f"N, {CHANNELS}, 16, 16"
    return parse(f"g (float[{sizes}] r0) => (float[{sizes}] r{links}) {{ {nodes} }}", weights)


def counted(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Shape inferences of graphs of ten nodes and more, sessions of ONNX Runtime, and Conv and MatMul in float64."""
    count: Counter[str] = Counter()
    infer, close = onnx.shape_inference.infer_shapes, OrtRunner.close

    def inferred(model: onnx.ModelProto, *rest: object, **more: object) -> onnx.ModelProto:
        count["whole-graph inferences"] += len(model.graph.node) >= 10
        return infer(model, *rest, **more)

    def closed(runner: OrtRunner) -> None:
        count["sessions"] += 0 if runner._closed else runner.sessions
        close(runner)

    monkeypatch.setattr(onnx.shape_inference, "infer_shapes", inferred)
    monkeypatch.setattr(OrtRunner, "close", closed)
    for operator in ("Conv", "MatMul"):
        _count_products(operator, count, monkeypatch)
    return count


def _count_products(operator: str, count: Counter[str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = KERNELS[operator]

    def kernel(call):
        count["products in float64"] += 1
        count["numbers in float64"] += sum(np.size(value) for value in call.inputs if value is not None)
        return real(call)

    monkeypatch.setitem(KERNELS, operator, kernel)


def count_processes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The child processes that are started, by the last two parts of their module's name."""
    count: Counter[str] = Counter()
    real = child_process.Child.__init__

    def start(self, command, *arguments, **options):
        module = next((part for part in command if part.startswith("trtnorm_cli.")), command[0])
        count[".".join(module.split(".")[-2:])] += 1
        real(self, command, *arguments, **options)

    monkeypatch.setattr(child_process.Child, "__init__", start)
    return count


def within(found: Counter[str], limits: dict[str, int]) -> bool:
    """Whether nothing was done more often than ``limits`` say; what they do not name was not done at all."""
    above = {what: number for what, number in found.items() if number > limits.get(what, 0)}
    assert not above, f"more than {limits}"
    return True
