"""The places that a TopK gives, which are others among fewer positions.

What is made of them is not the same there: of a table in which they are looked up, most would not be seen. They are good for
taking what they were chosen from, and of tensors with the same positions. Of a table with a row for each position, as many rows
are left at a smaller image: all of them have to be the same in every model (``position_numbers.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from trtnorm_cli.compare.sized_tensors import NotTheSame, SizedTensors
from trtnorm_cli.errors import ModelError
from trtnorm_cli.evaluate.float64 import Float64Model, ReferenceUnavailable, evaluate_float64
from trtnorm_cli.evaluate.float64.planning import attributes_of
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS

# These give the same numbers elsewhere, those of their first input.
_MOVING = frozenset(
    (
        *("Cast", "Expand", "Flatten", "Gather", "GatherElements", "Identity", "Reshape", "Slice", "Split", "Squeeze"),
        *("Tile", "Transpose", "Unsqueeze"),
    )
)
_TAKING = {"Gather": 0, "GatherElements": 0}
_ASKING = frozenset(("Shape", "Size"))
_HOLDING = frozenset((onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.INT32, onnx.TensorProto.INT64))


class ChosenPlaces:
    """The tensors of places, each with how many there are to choose from, at the model's own shapes and at the others."""

    def __init__(self, own: SizedTensors, other: SizedTensors, opsets: Mapping[str, int], folder: Path | None = None) -> None:
        self._own, self._other, self._opsets, self._folder = own, other, opsets, folder
        self._among: dict[str, tuple[int, int]] = {}

    def follow(self, node: onnx.NodeProto) -> None:
        """The nodes in order; raises ``NotTheSame`` for one that does something else with places than to take what is there."""
        if node.op_type == "TopK" and node.domain in DEFAULT_DOMAINS and len(node.output) > 1:
            before, after = self._lengths(node.input[0], int(attributes_of(node, self._opsets).get("axis", -1)))
            if before != after:
                self._among[node.output[1]] = before, after
        given = [place for place, name in enumerate(node.input) if name in self._among]
        if given != [1] and node.op_type in _TAKING and node.output[0] in self._other.changes.cut:
            raise NotTheSame(node.op_type)  # other numbers than places look something up
        if not given:
            return
        if node.domain not in DEFAULT_DOMAINS or (node.op_type == "Cast" and not self._holds_places(node)):
            raise NotTheSame(node.op_type)
        if node.op_type in _ASKING:
            return
        if given == [0] and node.op_type in _MOVING:
            self._among.update(dict.fromkeys(node.output, self._among[node.input[0]]))
            return
        if node.op_type == "Add" and len(given) == 1 and self._are_zeros(node.input[1 - given[0]]):
            self._among[node.output[0]] = self._among[node.input[given[0]]]  # in the first sample all positions begin
            return
        if given != [1] or node.op_type not in _TAKING or not self._takes_what_is_there(node):
            raise NotTheSame(node.op_type)

    def _takes_what_is_there(self, node: onnx.NodeProto) -> bool:
        axis = int(attributes_of(node, self._opsets).get("axis") or _TAKING[node.op_type])
        cut = self._other.changes.cut.get(node.output[0], {}).get(0)
        if cut is not None:
            return (self._own.shape(node.input[0])[axis], cut[axis]) == self._among[node.input[1]]
        return node.input[0] not in self._own.constants and self._lengths(node.input[0], axis) == self._among[node.input[1]]

    def _holds_places(self, node: onnx.NodeProto) -> bool:
        """True for a Cast to a type that has each place as it is, and not only those at a smaller image."""
        return int(attributes_of(node, self._opsets).get("to") or 0) in _HOLDING

    def _are_zeros(self, name: str) -> bool:
        """True for a constant that is worked out to be zero everywhere."""
        if name not in self._own.constants:
            return False
        try:
            found = evaluate_float64(Float64Model(self._own.maker([name]), self._folder), {}).outputs[name]
        except (ModelError, ReferenceUnavailable):
            return False
        return isinstance(found, np.ndarray) and not found.any()

    def _lengths(self, name: str, axis: int) -> tuple[int, int]:
        return self._own.shape(name)[axis], self._other.shape(name)[axis]
