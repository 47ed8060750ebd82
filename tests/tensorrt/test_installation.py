"""What does not go together on a machine, from what `trtnorm doctor` finds."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from trtnorm_cli.tensorrt import gpu, installation
from trtnorm_cli.tensorrt.backend import spec_named
from trtnorm_cli.tensorrt.installation import cuda_of, incompatibilities, wheels_of

RTX_GPU = {"name": "NVIDIA GeForce RTX 4090", "compute_cap": "8.9", "driver_version": "580"}
HOPPER = {"name": "NVIDIA H200", "compute_cap": "9.0", "driver_version": "580"}
WHEELS = {"tensorrt-rtx": "1.7.1", "tensorrt-rtx-cu13": "1.7.1", "tensorrt-rtx-cu13-libs": "1.7.1"}


def backend(name: str = "tensorrt-rtx", version: str = "1.7.1", wheels: dict[str, str] | None = None, **more) -> dict:
    return {"name": name, "installed": True, "can_build": True, "version": version, "wheels": wheels or WHEELS, **more}


@pytest.mark.parametrize(("backends", "gpus", "cuda", "expected"), [
    ([backend()], [RTX_GPU], (13, 0), []),
    ([backend()], [], None, ["there is no NVIDIA GPU (or no driver): engines can be built with tensorrt-rtx"]),
    ([backend()], [RTX_GPU], (12, 4), ["tensorrt-rtx is made for CUDA 13, the driver runs CUDA 12.4: engines do not load"]),
    ([backend("tensorrt", "10.9.0", {"tensorrt-cu13": "10.9.0"})], [RTX_GPU], (12, 4), ["or pip install tensorrt-cu12"]),
    ([backend()], [HOPPER], (13, 0), ["H200 has compute capability 9.0, for which tensorrt-rtx does not compile"]),
    ([backend()], [HOPPER], (12, 8), ["made for CUDA 13", "pip install tensorrt-cu12"]),
    ([backend(targets=["sm_90"])], [HOPPER], (13, 0), []),
    ([backend(targets=["sm_90"])], [RTX_GPU], (13, 0), ["compute capability 8.9, for which tensorrt-rtx does not compile"]),
    ([backend("tensorrt", "8.6.1", {"tensorrt": "8.6.1"})], [RTX_GPU], (13, 0), ["tensorrt 8.6.1 is older than 10.3"]),
    ([backend("tensorrt", "10.3.0", {"tensorrt": "10.3.0"})], [RTX_GPU], (13, 0), []),
    ([backend(version="1.3.0")], [RTX_GPU], (13, 0), ["tensorrt-rtx 1.3.0 is older than 1.4"]),
    ([backend(wheels={**WHEELS, "tensorrt-rtx-cu13-bindings": "1.6.0"})], [RTX_GPU], (13, 0), ["are of 2 versions"]),
    ([backend(wheels={"tensorrt-rtx-cu12-libs": "1.7.1", **WHEELS})], [RTX_GPU], (13, 0), ["for CUDA 12 and CUDA 13 at once"]),
])  # fmt: skip
def test_what_does_not_go_together(backends, gpus, cuda, expected):
    found = incompatibilities(backends, gpus, cuda)
    assert len(found) == len(expected), found
    assert all(text in line for text, line in zip(expected, found, strict=True)), found


def test_a_backend_that_is_not_installed_says_nothing():
    absent = {"name": "tensorrt", "installed": False, "can_build": False, "wheels": {}}
    assert incompatibilities([absent], [RTX_GPU], (12, 4)) == []


@pytest.mark.parametrize(("version", "said"), [((3, 9), True), ((3, 10), False), ((3, 13), False), ((3, 14), True)])
def test_the_version_of_python(monkeypatch, version, said):
    monkeypatch.setattr(installation.sys, "version_info", (*version, 0))
    assert any("is tried with Python" in line for line in incompatibilities([], [RTX_GPU], (13, 0))) is said


def test_wheels_are_told_apart(monkeypatch):
    names = ["tensorrt_rtx", "tensorrt_rtx_cu13_libs", "tensorrt-cu12-bindings", "tensorrt", "torch_tensorrt", "tensorrt-lean"]
    made = [SimpleNamespace(metadata={"Name": name}, version="1") for name in names]
    monkeypatch.setattr(installation.metadata, "distributions", lambda: made)
    assert list(wheels_of(spec_named("tensorrt-rtx"))) == ["tensorrt-rtx", "tensorrt-rtx-cu13-libs"]
    assert list(wheels_of(spec_named("tensorrt"))) == ["tensorrt", "tensorrt-cu12-bindings", "tensorrt-lean"]
    assert cuda_of(wheels_of(spec_named("tensorrt"))) == (12,)


@pytest.mark.rtx
def test_the_wheels_that_are_installed():
    wheels = wheels_of(spec_named("tensorrt-rtx"))
    assert len(set(wheels.values())) == 1
    assert cuda_of(wheels) == (13,)


class Driver:
    """libcuda of a machine with two GPUs."""

    def __getattr__(self, name):
        def call(*arguments):
            values = {"cuDriverGetVersion": 12040, "cuDeviceGetCount": 2}
            if name in values:
                arguments[0]._obj.value = values[name]
            elif name == "cuDeviceGetName":
                arguments[0].value = b"NVIDIA RTX A2000"
            elif name == "cuDeviceGetAttribute":
                arguments[0]._obj.value = {75: 8, 76: 6}[arguments[1]]
            return 0

        return call


def test_gpus_from_the_driver(monkeypatch):
    monkeypatch.setattr(gpu.ctypes, "CDLL", lambda name: Driver())
    assert gpu.device_names() == ("NVIDIA RTX A2000 (sm_86)",) * 2
    assert gpu.driver_cuda() == (12, 4)


def test_no_driver(monkeypatch):
    def absent(name):
        raise OSError(name)

    monkeypatch.setattr(gpu.ctypes, "CDLL", absent)
    assert (gpu.device_names(), gpu.driver_cuda()) == ((), None)
