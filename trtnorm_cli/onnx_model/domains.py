"""The domain of ONNX's own operators, by each name that it goes by, and its version."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

# graphsurgeon says None.
DEFAULT_DOMAINS = (None, "", "ai.onnx")


def default_opset(imports: Iterable[onnx.OperatorSetIdProto]) -> int:
    """The version of the default domain; 0 where it is not imported."""
    return next((entry.version for entry in imports if entry.domain in DEFAULT_DOMAINS), 0)
