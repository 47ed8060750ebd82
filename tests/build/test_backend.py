"""Which TensorRT is taken, and what is said when there is none. No TensorRT is imported here: stand-ins are."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest

from trtnorm_cli.build import backend
from trtnorm_cli.build.backend import NAMES, Backend, load_backend, require_backend, spec_named
from trtnorm_cli.errors import UsageProblem


def stand_in(name: str, *, rtx: bool, fp16: bool, flags: dict[str, int]) -> ModuleType:
    module = ModuleType(name)
    module.__version__ = "9.9"
    module.IBuilderConfig = SimpleNamespace(**({"num_compute_capabilities": 0} if rtx else {}))
    module.BuilderFlag = SimpleNamespace(**({"FP16": 0} if fp16 else {}))
    module.NetworkDefinitionCreationFlag = SimpleNamespace(**flags)
    return module


TRT_10 = stand_in("tensorrt", rtx=False, fp16=True, flags={"EXPLICIT_BATCH": 0, "STRONGLY_TYPED": 1})
TRT_11 = stand_in("tensorrt", rtx=False, fp16=False, flags={"STRONGLY_TYPED": 1})
RTX = stand_in("tensorrt_rtx", rtx=True, fp16=False, flags={"STRONGLY_TYPED": 0})
RTX_14 = stand_in("tensorrt_rtx", rtx=True, fp16=True, flags={})


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


@pytest.mark.parametrize(("trt", "flags", "strongly_typed", "is_rtx"), [
    (TRT_10, 0b11, False, False), (TRT_11, 0b10, True, False), (RTX, 0b1, True, True), (RTX_14, 0, True, True),
])  # fmt: skip
def test_what_each_can_do(trt, flags, strongly_typed, is_rtx):
    made = Backend("x", trt)
    assert (made.network_flags(), made.is_strongly_typed_by_default, made.is_rtx) == (flags, strongly_typed, is_rtx)
    assert made.version == "9.9"


def test_asking_what_is_installed_imports_nothing():
    before = set(sys.modules)
    backend.installed()
    assert not {name for name in set(sys.modules) - before if name.startswith("tensorrt")}


@pytest.mark.rtx
def test_the_real_one():
    loaded = load_backend("tensorrt-rtx")
    assert loaded.is_rtx
    assert loaded.is_strongly_typed_by_default
    assert loaded.version == loaded.trt.__version__
