"""Import onnx-ir without sympy, which takes longer to import than everything else that a rewriting needs.

onnx-ir uses sympy for arithmetic on symbolic dimensions alone, and cleaning does none: shapes come from ONNX's inference. So
the two modules in question are made by ``importlib``'s own lazy loader, and run at the first use of anything in them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

# The second reads attributes of sympy while it is imported, so it has to wait as well.
_LATE = frozenset({"sympy", "onnx_ir._symbolic_shapes"})


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
    """Import onnx-ir, unless it is imported already. Afterwards every other import works as ever."""
    if "onnx_ir" in sys.modules:
        return
    finder = _LateFinder()
    sys.meta_path.insert(0, finder)
    try:
        import onnx_ir  # noqa: F401
    finally:
        sys.meta_path.remove(finder)
