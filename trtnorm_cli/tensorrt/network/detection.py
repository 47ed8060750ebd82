"""Non-maximum suppression."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from trtnorm_cli.tensorrt.network.context import LayerContext


def non_maximum_suppression(layer: LayerContext) -> list[str]:
    """``INMSLayer``: rows (batch, class, box), sorted by batch and then by falling score, and how many there are.

    Inputs are boxes [batch, boxes, 4], scores [batch, boxes, classes], the most boxes per class, and optionally the
    thresholds of overlap and of score, 0 by default. Equal scores come in unspecified order.
    """
    _require_few_boxes(layer)
    boxes, scores = layer.wide(0), layer.wide(1)
    most = layer.op("Reshape", layer.int64(2), layer.ints(1))
    thresholds = [
        layer.op("Reshape", layer.wide(i), layer.ints(1)) if layer.has(i) else layer.array([0], np.float32) for i in (3, 4)
    ]
    by_class = layer.op("Transpose", scores, perm=[0, 2, 1])
    centred = int(layer.handle.bounding_box_format.name == "CENTER_SIZES")
    found = layer.op("NonMaxSuppression", boxes, by_class, most, *thresholds, center_point_box=centred)
    ordered = _by_batch_and_score(layer, found, scores)
    count = layer.op("Squeeze", layer.op("Shape", found, start=0, end=1), layer.ints(0))
    names = [ordered, count]
    return [layer.cast(n, TensorProto.INT64, t.onnx_type) for n, t in zip(names, layer.layer.outputs, strict=False)]


def _require_few_boxes(layer: LayerContext) -> None:
    if layer.rank(0) != 3:
        raise layer.layer.refused("boxes of their own for each class")
    boxes, limit = layer.shape(0)[1], int(layer.handle.topk_box_limit)
    if boxes < 0 or boxes > limit:
        raise layer.layer.refused(f"{boxes if boxes >= 0 else 'a run-time number of'} boxes, of which it considers {limit}")


def _by_batch_and_score(layer: LayerContext, found: str, scores: str) -> str:
    """Sort stably by falling score, then stably by batch. The sort keys of the second step are unique integers."""
    where = layer.op("Gather", found, layer.ints(0, 2, 1), axis=1)
    falling = _order(layer, layer.op("GatherND", scores, where), largest=1)
    rows = layer.op("Gather", found, falling, axis=0)
    batch = layer.op("Squeeze", layer.op("Gather", rows, layer.ints(0), axis=1), layer.ints(1))
    count = layer.op("Size", batch)
    places = layer.op("Range", layer.array(0, np.int64), count, layer.array(1, np.int64))
    keys = layer.op("Add", layer.op("Mul", batch, count), places)
    return layer.op("Gather", rows, _order(layer, keys, largest=0), axis=0)


def _order(layer: LayerContext, keys: str, largest: int) -> str:
    count = layer.op("Shape", keys)
    return layer.ops("TopK", keys, count, outputs=2, axis=0, largest=largest, sorted=1)[1]
