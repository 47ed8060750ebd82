"""The meaning of QuantizeLinear and DequantizeLinear in numbers, and which of it TensorRT takes.

TensorRT quantises to int8, int4, float8 (E4M3FN) and float4, with positive scales and zero points of 0. Blocks lie along one of
the last two axes. (TensorRT-RTX 1.7.1 was asked, docs/quantised_models.md.) It reads uint8 as int8 without a word.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import ml_dtypes
import numpy as np
import onnx

from trtnorm_cli.rewrite.pattern import titled
from trtnorm_cli.rewrite.rule import Match

if TYPE_CHECKING:
    from trtnorm_cli.rewrite.rule import Node

TAKEN = (
    onnx.TensorProto.INT8,
    onnx.TensorProto.INT4,
    onnx.TensorProto.FLOAT8E4M3FN,
    onnx.TensorProto.FLOAT4E2M1,
)
FOUR_BITS = (onnx.TensorProto.INT4, onnx.TensorProto.UINT4)
_FLOATS = (np.dtype(np.float32), np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))


def type_name(number: int) -> str:
    """A type in ONNX's words: uint8."""
    return str(onnx.TensorProto.DataType.Name(number)).lower()


def integer_range(number: int) -> tuple[int, int] | None:
    """The lowest and the highest number of an integer type; None for others."""
    try:
        limits = ml_dtypes.iinfo(onnx.helper.tensor_dtype_to_np_dtype(number))
    except (ValueError, KeyError):
        return None
    return int(limits.min), int(limits.max)


def zero_points(m: Match, name: str = "zero") -> np.ndarray:
    """The zero points in float64; a single 0 where there are none."""
    return m.value(name).astype(np.float64) if m.has(name) else np.zeros(())


def why_not_taken(label: str, quantised: int, zeros: np.ndarray, scale: np.ndarray) -> str | None:
    """Why TensorRT does not take the node ``label``, in words; None where it does."""
    if quantised not in TAKEN:
        return f"{label} quantises to {type_name(quantised)}"
    if np.any(zeros != 0):
        return f"{label} has a zero point of {_first_not_zero(zeros):g}"
    if not np.all(scale.astype(np.float64) > 0):
        return f"{label} has scales that are not positive"
    return None


def _first_not_zero(zeros: np.ndarray) -> float:
    return float(zeros.reshape(-1)[np.flatnonzero(zeros)[0]])


def block_size(node: Node) -> int:
    return int(node.attrs.get("block_size", 0))


def axis_of(node: Node, rank: int) -> int:
    """The axis of the scales, counted from the front."""
    return int(node.attrs.get("axis", 1)) % rank if rank else 0


def unusable_scales(m: Match, node: Node) -> str | None:
    """None where the scales are finite floats; else what they are."""
    scale = m.value("scale")
    if scale.dtype not in _FLOATS or not np.all(np.isfinite(scale.astype(np.float64))):
        return f"the scales of {titled(node)} are not all finite numbers"
    return None


def scales_without_axis(m: Match, node: Node) -> str | None:
    """None where there is one scale, or one for each index along an axis of data of known rank; else what there is."""
    if block_size(node):
        return f"{titled(node)} has a scale for each block"
    if m.value("scale").size > 1 and m.rank("x") is None:
        return f"the rank of {m.given('x').name} is not known"
    return None


def misfit(node: Node, values: np.ndarray, shape: tuple[int, ...]) -> str | None:
    """None where there is one value, one for each index along the axis, or one for each block; else the shapes."""
    block, rank = block_size(node), len(shape)
    reason = f"{titled(node)} has scales or zero points of shape {list(values.shape)} for data of shape {list(shape)}"
    stated = int(node.attrs.get("axis", 1))
    if values.ndim == 0 or (values.size == 1 and not block):
        return None
    if not -rank <= stated < rank:
        return reason
    if not block:
        return None if values.ndim == 1 and values.size == shape[stated] else reason
    wanted = list(shape)
    wanted[stated] = -(-shape[stated] // block)
    return None if list(values.shape) == wanted else reason


def spread(node: Node, values: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """One value, one for each index along the axis, or one for each block, as an array that broadcasts over ``shape``."""
    block, rank = block_size(node), len(shape)
    if values.ndim == 0 or (values.size == 1 and not block):
        return values.reshape(())
    axis = axis_of(node, rank)
    if not block:
        return along_axis(values, axis, rank)
    return np.repeat(values, block, axis).take(range(shape[axis]), axis)


def along_axis(values: np.ndarray, axis: int, rank: int) -> np.ndarray:
    """A vector as an array of ``rank`` axes that lies along one of them."""
    return values.reshape(-1, *[1] * (rank - axis - 1))


def broadcast(m: Match, node: Node, values: np.ndarray) -> np.ndarray:
    """Scales or zero points without blocks in float64, as they broadcast over the data ``x``."""
    wide = np.asarray(values, np.float64)
    rank = m.rank("x") or 0
    return wide.reshape(()) if wide.size == 1 else along_axis(wide, axis_of(node, rank), rank)
