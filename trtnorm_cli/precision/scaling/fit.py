"""Hold tensors that would overflow a type as a power of two of themselves, where that takes no precision from anything.

    ReLU(2⁻ᵏ W x + 2⁻ᵏ b) = 2⁻ᵏ ReLU(W x + b)

So a chain of products, sums, maxima and ReLUs passes a power of two on to its end, where constants of a product or the epsilon
of a normalization take it in. Source: positive homogeneity, as in Nagel et al. 2019, "Data-Free Quantization Through Weight
Equalization and Bias Correction", §4.1. It costs no node and no kernel, where a tensor in float32 costs casts and time.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import onnx

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.onnx_model.shelf import Shelf
from trtnorm_cli.precision.calibration import ValueRanges
from trtnorm_cli.precision.float_graph import FloatGraph
from trtnorm_cli.precision.low_types import LowType
from trtnorm_cli.precision.output_errors import Arrays, output_errors, worst
from trtnorm_cli.precision.plan import key_of
from trtnorm_cli.precision.scaling.exponents import Scaling, scaling_of
from trtnorm_cli.precision.scaling.scaled_model import scaled_model
from trtnorm_cli.precision.units import Unit
from trtnorm_cli.records.precision import Scaled

# In float32 nothing is rounded otherwise, but for what becomes subnormal.
_EQUAL = 1e-6


@dataclass(frozen=True)
class Fitted:
    """The model of ``graph`` under ``scaling``. It refers to values on the ``shelf`` and must not outlive that."""

    model: onnx.ModelProto
    shelf: Shelf
    graph: FloatGraph
    scaling: Scaling

    @property
    def tensors(self) -> tuple[Scaled, ...]:
        """The scaled tensors for a record."""
        return tuple(Scaled(name, exponent) for name, exponent in self.scaling.exponents.items())

    def serving(self, low: Collection[str], folder: Path | None) -> Fitted:
        """The model with the scaling alone that serves nodes with the keys ``low``: float32 ones need none."""
        nodes = [node for node in self.graph.model.graph.node if key_of(node) in low]
        scaling = self.scaling.only(frozenset(name for node in nodes for name in (*node.input, *node.output)))
        if scaling.groups == self.scaling.groups:
            return self
        made = scaled_model(self.graph, folder, scaling)
        return Fitted(made.model, made.shelf, self.graph, scaling)


def scaled_to_fit(
    model: onnx.ModelProto,
    folder: Path | None,
    types: Mapping[str, TensorType],
    units: Sequence[Unit],
    low: LowType,
    ranges: ValueRanges,
) -> Fitted | None:
    """``model`` with tensors scaled that would overflow in ``low`` going by its ``ranges``; None where there are none.

    It is to be taken only where it gives the same: ``are_equal`` says that of what both gave for some inputs.
    """
    graph = FloatGraph(model, types)
    scaling = scaling_of(graph, ranges.magnitudes(model, units, low), low.largest)
    if scaling is None:
        return None
    made = scaled_model(graph, folder, scaling)
    return Fitted(made.model, made.shelf, graph, scaling)


def are_equal(before: Sequence[Arrays], behind: Sequence[Arrays]) -> bool:
    """True where the outputs of a scaled model are those of the model, in float32 for the same inputs."""
    return worst(output_errors(*pair) for pair in zip(before, behind, strict=True)).largest <= _EQUAL
