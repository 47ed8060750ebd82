"""Fold a multiplication with or an addition of a constant per channel into the operators that feed it.

    s·(W·u + b) = (s·W)·u + s·b      (W·u + b) + t = W·u + (b + t)

with one value per output channel, or one for all. It goes through the same operators and into the same weights as
``fold-batchnorm-upstream``. This is how a frozen BatchNormalization is written (Conv Mul Add), and the scale of a residual
branch or of attention logits.

An addition of zero behind a MatMul is left to ``drop-zero-bias``, and positions of a GridSample stay as they are written.

Most of what there is to fold in trained models is made in passing without it: the scale of a residual branch in the kernel of
the addition that follows, one number in front of a matrix product as a factor of that, and what follows a convolution in the
convolution's kernel. A second engine would show the same kernels (docs/folding_and_kernels.md).
Source: Jacob et al. 2018, §3.2; the operators as in the ONNX operator specification.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.rewrite.borders import reads_shape_only
from trtnorm_cli.rewrite.pattern import Var, op
from trtnorm_cli.rewrite.rule import Extent, Match, NewTensors, Rule
from trtnorm_cli.rewrite.rules.drop_zero_bias import has_fixed_sizes
from trtnorm_cli.rewrite.scale_shift.absorb_output import ABSORBERS, WEIGHTED
from trtnorm_cli.rewrite.scale_shift.affine import Affine, CannotMove
from trtnorm_cli.rewrite.scale_shift.carry import CARRIERS
from trtnorm_cli.rewrite.scale_shift.operation import Operation
from trtnorm_cli.rewrite.scale_shift.positions import makes_positions
from trtnorm_cli.rewrite.scale_shift.source import ARITHMETIC, data_of, has_one_constant, has_one_number, scale_and_shift_of
from trtnorm_cli.rewrite.scale_shift.upstream import UpstreamSearch
from trtnorm_cli.rewrite.scale_shift.weights import require_cheap_copies

if TYPE_CHECKING:
    from trtnorm_cli.onnx_model.surgery import Surgery
    from trtnorm_cli.rewrite.rule import Node

_A_CONVOLUTION = (["Conv"], ["ConvTranspose"])
# The inputs of one that has no bias.
_WITHOUT_BIAS = 2
# What reads a convolution and moves, or averages, may do so in a kernel in which the scale would be.
_MOVING = frozenset({"Concat", "Flatten", "GlobalAveragePool", "ReduceMean", "Reshape", "Slice", "Split", "Transpose"})
# What is taken of the result of arithmetic is taken in the kernel of that.
_TAKING_PARTS = frozenset({"Slice", "Split"})
# In the kernels of these TensorRT for RTX multiplies what is not read any more.
_GIVING_RESULTS = frozenset({"Add", "Gemm", "MatMul"})


def concerns(node: Node, surgery: Surgery) -> bool:
    """One operand is a constant, the other comes from an operator that could take or pass it on, and no positions are made."""
    if not has_one_constant(node, surgery):
        return False
    before = data_of(node, surgery).inputs
    can_take = bool(before) and before[0].domain in DEFAULT_DOMAINS and before[0].op in {*ABSORBERS, *CARRIERS}
    return can_take and not makes_positions(node)


def constant_is_per_channel(m: Match) -> str | None:
    """the constant is finite and holds one value per element of one axis of the data, or a single value."""
    found = _given(m)
    return found if isinstance(found, str) else None


def _given(m: Match) -> Affine | str:
    try:
        return scale_and_shift_of(Operation(m.site, m))
    except CannotMove as reason:
        return str(reason)


def extent(m: Match) -> Extent | str | None:
    """operators before it can take all of it, and none has to be added."""
    given, search, data = _given(m), UpstreamSearch(m), data_of(m.site, m.surgery)
    assert isinstance(given, Affine), "the constant is per channel"
    if given.is_identity and not is_worth_removing(m, data.inputs[0]):
        return None
    try:
        found = search.find(data, given)
        require_cheap_copies(found.operations())
    except CannotMove as reason:
        return str(reason) if search.met_weights else None
    return found.extent() if found.more == 0 else None


def is_worth_removing(m: Match, before: Node) -> bool:
    """True for a scale and shift without effect that costs something after the node ``before`` it.

    An untrained normalization ends with a multiplication by one, by which it is recognised.
    """
    if before.op != "MatMul":
        return before.op in WEIGHTED
    return m.site.op in ("Mul", "Div") and (m.settings.counted or has_fixed_sizes(m, before.outputs[0]))


def is_made_in_passing(m: Match) -> bool:
    """True for what a neighbour is likely to do on its way.

    That is a scale whose result an addition alone reads, transposed or not, or one behind an addition or a matrix product that
    gives a result of the model; a multiplication by one number that a matrix product reads, transposed or not, or a softmax
    behind such a product; the bias of a convolution that has no other; what else follows a convolution, as a
    BatchNormalization would, and is not moved afterwards; and arithmetic among itself, also of parts of what it gives.
    """
    before = [node.op for node in m.nodes if node is not m.site]
    if set(before) <= {*ARITHMETIC, *_TAKING_PARTS}:
        return True
    readers = [reader for reader in m.output.outputs if not reads_shape_only(reader)]
    is_result = m.output.name in m.borders.output_names
    if before in _A_CONVOLUTION:
        if (
            m.site.op == "Add"
            and len([each for each in data_of(m.site, m.surgery).inputs[0].inputs if each.name]) == _WITHOUT_BIAS
        ):
            return True
        return not is_result and all(reader.op not in _MOVING for reader in readers)
    if m.site.op not in ("Mul", "Div") or len(readers) + is_result != 1:
        return False
    if is_result:
        return data_of(m.site, m.surgery).inputs[0].op in _GIVING_RESULTS
    if readers[0].op == "MatMul" and m.site.op == "Mul":
        return has_one_number(m.site, m.surgery)
    if readers[0].op == "Softmax":
        return data_of(m.site, m.surgery).inputs[0].op == "MatMul" and has_one_number(m.site, m.surgery)
    if readers[0].op == "Transpose" and len(readers[0].outputs[0].outputs) == 1:
        readers = readers[0].outputs[0].outputs
        if readers[0].op == "MatMul" and m.site.op == "Mul":
            return has_one_number(m.site, m.surgery)
    return bool(readers[0].op == "Add")


def folded(m: Match) -> NewTensors:
    assert m.extent is not None, "the rule has an extent"
    return m.extent.plan.replacement()


RULE = Rule(
    name="fold-scale-shift-upstream",
    pattern=op(ARITHMETIC, Var("a"), Var("b"), name="arithmetic"),
    preconditions=(constant_is_per_channel,),
    concerns=concerns,
    extent=extent,
    replacement=folded,
    optional=lambda m: True,
    in_passing=is_made_in_passing,
    because="the weights before it can hold what it multiplies with or adds",
)
