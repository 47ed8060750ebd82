"""A model raised to float64, and its weights, which are raised when they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from trtnorm_cli.evaluate.float64.errors import ReferenceUnavailable, UnsupportedOperator
from trtnorm_cli.evaluate.float64.kernels.casting import dense
from trtnorm_cli.evaluate.float64.known import STORED_FROM, Place
from trtnorm_cli.evaluate.float64.planning import Plan, imported_opsets, plan
from trtnorm_cli.evaluate.float64.raising import RAISED, raise_structure, raised_array
from trtnorm_cli.evaluate.float64.shape_arithmetic import KEPT
from trtnorm_cli.onnx_model.load import read_model
from trtnorm_cli.onnx_model.repair import mend
from trtnorm_cli.onnx_model.stored import is_external, tensor_array

OLDEST_OPSET = 7
"""Before, operators broadcast by an attribute."""


class Float64Model:
    """A model read and raised once, to be evaluated as often as wanted; its weights are raised when they are needed."""

    def __init__(self, model: onnx.ModelProto | Path, folder: Path | None = None) -> None:
        """``folder`` is that of the external data of a model that was read before."""
        self._proto, self.folder = _loaded(model, folder)
        self.structure = _raised(self._proto)
        self.opsets = imported_opsets(self._proto)
        if self.opsets.get("", OLDEST_OPSET) < OLDEST_OPSET:
            raise UnsupportedOperator(f"opset {self.opsets['']} is older than {OLDEST_OPSET}")
        self._weights = {t.name: t for t in (*self._proto.graph.initializer, *self.structure.graph.initializer)}
        self._sparse = {s.values.name: s for s in self.structure.graph.sparse_initializer}
        self._plans: dict[tuple[str, ...], Plan] = {}

    def plan(self, outputs: Sequence[str] | None) -> Plan:
        """The steps to ``outputs``, with nothing remembered from another evaluation."""
        graph = self.structure.graph
        names = tuple(outputs) if outputs is not None else tuple(value.name for value in graph.output)
        if names not in self._plans:
            self._plans[names] = plan(graph, names, self.opsets)
        for step in self._plans[names].steps:
            step.cache.clear()
        return self._plans[names]

    def holds(self, name: str) -> bool:
        return name in self._weights or name in self._sparse

    def is_stored(self, name: str) -> bool:
        """True for dense weights, which stand for an input that is not given."""
        return name in self._weights

    def place(self, name: str) -> Place | None:
        """The place of a weight's bytes, if they are in a file and it is not one that keeps its type."""
        tensor = self._weights.get(name)
        if tensor is None or not is_external(tensor) or name in self._sparse or name.endswith(KEPT):
            return None
        return Place.of(tensor, self.folder)

    def dims(self, name: str) -> tuple[int, ...]:
        """The shape of a dense weight."""
        return tuple(self._weights[name].dims)

    def weight(self, name: str) -> tuple[Any, bool]:
        """A weight raised to float64, and whether it is stored in the model's own type; KeyError where there is none."""
        if name in self._sparse:
            return dense(self._sparse[name]), False
        array = tensor_array(self._weights[name], self.folder)
        return (array, False) if name.endswith(KEPT) else (raised_array(array), True)

    def lower_weight(self, name: str) -> np.ndarray:
        """A weight in float32 where it is large and of a type that is raised, else as :meth:`weight` gives it."""
        tensor = self._weights[name]
        array = tensor_array(tensor, self.folder)
        is_lower = tensor.data_type in RAISED and array.size >= STORED_FROM
        return array.astype(np.float32, copy=False) if is_lower else raised_array(array)


def _loaded(model: onnx.ModelProto | Path, folder: Path | None) -> tuple[onnx.ModelProto, Path | None]:
    """The model without its external data, and the folder in which that is."""
    if isinstance(model, onnx.ModelProto):
        return model, folder
    try:
        proto = read_model(model)
        mend(proto)  # a file is given the meaning that ``load_model`` gives it
        return proto, model.absolute().parent
    except Exception as error:
        raise ReferenceUnavailable(f"the model cannot be read: {error}", where=str(model)) from error


def _raised(model: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return raise_structure(model)
    except Exception as error:
        raise ReferenceUnavailable(f"the model cannot be raised to float64: {error}") from error
