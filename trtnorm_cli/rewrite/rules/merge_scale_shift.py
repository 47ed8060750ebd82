"""Merge neighbouring multiplications, additions and BatchNormalizations with constants.

    sₙ·(… (s₁·x + t₁) …) + tₙ = S·x + T

becomes one BatchNormalization if there is one among them, else one multiplication and one addition at most, wherever these are
fewer. S and T are computed in float64. The BatchNormalization keeps its variance σ²: γ' = S·√(σ²+ε), μ' = 0, β' = T.
Source: composition of affine maps; Ioffe & Szegedy 2015.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.rewrite.parts import batchnorm
from trtnorm_cli.rewrite.pattern import Var, op, optional
from trtnorm_cli.rewrite.rule import Extent, Match, NewConstant, NewNode, Rule
from trtnorm_cli.rewrite.scale_shift.affine import Affine, CannotMove
from trtnorm_cli.rewrite.scale_shift.chain import is_link, link_data, links_before, meaning_of, norm_match
from trtnorm_cli.rewrite.scale_shift.operation import Operation
from trtnorm_cli.rewrite.scale_shift.positions import makes_positions
from trtnorm_cli.rewrite.scale_shift.source import ARITHMETIC

if TYPE_CHECKING:
    from trtnorm_cli.onnx_model.surgery import Surgery
    from trtnorm_cli.rewrite.rule import Node, Tensor


@dataclass(frozen=True)
class Chain:
    """``nodes`` from the last to the first; ``meaning`` is what they do together to ``data``. ``norm`` is the first
    BatchNormalization among them, if there is one."""

    nodes: tuple[Node, ...]
    data: Tensor
    meaning: Affine
    norm: Match | None

    @property
    def needed(self) -> int:
        """How many nodes do the same."""
        return 1 if self.norm is not None else max(1, int(self.meaning.scales) + int(self.meaning.shifts))


def concerns(node: Node, surgery: Surgery) -> bool:
    """It follows another such operator, and makes no positions."""
    before = link_data(node, surgery).inputs if is_link(node, surgery) else []
    return bool(before) and is_link(before[0], surgery) and not makes_positions(node)


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
    """The longest chain that ends at the site; None when it does not save a node."""
    try:
        links, data, meaning = links_before(m, m.site)
    except CannotMove:
        return None
    norms = [node for node in links if node.op == "BatchNormalization"]
    chain = Chain(links, data, meaning, norm_match(m, norms[-1]) if norms else None)
    fits = chain.norm is None or set(meaning.axes) <= {1}
    # A link without effect saves nothing: an untrained normalization ends with a multiplication by one and an addition of
    # zero, by which it is recognised.
    effective = sum(not meaning_of(m, link).is_identity for link in links)
    return chain if fits and chain.needed < effective else None


def extent(m: Match) -> Extent | str | None:
    """fewer nodes do the same as the chain."""
    chain = read_chain(m)
    return None if chain is None else Extent(m.site, chain.nodes, (), chain)


def merged(m: Match) -> NewNode:
    assert m.extent is not None, "the rule has an extent"
    chain: Chain = m.extent.plan
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
    preconditions=(values_are_representable,),
    concerns=concerns,
    extent=extent,
    replacement=merged,
    optional=lambda m: True,
    because="scales and shifts by constants that follow each other are one scale and shift",
)
