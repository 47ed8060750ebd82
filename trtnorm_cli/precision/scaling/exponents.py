"""The power of two by which each tensor is held smaller, so that its values fit a type."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.walk import tensors_read
from trtnorm_cli.precision.float_graph import FloatGraph, is_op
from trtnorm_cli.precision.scaling.relations import SATURATING, Kind, Relation, relation_of


@dataclass(frozen=True)
class Scaling:
    """``exponents`` are positive and by tensor: one of 3 says that the tensor is held as an eighth of itself.

    ``relations`` are those of the nodes, in their order. ``restored`` are tensors that some node needs as they were. The
    tensors of one of ``groups`` share an exponent.
    """

    exponents: Mapping[str, int]
    relations: tuple[Relation, ...]
    restored: frozenset[str]
    groups: tuple[frozenset[str], ...]

    def only(self, names: frozenset[str]) -> Scaling:
        """The scaling of the groups alone that have one of the tensors ``names``."""
        groups = tuple(group for group in self.groups if not group.isdisjoint(names))
        kept = frozenset[str]().union(*groups)
        exponents = {name: exponent for name, exponent in self.exponents.items() if name in kept}
        return replace(self, exponents=exponents, restored=self.restored & kept, groups=groups)

    def of(self, name: str) -> int:
        """The exponent of a tensor; 0 where it is as it was."""
        return self.exponents.get(name, 0)


def scaling_of(graph: FloatGraph, largest: Mapping[str, float], limit: float) -> Scaling | None:
    """The scaling by which tensors with the magnitudes ``largest`` come below ``limit``; None where it would help nowhere.

    Tensors that must share a scale are taken together. A group that would have to be restored as often as it has tensors
    beyond the limit gains nothing, and stays.
    """
    relations = tuple(relation_of(node, graph) for node in graph.model.graph.node)
    groups = _Groups(graph, relations)
    exponents: dict[str, int] = {}
    scaled: list[frozenset[str]] = []
    for names in groups.free():
        beyond = [name for name in names if largest.get(name, 0.0) > limit]
        if beyond and len(groups.restored & set(names)) <= len(beyond):
            exponent = math.ceil(math.log2(max(largest[name] for name in beyond) / limit))
            exponents |= dict.fromkeys(names, exponent)
            scaled.append(frozenset(names))
    return Scaling(exponents, relations, groups.restored & exponents.keys(), tuple(scaled)) if scaled else None


class _Groups:
    """Computed float32 tensors in groups of one scale each."""

    def __init__(self, graph: FloatGraph, relations: Iterable[Relation]) -> None:
        self._parents: dict[str, str] = {}
        fixed = {*graph.inputs, *graph.outputs}
        restored: set[str] = set()
        for node, relation in zip(graph.model.graph.node, relations, strict=True):
            made = graph.float_outputs(node)
            if relation.kind is Kind.ALIKE:
                self._join([*(node.input[place] for place in relation.data), *made])
            elif relation.kind in (Kind.OPAQUE, Kind.NORMALIZED):
                fixed.update(made)
            data = {node.input[place] for place in relation.data}
            others = {name for name in tensors_read(node) if graph.is_float(name) and not graph.is_constant(name)} - data
            fixed.update(others.difference(node.input))  # what subgraphs read
            restored.update(others)
        self._fixed, self.restored = frozenset(fixed), frozenset(restored)
        self._tensors = [name for node in graph.model.graph.node for name in graph.float_outputs(node)]

    def free(self) -> list[list[str]]:
        """The groups without a tensor whose scale is given."""
        found: dict[str, list[str]] = {}
        for name in self._tensors:
            found.setdefault(self._root(name), []).append(name)
        given = {self._root(name) for name in self._fixed}
        return [names for root, names in found.items() if root not in given]

    def _root(self, name: str) -> str:
        while (parent := self._parents.get(name, name)) != name:
            self._parents[name] = self._parents.get(parent, parent)
            name = parent
        return name

    def _join(self, names: list[str]) -> None:
        first = self._root(names[0])
        for name in names[1:]:
            self._parents[self._root(name)] = first


def saturates(graph: FloatGraph, name: str) -> bool:
    """True where every node that needs ``name`` as it was has reached its bounds long before the end of a type."""
    needing = [
        node
        for node in graph.consumers.get(name, ())
        if name not in (node.input[place] for place in relation_of(node, graph).data)
    ]
    return all(is_op(node, *SATURATING) for node in needing)
