"""The cost of real engines: dynamic sizes give what a static build gives."""

from __future__ import annotations

import json
import re
from pathlib import Path

import onnx
import pytest

from tests.models import parse, random
from trtnorm_cli.cli import run
from trtnorm_cli.cost.device import DEVICES
from trtnorm_cli.engine_cost.engine import engine_cost
from trtnorm_cli.records.cost import EngineCostRecord
from trtnorm_cli.records.engine_parts import Kernel, KernelTensor, UnreadKernel

NET = """
g (float[{sizes}] x) => (float[{batch}, 10] y)
{{
  [conv] c = Conv <strides=[2,2], pads=[1,1,1,1]> (x, w)
  [norm] n = InstanceNormalization (c, s, b)
  [relu] r = Relu (n)
  [mean] m = ReduceMean <keepdims=0, axes=[2, 3]> (r)
  [fc] y = Gemm <transB=1> (m, f)
}}
"""
WEIGHTS = {"w": random(16, 3, 3, 3), "s": random(16), "b": random(16), "f": random(10, 16)}


def built(name: str, text: str, profile: str, capsys: pytest.CaptureFixture[str]) -> EngineCostRecord:
    onnx.save(parse(text, WEIGHTS), f"{name}.onnx")
    Path(f"{name}.yaml").write_text(profile + "optimize: never\n")
    assert run(["build", f"{name}.onnx", "-p", f"{name}.yaml", "--no-compare", "--json"]) == 0
    return EngineCostRecord.load(json.loads(capsys.readouterr().out)["cost"])


@pytest.mark.rtx
def test_open_sizes_cost_what_they_cost_when_they_are_fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    fixed = built("fixed", NET.format(sizes="2,3,64,48", batch=2), "", capsys)
    dims = "dims: {N: {min: 1, opt: 2, max: 4}, H: {min: 32, opt: 64, max: 96}, W: {min: 32, opt: 48, max: 96}}\n"
    open_sizes = built("open", NET.format(sizes="N,3,H,W", batch="N"), dims, capsys)
    assert open_sizes.total.unsized == 0
    assert open_sizes.total.bytes == pytest.approx(fixed.total.bytes, rel=0.25)
    (conv,) = [one for one in open_sizes.kernels if one.name.startswith("conv_myl")]
    assert (conv.written, conv.operations) == (2 * 16 * 32 * 24 * 4, 2 * 2 * 16 * 32 * 24 * 27)
    assert conv.read >= 2 * 3 * 64 * 48 * 4 + 16 * 27 * 4


@pytest.mark.rtx
def test_nodes_without_names_cost_what_they_cost_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """TensorRT's parser gives them names, by which kernels list them."""
    monkeypatch.chdir(tmp_path)
    named = NET.format(sizes="2,3,64,48", batch=2)
    unnamed = re.sub(r"\[\w+\]", "", named)
    costs = [built(name, text, "", capsys) for name, text in (("named", named), ("unnamed", unnamed))]
    assert costs[0].total == costs[1].total
    assert sum(one.operations for one in costs[1].kernels) == sum(one.operations for one in costs[0].kernels) > 0


@pytest.mark.rtx
def test_few_long_rows_are_split_and_do_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "g (float[1,16,1024,1024] x) => (float[1,16,1024,1024] y) { [n] y = InstanceNormalization (x, s, b) }"
    cost = built("rows", text, "device: h200\n", capsys)
    assert cost.device == "h200"
    assert {one.bound for one in cost.kernels} <= {"memory", "launch"}
    at_best = cost.total.bytes / DEVICES["h200"].bandwidth * 1e6
    assert at_best < cost.total.us < 2 * at_best


def test_a_kernel_that_cannot_be_read_costs_its_launch_and_profiles_are_averaged() -> None:
    model = parse("g (float[N,4] x) => (float[N,4] y) { [r] y = Relu (x) }")
    tensors = [KernelTensor(name, (-1, 4), "Float", "Linear") for name in ("x", "y")]
    kernel = Kernel("__myl_Relu_myl0_1", "runtime_fusion", "", (tensors[0],), (tensors[1],), ("r",))
    kernels = (Kernel("s", "shape_call", "", (), (), ()), kernel, UnreadKernel("Name: odd, LayerType: odder"))
    device = DEVICES["rtx-3060"]
    cost = engine_cost(kernels, model, {"small": {"N": 1}, "large": {"N": 3_000_000}}, device)
    assert [one.name for one in cost.kernels] == ["__myl_Relu_myl0_1", "Name: odd"]
    assert (cost.kernels[0].read, cost.kernels[0].written, cost.kernels[1].us) == (16, 16, device.launch * 1e6)
    assert (cost.total.launches, cost.total.compiled_on_device) == (2, 1)
    assert cost.profiles["large"].bytes == 3_000_000 * 32
    small, large = cost.profiles["small"].us, cost.profiles["large"].us
    assert cost.total.us == pytest.approx((small + large) / 2, abs=0.01)
    sizes = {"small": {"N": 1}, "large": {"N": 3_000_000}}
    often_small = engine_cost(kernels, model, sizes, device, weights=(9, 1))
    assert often_small.total.us == pytest.approx(0.9 * small + 0.1 * large, abs=0.01)
    assert (often_small.shares, [len(one) for one in often_small.every_kernel]) == ((0.9, 0.1), [2, 2])
