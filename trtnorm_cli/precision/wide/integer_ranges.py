"""The range of every integer tensor over all optimization profiles, as far as it can be proved."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from trtnorm_cli.onnx_model.stored import tensor_array
from trtnorm_cli.onnx_model.walk import tensors_read
from trtnorm_cli.precision.wide.integer_ports import PASSES_ON
from trtnorm_cli.shapes.evaluate import bound_of
from trtnorm_cli.shapes.expression import Size
from trtnorm_cli.shapes.propagate import propagate
from trtnorm_cli.shapes.tensor import UNKNOWN

Range = tuple[int, int]
_LEAST, _MOST = -(2**63), 2**63 - 1
_OF_TYPE = {
    onnx.TensorProto.BOOL: (0, 1),
    onnx.TensorProto.INT8: (-128, 127),
    onnx.TensorProto.UINT8: (0, 255),
    onnx.TensorProto.INT32: (-(2**31), 2**31 - 1),
}
# Every element of their first input is in their output.
_KEEPS_ALL = frozenset(("Cast", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))
_INTEGERS = frozenset((*_OF_TYPE, onnx.TensorProto.INT64))


class IntegerRanges:
    """Least and greatest element by tensor of the main graph. ``largest`` are the largest sizes of the symbols."""

    def __init__(
        self, model: onnx.ModelProto, folder: Path | None, largest: Mapping[str, int], types: Mapping[str, int]
    ) -> None:
        self._model, self._folder, self._largest, self._types = model, folder, largest, types
        self._symbolic = propagate(model).tensors
        self._stored = {tensor.name: tensor for tensor in model.graph.initializer}
        self._readers: dict[str, list[onnx.NodeProto]] = {}
        for node in model.graph.node:
            for name in tensors_read(node):
                self._readers.setdefault(name, []).append(node)
        self._known: dict[str, Range | None] = {}
        for value in model.graph.input:
            if value.name not in self._stored:
                self._known[value.name] = self._of_source(value.name)
        for node in model.graph.node:
            made = self._of_node(node)
            for place, name in enumerate(node.output):
                here = made[place] if place < len(made) else None
                self._known[name] = _both(_fitting(here), _fitting(self._of_elements(name)), self._legal(name))

    def of(self, name: str) -> Range | None:
        """The range, or None where it is not known."""
        if name in self._stored and name not in self._known:
            self._known[name] = self._of_stored(self._stored[name])
        return self._known.get(name)

    def is_size(self, name: str) -> bool:
        """True for arithmetic of sizes, which TensorRT does beforehand."""
        elements = self._symbolic.get(name, UNKNOWN).vector()
        return bool(elements) and all(one is not None for one in elements or ())

    # Where a range comes from.

    def _of_source(self, name: str) -> Range | None:
        return _both(_OF_TYPE.get(self._types.get(name, 0)), self._of_elements(name), self._legal(name))

    def _of_stored(self, tensor: onnx.TensorProto) -> Range | None:
        if tensor.data_type not in _INTEGERS:
            return None
        values = tensor_array(tensor, self._folder)
        return (int(values.min()), int(values.max())) if values.size else (0, 0)

    def _of_elements(self, name: str) -> Range | None:
        """The range of elements that are arithmetic of sizes."""
        symbolic = self._symbolic.get(name, UNKNOWN)
        if symbolic.dtype not in _INTEGERS:
            return None
        if symbolic.largest is not None and (bound := bound_of(symbolic.largest, self._largest)) is not None:
            return 0, bound
        elements = symbolic.vector()
        if not elements or any(one is None for one in elements):
            return None
        return _union(self._of_size(one) for one in elements)

    def _of_size(self, size: Size | None) -> Range | None:
        if isinstance(size, int):
            return size, size
        bound = None if size is None else bound_of(size, self._largest)
        return None if bound is None else (-bound, bound)

    def _most(self, size: Size | None) -> int | None:
        """The largest value of a dimension."""
        found = self._of_size(size)
        return None if found is None else found[1]

    def _legal(self, name: str, depth: int = 16) -> Range | None:
        """The indices that are no error where the tensor, or all of its elements, are looked up in another."""
        found: Range | None = None
        for node in self._readers.get(name, ()) if self._types.get(name) in _INTEGERS else ():
            if node.op_type in ("Gather", "GatherElements") and len(node.input) > 1 and node.input[1] == name:
                found = _both(found, self._indices(node))
            elif depth and node.op_type in _KEEPS_ALL and node.input[0] == name:
                is_index = self._types.get(node.output[0]) in (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
                found = _both(found, self._legal(node.output[0], depth - 1)) if is_index else found
        return found

    def _indices(self, node: onnx.NodeProto) -> Range | None:
        size = self._size(node.input[0], _attribute(node, "axis", 0))
        return None if size is None else (-size, max(size - 1, 0))

    def _size(self, name: str, axis: int) -> int | None:
        """The largest size of one axis."""
        if name in self._stored:
            dims = self._stored[name].dims
            return int(dims[axis]) if -len(dims) <= axis < len(dims) else None
        shape = self._symbolic.get(name, UNKNOWN).shape
        return None if shape is None or not -len(shape) <= axis < len(shape) else self._most(shape[axis])

    def _count(self, name: str) -> int | None:
        """The largest number of elements of a tensor."""
        shape = self._symbolic.get(name, UNKNOWN).shape
        sizes = [None] if shape is None else [self._most(size) for size in shape]
        known = [size for size in sizes if size is not None]
        return math.prod(known) if len(known) == len(sizes) else None

    # What a node makes of ranges.

    def _of_node(self, node: onnx.NodeProto) -> list[Range | None]:
        kind = node.op_type
        operands = [self.of(name) if name else None for name in node.input]
        first = operands[0] if operands else None
        if kind == "Constant":
            return [self._of_constant(node)]
        if kind in PASSES_ON:
            return [first] * len(node.output)
        if kind in ("Gather", "GatherElements", "GatherND"):
            return [first]
        if kind in ("ScatterElements", "ScatterND") and _attribute(node, "reduction", b"none") != b"none":
            return []
        if kind in ("Concat", "Where", "ScatterElements", "ScatterND"):
            merged = {"Concat": operands, "Where": operands[1:]}.get(kind, [first, operands[-1]])
            return [_union(merged)]
        if kind in ("Pad", "Trilu"):
            fill = operands[2] if kind == "Pad" and len(operands) > 2 and node.input[2] else (0, 0)
            edge = _attribute(node, "mode", b"constant") != b"constant"
            return [first if edge else _union([first, fill])]
        if kind in _ARITHMETIC:
            return [_folded(kind, operands)]
        if kind in ("Neg", "Abs", "Sign", "Clip", "Not"):
            return [_of_one(kind, operands, node)]
        if kind == "Cast":
            return [_of_cast(node, first, self._types.get(node.input[0], 0))]
        if kind in ("ArgMax", "ArgMin"):
            size = self._size(node.input[0], _attribute(node, "axis", 0))
            return [None if size is None else (0, max(size - 1, 0))]
        if kind == "TopK":
            size = self._size(node.input[0], _attribute(node, "axis", -1))
            return [first, None if size is None else (0, max(size - 1, 0))]
        if kind in ("CumSum", "ReduceSum"):
            return [self._summed(node, first)]
        if kind == "ConstantOfShape":
            return [self._filled(node)]
        if kind == "NonZero":
            count = self._count(node.input[0])
            return [None if count is None else (0, max(count, 1))]
        if kind == "Range":
            ends = _union(operands[:2])
            return [ends]
        if kind in ("Shape", "Size"):
            count = self._count(node.input[0])
            return [None if count is None else (0, max(count, 1))]
        return []

    def _of_constant(self, node: onnx.NodeProto) -> Range | None:
        attribute = node.attribute[0]
        if attribute.name == "value":
            return self._of_stored(attribute.t)
        values = onnx.helper.get_attribute_value(attribute) if attribute.name in ("value_int", "value_ints") else None
        if values is None:
            return None
        array = np.atleast_1d(np.asarray(values))
        return (int(array.min()), int(array.max())) if array.size else (0, 0)

    def _filled(self, node: onnx.NodeProto) -> Range | None:
        stored = next((attribute.t for attribute in node.attribute if attribute.name == "value"), None)
        return None if stored is None else self._of_stored(stored)

    def _summed(self, node: onnx.NodeProto, terms: Range | None) -> Range | None:
        """A bound of the sum and of every sum on the way."""
        count = self._count(node.input[0])
        if terms is None or count is None:
            return None
        return min(terms[0], 0) * count, max(terms[1], 0) * count


def _attribute(node: onnx.NodeProto, name: str, default: Any) -> Any:
    found = next((a for a in node.attribute if a.name == name), None)
    return default if found is None else onnx.helper.get_attribute_value(found)


def _fitting(found: Range | None) -> Range | None:
    """Beyond int64 numbers wrap around, and nothing is known."""
    return found if found is not None and found[0] >= _LEAST and found[1] <= _MOST else None


def _both(*found: Range | None) -> Range | None:
    known = [one for one in found if one is not None]
    if not known:
        return None
    low, high = max(one[0] for one in known), min(one[1] for one in known)
    return (low, high) if low <= high else known[0]


def _union(found: Iterable[Range | None]) -> Range | None:
    ranges = list(found)
    if not ranges or any(one is None for one in ranges):
        return None
    known = [one for one in ranges if one is not None]
    return min(one[0] for one in known), max(one[1] for one in known)


def _products(a: Range, b: Range) -> Range:
    every = [x * y for x in a for y in b]
    return min(every), max(every)


def _quotients(a: Range, b: Range) -> Range | None:
    if b[0] <= 0 <= b[1]:
        return None
    largest = max(abs(a[0]), abs(a[1]))
    return (0 if a[0] >= 0 and b[0] > 0 else -largest), (0 if a[1] <= 0 and b[0] > 0 else largest)


def _remainders(a: Range, b: Range) -> Range | None:
    if b[0] <= 0 <= b[1]:
        return None
    largest = max(abs(b[0]), abs(b[1])) - 1
    return (0 if a[0] >= 0 and b[0] > 0 else -largest), largest


_ARITHMETIC: dict[str, Callable[[Range, Range], Range | None]] = {
    "Add": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "Sum": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "Sub": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "Mul": _products,
    "Div": _quotients,
    "Mod": _remainders,
    "Min": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "Max": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}


def _folded(kind: str, operands: list[Range | None]) -> Range | None:
    if any(one is None for one in operands) or not operands:
        return _half_known(kind, operands)
    result = operands[0]
    for one in operands[1:]:
        assert one is not None
        result = None if result is None else _ARITHMETIC[kind](result, one)
    return result


def _half_known(kind: str, operands: list[Range | None]) -> Range | None:
    """A remainder needs no range of what is divided."""
    if kind == "Mod" and len(operands) == 2 and operands[1] is not None:
        return _remainders((_LEAST, _MOST), operands[1])
    return None


def _of_one(kind: str, operands: list[Range | None], node: onnx.NodeProto) -> Range | None:
    first = operands[0]
    if kind == "Sign":
        return -1, 1
    if kind == "Not":
        return 0, 1
    if kind == "Clip":
        low = operands[1] if len(operands) > 1 and node.input[1] else None
        high = operands[2] if len(operands) > 2 and node.input[2] else None
        bounds = first or (_LEAST, _MOST)
        least = bounds[0] if low is None else max(bounds[0], low[0])
        most = bounds[1] if high is None else min(bounds[1], high[1])
        return (min(least, most), max(least, most)) if (least, most) != (_LEAST, _MOST) else None
    if first is None:
        return None
    if kind == "Neg":
        return -first[1], -first[0]
    return (0 if first[0] <= 0 <= first[1] else min(map(abs, first))), max(map(abs, first))


def _of_cast(node: onnx.NodeProto, first: Range | None, source: int) -> Range | None:
    target = next((attribute.i for attribute in node.attribute if attribute.name == "to"), 0)
    of_type = _OF_TYPE.get(target)
    if target == onnx.TensorProto.BOOL or source == onnx.TensorProto.BOOL:
        return 0, 1
    known = first if source in _INTEGERS else None
    if known is None or (of_type is not None and not (of_type[0] <= known[0] and known[1] <= of_type[1])):
        return of_type  # what does not fit wraps around
    return known
