"""Fourier transforms, whose last axis holds one number for a real value and two for a complex one."""

from __future__ import annotations

from collections.abc import Callable

from trtnorm_cli.shapes.expression import Size, floor_divide
from trtnorm_cli.shapes.node import Node, like
from trtnorm_cli.shapes.tensor import SymbolicTensor

# Since this opset the axis of a DFT is an input.
_AXIS_IS_AN_INPUT = 20
_COMPLEX = 2


def dft(node: Node) -> list[SymbolicTensor]:
    data = node.input(0)
    if data.shape is None:
        return [like(data)]
    given = node.integers(2, "axis") if node.opset >= _AXIS_IS_AN_INPUT and node.has(2) else None
    if node.opset >= _AXIS_IS_AN_INPUT and node.has(2) and given is None:
        return [like(data, (None,) * len(data.shape))]
    default = -2 if node.opset >= _AXIS_IS_AN_INPUT else 1
    axis = given[0] if given else int(node.attributes.get("axis", default))
    inverse, onesided = (bool(node.attributes.get(name, 0)) for name in ("inverse", "onesided"))
    shape = list(data.shape)
    length = _length(node, 1, shape[axis])
    if inverse and onesided and not node.has(1) and length is not None:
        length = (length - 1) * 2
    shape[axis] = _bins(length, onesided and not inverse)
    shape[-1] = 1 if inverse and onesided else _COMPLEX
    return [like(data, tuple(shape))]


def stft(node: Node) -> list[SymbolicTensor]:
    data, window, step = node.input(0), node.input(2), node.integers(1, "frame_step")
    if data.shape is None or len(data.shape) < 2:
        return [like(data, (None,) * 4)]
    extent = data.shape[1]
    length = _length(node, 3, window.shape[0] if node.has(2) and window.shape else None if node.has(2) else extent)
    frames = None
    if extent is not None and length is not None:
        side = (f"dimension 1 of {node.name_of(0)}", extent)
        node.require_at_least(f"dimension 1 must not be smaller than a frame of {length} values", side, length)
        frames = floor_divide(extent - length, step[0]) + 1 if step and step[0] > 0 else None
    return [like(data, (data.shape[0], frames, _bins(length, bool(node.attributes.get("onesided", 1))), _COMPLEX))]


def _length(node: Node, index: int, otherwise: Size | None) -> Size | None:
    """The length of a transform, which an input states or which is ``otherwise`` so."""
    if not node.has(index):
        return otherwise
    stated = node.input(index).vector()
    return stated[0] if stated else None


def _bins(length: Size | None, onesided: bool) -> Size | None:
    return floor_divide(length, 2) + 1 if onesided and length is not None else length


RULES: dict[str, Callable[[Node], list[SymbolicTensor]]] = {"DFT": dft, "STFT": stft}
