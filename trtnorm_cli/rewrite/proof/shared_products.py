"""Products that a change leaves as they are, which its proof takes for given.

Both sides make them of the same tensors with the same weights, so that they are the same whatever these are. What follows is
proved for any result of theirs, and the weights, which may be large, are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import onnx_graphsurgeon as gs

from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.rewrite.realise import Realised, RealNode
from trtnorm_cli.rewrite.rule import Match

# Any number can be a result of these.
_PRODUCTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})


def without_shared_products(match: Match, realised: Realised) -> tuple[Match, Realised]:
    """``match`` without the products that ``realised`` makes again, and ``realised`` with their results in place of these."""
    if match.extent is None or match.rule.reference is not None:
        return match, realised
    made = {id(tensor) for node in match.nodes for tensor in node.outputs}
    twins = {id(node): place for node in match.nodes if (place := _twin(match, node, realised.nodes, made)) is not None}
    if not twins or len(twins) == len(match.nodes):
        return match, realised
    nodes, taken = list(realised.nodes), dict(realised.taken)
    for node in match.nodes:
        if id(node) in twins:
            product, result = nodes[twins[id(node)]], node.outputs[0]
            nodes[twins[id(node)]] = RealNode("Identity", product.name, (result.name,), product.outputs, {})
            taken[result.name] = result
    read = {name for node in nodes for name in node.inputs}
    kept = tuple(node for node in match.nodes if id(node) not in twins)
    rest = replace(realised, nodes=nodes, taken={name: tensor for name, tensor in taken.items() if name in read})
    return replace(match, extent=replace(match.extent, nodes=kept)), rest


def _twin(match: Match, node: gs.Node, nodes: Sequence[RealNode], made: set[int]) -> int | None:
    """The place among ``nodes`` of the product that is ``node`` again; None where there is none, or its type is not known."""
    if node.op not in _PRODUCTS or node.domain not in DEFAULT_DOMAINS or any(id(tensor) in made for tensor in node.inputs):
        return None
    kind = match.type_of(node.outputs[0])
    if node.outputs[0] is match.output or kind is None or not kind.dtype or kind.shape is None:
        return None
    form = (node.op, "", [tensor.name for tensor in node.inputs], dict(node.attrs))
    same = [place for place, one in enumerate(nodes) if (one.op, one.domain, list(one.inputs), one.attrs) == form]
    return same[0] if len(same) == 1 else None
