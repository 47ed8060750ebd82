"""Turn PyTorch and ONNX models into TensorRT engines and get every normalization layer right.

    from trtnorm_cli import build, compare, diff, export, inspect, rewrite

Nothing heavy is imported until one of them is called.
"""

import importlib
import os
import sys
from types import ModuleType
from typing import Any

__version__ = "0.1.0"

# ONNX Runtime reports its use to Microsoft, unless this is set before it is imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

_API = "trtnorm_cli.api"
_FUNCTIONS = frozenset({"build", "compare", "diff", "export", "inspect", "rewrite"})
_TYPES = {
    "BuildOptions": "trtnorm_cli.pipeline",
    "ExportOptions": "trtnorm_cli.export.options",
    "CompareSettings": "trtnorm_cli.compare.settings",
    "Manifest": "trtnorm_cli.tensorrt.manifest",
    "TrtnormError": "trtnorm_cli.errors",
}
_NAMES_THERE = {"CompareSettings": "Settings"}


class _Folder(ModuleType):
    """A folder of this package that has the name of a command, and is called as its function."""

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return getattr(importlib.import_module(_API), self.__name__.rpartition(".")[2])(*arguments, **options)


class _Package(ModuleType):
    """This package. ``compare``, ``export`` and ``rewrite`` are folders of it, whichever part of them is imported first."""

    def __setattr__(self, name: str, value: object) -> None:
        if name in _FUNCTIONS and isinstance(value, ModuleType):
            value.__class__ = _Folder
        super().__setattr__(name, value)

    def __getattr__(self, name: str) -> Any:
        if name in _TYPES:
            return getattr(importlib.import_module(_TYPES[name]), _NAMES_THERE.get(name, name))
        if name in {"build", "diff", "inspect"}:
            return getattr(importlib.import_module(_API), name)
        if name in _FUNCTIONS:
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


sys.modules[__name__].__class__ = _Package
