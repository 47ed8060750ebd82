"""Import libraries without the parts of them that a rewriting does not need and that take longest.

- onnx-ir uses sympy for arithmetic on symbolic dimensions alone, and cleaning does none: shapes come from ONNX's inference. So
  the modules in question are made by ``importlib``'s own lazy loader, and run at the first use of anything in them.
- Of onnxscript one module folds constants. Its package imports the whole of it, and the module all of ONNX's reference
  implementation, which most models do without (``fold_kernels.py``).
"""

from __future__ import annotations

import importlib
import importlib.util
import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

# The second reads attributes of sympy while it is imported, so it has to wait as well. The third is for a file format.
_LATE = frozenset({"sympy", "onnx_ir._symbolic_shapes", "packaging.version"})
_FOLDER = "onnxscript.optimizer._constant_folding"
# What stands for these while the folder is imported is empty.
_PACKAGES = ("onnxscript", "onnxscript.optimizer", "onnx.reference", "onnx.reference.ops")


class _LateFinder(MetaPathFinder):
    """Finds the late modules where they are, and has them run later."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in _LATE else None
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def import_onnx_ir() -> None:
    """Import onnx-ir, unless it is imported already. Afterwards every other import works as ever.

    Its warnings are of what a file leaves unsaid, as the type of a tensor beside its shape: no user can do anything about them.
    """
    if (logger := logging.getLogger("onnx_ir.serde")).level == logging.NOTSET:
        logger.setLevel(logging.ERROR)
    if "onnx_ir" in sys.modules:
        return
    finder = _LateFinder()
    sys.meta_path.insert(0, finder)
    try:
        import onnx_ir  # noqa: F401
    finally:
        sys.meta_path.remove(finder)


def import_folder() -> ModuleType:
    """The module of onnxscript that folds constants: a copy of its own, without what it is imported with.

    It is the module itself where onnxscript is imported already, or where it needs more than it did when this was written.
    Afterwards every other import works as ever.
    """
    if "onnxscript" not in sys.modules:
        try:
            with _empty_packages():
                return importlib.import_module(_FOLDER)
        except (ImportError, AttributeError):
            pass
    return importlib.import_module(_FOLDER)


@contextmanager
def _empty_packages() -> Iterator[None]:
    """Let modules of ``_PACKAGES`` be imported without these. On leaving, nothing that was imported of onnxscript is there."""
    made = [name for name in _PACKAGES if name not in sys.modules]
    try:
        for name in made:
            sys.modules[name] = _empty(name)
        yield
    finally:
        for name in [*made, *(name for name in sys.modules if name.split(".")[0] == "onnxscript")]:
            sys.modules.pop(name, None)


def _empty(name: str) -> ModuleType:
    """The package ``name`` before it is run: it only says where its modules are."""
    spec = importlib.util.find_spec(name)
    if spec is None:
        raise ImportError(f"there is no {name}")
    return importlib.util.module_from_spec(spec)
