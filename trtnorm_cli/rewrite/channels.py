"""Parameters that are one value per channel: the default epsilon beside them, and words for channels where they are bad."""

from __future__ import annotations

import numpy as np

# ONNX stores the attribute in float32.
DEFAULT_EPSILON = float(np.float32(1e-5))
_SHOWN = 4


def channels_where(bad: np.ndarray, values: np.ndarray) -> str | None:
    """The channels in which ``bad`` is true, with their values; None when there are none."""
    if not bad.any():
        return None
    indices, flat = np.flatnonzero(bad), values.reshape(-1)
    shown = ", ".join(f"{index} ({float(flat[index]):g})" for index in indices[:_SHOWN])
    more = f" and {indices.size - _SHOWN} more" if indices.size > _SHOWN else ""
    return f"channel {shown}{more}"
