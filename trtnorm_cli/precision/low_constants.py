"""Constants of a model in the low type."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.shelf import Shelf
from trtnorm_cli.onnx_model.stored import tensor_array
from trtnorm_cli.precision.low_types import LowType


class Constants:
    """The constants of a model's top graph by name: its initializers, and the outputs of its ``Constant`` nodes."""

    def __init__(self, model: onnx.ModelProto, folder: Path | None) -> None:
        self._folder = folder
        self._replaced: dict[str, np.ndarray] = {}
        self._tensors = {tensor.name: tensor for tensor in model.graph.initializer}
        self.nodes = {node.output[0]: node for node in model.graph.node if _is_constant(node)}
        for name, node in self.nodes.items():
            if (tensor := _tensor_of(node)) is not None:
                self._tensors[name] = tensor

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def tensor(self, name: str) -> onnx.TensorProto:
        """The tensor as it is stored."""
        return self._tensors[name]

    def size(self, name: str) -> int:
        """The number of elements. Reads no values."""
        return int(np.prod(self._tensors[name].dims, dtype=np.int64))

    def is_float32(self, name: str) -> bool:
        """True of a constant of float32."""
        return bool(self._tensors[name].data_type == onnx.TensorProto.FLOAT)

    def replace(self, name: str, value: np.ndarray) -> None:
        """Let a constant have another value of the same type and shape from here on."""
        self._replaced[name] = value

    def is_replaced(self, name: str) -> bool:
        """True where a constant has another value than in the file."""
        return name in self._replaced

    def value(self, name: str) -> np.ndarray:
        """The values; they are read from the file where they are in one."""
        if name in self._replaced:
            return self._replaced[name]
        return tensor_array(self._tensors[name], self._folder)


def _is_constant(node: onnx.NodeProto) -> bool:
    return node.op_type == "Constant" and node.domain in DEFAULT_DOMAINS


def _tensor_of(node: onnx.NodeProto) -> onnx.TensorProto | None:
    attribute = node.attribute[0] if len(node.attribute) == 1 else None
    if attribute is None or attribute.name not in ("value", "value_float", "value_floats"):
        return None
    if attribute.name == "value":
        return attribute.t
    return numpy_helper.from_array(np.asarray(onnx.helper.get_attribute_value(attribute), np.float32))


def in_type(value: np.ndarray, low: LowType) -> np.ndarray:
    """``value`` rounded to the type. Finite values beyond its range become its largest, infinite ones stay so."""
    if value.size and -low.largest <= value.min() and value.max() <= low.largest:
        return low.rounded(value)
    bounded = np.where(np.isfinite(value), np.clip(value, -low.largest, low.largest), value)
    return low.rounded(bounded)


def stored_low(name: str, value: np.ndarray, shelf: Shelf) -> onnx.TensorProto:
    """A tensor of that name, on the shelf where it is large."""
    shelved = shelf.put(value, name)
    return numpy_helper.from_array(value, name) if shelved is None else shelved.tensor
