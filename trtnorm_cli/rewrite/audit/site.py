"""A normalization that is looked at by the audit, and what is said of one that must not stay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.normalization_nodes import PARAMETERS
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.profile.rewriting import RewriteSettings
from trtnorm_cli.rewrite.pattern import describe, titled

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

    from trtnorm_cli.onnx_model.surgery import Surgery

EXPORT_AGAIN = "export the model again from weights that are in order"


@dataclass(frozen=True)
class Refusal:
    """A node that stays and must not: why, and what the user can do. ``details`` are further lines for a reader."""

    node: str
    title: str
    reason: str
    way_out: str
    details: tuple[str, ...] = ()


@dataclass(frozen=True)
class Site:
    """A normalization node and what is known about it."""

    node: gs.Node
    surgery: Surgery
    types: Mapping[str, TensorType]
    settings: RewriteSettings
    used_outputs: tuple[str, ...]

    @property
    def is_training(self) -> bool:
        if self.surgery.opset >= 14:
            return bool(self.node.attrs.get("training_mode", 0))
        if self.surgery.opset < 7:
            return not self.node.attrs.get("is_test", 0)
        return sum(bool(tensor.name) for tensor in self.node.outputs) > 1

    def parameters(self) -> dict[str, np.ndarray]:
        """The parameters that are constants, by role."""
        roles = zip(PARAMETERS.get(self.node.op, ()), self.node.inputs[1:], strict=False)
        values = {role: self.surgery.constant(tensor) for role, tensor in roles if tensor.name}
        return {role: value for role, value in values.items() if value is not None}

    def refusal(self, reason: str, way_out: str, details: tuple[str, ...] = ()) -> Refusal:
        return Refusal(describe(self.node), titled(self.node), reason, way_out, details)

    @property
    def shape(self) -> tuple[int | str | None, ...] | None:
        """The shape of the data as far as it is known."""
        kind = self.types.get(self.node.inputs[0].name)
        return None if kind is None else kind.shape
