"""Normalizations of blocks of channels and the whole plane: InstanceNorm and GroupNorm."""

from __future__ import annotations

import math

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.rewrite.norms.composition import Composition
from trtnorm_cli.rewrite.norms.emission import Emission
from trtnorm_cli.rewrite.norms.kinds import GROUP, INSTANCE
from trtnorm_cli.rewrite.parts.arithmetic import Operand
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode

# Rows of up to this many values TensorRT for RTX 1.7 reduces in one kernel: docs/normalization_kernels.md says how it was
# measured.
LONGEST_ROW = 12288
# Up to this many, reductions along rows take it as few kernels as an InstanceNormalization does, or fewer.
LONGEST_REDUCTION = 24576


@dataclass(frozen=True)
class Blocks:
    """``groups`` blocks of each sample are normalized, each of ``row`` values; None where that is known at run time only."""

    composition: Composition
    groups: int
    row: int | None

    @property
    def fits_one_kernel(self) -> bool:
        """True where a block is a row that one kernel reduces. One value alone is no matter of reductions."""
        return self.row is not None and 1 < self.row <= LONGEST_ROW

    @property
    def suits_reductions(self) -> bool:
        """True where an InstanceNormalization would take no fewer kernels than reductions along rows, as far as is known."""
        return self.row is None or 1 < self.row <= LONGEST_REDUCTION

    @property
    def is_in_rows(self) -> bool:
        """True where the blocks are the rows of a tensor of rank 3, and reduced as such."""
        core = self.composition.core
        if self.composition.view is None or self.composition.view.groups is None:
            return False
        return core.axes in ((2,), (1,)) and core.nodes[0].op != "InstanceNormalization"

    @property
    def is_native(self) -> bool:
        """True where an InstanceNormalization normalizes the blocks."""
        return self.composition.core.nodes[0].op == "InstanceNormalization"


def blocks_of(composition: Composition) -> Blocks | None:
    """The blocks of an InstanceNorm or GroupNorm of data with the channels first; None for others."""
    shape = composition.shape or ()
    groups = _groups(composition)
    if composition.kind not in (INSTANCE, GROUP) or len(shape) < 3 or not groups:
        return None
    sample = [size for size in shape[1:] if isinstance(size, int)]
    whole = math.prod(sample) if len(sample) == len(shape) - 1 else None
    if whole is not None and whole % groups:
        return None
    return Blocks(composition, groups, None if whole is None else whole // groups)


def _groups(composition: Composition) -> int | None:
    shape = composition.shape or ()
    if composition.groups is not None:
        return composition.groups
    channels = shape[1] if len(shape) > 1 else None
    if composition.axes == tuple(range(2, len(shape))):
        return channels if isinstance(channels, int) else None
    return 1 if composition.axes == tuple(range(1, len(shape))) else None


def in_rows(m: Match, blocks: Blocks) -> NewNode:
    """Reshaped so that each block is a row, normalized along it, reshaped back, then scaled and shifted.

    Statistics of half-precision data are computed in float32.
    """
    e = Emission.of(m, blocks.composition, in_float32=True)
    rows = NewNode("Reshape", (blocks.composition.data, _rows_shape(blocks)), role="rows")
    normalized = e.cast(e.standardized(_raised(e, rows), (2,)), e.scaled_in)
    return _scaled(m, e, e.restored(normalized))


def as_scale_and_shift(m: Match, blocks: Blocks) -> NewNode:
    """The data times a scale plus a shift, one of each for every channel of every sample, from statistics along rows."""
    e = Emission.of(m, blocks.composition)
    a, groups, channels = e.arithmetic, blocks.groups, (blocks.composition.shape or ())[1]
    assert isinstance(channels, int), "the conditions before hold"
    rows = NewNode("Reshape", (blocks.composition.data, _rows_shape(blocks)), role="rows")
    mean, deviation = e.statistics(rows, (2,))
    scale, shift = (values.reshape(groups, -1) for values in e.per_channel(channels))
    factor = a.binary("Div", scale, deviation, "scale_over_deviation")
    offset = a.binary("Sub", shift, a.binary("Mul", mean, factor, "scaled_mean"), "offset")
    sizes = (0, channels, *(1,) * (e.rank - 2))
    scaled = a.binary("Mul", blocks.composition.data, e.reshaped(factor, sizes, "factor"), "scaled")
    return e.cast(a.binary("Add", scaled, e.reshaped(offset, sizes, "shift"), "shifted"), e.result_type)


def native(m: Match, blocks: Blocks) -> NewNode:
    """One InstanceNormalization: of the data, or of the data reshaped so that each block is an instance."""
    e = Emission.of(m, blocks.composition)
    shape, data = blocks.composition.shape or (), e.data()
    if blocks.composition.kind == INSTANCE and blocks.groups == shape[1]:
        scale, shift = e.per_channel(blocks.groups)
        return e.cast(_instance(e, data, scale, shift), e.result_type)
    rows = e.reshaped(data, (0, blocks.groups, -1), "groups")
    ones, zeros = np.ones(blocks.groups), np.zeros(blocks.groups)
    normalized = e.cast(_instance(e, rows, ones, zeros), e.scaled_in)
    return _scaled(m, e, e.restored(normalized))


def _raised(e: Emission, rows: NewNode) -> NewNode:
    if e.composition.dtype == e.computed_in:
        return rows
    return NewNode("Cast", (rows,), {"to": e.computed_in}, role="to_float32")


def _rows_shape(blocks: Blocks) -> NewConstant:
    return NewConstant("rows_shape", np.array((0, blocks.groups, -1), np.int64))


def _instance(e: Emission, data: Operand, scale: np.ndarray, shift: np.ndarray) -> NewNode:
    a = e.arithmetic
    inputs = (a.operand(data, "data"), a.operand(scale, "scale"), a.operand(shift, "bias"))
    return NewNode("InstanceNormalization", inputs, {"epsilon": float(e.composition.epsilon)}, role="instance_norm")


def _scaled(m: Match, e: Emission, data: NewNode) -> NewNode:
    """Scale and shift behind everything else."""
    scaling = Emission(m, e.composition, e.scaled_in)
    return scaling.cast(e.affine(scaling.arithmetic, data, *e.scale_and_shift()), e.result_type)
