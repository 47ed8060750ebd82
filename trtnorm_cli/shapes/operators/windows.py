"""Convolution and pooling: operators that move a window over the spatial axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from trtnorm_cli.shapes.condition import below, choice
from trtnorm_cli.shapes.expression import Size, ceil_divide, floor_divide
from trtnorm_cli.shapes.node import Node, like, unknown_rank
from trtnorm_cli.shapes.tensor import Shape, SymbolicTensor

_CHANNELS, _TAKEN = "the input's channels must be those of the weight", "the number that the weight takes"
_QUANTIZED = {"ConvInteger": (0, 1), "QLinearConv": (0, 3)}


def convolution(node: Node) -> list[SymbolicTensor]:
    data, weight = (node.input(i) for i in _QUANTIZED.get(node.proto.op_type, (0, 1)))
    dtype = {"ConvInteger": 6, "QLinearConv": node.input(7).dtype}.get(node.proto.op_type, data.dtype)
    if data.shape is None or len(data.shape) < 3:
        return [like(unknown_rank(data, weight.rank), dtype=dtype)]
    kernel = _kernel(node, weight.shape[2:] if weight.shape is not None else None, len(data.shape) - 2)
    group = int(node.attributes.get("group", 1))
    if weight.shape is not None and len(weight.shape) == len(data.shape):
        per_group = weight.shape[1]
        wanted = None if per_group is None else per_group * group
        side = (f"dimension 1 of {node.name_of(0)}", data.shape[1])
        node.require_equal(_CHANNELS, side, (_TAKEN, wanted))
    filters = weight.shape[0] if weight.shape is not None else None
    return [like(data, (data.shape[0], filters, *_spatial(node, data.shape, kernel, False)), dtype)]


def pooling(node: Node) -> list[SymbolicTensor]:
    data = node.input(0)
    outputs = [o for o in node.proto.output if o]
    if data.shape is None or len(data.shape) < 3:
        return [like(data), like(data, dtype=7)][: len(outputs)]
    kernel = _kernel(node, None, len(data.shape) - 2)
    ceil_mode = bool(int(node.attributes.get("ceil_mode", 0)))
    made = (*data.shape[:2], *_spatial(node, data.shape, kernel, ceil_mode))
    return [like(data, made), like(data, made, 7)][: len(outputs)]


def _kernel(node: Node, weight: Shape | None, rank: int) -> Sequence[Size | None]:
    given = node.attributes.get("kernel_shape")
    if given is not None and len(given) == rank:
        return [int(size) for size in given]
    return weight if weight is not None and len(weight) == rank else [None] * rank


def _spatial(node: Node, shape: Shape, kernel: Sequence[Size | None], ceil_mode: bool) -> list[Size | None]:
    rank = len(kernel)
    strides = _each(node, "strides", rank)
    dilations = _each(node, "dilations", rank)
    pads = list(node.attributes.get("pads") or [0] * (2 * rank))
    padding = bytes(node.attributes.get("auto_pad", b"NOTSET")).decode()
    result: list[Size | None] = []
    for i, size in enumerate(kernel):
        extent, stride = shape[i + 2], strides[i]
        if extent is None or size is None:
            result.append(None)
        elif padding.startswith("SAME"):
            result.append(ceil_divide(extent, stride))
        else:
            before, after = (0, 0) if padding == "VALID" else (pads[i], pads[i + rank])
            reach = (size - 1) * dilations[i] + 1
            result.append(_windows(node, _PaddedAxis(i + 2, extent, before, after), reach, stride, ceil_mode))
    return result


class _PaddedAxis(NamedTuple):
    """A spatial axis of the data, with the padding before and after it."""

    number: int
    extent: Size
    before: int
    after: int


def _windows(node: Node, axis: _PaddedAxis, reach: Size, stride: int, ceil_mode: bool) -> Size:
    """The number of windows of ``reach`` that fit into ``axis``."""
    padded = axis.extent + axis.before + axis.after
    side = (f"dimension {axis.number} of {node.name_of(0)} with its padding", padded)
    text = f"dimension {axis.number} must not be smaller than the kernel, which reaches over {reach}"
    if not ceil_mode:
        node.require_at_least(text, side, reach)
        return floor_divide(padded - reach, stride) + 1
    # Rounding up lets the window stand out at the end, but not by a whole stride.
    node.require_at_least(text, side, reach - stride + 1)
    count = ceil_divide(padded - reach, stride) + 1
    if axis.after == 0 and isinstance(reach, int) and stride <= reach:
        return count
    # A last window that would begin in the padding after the data is left out.
    return choice(below((count - 1) * stride, axis.extent + axis.before), count, count - 1)


def _each(node: Node, name: str, rank: int) -> list[int]:
    given = node.attributes.get(name)
    return [int(value) for value in given] if given is not None and len(given) == rank else [1] * rank


def transposed_convolution(node: Node) -> list[SymbolicTensor]:
    data, weight = node.input(0), node.input(1)
    if data.shape is None or len(data.shape) < 3:
        return [unknown_rank(data, weight.rank)]
    rank = len(data.shape) - 2
    group = int(node.attributes.get("group", 1))
    known = weight.shape is not None and len(weight.shape) == rank + 2
    filters = weight.shape[1] * group if known and weight.shape and weight.shape[1] is not None else None
    if known and weight.shape:
        side = (f"dimension 1 of {node.name_of(0)}", data.shape[1])
        node.require_equal(_CHANNELS, side, (_TAKEN, weight.shape[0]))
    kernel = _kernel(node, weight.shape[2:] if weight.shape is not None else None, rank)
    return [like(data, (data.shape[0], filters, *_spread(node, data.shape, kernel)))]


def _spread(node: Node, shape: Shape, kernel: Sequence[Size | None]) -> list[Size | None]:
    rank = len(kernel)
    if "output_shape" in node.attributes:
        return list(node.attributes["output_shape"])[-rank:]
    strides, dilations = _each(node, "strides", rank), _each(node, "dilations", rank)
    further = list(node.attributes.get("output_padding") or [0] * rank)
    pads = list(node.attributes.get("pads") or [0] * (2 * rank))
    same = bytes(node.attributes.get("auto_pad", b"NOTSET")).decode().startswith("SAME")
    result: list[Size | None] = []
    for i, size in enumerate(kernel):
        extent = shape[i + 2]
        if extent is None or size is None:
            result.append(None)
            continue
        reach = (size - 1) * dilations[i] + 1
        if same:
            # Between shorter windows is nothing, and ONNX Runtime leaves that out at the end.
            result.append(extent * strides[i] if isinstance(reach, int) and reach >= strides[i] else None)
        else:
            made = (extent - 1) * strides[i] + further[i] + reach - pads[i] - pads[i + rank]
            side = (f"dimension {i + 2} of the output", made)
            node.require_at_least(f"the padding must leave something of dimension {i + 2}", side, 1)
            result.append(made)
    return result


def global_pooling(node: Node) -> list[SymbolicTensor]:
    data = node.input(0)
    return [data if data.shape is None else like(data, (*data.shape[:2], *[1] * (len(data.shape) - 2)))]


RULES: dict[str, Callable[[Node], list[SymbolicTensor]]] = {
    "Conv": convolution,
    "ConvInteger": convolution,
    "QLinearConv": convolution,
    "ConvTranspose": transposed_convolution,
    "MaxPool": pooling,
    "AveragePool": pooling,
    "LpPool": pooling,
    "GlobalAveragePool": global_pooling,
    "GlobalMaxPool": global_pooling,
    "GlobalLpPool": global_pooling,
}
