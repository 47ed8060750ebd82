"""The facts about a tensor before any size is known: element type, shape, and the elements of small ones that hold sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.shapes.expression import Size, product_of

# Longer vectors are data, not arithmetic of sizes.
MOST_ELEMENTS = 1024
# Sizes are computed in floating point one by one: a table of such numbers is one of positions.
MOST_FLOATS = 64
Shape = tuple[Size | None, ...]
_FLOATING = {
    onnx.TensorProto.FLOAT: "float32",
    onnx.TensorProto.FLOAT16: "float16",
    onnx.TensorProto.DOUBLE: "float64",
}
_INTEGERS = frozenset({onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL, onnx.TensorProto.UINT8})


@dataclass(frozen=True)
class SymbolicTensor:
    """A tensor of element type ``dtype`` (an ``onnx.TensorProto`` number, 0 if unknown).

    A dimension of ``shape`` is a size, or None where nothing is known. Without a shape the rank is unknown. ``elements`` is an
    object array of the tensor's shape that holds sizes (in floating types: numbers or float expressions), None for each that is
    not known. ``items`` are the tensors of a sequence, where their number is known. ``largest`` is the greatest element of a
    range of integers from 0 or more.
    """

    dtype: int = 0
    shape: Shape | None = None
    elements: np.ndarray | None = None
    items: tuple[SymbolicTensor, ...] | None = None
    largest: Size | None = None

    @property
    def rank(self) -> int | None:
        return None if self.shape is None else len(self.shape)

    @property
    def floating(self) -> str | None:
        """The numpy name of a floating type in which sizes are computed, or None for all other types."""
        return _FLOATING.get(self.dtype)

    @property
    def holds_sizes(self) -> bool:
        """True where elements of this type can be followed."""
        return self.dtype in _INTEGERS or self.dtype in _FLOATING

    @property
    def size(self) -> Size | None:
        """The number of its elements."""
        if self.shape is None or any(dim is None for dim in self.shape):
            return None
        return product_of(dim for dim in self.shape if dim is not None)

    def vector(self) -> list[Any] | None:
        """The elements of a scalar or vector in order, or None where their number is not known."""
        return None if self.elements is None else list(self.elements.reshape(-1))

    def as_shape(self) -> Shape | None:
        """The shape that its elements state, with None for each that is not known; None where not even the rank is."""
        values = self.vector()
        if values is not None:
            return tuple(values)
        length = self.shape[0] if self.shape else None
        return (None,) * length if isinstance(length, int) else None

    def integers(self) -> list[int] | None:
        """The elements, where every one is a known integer."""
        values = self.vector()
        return values if values is not None and all(isinstance(value, int) for value in values) else None


UNKNOWN = SymbolicTensor()


def tensor_of(dtype: int, elements: np.ndarray) -> SymbolicTensor:
    """A tensor with its elements, as far as they are known. Long ones keep only their shape."""
    kept = elements if elements.size <= MOST_ELEMENTS else None
    return SymbolicTensor(dtype, tuple(int(size) for size in elements.shape), kept)


def vector_of(values: Sequence[Any], dtype: int = onnx.TensorProto.INT64) -> SymbolicTensor:
    """A vector of the ``values``."""
    return tensor_of(dtype, objects(values))


def objects(values: Sequence[Any]) -> np.ndarray:
    """A one-dimensional object array, made so that numpy does not look into what it holds."""
    array = np.empty(len(values), dtype=object)
    for index, value in enumerate(values):
        array[index] = value
    return array


def constant(array: np.ndarray, dtype: int) -> SymbolicTensor:
    """A tensor whose value stands in the file."""
    symbolic = SymbolicTensor(dtype, tuple(int(size) for size in array.shape))
    if not symbolic.holds_sizes or array.size > MOST_ELEMENTS:
        return symbolic
    # As objects, these are Python's own numbers.
    numbers = array.astype(np.float64) if symbolic.floating else array.astype(np.int64) if array.dtype.kind == "b" else array
    return SymbolicTensor(dtype, symbolic.shape, numbers.astype(object))


def same(a: Size | None, b: Size | None) -> bool:
    """True where both are known to be equal."""
    return a is not None and b is not None and a == b
