"""Operators whose output's size depends on the data: NonMaxSuppression and Unique."""

from __future__ import annotations

from typing import Any

import numpy as np

from trtnorm_cli.evaluate.float64.kernels.call import Call, Kernel, one


def _scalar(value: Any, default: float) -> float:
    return default if value is None or not np.size(value) else float(np.ravel(value)[0])


def non_max_suppression(call: Call) -> np.ndarray:
    """[selected, 3] of batch, class and box: by falling score, none overlapping an earlier one too much."""
    boxes, scores = call.inputs[:2]
    limit = int(_scalar(call.input(2), 0.0))
    overlap, lowest = _scalar(call.input(3), 0.0), _scalar(call.input(4), -np.inf)
    corners = _from_centre(boxes) if call["center_point_box"] else _from_corners(boxes)
    selected = [
        (sample, label, box)
        for sample in range(scores.shape[0])
        for label in range(scores.shape[1])
        for box in _selected(corners[sample], scores[sample, label], limit, overlap, lowest)
    ]
    return np.array(selected, np.int64).reshape(-1, 3)


def _from_corners(boxes: np.ndarray) -> np.ndarray:
    """Two opposite corners, in any order, as smaller and larger ones."""
    return np.concatenate([np.minimum(boxes[..., :2], boxes[..., 2:]), np.maximum(boxes[..., :2], boxes[..., 2:])], axis=-1)


def _from_centre(boxes: np.ndarray) -> np.ndarray:
    return np.concatenate([boxes[..., :2] - boxes[..., 2:] / 2, boxes[..., :2] + boxes[..., 2:] / 2], axis=-1)


def _selected(corners: np.ndarray, scores: np.ndarray, limit: int, overlap: float, lowest: float) -> list[int]:
    order = np.argsort(-scores, kind="stable")
    order = order[scores[order] > lowest]
    kept: list[int] = []
    while order.size and len(kept) < limit:
        best, order = int(order[0]), order[1:]
        kept.append(best)
        order = order[_intersection_over_union(corners[best], corners[order]) <= overlap]
    return kept


def _intersection_over_union(box: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Boxes without an area overlap nothing."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    common = np.prod(np.maximum(sides, 0), axis=1)
    area, areas = np.prod(box[2:] - box[:2]), np.prod(others[:, 2:] - others[:, :2], axis=1)
    total = area + areas - common
    return np.where((area > 0) & (areas > 0) & (total > 0), common / np.where(total > 0, total, 1.0), 0.0)


def unique(call: Call) -> tuple[Any, ...]:
    """Values, index of the first of each, the inverse, and counts; sorted, or in order of appearance."""
    axis = call["axis"]
    values, first, inverse, counts = np.unique(call.x, return_index=True, return_inverse=True, return_counts=True, axis=axis)
    inverse = inverse.reshape(-1)
    if not call["sorted"]:
        order = np.argsort(first)
        values = np.take(values, order, axis=axis or 0)
        first, counts, inverse = first[order], counts[order], np.argsort(order)[inverse]
    return values, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


KERNELS: dict[str, Kernel] = {"NonMaxSuppression": one(non_max_suppression), "Unique": unique}
