"""Tell when a BatchNormalization is in training mode, and what the user wants to become of it.

In training mode the data are normalized with the mean and variance of the batch, and the running statistics given as inputs
are only updated. Since opset 14 an attribute says so. Before, the presence of further outputs did (ONNX operator
specification, BatchNormalization-7, -9 and -14). ONNX Runtime reads both in the same way.
"""

from __future__ import annotations

import numpy as np

from trtnorm_cli.rewrite.parts import batchnorm
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.rule import Match

ATTRIBUTE_SINCE = 14
_MOMENTUM = float(np.float32(0.9))
STATISTICS = ("mean", "variance")


def is_training(m: Match) -> str | None:
    """the BatchNormalization is in training mode: it normalizes with the statistics of the batch."""
    return None if batchnorm.is_inference(m) else f"{describe(m.node(batchnorm.BATCHNORM))} is not in training mode"


def has_running_statistics(m: Match) -> str | None:
    """running mean and variance are stored in the file, so that they could be used instead of those of the batch."""
    for name in STATISTICS:
        if not m.surgery.is_constant(m.given(name)):
            return f"{describe(m.node(batchnorm.BATCHNORM))} has no running statistics: its {name} is computed from the batch"
    return None


def how_it_says_so(m: Match) -> str:
    """The part of the node that puts it in training mode."""
    if m.opset >= ATTRIBUTE_SINCE:
        return "training_mode=1"
    return f"{sum(bool(t.name) for t in m.node(batchnorm.BATCHNORM).outputs)} outputs, which is training mode before opset 14"


def momentum(m: Match) -> float:
    """How much of the running statistics is kept; ONNX stores it in float32."""
    return float(m.node(batchnorm.BATCHNORM).attrs.get("momentum", _MOMENTUM))


def batch_axes(rank: int) -> tuple[int, ...]:
    """The axes over which the statistics of the batch are taken: all but the channels'."""
    return (0, *range(2, rank))
