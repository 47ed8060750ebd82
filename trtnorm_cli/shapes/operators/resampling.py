"""Resize, Upsample, and sampling at given positions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trtnorm_cli.shapes import floating
from trtnorm_cli.shapes.expression import Size
from trtnorm_cli.shapes.node import Node, like, unknown_rank
from trtnorm_cli.shapes.tensor import Shape, SymbolicTensor


def resize(node: Node) -> list[SymbolicTensor]:
    data = node.input(0)
    if data.shape is None:
        return [like(data)]
    old = node.proto.op_type == "Upsample" or node.opset < 11
    scales = node.attributes.get("scales") or node.input(1 if old else 2).vector()
    sizes = None if old else node.input(3).vector()
    axes = list(node.attributes.get("axes", range(len(data.shape))))
    policy = bytes(node.attributes.get("keep_aspect_ratio_policy", b"stretch"))
    given = sizes if sizes else scales
    if not given or len(given) != len(axes) or (sizes and policy != b"stretch"):
        return [unknown_rank(data, len(data.shape))]
    result = list(data.shape)
    for axis, value in zip(axes, given, strict=True):
        result[axis] = value if sizes else _scaled(data.shape[axis], value)
    return [like(data, tuple(result))]


def _scaled(size: Size | None, scale: Any) -> Size | None:
    if size is None or scale is None:
        return None
    number = float(scale) if isinstance(scale, int) else scale
    product = floating.multiply(floating.from_size(size, "float32"), number, "float32")
    return floating.to_size(floating.floor(product))


def grid_sample(node: Node) -> list[SymbolicTensor]:
    data, grid = node.input(0), node.input(1)
    if data.shape is None or grid.shape is None:
        return [unknown_rank(data, data.rank)]
    batch = node.require_equal(
        "the batch sizes must be equal", (node.name_of(0), data.shape[0]), (node.name_of(1), grid.shape[0])
    )
    return [like(data, (batch, data.shape[1], *grid.shape[1:-1]))]


def roi_align(node: Node) -> list[SymbolicTensor]:
    data = node.input(0)
    plane: Shape = (int(node.attributes.get("output_height", 1)), int(node.attributes.get("output_width", 1)))
    count = next((one.shape[0] for one in (node.input(1), node.input(2)) if one.shape and one.shape[0] is not None), None)
    return [like(data, (count, data.shape[1] if data.shape else None, *plane))]


RULES: dict[str, Callable[[Node], list[SymbolicTensor]]] = {
    "Resize": resize,
    "Upsample": resize,
    "GridSample": grid_sample,
    "RoiAlign": roi_align,
}
