"""Find the loops and conditionals of a network, whose layers TensorRT keeps in one flat list.

Boundary layers mark where tensors enter and leave. A layer is inside a loop or conditional when it depends on a tensor that
enters and something that leaves depends on it. Everything else is computed outside, once.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import field

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.tensorrt.network.reading import Layer, Network, Tensor

_LOOP = frozenset({"TRIP_LIMIT", "ITERATOR", "RECURRENCE", "LOOP_OUTPUT"})
_CONDITIONAL = frozenset({"CONDITION", "CONDITIONAL_INPUT", "CONDITIONAL_OUTPUT"})
_ENTRIES = frozenset({"ITERATOR", "RECURRENCE", "CONDITIONAL_INPUT"})
_EXITS = frozenset({"LOOP_OUTPUT", "CONDITIONAL_OUTPUT"})

#: Boundary layers that have no output: they belong to their region and are never translated alone.
CONTROL_ONLY = frozenset({"TRIP_LIMIT", "CONDITION"})


@dataclass(eq=False)
class ControlRegion:
    """A loop or a conditional, with its boundary layers, those of them through which results leave, and what lies between."""

    is_loop: bool
    boundary: list[Layer] = field(default_factory=list)
    exits: list[Layer] = field(default_factory=list)
    inside: set[Layer] = field(default_factory=set)

    def of(self, kind: str) -> list[Layer]:
        """Its boundary layers of one kind."""
        return [layer for layer in self.boundary if layer.kind == kind]

    @property
    def layers(self) -> set[Layer]:
        """Everything that belongs to the region."""
        return self.inside | set(self.boundary)


class Structure:
    """The regions of a network, and an order in which layers and regions can be computed.

    Layers that no output and no assertion depends on are left out, since nothing that they compute can be seen.
    """

    def __init__(self, network: Network) -> None:
        regions = _collect(network.layers)
        self._controls = {layer: _control_tensors(r) for r in regions for layer in r.boundary if layer.kind in _EXITS}
        self._consumers: dict[Tensor, list[Layer]] = defaultdict(list)
        for layer in network.layers:
            for tensor in self.inputs_of(layer):
                self._consumers[tensor].append(layer)
        self._live = self._find_live(network, regions)
        for region in regions:
            region.boundary = [layer for layer in region.boundary if layer in self._live]
            region.exits = [layer for layer in region.boundary if layer.kind in _EXITS]
        self.regions = [region for region in regions if region.exits]
        for region in self.regions:
            self._fill(region)

    def inputs_of(self, layer: Layer) -> list[Tensor]:
        """The layers that a layer depends on. Results of a loop or conditional also depend on what controls it."""
        return [tensor for tensor in layer.inputs if tensor is not None] + self._controls.get(layer, [])

    def _find_live(self, network: Network, regions: list[ControlRegion]) -> set[Layer]:
        assertions = {layer for layer in network.layers if layer.kind == "ASSERTION"}
        live = assertions | self.upstream([*network.outputs, *(t for layer in assertions for t in self.inputs_of(layer))])
        controls = {layer for r in regions if live & set(r.boundary) for layer in r.boundary if layer.kind in CONTROL_ONLY}
        return live | controls

    def _fill(self, region: ControlRegion) -> None:
        entries = [layer for layer in region.boundary if layer.kind in _ENTRIES]
        after = self._downstream(entries, set(region.exits))
        region.inside = after & self.upstream(_leaving(region)) & self._live
        if region.is_loop:
            region.inside |= set(entries)

    def _downstream(self, start: Iterable[Layer], stop: set[Layer]) -> set[Layer]:
        seen = set(start)
        queue = list(seen)
        while queue:
            for tensor in queue.pop().outputs:
                for layer in self._consumers[tensor]:
                    if layer not in seen and layer not in stop:
                        seen.add(layer)
                        queue.append(layer)
        return seen

    def upstream(self, tensors: Iterable[Tensor | None]) -> set[Layer]:
        """Every layer that the tensors depend on."""
        queue = [tensor.producer for tensor in tensors if tensor is not None and tensor.producer is not None]
        seen = set(queue)
        while queue:
            for tensor in self.inputs_of(queue.pop()):
                if tensor.producer is not None and tensor.producer not in seen:
                    seen.add(tensor.producer)
                    queue.append(tensor.producer)
        return seen

    def schedule(self, layers: Collection[Layer]) -> list[Layer | ControlRegion]:
        """The layers and outermost regions among ``layers``, each after what it depends on, in TensorRT's order."""
        members = set(layers) & self._live
        owner: dict[Layer, Layer | ControlRegion] = {layer: layer for layer in members if layer.kind not in CONTROL_ONLY}
        for region in self._outermost(members):
            owner.update(dict.fromkeys(region.layers, region))
        units = list(dict.fromkeys(owner[layer] for layer in sorted(owner, key=lambda layer: layer.index)))
        return _sorted(units, owner)

    def _outermost(self, members: set[Layer]) -> list[ControlRegion]:
        present = [region for region in self.regions if any(layer in members for layer in region.exits)]
        return [r for r in present if not any(q is not r and q.inside & set(r.exits) for q in present)]


def _collect(layers: list[Layer]) -> list[ControlRegion]:
    regions: dict[int, ControlRegion] = {}
    owners = []  # TensorRT's loop and conditional objects are told apart by identity, which holds while they live
    for layer in layers:
        if layer.kind in _LOOP | _CONDITIONAL:
            owners.append(layer.handle.loop if layer.kind in _LOOP else layer.handle.conditional)
            regions.setdefault(id(owners[-1]), ControlRegion(layer.kind in _LOOP)).boundary.append(layer)
    return list(regions.values())


def _control_tensors(region: ControlRegion) -> list[Tensor]:
    return [tensor for layer in region.boundary if layer.kind in CONTROL_ONLY for tensor in layer.inputs if tensor is not None]


def _leaving(region: ControlRegion) -> list[Tensor | None]:
    """The tensors computed inside for the outside, for the next iteration, or to end the loop."""
    leaving = [tensor for layer in region.exits for tensor in (layer.inputs[:1] if region.is_loop else layer.inputs)]
    leaving += [tensor for layer in region.of("RECURRENCE") for tensor in layer.inputs[1:]]
    return leaving + [layer.inputs[0] for layer in region.of("TRIP_LIMIT") if layer.handle.kind.name == "WHILE"]


def _sorted(units: list[Layer | ControlRegion], owner: dict[Layer, Layer | ControlRegion]) -> list[Layer | ControlRegion]:
    place = {id(unit): i for i, unit in enumerate(units)}
    waits: list[set[int]] = [set() for _ in units]
    feeds: list[set[int]] = [set() for _ in units]
    for i, unit in enumerate(units):
        for layer in unit.layers if isinstance(unit, ControlRegion) else (unit,):
            for tensor in layer.inputs:
                source = owner.get(tensor.producer) if tensor is not None and tensor.producer is not None else None
                if source is not None and source is not unit:
                    waits[i].add(place[id(source)])
                    feeds[place[id(source)]].add(i)
    ready = [i for i, sources in enumerate(waits) if not sources]
    heapq.heapify(ready)
    order: list[Layer | ControlRegion] = []
    while ready:
        i = heapq.heappop(ready)
        order.append(units[i])
        for j in feeds[i]:
            waits[j].discard(i)
            if not waits[j]:
                heapq.heappush(ready, j)
    if len(order) != len(units):
        raise ValueError("the network's layers depend on each other in a circle")
    return order
