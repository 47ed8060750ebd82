"""Neighbouring operators that scale and shift one tensor by constants: multiplications, additions, BatchNormalizations."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.rewrite.parts import batchnorm
from trtnorm_cli.rewrite.pattern import Bindings, Var, match, op
from trtnorm_cli.rewrite.rule import Match
from trtnorm_cli.rewrite.scale_shift.affine import Affine, CannotMove, per_channel
from trtnorm_cli.rewrite.scale_shift.operation import Operation
from trtnorm_cli.rewrite.scale_shift.source import data_of, has_one_constant, scale_and_shift_of

if TYPE_CHECKING:
    from trtnorm_cli.onnx_model.surgery import Surgery
    from trtnorm_cli.rewrite.rule import Node, Tensor

NORM = op("BatchNormalization", Var("x"), *batchnorm.PARAMETERS, name=batchnorm.BATCHNORM)


def is_link(node: Node, surgery: Surgery) -> bool:
    """True for an operator that scales and shifts its data by constants."""
    if node.op == "BatchNormalization" and node.domain in DEFAULT_DOMAINS:
        return len(node.inputs) == 5 and all(surgery.is_constant(tensor) for tensor in node.inputs[1:])
    return has_one_constant(node, surgery)


def link_data(node: Node, surgery: Surgery) -> Tensor:
    """The tensor that a link scales and shifts."""
    return node.inputs[0] if node.op == "BatchNormalization" else data_of(node, surgery)


def links_before(m: Match, last: Node) -> tuple[tuple[Node, ...], Tensor, Affine]:
    """The longest chain of links that ends with ``last`` (last first), the tensor before it, and their scale and shift.

    Raises ``CannotMove`` when ``last`` itself cannot be read.
    """
    meaning = meaning_of(m, last)
    links, data = [last], link_data(last, m.surgery)
    while data.inputs and is_link(data.inputs[0], m.surgery) and _only_read_by(m, data, links[-1]):
        try:
            meaning = meaning.after(meaning_of(m, data.inputs[0]))
        except CannotMove:
            break
        links.append(data.inputs[0])
        data = link_data(links[-1], m.surgery)
    return tuple(links), data, meaning


def meaning_of(m: Match, node: Node) -> Affine:
    """The scale and shift of a link. Raises ``CannotMove`` when it is not one value per channel."""
    if node.op != "BatchNormalization":
        return scale_and_shift_of(Operation(node, m))
    norm = norm_match(m, node)
    return per_channel(*batchnorm.scale_and_shift(norm), len(Operation(node, m).input_shape(0)))


def norm_match(m: Match, node: Node) -> Match:
    """A BatchNormalization as its rules see it. Raises ``CannotMove`` when its parameters cannot be trusted."""
    bindings = match(NORM, node, m.surgery)
    if not isinstance(bindings, Bindings):
        raise CannotMove(bindings.reason)
    norm = replace(m, root=node, bindings=bindings)
    for precondition in batchnorm.PRECONDITIONS:
        reason = precondition(norm)
        if reason is not None:
            raise CannotMove(reason)
    return norm


def _only_read_by(m: Match, tensor: Tensor, node: Node) -> bool:
    return len(tensor.outputs) == 1 and not m.borders.leaves(tensor) and m.borders.are_together(tensor.inputs[0], node)
