"""The same builds with the oldest tensorrt-rtx that can be installed and with the installed one. Needs a package index."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models import batchnorm, parse, random, saved
from tests.tensorrt.builds import built
from tests.tensorrt.test_catalogue import CASES
from trtnorm_cli.cli import run
from trtnorm_cli.tensorrt.explain import refusal
from trtnorm_cli.tensorrt.facts import ask_facts
from trtnorm_cli.tensorrt.typed import require_types

OLDEST = "1.4.0.76"
pytestmark = [pytest.mark.slow, pytest.mark.rtx]
GRAPH = (
    "g ({0}[N, 2, 9, 9] x) => ({0}[] y) {{ [c] c = Conv(x, w) [b] b = BatchNormalization(c, gamma, beta, mu, var) "
    "r = Relu(b) t = Transpose <perm=[0, 2, 3, 1]> (r) s = Slice(t, start, end, axes) y = Reshape(s, shape) }}"
)
PROFILES = ({"x": ((1, 2, 9, 9), (2, 2, 9, 9), (4, 2, 9, 9))}, {"x": ((8, 2, 9, 9), (8, 2, 9, 9), (16, 2, 9, 9))})


def model(dtype: str = "float", numpy_type: type = np.float32) -> onnx.ModelProto:
    real = {"w": random(4, 2, 3, 3), **batchnorm(4)}
    whole = {"start": np.array([1]), "end": np.array([3]), "axes": np.array([1]), "shape": np.array([0, -1])}
    return parse(GRAPH.format(dtype), {**{k: v.astype(numpy_type) for k, v in real.items()}, **whole})


@pytest.fixture(scope="module")
def oldest(tmp_path_factory) -> Path:
    target = tmp_path_factory.mktemp("oldest")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(target), f"tensorrt-rtx=={OLDEST}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=280)
    if done.returncode != 0:
        pytest.skip(f"tensorrt-rtx {OLDEST} cannot be installed here: {done.stderr.strip().splitlines()[-1:]}")
    return target


@pytest.fixture(params=["oldest", "installed"])
def release(request, monkeypatch) -> str:
    """Make the children import the release; returns its version."""
    if request.param == "oldest":
        folder = request.getfixturevalue("oldest")
        paths = [str(folder), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    found = ask_facts("tensorrt-rtx").version
    assert (found == OLDEST) == (request.param == "oldest")
    return found


@pytest.mark.parametrize("settings", [
    {}, {"targets": ["sm_86", "sm_120"]}, {"tiling": "full", "l2_limit": 1 << 20}, {"tf32": False}, {"weight_streaming": True},
    {"version_compatible": True, "exclude_lean_runtime": True}, {"sparse_weights": True, "max_aux_streams": 0},
    {"optimization_level": 0, "workspace": 1 << 30},
], ids=lambda settings: ",".join(settings) or "none")  # fmt: skip
def test_settings(tmp_path, release, settings):
    result = built(model(), tmp_path, PROFILES, settings)
    assert result.ok, result.errors
    assert result.version == release
    assert set(result.targets) == set(settings.get("targets", ["sm_80"]))
    assert not any("unread" in kernel for kernel in result.kernels)
    assert {"c", "b"} <= {node for kernel in result.kernels for node in kernel.onnx_nodes}


@pytest.mark.parametrize(("dtype", "numpy_type"), [("float", np.float32), ("float16", np.float16), ("double", np.float64)])
def test_types_follow_the_model(tmp_path, release, dtype, numpy_type):
    made = model(dtype, numpy_type)
    result = built(made, tmp_path, PROFILES)
    assert len(require_types(made, result)) == (dtype == "double")
    assert result.inputs[0].dtype == ("HALF" if dtype == "float16" else "FLOAT")


def test_a_setting_that_it_lacks(tmp_path, release):
    result = built(model(), tmp_path, PROFILES, {"hardware_compatibility": "ampere_plus"})
    assert (result.ok, result.stage) == (False, "settings")
    newest = built(model(), tmp_path, PROFILES, {"targets": ["sm_121"]})
    assert newest.ok == (release != OLDEST)


def test_a_bad_second_profile(tmp_path, release):
    bad = {"x": ((4, 2, 9, 9), (1, 2, 9, 9), (8, 2, 9, 9))}
    result = built(model(), tmp_path, (PROFILES[0], bad))
    assert (result.ok, result.stage) == (False, "profile")


def test_refusals_are_explained(tmp_path, release):
    different = {}
    for number, (name, case) in enumerate(CASES.items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "short.bin").write_bytes(bytes(10))
        result = built(case.model, folder, case.profiles, case.settings)
        given = onnx.ModelProto() if isinstance(case.model, bytes) else case.model
        where = "it was built" if result.ok else refusal(result, given, folder).where
        if case.meaning not in where or case.node not in where:
            different[name] = where
    assert different == {}


def test_the_whole_way(tmp_path, release, monkeypatch):
    """With the comparison, which reads the parsed network."""
    monkeypatch.chdir(tmp_path)
    saved(model(), tmp_path / "m.onnx")
    (tmp_path / "c.yaml").write_text("dims: {N: {min: 1, opt: 2, max: 4}}\nbuilder: {targets: [sm_89]}\n")
    assert run(["build", "m.onnx", "-p", "c.yaml", "--check-reproducible"]) == 0
