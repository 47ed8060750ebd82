"""How far two arrays are apart."""

from __future__ import annotations

import numpy as np


def relative_error(wanted: np.ndarray, got: np.ndarray) -> float:
    """The largest difference, relative to the largest wanted value."""
    assert wanted.shape == got.shape, (wanted.shape, got.shape)
    assert wanted.size, "nothing was compared"
    wanted, got = wanted.astype(np.float64), got.astype(np.float64)
    return float(np.max(np.abs(got - wanted)) / max(float(np.max(np.abs(wanted))), np.finfo(np.float64).tiny))
