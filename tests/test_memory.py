"""What a rewriting costs in memory: what it changes, not what it leaves alone."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import onnx
import pytest
from onnx import TensorProto

from tests.models import batchnorm, parse, random, saved

COUNT, MEGABYTES = 40, 160
REWRITE = """
import sys
from trtnorm_cli import rewrite
rewrite(sys.argv[1], sys.argv[2], in_memory=False)
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
print(*(line.split()[1] for line in open("/proc/self/io") if line.startswith(("rchar", "wchar"))))
"""

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak is read from Linux's /proc")


def weights_that_stay(path: Path, side: int = 1000) -> Path:
    """A model with nothing to change, of 160 MB; its weights are a hole in the file."""
    nodes = " ".join(f"t{i + 1} = MatMul(t{i}, w{i})" for i in range(COUNT))
    source = parse(f"g (float[N, {side}] t0) => (float[N, {side}] t{COUNT}) {{ {nodes} }}")
    for i in range(COUNT):
        tensor = source.graph.initializer.add(name=f"w{i}", data_type=TensorProto.FLOAT, dims=[side, side])
        tensor.data_location = TensorProto.EXTERNAL
        entries = {"location": f"{path.name}.data", "offset": i * side * side * 4, "length": side * side * 4}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=str(value))
    with path.with_name(f"{path.name}.data").open("wb") as stream:
        stream.truncate(COUNT * side * side * 4)
    return saved(source, path)


class Cost(NamedTuple):
    """Megabytes of memory at most, and of what was read and written."""

    peak: int
    read: int
    written: int


def cost(model: Path, target: Path) -> Cost:
    """What rewriting ``model`` takes."""
    done = subprocess.run(
        [sys.executable, "-c", REWRITE, str(model), str(target)], capture_output=True, text=True, check=True, timeout=120
    )
    peak, read, written = map(int, done.stdout.split()[-3:])
    return Cost(peak >> 10, read >> 20, written >> 20)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Cost:
    """What the same model takes with weights of 4 bytes."""
    folder = tmp_path_factory.mktemp("small")
    return cost(weights_that_stay(folder / "m.onnx", 1), folder / "out.onnx")


@pytest.mark.parametrize("within", [False, True], ids=["external", "internal"])
def test_weights_that_stay_are_never_in_memory(tmp_path, small, within):
    path = weights_that_stay(tmp_path / "m.onnx")
    if within:
        path = saved(onnx.load(str(path)), tmp_path / "within.onnx")
    found = cost(path, tmp_path / "out.onnx")
    assert found.peak < small.peak + 40
    assert found.read < small.read + 1.1 * MEGABYTES  # once
    assert found.written < small.written + 1.1 * MEGABYTES
    written = onnx.load(str(tmp_path / "out.onnx"), load_external_data=False)
    assert len(written.graph.initializer) == COUNT


def weights_that_change(path: Path, channels: int = 1024) -> Path:
    """Convolutions of 1 × 1 with a BatchNormalization each, 60 MB of weights."""
    count, inits = 15, {}
    nodes = " ".join(
        f"c{i} = Conv(r{i}, w{i}) r{i + 1} = BatchNormalization(c{i}, s{i}, b{i}, m{i}, v{i})" for i in range(count)
    )
    for i in range(count):
        inits[f"w{i}"] = random(channels, channels, 1, 1)
        inits |= {f"{name}{i}": value for name, value in zip("sbmv", batchnorm(channels).values(), strict=True)}
    graph = f"g (float[N, {channels}, 2, 2] r0) => (float[N, {channels}, 2, 2] r{count}) {{ {nodes} }}"
    return saved(parse(graph, inits), path)


def test_weights_that_change_are_in_memory_one_at_a_time(tmp_path, small):
    assert cost(weights_that_change(tmp_path / "m.onnx"), tmp_path / "out.onnx").peak < small.peak + 130
    written = onnx.load(str(tmp_path / "out.onnx"), load_external_data=False)
    assert {node.op_type for node in written.graph.node} == {"Conv"}


def weights_that_are_computed(path: Path, size: int = 1024) -> Path:
    """Products with transposed weights, 60 MB of them, as exporters write that fold nothing."""
    count = 15
    nodes = " ".join(f"t{i} = Transpose(w{i}) r{i + 1} = MatMul(r{i}, t{i})" for i in range(count))
    graph = f"g (float[N, {size}] r0) => (float[N, {size}] r{count}) {{ {nodes} }}"
    return saved(parse(graph, {f"w{i}": random(size, size) for i in range(count)}), path)


def test_weights_that_are_computed_are_in_memory_one_at_a_time(tmp_path, small):
    assert cost(weights_that_are_computed(tmp_path / "m.onnx"), tmp_path / "out.onnx").peak < small.peak + 60
    written = onnx.load(str(tmp_path / "out.onnx"), load_external_data=False)
    assert {node.op_type for node in written.graph.node} == {"MatMul"}
