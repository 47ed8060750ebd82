"""Which TensorRT is taken, and what is said when there is none. No TensorRT is imported here: stand-ins are."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from tests.tensorrt.releases import stand_in
from trtnorm_cli.errors import UsageProblem
from trtnorm_cli.tensorrt import backend
from trtnorm_cli.tensorrt.backend import NAMES, Backend, load_backend, require_backend, spec_named

TRT_10 = stand_in("tensorrt 10.3.0")
TRT_11 = stand_in("tensorrt 11.4.0.106")
RTX = stand_in("tensorrt-rtx 1.7.1.116")
RTX_14 = stand_in("tensorrt-rtx 1.4.0.76")


@pytest.fixture
def present(monkeypatch):
    """Make it appear that exactly these modules are installed; an exception in place of a module is raised on import."""

    def install(**modules: ModuleType | Exception) -> None:
        monkeypatch.setattr(backend.importlib.util, "find_spec", lambda name: object() if name in modules else None)

        def load(name: str) -> ModuleType:
            found = modules[name]
            if isinstance(found, Exception):
                raise found
            return found

        monkeypatch.setattr(backend.importlib, "import_module", load)

    return install


def test_tensorrt_comes_first(present):
    present(tensorrt=TRT_10, tensorrt_rtx=RTX)
    assert load_backend() == Backend("tensorrt", TRT_10)


def test_one_can_be_asked_for(present):
    present(tensorrt=TRT_10, tensorrt_rtx=RTX)
    assert load_backend("tensorrt-rtx") == Backend("tensorrt-rtx", RTX)
    assert load_backend("tensorrt_rtx") == Backend("tensorrt-rtx", RTX)


@pytest.mark.parametrize(
    "error", [ImportError("libnvinfer.so.10: cannot open"), OSError("libcuda.so.1"), RuntimeError("no GPU")]
)
def test_the_next_one_is_taken_when_the_first_does_not_import(present, error):
    present(tensorrt=error, tensorrt_rtx=RTX)
    loaded = load_backend()
    assert loaded.name == "tensorrt-rtx"
    assert loaded.skipped == (f"tensorrt is installed but cannot be imported: {error}",)


def test_the_one_that_was_asked_for_is_not_replaced(present):
    present(tensorrt=ImportError("broken"), tensorrt_rtx=RTX)
    with pytest.raises(UsageProblem, match="no TensorRT can be imported") as caught:
        load_backend("tensorrt")
    assert caught.value.where == "tensorrt is installed but cannot be imported: broken"


def test_none_is_installed(present):
    present()
    for ask in (lambda: load_backend(), lambda: require_backend(None)):
        with pytest.raises(UsageProblem, match=r"^no TensorRT is installed$") as caught:
            ask()
        assert [line.split("    #")[0] for line in caught.value.hint.splitlines()] == [
            "pip install 'trtnorm[tensorrt]'", "pip install 'trtnorm[rtx]'"
        ]  # fmt: skip


def test_another_one_is_installed(present):
    present(tensorrt_rtx=RTX)
    with pytest.raises(UsageProblem, match=r"^the backend tensorrt is not installed$") as caught:
        require_backend("tensorrt")
    assert caught.value.hint.startswith("pip install 'trtnorm[tensorrt]'")
    require_backend("tensorrt-rtx")
    require_backend(None)


def test_an_unknown_name():
    with pytest.raises(UsageProblem, match="no backend named 'trt'") as caught:
        spec_named("trt")
    assert all(name in caught.value.hint for name in NAMES)


@pytest.mark.parametrize(("trt", "flags"), [
    (TRT_10, ("EXPLICIT_BATCH", "STRONGLY_TYPED")), (TRT_11, ("STRONGLY_TYPED",)), (RTX, ("STRONGLY_TYPED",)),
    (RTX_14, ("EXPLICIT_BATCH", "STRONGLY_TYPED")),
])  # fmt: skip
def test_networks_are_strongly_typed_everywhere(trt, flags):
    made = Backend("x", trt)
    assert made.network_flags() == sum(1 << getattr(trt.NetworkDefinitionCreationFlag, flag) for flag in flags)
    assert made.version == trt.__version__


def test_asking_what_is_installed_imports_nothing():
    before = set(sys.modules)
    backend.installed()
    assert not {name for name in set(sys.modules) - before if name.startswith("tensorrt")}


@pytest.mark.rtx
def test_the_real_one():
    loaded = load_backend("tensorrt-rtx")
    assert loaded.can("targets")
    assert not loaded.can("weak typing")
    assert {"sm_75", "sm_86", "sm_120"} <= set(loaded.targets)
    assert loaded.version == loaded.trt.__version__
