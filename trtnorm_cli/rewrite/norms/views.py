"""Data that are reshaped or transposed before they are normalized, and back afterwards."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.rewrite.norms.core import Core
from trtnorm_cli.rewrite.norms.known import Known, Shape
from trtnorm_cli.rewrite.parts.shape_elements import AxisSize, Element, shape_elements

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

_TRANSPARENT = ("Cast", "Identity")
_RESHAPES = ("Reshape", "Flatten", "Squeeze", "Unsqueeze")


@dataclass(frozen=True)
class View:
    """``source`` is reshaped or transposed before ``core`` and back to ``output`` behind it.

    ``groups`` is how many blocks of each sample are normalized on their own, for a reshaping; ``axes`` are those of the source,
    for a transposition by ``perm``. ``nodes`` are those in front of the core and behind it, in the order of execution.
    """

    source: gs.Tensor
    output: gs.Tensor
    nodes: tuple[gs.Node, ...]
    groups: int | None = None
    axes: tuple[int, ...] = ()
    perm: tuple[int, ...] = ()

    def on_source(self, values: np.ndarray, inner: Shape, shape: Shape) -> np.ndarray | None:
        """``values``, which broadcast to the data in the view, as they broadcast to the source; None where that cannot be told.

        ``inner`` is the shape in the view, ``shape`` that of the source.
        """
        if values.size and (values == values.reshape(-1)[0]).all():
            return values.reshape(-1)[0].reshape(())
        if values.ndim > len(inner):
            return None
        values = values.reshape((1,) * (len(inner) - values.ndim) + values.shape)
        if self.perm:
            return values.transpose(np.argsort(self.perm))
        if self._varies_by_block(values, inner):
            return _of_blocks(values, self.groups, inner, shape)
        return _moved(values, inner, shape)

    def _varies_by_block(self, values: np.ndarray, inner: Shape) -> bool:
        """True for a value for each of the blocks of a sample, the same in every sample."""
        return values.ndim > 1 and values.size == values.shape[1] == inner[1] == self.groups


def view_of(core: Core, known: Known) -> View | None:
    """The view in which ``core`` normalizes; None where it does so in the data's own shape, or the shape is not restored."""
    before = _back(core.data, known)
    after = _forth(core.output, known)
    if before is None or after is None:
        return None
    source, output = before[-1].inputs[0], after[-1].outputs[0]
    nodes = (*reversed(before), *after)
    if (before[-1].op == "Transpose") != (after[-1].op == "Transpose"):
        return None
    if before[-1].op == "Transpose":
        axes = _transposed_axes(core, before[-1], after[-1])
        return None if axes is None else View(source, output, nodes, axes=axes, perm=tuple(before[-1].attrs["perm"]))
    shape, back = known.shape(source), known.shape(output)
    if shape is None or not _restores(known, source, shape, back, after[-1]):
        return None
    groups = _groups(core, known, source, shape, before[-1])
    return None if groups is None else View(source, output, nodes, groups=groups)


def _back(tensor: gs.Tensor, known: Known) -> list[gs.Node] | None:
    """The nodes from ``tensor`` back to the one that changes its shape, which is the last."""
    nodes: list[gs.Node] = []
    while tensor.inputs and tensor.inputs[0].domain in DEFAULT_DOMAINS:
        node = tensor.inputs[0]
        if node.op in (*_RESHAPES, "Transpose"):
            return [*nodes, node]
        if node.op not in _TRANSPARENT or len(tensor.outputs) != 1:
            return None
        nodes.append(node)
        tensor = node.inputs[0]
    return None


def _forth(tensor: gs.Tensor, known: Known) -> list[gs.Node] | None:
    """The nodes from ``tensor`` on to the one that changes its shape, which is the last. Nobody else uses what is between."""
    nodes: list[gs.Node] = []
    while len(tensor.outputs) == 1 and not known.borders.leaves(tensor) and tensor.outputs[0].domain in DEFAULT_DOMAINS:
        node = tensor.outputs[0]
        if node.op in (*_RESHAPES, "Transpose"):
            return [*nodes, node]
        if node.op not in _TRANSPARENT:
            return None
        nodes.append(node)
        tensor = node.outputs[0]
    return None


def _transposed_axes(core: Core, before: gs.Node, after: gs.Node) -> tuple[int, ...] | None:
    """The axes of the source, where the second transposition undoes the first."""
    there, back = before.attrs.get("perm"), after.attrs.get("perm")
    if there is None or back is None or [there[axis] for axis in back] != list(range(len(there))):
        return None
    return tuple(sorted(there[axis] for axis in core.axes))


def _restores(known: Known, source: gs.Tensor, shape: Shape, back: Shape | None, node: gs.Node) -> bool:
    """True when ``node`` gives the result the shape of ``source``: all sizes are the same, but for one that follows."""
    if back is not None and len(back) != len(shape):
        return False
    elements = _target(known, node)
    if elements is not None and len(elements) != len(shape):
        return False
    unsure = 0
    for axis, size in enumerate(shape):
        stated = None if elements is None else elements[axis]
        found = None if back is None else back[axis]
        same = stated == AxisSize(source.name, axis) or (size is not None and size in (found, stated))
        if isinstance(size, int) and isinstance(found, int) and size != found:
            return False
        unsure += not same
    return unsure <= 1


def _target(known: Known, node: gs.Node) -> list[Element] | None:
    return shape_elements(known, node.inputs[1]) if node.op == "Reshape" else None


def _groups(core: Core, known: Known, source: gs.Tensor, shape: Shape, before: gs.Node) -> int | None:
    """Into how many blocks, one behind the other, each sample is divided; None where that cannot be told."""
    inner = known.shape(core.data)
    if inner is None or len(shape) < 2 or core.axes != tuple(range(len(inner) - len(core.axes), len(inner))):
        return None
    leading = inner[: len(inner) - len(core.axes)]
    numbers = [size for size in (*shape, *leading) if isinstance(size, int)]
    if len(numbers) == len(shape) + len(leading):
        rows, batch = math.prod(_ints(leading)), _ints(shape)[0]
        return rows // batch if batch and rows % batch == 0 else None
    elements = _target(known, before)
    if len(leading) == 2 and isinstance(leading[1], int) and _is_batch(source, shape, leading[0], elements):
        return leading[1]
    sample, block = shape[1:], inner[len(leading) :]
    if all(isinstance(size, int) for size in (*sample, *block)):
        whole, part = math.prod(_ints(sample)), math.prod(_ints(block))
        return whole // part if part and whole % part == 0 else None
    return None


def _ints(sizes: Shape) -> list[int]:
    return [size for size in sizes if isinstance(size, int)]


def _is_batch(source: gs.Tensor, shape: Shape, size: int | str | None, elements: list[Element] | None) -> bool:
    """True when ``size``, the first of the reshaped data, is the batch of ``source``."""
    if size is not None and size == shape[0]:
        return True
    return bool(elements) and elements is not None and elements[0] in (0, AxisSize(source.name, 0))


def _of_blocks(values: np.ndarray, groups: int | None, inner: Shape, shape: Shape) -> np.ndarray | None:
    """A value for each block of a sample as values along the channels of the source."""
    channels = shape[1]
    if not isinstance(channels, int) or not groups or channels % groups:
        return None
    return values.reshape(-1).repeat(channels // groups).reshape((-1, *[1] * (len(shape) - 2)))


def _moved(values: np.ndarray, inner: Shape, shape: Shape) -> np.ndarray | None:
    """``values`` in another shape of the same number of elements, without what is the same along an axis."""
    if len(_ints(inner)) < len(inner) or len(_ints(shape)) < len(shape):
        return None
    leading = max(axis for axis, size in enumerate(values.shape) if size > 1) + 1
    for outer in range(len(shape) + 1):
        # Axes at the end along which all is the same need not be written out where they stay axes of their own.
        if math.prod(_ints(shape[:outer])) == math.prod(_ints(inner[:leading])):
            full = np.broadcast_to(values.reshape(values.shape[:leading]), _ints(inner[:leading]))
            return _without_repeats(full.reshape((*_ints(shape[:outer]), *[1] * (len(shape) - outer))))
    return _without_repeats(np.broadcast_to(values, _ints(inner)).reshape(_ints(shape)))


def _without_repeats(values: np.ndarray) -> np.ndarray:
    for axis in range(values.ndim):
        first = values.take([0], axis)
        values = first if (values == first).all() else values
    return values
