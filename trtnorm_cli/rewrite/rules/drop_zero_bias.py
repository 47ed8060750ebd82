"""Leave out an addition of zero behind a matrix product: the bias of an untrained layer.

    W·u + 0 = W·u

Where all sizes are fixed, TensorRT for RTX makes fewer kernels without it, or as many: an attention whose queries, keys and
values are equally large takes four to six less. In the kernel of that addition it takes heads apart, though, each into its
query, key and value, or parts of different sizes, which are kernels of their own otherwise. So the addition stays in front of
such a split. It also brings heads forward there: of open sizes, an attention takes casts and reshapes instead. On more than
three axes the addition is a kernel of its own. So of open sizes those go, where builds decide, and the others stay.

Nothing of this touches a trained network, which has no such bias (docs/folding_and_kernels.md).
Source: Vaswani et al. 2017, §3.2.2, for the heads of an attention; the operators as in the ONNX operator specification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtnorm_cli.rewrite.pattern import Var, describe, op
from trtnorm_cli.rewrite.rule import Extent, Match, NewTensors, Rule
from trtnorm_cli.rewrite.scale_shift.affine import Affine, CannotMove
from trtnorm_cli.rewrite.scale_shift.operation import Operation
from trtnorm_cli.rewrite.scale_shift.source import data_of, has_one_constant, scale_and_shift_of
from trtnorm_cli.rewrite.scale_shift.upstream import UpstreamSearch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trtnorm_cli.onnx_model.surgery import Surgery
    from trtnorm_cli.rewrite.rule import Node, Tensor

# TensorRT for RTX takes the addition and activation behind a product into its kernel on so many axes and not on more.
_AXES_OF_A_PRODUCT = 3
_MOVING = frozenset({"Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


def concerns(node: Node, surgery: Surgery) -> bool:
    """One operand is a constant, and the other comes from a matrix product."""
    if not has_one_constant(node, surgery):
        return False
    before = data_of(node, surgery).inputs
    return bool(before) and before[0].op == "MatMul"


def zero(m: Match) -> Affine | None:
    """The addition, where it is one of zero that costs TensorRT a kernel or may."""
    try:
        given = scale_and_shift_of(Operation(m.site, m))
    except CannotMove:
        return None
    return given if given.is_identity and _may_cost(m) else None


def _may_cost(m: Match) -> bool:
    if m.settings.counted or has_fixed_sizes(m, data_of(m.site, m.surgery)):
        return True
    return _is_a_kernel_of_its_own(m) and m.settings.allows_measured()


def no_heads_are_split_behind_it(m: Match) -> str | None:
    """no Split takes each head apart behind it, nor makes parts of different sizes."""
    if m.settings.counted or not _is_split_unevenly(m, m.output, is_reshaped=False):
        return None
    return f"what is split behind {describe(m.site)} is split in the kernel of that addition"


def extent(m: Match) -> Extent | None:
    """the product before it has weights, and nothing else reads its result."""
    given = zero(m)
    assert given is not None, "it is what the rule is about"
    try:
        found = UpstreamSearch(m).find(data_of(m.site, m.surgery), given)
    except CannotMove:
        return None
    return found.extent() if found.more == 0 else None


def has_fixed_sizes(m: Match, tensor: Tensor) -> bool:
    """It has one shape, in the file or by the build profile."""
    kind, corners = m.type_of(tensor), m.settings.corners
    stated = kind is not None and kind.shape is not None and all(isinstance(size, int) for size in kind.shape)
    return stated or (bool(corners) and all(corner == corners[0] for corner in corners))


def _is_a_kernel_of_its_own(m: Match) -> bool:
    """True of an addition on so many axes that TensorRT for RTX leaves it out of the product's kernel."""
    kind = m.type_of(m.output)
    return kind is not None and kind.shape is not None and len(kind.shape) > _AXES_OF_A_PRODUCT


def _is_split_unevenly(m: Match, tensor: Tensor, is_reshaped: bool) -> bool:
    """True where ``tensor``, moved or not, is split into parts of different sizes, or each of what a Reshape made of it into
    several parts of more than one element."""
    sliced = [reader.outputs[0] for reader in tensor.outputs if reader.op == "Slice"]
    split = [reader.outputs for reader in tensor.outputs if reader.op == "Split"]
    if not all(_are_even(m, tensor, parts, is_reshaped) for parts in [*split, *([sliced] if len(sliced) > 1 else [])]):
        return True
    moving = (reader for reader in tensor.outputs if reader.op in _MOVING)
    return any(_is_split_unevenly(m, reader.outputs[0], is_reshaped or reader.op == "Reshape") for reader in moving)


def _are_even(m: Match, whole: Tensor, parts: Sequence[Tensor], is_reshaped: bool) -> bool:
    """True where the ``parts`` are known to be equally large, and of one element each along some axis if it ``is_reshaped``."""
    before, kinds = m.type_of(whole), [m.type_of(part) for part in parts]
    shapes = {None if kind is None else kind.shape for kind in kinds}
    if before is None or before.shape is None or len(shapes) != 1 or (after := shapes.pop()) is None:
        return False
    return not is_reshaped or all(own in (1, size) for size, own in zip(before.shape, after, strict=True))


def dropped(m: Match) -> NewTensors:
    assert m.extent is not None, "the rule has an extent"
    return m.extent.plan.replacement()


RULE = Rule(
    name="drop-zero-bias",
    pattern=op(("Add", "Sub"), Var("a"), Var("b"), name="arithmetic"),
    preconditions=(no_heads_are_split_behind_it,),
    subject=zero,
    concerns=concerns,
    extent=extent,
    replacement=dropped,
    optional=lambda m: True,
    because="the bias is zero",
)
