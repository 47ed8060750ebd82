"""Where a model samples an image at places that it works out, as a detector's deformable attention does.

On a smaller image most places might lie outside, and what is sampled there does not depend on the image.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np
import onnx

from trtnorm_cli.evaluate.float64 import ReferenceUnavailable, Watch
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS

# Of all places so many lie within the image at least, and of such a part of the images one or more do.
_SHARE_OF_PLACES, _SHARE_OF_IMAGES = 0.25, 0.75


def sampled_places(model: onnx.ModelProto) -> Set[str]:
    """The tensors of the main graph with the places of each GridSample."""
    nodes = (node for node in model.graph.node if node.op_type == "GridSample" and node.domain in DEFAULT_DOMAINS)
    return {node.input[1] for node in nodes if len(node.input) > 1}


def within_images(names: Set[str], watch: Watch) -> Watch:
    """``watch``, which ends an evaluation where places of these ``names`` [N, ..., r] lie outside, beyond -1 and 1.

    It raises ``ReferenceUnavailable`` then.
    """

    def watched(name: str, value: Any) -> Any:
        if name in names and not _lie_within(value):
            raise ReferenceUnavailable("most places that are sampled lie outside of a smaller image", where=name)
        return watch(name, value)

    return watched


def _lie_within(places: np.ndarray) -> bool:
    if not places.size or not places.ndim:
        return False
    inside = np.all(np.abs(places) <= 1, axis=-1).reshape(len(places), -1)
    return bool(inside.mean() >= _SHARE_OF_PLACES and inside.any(axis=1).mean() >= _SHARE_OF_IMAGES)
