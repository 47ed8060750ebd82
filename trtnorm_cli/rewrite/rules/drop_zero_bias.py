"""Leave out an addition of zero behind a matrix product: the bias of an untrained layer.

    W·u + 0 = W·u

Where all sizes are fixed, TensorRT for RTX mostly makes fewer kernels without it: an attention on three axes whose queries,
keys and values are equally large takes four to six less. In the kernel of that addition it takes heads apart, though, each
into its query, key and value, or parts of different sizes, or on more than three axes any parts that are moved then, and
concatenates. Otherwise those are kernels of their own. So the addition stays there. It also brings heads forward there: of
open sizes, an attention takes casts and reshapes instead. On more than three axes the addition is a kernel of its own. So of
open sizes those go, where builds decide, and the others stay.

Where a plain attention, a residual branch, an activation or a gated unit follows, on three axes, nothing is lost without it,
so that the change counts as made in passing. Elsewhere it may cost: behind a product on four axes that is moved, in front of a
softmax over tokens, and where heads are part of the batch. There an engine has to show it.

Nothing of this touches a trained network, which has no such bias (docs/folding_and_kernels.md).
Source: Vaswani et al. 2017, §3.2.2, for the heads of an attention; the operators as in the ONNX operator specification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtnorm_cli.rewrite.pattern import Var, describe, op
from trtnorm_cli.rewrite.rule import Extent, Match, NewTensors, Rule
from trtnorm_cli.rewrite.scale_shift.affine import Affine, CannotMove
from trtnorm_cli.rewrite.scale_shift.operation import Operation
from trtnorm_cli.rewrite.scale_shift.source import data_of, has_one_constant, has_one_number, scale_and_shift_of
from trtnorm_cli.rewrite.scale_shift.upstream import UpstreamSearch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trtnorm_cli.onnx_model.surgery import Surgery
    from trtnorm_cli.rewrite.rule import Node, Tensor

# TensorRT for RTX takes the addition and activation behind a product into its kernel on so many axes and not on more.
_AXES_OF_A_PRODUCT = 3
_MOVING = frozenset({"Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_ACTIVATIONS = frozenset({"Elu", "Gelu", "HardSwish", "LeakyRelu", "Relu", "Sigmoid", "Tanh"})
_TAKING_PARTS = frozenset({"Gather", "Slice", "Split"})
_AT_ONCE = frozenset({
    *("Add", "Div", "Erf", "Gelu", "Gemm", "LayerNormalization", "MatMul", "Mul", "ReduceL2", "Relu", "Sigmoid", "Tanh"),
})  # fmt: skip
# What a gated unit does with either part of a product.
_GATING = frozenset({"Div", "Erf", "Gelu", "Mul", "Relu", "Sigmoid", "Tanh"})
# How far the result of a product was moved, and what may read it then.
_AS_IT_IS, _IN_PARTS, _MOVED = range(3)
_ALLOWED = (_AT_ONCE, _GATING, frozenset[str]())
_BEHIND_MOVES = frozenset({"Add", "Conv", "Div", "LayerNormalization", "ReduceL2", "Resize"})


def concerns(node: Node, surgery: Surgery) -> bool:
    """One operand is a constant, and the other comes from a matrix product."""
    if not has_one_constant(node, surgery):
        return False
    before = data_of(node, surgery).inputs
    return bool(before) and before[0].op == "MatMul"


def addition_of_zero(m: Match) -> Affine | None:
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


def nothing_is_split_or_joined(m: Match) -> str | None:
    """no Split behind it takes each head apart, makes parts of different sizes, or on four axes parts that are moved, and its
    result is not concatenated."""
    if m.settings.counted:
        return None
    to_see = [(m.output, False)]
    for tensor, is_reshaped in to_see:
        if any(reader.op == "Concat" for reader in tensor.outputs):
            return f"what {describe(m.site)} gives is concatenated in the kernel of that addition"
        sliced = [reader.outputs[0] for reader in tensor.outputs if reader.op == "Slice"]
        split = [reader.outputs for reader in tensor.outputs if reader.op == "Split"]
        taken = [*split, *([sliced] if len(sliced) > 1 else [])]
        if not all(_are_even(m, tensor, parts, is_reshaped) for parts in taken):
            return f"what is split behind {describe(m.site)} is split in the kernel of that addition"
        if _is_a_kernel_of_its_own(m) and any(
            reader.op in _MOVING for parts in taken for one in parts for reader in one.outputs
        ):
            return f"what is split and moved behind {describe(m.site)} is so in the kernel of that addition"
        following = (reader for reader in tensor.outputs if reader.op in _MOVING | _ACTIVATIONS)
        to_see += ((reader.outputs[0], is_reshaped or reader.op == "Reshape") for reader in following)
    return None


def extent(m: Match) -> Extent | None:
    """the product before it has weights, and nothing else reads its result."""
    given = addition_of_zero(m)
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


def _are_even(m: Match, whole: Tensor, parts: Sequence[Tensor], is_reshaped: bool) -> bool:
    """True where the ``parts`` are known to be equally large, and of one element each along some axis if it ``is_reshaped``."""
    before, kinds = m.type_of(whole), [m.type_of(part) for part in parts]
    shapes = {None if kind is None else kind.shape for kind in kinds}
    if before is None or before.shape is None or len(shapes) != 1 or (after := shapes.pop()) is None:
        return False
    return not is_reshaped or all(own in (1, size) for size, own in zip(before.shape, after, strict=True))


def is_known_to_pay(m: Match) -> bool:
    """True where TensorRT for RTX takes no longer without the addition, as was measured with fixed sizes: in front of an
    activation, a residual branch or a product, and on three axes also of a gated unit, a plain attention, a convolution, and
    what is added to windows."""
    if m.settings.counted or not has_fixed_sizes(m, m.output):
        return False
    to_see, seen = [(m.output, _AS_IT_IS)], {m.output.name}
    for tensor, so_far in to_see:
        if tensor.name in m.borders.output_names:
            return False
        for reader in tensor.outputs:
            is_factor = _is_factor(reader, m)
            moves = is_factor or reader.op in _MOVING | _TAKING_PARTS
            if moves and not is_factor and _is_a_kernel_of_its_own(m):
                return False
            if not moves and reader.op not in _ALLOWED[so_far] and not (so_far and _ends_an_attention(m, reader, tensor)):
                return False
            now = so_far if is_factor else max(so_far, _IN_PARTS if reader.op in _TAKING_PARTS else _MOVED)
            following = [one for one in reader.outputs if moves and one.name not in seen]
            seen.update(one.name for one in following)
            to_see += ((one, now) for one in following)
    return True


def _ends_an_attention(m: Match, reader: Node, tensor: Tensor) -> bool:
    """True of a product of heads that have an axis of their own, of what normalizes these, of what takes an image, and of
    an addition behind an attention, to windows say."""
    kind = m.type_of(tensor)
    has_heads = kind is not None and kind.shape is not None and len(kind.shape) > _AXES_OF_A_PRODUCT
    return reader.op in _BEHIND_MOVES or (reader.op == "MatMul" and has_heads)


def _is_factor(node: Node, m: Match) -> bool:
    """True of a multiplication by one number, the scale of an attention."""
    return node.op in ("Mul", "Div") and has_one_constant(node, m.surgery) and has_one_number(node, m.surgery)


def dropped(m: Match) -> NewTensors:
    assert m.extent is not None, "the rule has an extent"
    return m.extent.plan.replacement()


RULE = Rule(
    name="drop-zero-bias",
    pattern=op(("Add", "Sub"), Var("a"), Var("b"), name="arithmetic"),
    preconditions=(nothing_is_split_or_joined,),
    subject=addition_of_zero,
    concerns=concerns,
    extent=extent,
    replacement=dropped,
    optional=lambda m: True,
    in_passing=is_known_to_pay,
    because="the bias is zero",
)
