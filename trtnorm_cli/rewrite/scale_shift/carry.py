"""How a scale and shift passes an operator that has no weights to take it: one small function per operator.

Each answers the same equation in both directions. Going back, B is asked of the outputs; going forth, A is given on the inputs:

    B(op(x)) = op(A(x))

An operator that is not here passes nothing on. Nothing is approximated: where the equation holds under a condition only (a
maximum keeps the order under a positive scale, zero padding stays zero without a shift), the condition is checked.
"""

from __future__ import annotations

from collections.abc import Callable

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.rewrite.scale_shift import carry_layout as layout
from trtnorm_cli.rewrite.scale_shift import carry_parts as parts
from trtnorm_cli.rewrite.scale_shift import carry_plane as plane
from trtnorm_cli.rewrite.scale_shift.affine import Affine
from trtnorm_cli.rewrite.scale_shift.carry_parts import Sides
from trtnorm_cli.rewrite.scale_shift.operation import Operation


@dataclass(frozen=True)
class Carrier:
    """``back`` gives what is asked of the inputs from what is asked of the outputs, ``forth`` the other way round.

    ``data`` are the inputs that scales and shifts can pass; None stands for all of them.
    """

    back: Callable[[Operation, Sides], dict[int, Affine]]
    forth: Callable[[Operation, Sides], dict[int, Affine]]
    data: tuple[int, ...] | None = (0,)


def _one(pass_on: Callable[[Operation, Affine, bool], Affine]) -> Carrier:
    """One input and one output; ``pass_on`` is told whether it goes back."""
    return Carrier(lambda op, sides: {0: pass_on(op, sides[0], True)}, lambda op, sides: {0: pass_on(op, sides[0], False)})


CARRIERS: dict[str, Carrier] = {
    "Identity": _one(layout.same),
    "Dropout": _one(layout.dropout),
    "Transpose": _one(layout.transpose),
    **dict.fromkeys(("Reshape", "Flatten", "Squeeze", "Unsqueeze"), _one(layout.reshape)),
    "DepthToSpace": _one(layout.depth_to_space),
    "SpaceToDepth": _one(layout.space_to_depth),
    "Concat": Carrier(parts.concat_back, parts.concat_forth, None),
    "Split": Carrier(parts.split_back, parts.split_forth),
    **dict.fromkeys(("Slice", "Gather"), Carrier(parts.select_back, parts.select_forth)),
    **dict.fromkeys(("AveragePool", "GlobalAveragePool"), _one(plane.average)),
    **dict.fromkeys(("MaxPool", "GlobalMaxPool"), _one(plane.maximum)),
    **dict.fromkeys(("ReduceMean", "ReduceMax"), _one(plane.reduce)),
    **dict.fromkeys(("Resize", "Upsample"), _one(plane.resize)),
    "Pad": _one(plane.pad),
    **dict.fromkeys(("Relu", "LeakyRelu", "PRelu"), _one(plane.rectifier)),
    "Neg": _one(plane.negate),
    **dict.fromkeys(("Add", "Sub", "Sum"), Carrier(parts.sum_back, parts.sum_forth, None)),
}
