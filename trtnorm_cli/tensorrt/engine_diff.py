"""Two engines held against each other: what they were made of and, part by part, which kernels each has for the same nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from trtnorm_cli.engine_cost.profiles import of_profile
from trtnorm_cli.engine_cost.segments import Segment, Side, segments
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import Record
from trtnorm_cli.records.cost import KernelCost
from trtnorm_cli.records.engine_parts import Kernel, launched
from trtnorm_cli.tensorrt.manifest import Manifest

# Estimates that differ by less are equal, as far as the model of the device can tell.
TOLD_APART = 0.01


@dataclass(frozen=True)
class Difference(Record):
    """One thing in which two engines differ, as each has it. ``kind`` is what ``--fail-on`` calls it."""

    kind: str
    what: str
    first: str
    second: str


@dataclass(frozen=True)
class KernelSummary(Record):
    """A kernel of a part: its type, its nodes or what it does that no node asks for, microseconds, and bytes."""

    type: str
    does: str
    us: float
    bytes: int


@dataclass(frozen=True)
class Part(Record):
    """Kernels of both engines that come from common ONNX ``nodes``, and the changes of these nodes that only one engine has."""

    nodes: tuple[str, ...]
    first: tuple[KernelSummary, ...]
    second: tuple[KernelSummary, ...]
    first_us: float
    second_us: float
    changes: tuple[str, ...]


@dataclass(frozen=True)
class EngineDiff(Record):
    """Everything in which two engines differ. ``parts`` are those whose kernels differ, the largest difference of time first.

    ``notes`` say why figures cannot be held against each other.
    """

    differences: tuple[Difference, ...]
    parts: tuple[Part, ...]
    notes: tuple[str, ...]

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of the differences, and ``kernels`` where parts differ."""
        return frozenset(one.kind for one in self.differences) | (frozenset({"kernels"}) if self.parts else frozenset())


def engine_diff(first: Manifest, second: Manifest) -> EngineDiff:
    """The differences between two engines, from their manifests."""
    found = [
        Difference(kind, what, one, other)
        for kind, what, read in _FACTS
        if (one := read(first)) != (other := read(second)) and not _is_noise(kind, first, second)
    ]
    notes = []
    if first.cost and second.cost and first.cost.device != second.cost.device:
        notes.append(f"times are estimated for {first.cost.device} and for {second.cost.device}")
    if first.optimization_profiles != second.optimization_profiles:
        notes.append("the optimization profiles differ, so that the kernels work at other sizes")
    notes += [f"the {name} engine has no estimate: build it again" for name, one in _named(first, second) if one.cost is None]
    return EngineDiff(tuple(found), tuple(_parts(first, second)), tuple(notes))


def _named(first: Manifest, second: Manifest) -> tuple[tuple[str, Manifest], tuple[str, Manifest]]:
    return ("first", first), ("second", second)


def _is_noise(kind: str, first: Manifest, second: Manifest) -> bool:
    """True for estimates of time that cannot be told apart."""
    if kind != "time" or first.cost is None or second.cost is None:
        return False
    one, other = first.cost.total.us, second.cost.total.us
    return abs(one - other) <= TOLD_APART * max(one, other)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items())) or "none"


def _profiles(manifest: Manifest) -> str:
    return "; ".join(
        f"{one.name}: " + ", ".join(f"{name} {list(r.min)} / {list(r.opt)} / {list(r.max)}" for name, r in one.inputs.items())
        for one in manifest.optimization_profiles
    )


def _interface(manifest: Manifest) -> str:
    network = manifest.network
    return ", ".join(f"{tensor.name} {tensor.dtype}" for tensor in (*network.inputs, *network.outputs))


def _error(manifest: Manifest) -> str:
    comparison = manifest.comparison
    if comparison is None:
        return "not compared"
    exact = [output.exact for one in comparison.candidates for output in one.outputs if isinstance(output.exact, float)]
    return f"{comparison.state}, at most {max(exact):.1e} in float64" if exact else comparison.state


def _cost(read: Callable[[Manifest], str]) -> Callable[[Manifest], str]:
    return lambda manifest: "no estimate" if manifest.cost is None else read(manifest)


_FACTS: tuple[tuple[str, str, Callable[[Manifest], str]], ...] = (
    ("versions", "built by", lambda m: f"trtnorm {m.versions.trtnorm}, {m.versions.backend} {m.versions.tensorrt}"),
    ("model", "model", lambda m: f"{m.source.file} ({m.source.sha256[:12]})"),
    ("sizes", "profiles", _profiles),
    ("types", "precision", lambda m: "as written" if m.precision is None else m.precision.type),
    ("types", "inputs and outputs", _interface),
    ("norms", "normalizations", lambda m: _counts({**m.normalizations.nodes, **m.normalizations.pieces})),
    ("rewriting", "rewritten", lambda m: _counts(Counter(change.rule for change in m.changes))),
    ("rewriting", "policy", lambda m: f"optimize: {m.optimize.policy}"),
    ("layers", "network layers", lambda m: _counts(m.network.layers_by_type)),
    ("kernels", "kernels", lambda m: f"{m.network.launches}: {_counts(m.network.kernels_by_type)}"),
    ("time", "estimated time", _cost(lambda m: f"{m.cost.total.us:.1f} µs on {m.cost.device}" if m.cost else "")),
    ("traffic", "bytes moved", _cost(lambda m: f"{m.cost.total.bytes}" if m.cost else "")),
    ("size", "engine size", lambda m: f"{m.engine.bytes} bytes"),
    ("errors", "comparison", _error),
)
KINDS = tuple(dict.fromkeys(kind for kind, _, _ in _FACTS))


def _parts(first: Manifest, second: Manifest) -> list[Part]:
    sides = [_side(manifest) for manifest in (first, second)]
    if any(side is None for side in sides):
        return []
    one, other = (side for side in sides if side is not None)
    kernels = [kernel for side in (one, other) for kernel in side.kernels if isinstance(kernel, Kernel)]
    names = dict.fromkeys(name for kernel in kernels for name in kernel.onnx_nodes)
    made = {change.node for manifest in (first, second) for change in manifest.changes}
    found = []
    for segment in segments(one, other, {name: [name] for name in names}, _brought_along(made, names)):
        nodes = frozenset(segment.sites)
        own, others = (_kernels_of(side, nodes) for side in (one, other))
        if [_shape(kernel) for kernel in own] != [_shape(kernel) for kernel in others] or _differ(segment):
            us = round(segment.changed.us, 3), round(segment.unchanged.us, 3)
            found.append(Part(tuple(sorted(nodes)), tuple(own), tuple(others), *us, _changes_of(first, second, nodes)))
    return sorted(found, key=lambda part: -abs(part.first_us - part.second_us))


def _brought_along(changed: Collection[str], names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The nodes that a change brought along are named after the one that it took the place of: ``NODE/part``."""
    for name in names:
        start = name.rpartition("/")[0]
        while start:
            if start in changed:
                yield start, name
            start = start.rpartition("/")[0]


def _side(manifest: Manifest) -> Side | None:
    if manifest.cost is None:
        return None
    return Side(launched(of_profile(manifest.network.kernels, 0)), manifest.cost.kernels)


def _differ(segment: Segment) -> bool:
    one, other = segment.changed.us, segment.unchanged.us
    return abs(one - other) > TOLD_APART * max(one, other)


def _kernels_of(side: Side, nodes: frozenset[str]) -> list[KernelSummary]:
    """The kernels that come from ``nodes``, with those without nodes behind or before them."""
    found = []
    tensors: set[str] = set()
    mine = [isinstance(kernel, Kernel) and not nodes.isdisjoint(kernel.onnx_nodes) for kernel in side.kernels]
    for kernel, own in zip(side.kernels, mine, strict=True):
        if own and isinstance(kernel, Kernel):
            tensors |= {tensor.name for tensor in (*kernel.inputs, *kernel.outputs)}
    for kernel, cost, own in zip(side.kernels, side.costs, mine, strict=True):
        if not isinstance(kernel, Kernel):
            continue
        beside = not kernel.onnx_nodes and any(tensor.name in tensors for tensor in (*kernel.inputs, *kernel.outputs))
        if own or beside:
            found.append(_summary(kernel, cost))
    return found


def _summary(kernel: Kernel, cost: KernelCost) -> KernelSummary:
    return KernelSummary(
        kernel.type, cost.unasked or ", ".join(kernel.onnx_nodes) or "no node", cost.us, cost.read + cost.written
    )


def _shape(kernel: KernelSummary) -> tuple[str, str]:
    return kernel.type, kernel.does


def _changes_of(first: Manifest, second: Manifest, nodes: frozenset[str]) -> tuple[str, ...]:
    """The changes of ``nodes`` that one of the engines has and the other has not."""
    made = [{(change.rule, change.node) for change in manifest.changes if change.node in nodes} for manifest in (first, second)]
    own = [(*change, "first") for change in made[0] - made[1]] + [(*change, "second") for change in made[1] - made[0]]
    return tuple(f"{rule} at {node} in the {which} only" for rule, node, which in sorted(own))
