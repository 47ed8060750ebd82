"""Real builds with TensorRT for RTX, which needs no GPU."""

from __future__ import annotations

import hashlib
import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.models import batchnorm, parse, random
from tests.tensorrt.builds import built
from trtnorm_cli.records.engine_parts import Binding, BindingRange, NetworkTensor, UnreadKernel
from trtnorm_cli.tensorrt.child.describe import describe_tensor
from trtnorm_cli.tensorrt.child.process_copy import Copy
from trtnorm_cli.tensorrt.child.worker import Build, Refused
from trtnorm_cli.tensorrt.request import NETWORK_RESULT_FILE

pytestmark = pytest.mark.rtx
BN = "y = BatchNormalization(c, gamma, beta, mu, var)"


def conv_bn(x: str = "2, 2, 7, 7", y: str = "2, 4, 5, 5"):
    graph = f"g (float[{x}] x) => (float[{y}] y) {{ [conv] c = Conv(x, w) [bn] {BN} }}"
    return parse(graph, {"w": random(4, 2, 3, 3), **batchnorm(4)})


def test_a_build_from_request_to_result(tmp_path):
    events = []
    result = built(conv_bn(), tmp_path, on_event=events.append)
    assert result.ok
    assert (result.stage, result.backend) == ("done", "tensorrt-rtx")
    assert result.version.count(".") >= 2
    assert result.errors == ()
    assert result.inputs == (NetworkTensor("x", "FLOAT", (2, 2, 7, 7)),)
    assert result.outputs == (NetworkTensor("y", "FLOAT", (2, 4, 5, 5)),)
    assert [(layer.name, layer.type) for layer in result.layers] == [("conv", "CONVOLUTION"), ("bn", "SCALE")]
    assert result.layers[0].outputs[0].shape == (2, 4, 5, 5)
    assert {"conv", "bn"} == {node for kernel in result.kernels for node in kernel.onnx_nodes}
    assert not any(isinstance(kernel, UnreadKernel) for kernel in result.kernels)
    engine = (tmp_path / "out.engine").read_bytes()
    assert len(engine) == result.engine_bytes > 1000
    assert engine[1:4] == b"trt"
    assert set(result.seconds) == {"parse", "build"}


def test_progress_is_reported_as_it_happens(tmp_path):
    events = []
    built(conv_bn(), tmp_path, on_event=events.append)
    assert [e["stage"] for e in events if e["event"] == "stage"] == ["load", "parse", "build"]
    phases = [e["phase"] for e in events if e["event"] == "phase"]
    assert phases
    assert sorted(phases) == sorted(e["phase"] for e in events if e["event"] == "finish")
    steps = {e["phase"]: e["steps"] for e in events if e["event"] == "phase"}
    assert all(e["step"] < steps[e["phase"]] for e in events if e["event"] == "step")


def test_the_same_model_gives_the_same_bytes(tmp_path):
    digests = set()
    for name in "ab":
        (tmp_path / name).mkdir()
        built(conv_bn(), tmp_path / name)
        digests.add(hashlib.sha256((tmp_path / name / "out.engine").read_bytes()).hexdigest())
    assert len(digests) == 1


def test_dynamic_shapes_and_two_profiles(tmp_path):
    shapes = [((n, 2, 7, 7), (n, 2, 9, 9), (2 * n, 2, 16, 16)) for n in (1, 4)]
    result = built(conv_bn("N, 2, H, W", "N, 4, ?, ?"), tmp_path, tuple({"x": s} for s in shapes))
    assert result.ok
    assert result.inputs[0].shape == (-1, 2, -1, -1)
    log = (tmp_path / "build.log").read_text()
    assert "MinShape: [4,2,7,7], OptShape: [4,2,9,9], MaxShape: [8,2,16,16]" in log


def test_a_bad_second_profile_is_not_dropped(tmp_path):
    """TensorRT goes on without it and reports success."""
    good, bad = ((1, 2, 7, 7),) * 3, ((4, 2, 7, 7), (1, 2, 7, 7), (8, 2, 7, 7))
    result = built(conv_bn("N, 2, 7, 7", "N, 4, 5, 5"), tmp_path, ({"x": good}, {"x": bad}))
    assert (result.ok, result.stage) == (False, "profile")
    assert "Invalid optimization profiles for input tensors x" in result.errors[0].text
    assert not (tmp_path / "out.engine").exists()


@pytest.mark.parametrize(("wanted", "compiled", "reason"), [
    (2, 2, None), (2, 1, "the engine has 1 optimization profiles for x, not 2"), (0, 1, None),
])  # fmt: skip
def test_an_engine_has_every_profile_that_was_asked_for(wanted, compiled, reason):
    """TensorRT goes on without one that it finds wrong only while it builds."""
    binding = Binding("x", "input", "FLOAT", (-1,), "device", (BindingRange(),) * compiled)
    build = SimpleNamespace(request=SimpleNamespace(profiles=({},) * wanted), log=SimpleNamespace(bindings=(binding,)))
    try:
        Build._require_all_profiles(build)
        said = None
    except Refused as refused:
        said = refused.messages[0].text
    assert said == reason


@pytest.mark.parametrize(("shapes", "reason"), [
    (((1, 2, 7), (1, 2, 7), (1, 2, 7)), ""), (((1, 3, 7, 7),) * 3, ""), ((("a", 2, 7, 7),) * 3, "input x"),
])  # fmt: skip
def test_a_profile_that_does_not_fit_the_network(tmp_path, shapes, reason):
    result = built(conv_bn("N, 2, 7, 7", "N, 4, 5, 5"), tmp_path, ({"x": shapes},))
    assert not result.ok
    assert reason in result.errors[0].text
    assert not (tmp_path / "out.engine").exists()


@pytest.mark.parametrize(("settings", "has_kernels"), [
    ({"profiling_verbosity": "detailed", "optimization_level": 0, "workspace": 1 << 30}, True),
    ({"profiling_verbosity": "none"}, False), ({"profiling_verbosity": "layer_names_only"}, False),
])  # fmt: skip
def test_builder_settings(tmp_path, settings, has_kernels):
    result = built(conv_bn(), tmp_path, settings=settings)
    assert result.ok
    assert bool(result.kernels) is has_kernels


def test_warnings_of_tensorrt_are_kept_once(tmp_path):
    model = parse("g (double[2, 4] x) => (double[2, 4] y) { a = Add(x, w) y = Mul(a, w) }", {"w": np.full(4, 1e300)})
    result = built(model, tmp_path)
    assert result.ok
    assert result.warnings
    assert len(set(result.warnings)) == len(result.warnings)
    assert result.inputs[0].dtype == "FLOAT"


def test_a_shape_that_tensorrt_cannot_tell_is_unknown():
    """A layer that is invalid in itself has outputs of rank -1."""

    class Tensor:
        name, dtype = "t", SimpleNamespace(name="FLOAT")

        @property
        def shape(self):
            raise ValueError("__len__() should return >= 0")

    assert describe_tensor(Tensor()) == NetworkTensor("t", "FLOAT", None)


@pytest.mark.parametrize("name", ["getitem[3]", "a, b", "x: {1}", "名前"])
def test_odd_names_reach_the_list_of_kernels(tmp_path, name):
    model = conv_bn()
    model.graph.node[0].name = name
    model.graph.input[0].name = model.graph.node[0].input[0] = name
    result = built(model, tmp_path)
    assert result.ok
    assert not any(isinstance(kernel, UnreadKernel) for kernel in result.kernels)
    assert name in {node for kernel in result.kernels for node in kernel.onnx_nodes}
    assert name in {t.name for kernel in result.kernels for t in kernel.inputs}


@pytest.mark.slow
def test_a_graph_thousands_of_nodes_deep(tmp_path):
    """TensorRT walks it recursively and overflows an ordinary stack."""
    nodes = " ".join(f"t{i + 1} = Relu(t{i})" for i in range(4000))
    result = built(parse(f"g (float[2, 4] t0) => (float[2, 4] t4000) {{ {nodes} }}"), tmp_path)
    assert result.ok


@pytest.mark.slow
def test_a_native_crash_is_survived(tmp_path):
    """A function that calls itself makes TensorRT's parser overflow any stack."""
    from trtnorm_cli.errors import BuilderDied

    model = parse("g (float[2] x) => (float[2] y) { y = f(x) }")
    model.graph.node[0].domain = "mine"
    model.opset_import.add(domain="mine", version=1)
    function = model.functions.add(name="f", domain="mine", input=["a"], output=["b"])
    function.opset_import.add(domain="mine", version=1)
    function.node.add(op_type="f", domain="mine", input=["a"], output=["b"])
    with pytest.raises(BuilderDied) as caught:
        built(model, tmp_path)
    assert caught.value.summary == "the build process was ended by SIGSEGV"


def test_a_network_of_which_the_writer_died_is_told_as_such(tmp_path: Path) -> None:
    build = object.__new__(Build)
    build.folder, build.backend = tmp_path, SimpleNamespace(name="tensorrt-rtx", version="1.7")
    build._writing = Copy(lambda: os.kill(os.getpid(), signal.SIGKILL))
    build.wait_for_network()
    said = json.loads((tmp_path / NETWORK_RESULT_FILE).read_text())
    assert (said["ok"], said["kind"], said["backend"]) == (False, "failed", "tensorrt-rtx")
    assert "died" in said["errors"][0]["reason"]


def test_a_network_that_was_written_is_left_as_it_is(tmp_path: Path) -> None:
    build = object.__new__(Build)
    build.folder = tmp_path
    build._writing = Copy(lambda: (tmp_path / NETWORK_RESULT_FILE).write_text("{}") and None)
    build.wait_for_network()
    assert (tmp_path / NETWORK_RESULT_FILE).read_text() == "{}"
