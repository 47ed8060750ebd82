"""The kind of normalization that a formula is, by the axes that it goes over and the shape of its parameters."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from trtnorm_cli.rewrite.norms.affine_part import AffinePart
from trtnorm_cli.rewrite.norms.core import Core
from trtnorm_cli.rewrite.norms.known import Known, Shape
from trtnorm_cli.rewrite.norms.polynomial import Parameter
from trtnorm_cli.rewrite.norms.views import View

if TYPE_CHECKING:
    import onnx_graphsurgeon as gs

INSTANCE, GROUP, LAYER, RMS = "InstanceNorm", "GroupNorm", "LayerNorm", "RMSNorm"
LP, BATCH, WEIGHT = "LpNorm", "batch statistics", "weight standardisation"
_CONVOLUTIONS = ("Conv", "ConvTranspose")
_ROUNDING = 1e-6


def kind_of(core: Core, view: View | None, affine: AffinePart | None, shape: Shape | None, known: Known) -> str:
    """The kind of a normalization of data of ``shape``, through ``view`` if there is one."""
    formula, rank = core.formula, len(shape or ())
    if formula.spread == "magnitude":
        return LP
    if formula.spread == "square":
        return LP if formula.floor or not _is_mean(core) or _is_one_over_root(core, known) else RMS
    if view is not None and view.groups is not None:
        return _in_blocks(core, view, shape, known)
    axes = core.axes if view is None else view.axes
    output = core.output if affine is None else affine.output
    if _is_weight(output, rank, axes):
        return WEIGHT
    if 0 in axes:
        return BATCH
    plane = tuple(range(2, rank))
    if rank > 3 and axes == tuple(range(1, rank - 1)):
        return INSTANCE  # channels last
    if axes == plane and (rank > 3 or _scales_axis(core, affine, 1, shape, known)):
        return INSTANCE
    if axes == tuple(range(1, rank)) and rank > 2 and _scales_axis(core, affine, 1, shape, known):
        return GROUP
    return LAYER


def _in_blocks(core: Core, view: View, shape: Shape | None, known: Known) -> str:
    """Groups of one channel are instances, unless they are written as PyTorch's exporters write every GroupNorm."""
    channels = None if shape is None or len(shape) < 2 else shape[1]
    return INSTANCE if view.groups == channels and not _has_neutral_instances(core, known) else GROUP


def _has_neutral_instances(core: Core, known: Known) -> bool:
    """True of an InstanceNormalization with a scale of one and a bias of zero."""
    if not core.native or core.nodes[0].op != "InstanceNormalization":
        return False
    values = [known.surgery.constant(tensor) for tensor in core.nodes[0].inputs[1:3]]
    return all(value is not None and bool((value == v).all()) for value, v in zip(values, (1, 0), strict=True))


def _is_mean(core: Core) -> bool:
    return abs(core.formula.weight - 1) <= _ROUNDING


def _is_one_over_root(core: Core, known: Known) -> bool:
    """True of x/√(E[x²]·n) without epsilon: a vector divided by its length."""
    shape = known.shape(core.data) or ()
    sizes = [size for size in (shape[axis] for axis in core.axes) if isinstance(size, int)]
    if core.formula.epsilon or len(sizes) != len(core.axes):
        return False
    return abs(core.formula.factor * math.sqrt(math.prod(sizes)) - 1) <= _ROUNDING


def _is_weight(output: gs.Tensor, rank: int, axes: tuple[int, ...]) -> bool:
    """True where the result is the weight of a convolution."""
    if axes != tuple(range(1, rank)):
        return False
    return any(node.op in _CONVOLUTIONS and node.inputs[1] is output for node in output.outputs)


def _scales_axis(core: Core, affine: AffinePart | None, axis: int, shape: Shape | None, known: Known) -> bool:
    """True when scale or shift has its values along ``axis`` of the data, and on no other."""
    rank = len(shape or ())
    names = [name for name, _ in core.formula.scale] + list(core.formula.shift_tensors) + list(core.runtime)
    if affine is not None:
        names += [a.tensor for part in (affine.scale, affine.shift) for a in part.atoms() if isinstance(a, Parameter)]
    for name in names:
        extent = _extent(name, known)
        if extent is None:
            continue
        full = [1] * (rank - len(extent)) + list(extent)
        if [i for i, size in enumerate(full) if size != 1 and i > 0] == [axis]:
            return True
    return False


def _extent(name: str, known: Known) -> Shape | None:
    tensor = known.tensors.get(name)
    return None if tensor is None else known.shape(tensor)


def misgiving(core: Core, kind: str, count: int | None) -> str:
    """Why the formula is not the normalization that it looks like; empty when it is."""
    formula = core.formula
    if formula.outside and formula.spread == "magnitude":
        return f"{formula.outside:g} is added to the sum of magnitudes"
    if formula.outside:
        return f"epsilon ({formula.outside:g}) is added to the root, not under it: x/(√σ² + ε) is no {kind}"
    if formula.unbiased:
        return "the variance is divided by n − 1, not by n, as torch.std and torch.var do by default"
    if kind in (INSTANCE, GROUP, LAYER, BATCH, WEIGHT) and not _is_mean(core):
        return _variance_reason(formula.weight, count)
    if formula.floor_inside or (formula.floor and formula.spread == "variance"):
        return f"the divisor is at least {formula.floor:g} instead of having epsilon added"
    if formula.spread == "square" and kind == LP and count and not _is_mean(core):
        ratio = formula.weight / count
        return f"the sum of squares is multiplied by {ratio:g}" if abs(ratio - 1) > _ROUNDING else ""
    return ""


def _variance_reason(weight: float, count: int | None) -> str:
    if count and count > 1 and abs(weight - count / (count - 1)) <= 1e-4 * weight:
        return f"the variance is divided by n − 1 = {count - 1}, not by n = {count}, as torch.std and torch.var do by default"
    return f"the variance is multiplied by {weight:g}"
