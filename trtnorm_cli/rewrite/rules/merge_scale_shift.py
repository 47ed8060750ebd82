"""Merge neighbouring multiplications, additions and BatchNormalizations with constants.

    sₙ·(… (s₁·x + t₁) …) + tₙ = S·x + T

becomes one BatchNormalization if there is one among them, else one multiplication and one addition at most, wherever these are
fewer. S and T are computed in float64. The BatchNormalization keeps its variance σ²: γ' = S·√(σ²+ε), μ' = 0, β' = T.
Source: composition of affine maps; Ioffe & Szegedy 2015.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from trtnorm_cli.rewrite.pattern import DEFAULT_DOMAINS, Bound, Var, match, op, optional
from trtnorm_cli.rewrite.rule import Match, NewConstant, NewNode, Reach, Rule
from trtnorm_cli.rewrite.rules import batchnorm
from trtnorm_cli.rewrite.scale_shift.affine import Affine, Refused, identity, per_channel
from trtnorm_cli.rewrite.scale_shift.operation import Operation
from trtnorm_cli.rewrite.scale_shift.source import ARITHMETIC, data_of, has_one_constant, scale_and_shift_of

if TYPE_CHECKING:
    from trtnorm_cli.onnx_model.surgery import Surgery
    from trtnorm_cli.rewrite.rule import Node, Tensor

NORM = op("BatchNormalization", Var("x"), *batchnorm.PARAMETERS, name=batchnorm.BATCHNORM)


@dataclass(frozen=True)
class Chain:
    """``nodes`` from the last to the first; ``meaning`` is what they do together to ``data``; ``norm`` is the first
    BatchNormalization among them."""

    nodes: tuple[Node, ...]
    data: Tensor
    meaning: Affine
    norm: Match | None

    @property
    def needed(self) -> int:
        """How many nodes do the same."""
        return 1 if self.norm is not None else max(1, int(self.meaning.scales) + int(self.meaning.shifts))


def is_link(node: Node, surgery: Surgery) -> bool:
    """True for an operator that scales and shifts its data by constants. Reads no values."""
    if node.op == "BatchNormalization" and node.domain in DEFAULT_DOMAINS:
        return len(node.inputs) == 5 and all(surgery.is_constant(tensor) for tensor in node.inputs[1:])
    return has_one_constant(node, surgery)


def concerns(node: Node, surgery: Surgery) -> bool:
    """It is the last of two such operators at least."""
    readers = node.outputs[0].outputs
    if not is_link(node, surgery) or (len(readers) == 1 and is_link(readers[0], surgery)):
        return False
    before = _data(node, surgery).inputs
    return bool(before) and is_link(before[0], surgery)


def _data(node: Node, surgery: Surgery) -> Tensor:
    return node.inputs[0] if node.op == "BatchNormalization" else data_of(node, surgery)


def rank_is_known(m: Match) -> str | None:
    """the rank of the data is known."""
    kind = m.type_of(_data(m.site, m.surgery))
    return None if kind is not None and kind.shape is not None else f"the rank of {_data(m.site, m.surgery).name} is not known"


def values_are_representable(m: Match) -> str | None:
    """the merged scale and shift stay finite in the type of the data."""
    chain = read_chain(m)
    if chain is None:
        return None
    dtype = _dtype(m, chain)
    scale = np.abs(chain.meaning.scale) * (1.0 if chain.norm is None else np.max(_deviation(chain.norm)))
    found = batchnorm.not_representable(scale, dtype, "the merged scale")
    return found or batchnorm.not_representable(chain.meaning.shift, dtype, "the merged shift")


def read_chain(m: Match) -> Chain | None:
    """The longest chain that ends at the site; None when it is not two nodes or longer, or does not save any."""
    node, links, norms = m.site, [], []
    meaning = identity(len(_shape(m, node)))
    while True:
        try:
            own, norm = _link(m, node)
        except Refused:
            break
        meaning = meaning.after(own)
        links.append(node)
        norms += [] if norm is None else [norm]
        data = _data(node, m.surgery)
        if not data.inputs or not _only_read_by(m, data, node) or not is_link(data.inputs[0], m.surgery):
            break
        node = data.inputs[0]
    if len(links) < 2:
        return None
    chain = Chain(tuple(links), _data(links[-1], m.surgery), meaning, norms[-1] if norms else None)
    fits = chain.norm is None or set(meaning.axes) <= {1}
    return chain if fits and chain.needed < len(links) else None


def _shape(m: Match, node: Node) -> tuple[int | str | None, ...]:
    return Operation(node, m).input_shape(list(node.inputs).index(_data(node, m.surgery)))


def _link(m: Match, node: Node) -> tuple[Affine, Match | None]:
    """What ``node`` does, and its match when it is a BatchNormalization. Raises ``Refused``."""
    if node.op != "BatchNormalization":
        return scale_and_shift_of(Operation(node, m)), None
    bound = match(NORM, node, m.surgery)
    if not isinstance(bound, Bound):
        raise Refused(bound.reason)
    norm = replace(m, root=node, bound=bound)
    for precondition in batchnorm.PRECONDITIONS:
        reason = precondition(norm)
        if reason is not None:
            raise Refused(reason)
    return per_channel(*batchnorm.scale_and_shift(norm), len(_shape(m, node))), norm


def _only_read_by(m: Match, tensor: Tensor, node: Node) -> bool:
    return len(tensor.outputs) == 1 and not m.borders.leaves(tensor) and m.borders.are_together(tensor.inputs[0], node)


def reach(m: Match) -> Reach | str | None:
    """Fewer nodes do the same."""
    chain = read_chain(m)
    return None if chain is None else Reach(m.site, chain.nodes, (), chain)


def merged(m: Match) -> NewNode:
    assert m.reach is not None, "the rule has a reach"
    chain: Chain = m.reach.plan
    if chain.norm is not None:
        return _batchnorm(chain, chain.norm)
    dtype, result = _dtype(m, chain), None
    if chain.meaning.scales:
        scale = NewConstant("scale", chain.meaning.scale.astype(dtype))
        result = NewNode("Mul", (chain.data, scale), role="mul", like=chain.data)
    if chain.meaning.shifts:
        shift = NewConstant("shift", chain.meaning.shift.astype(dtype))
        result = NewNode("Add", (result or chain.data, shift), role="add")
    return result or NewNode("Identity", (chain.data,), role="identity")


def _batchnorm(chain: Chain, norm: Match) -> NewNode:
    size = norm.value("variance").size
    scale, shift = chain.meaning.vector(1, size, "the BatchNormalization")
    values = {"scale": scale * _deviation(norm), "shift": shift, "mean": np.zeros(size)}
    constants = [NewConstant(name, value.astype(norm.value(name).dtype)) for name, value in values.items()]
    operands = (chain.data, *constants, norm.tensor("variance"))
    return NewNode("BatchNormalization", operands, dict(norm.root.attrs), "batchnorm", norm.root.name)


def _deviation(norm: Match) -> np.ndarray:
    return np.asarray(np.sqrt(norm.value("variance").astype(np.float64) + batchnorm.epsilon(norm)))


def _dtype(m: Match, chain: Chain) -> np.dtype:
    if chain.norm is not None:
        return np.dtype(chain.norm.value("scale").dtype)
    first = chain.nodes[0]
    return np.dtype(Operation(first, m).weight(0 if m.surgery.is_constant(first.inputs[0]) else 1).dtype)


RULE = Rule(
    name="merge-scale-shift",
    pattern=op(("BatchNormalization", *ARITHMETIC), Var("a"), Var("b"), *(optional(Var(name)) for name in "cde"), name="last"),
    preconditions=(rank_is_known, values_are_representable),
    concerns=concerns,
    reach=reach,
    replacement=merged,
    because="scales and shifts by constants that follow each other are one scale and shift",
)
