"""Engines held against each other: what they were made of and, part by part, which kernels each has for the same nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator

from trtnorm_cli.differences.facts import INTERFACE, LAYERS, MODEL, NORMS, Fact, counts_text, onnx_word
from trtnorm_cli.differences.record import KernelSummary, Part
from trtnorm_cli.engine_cost.profiles import of_profile
from trtnorm_cli.engine_cost.segments import Segment, Side, segments
from trtnorm_cli.records.cost import KernelCost
from trtnorm_cli.records.engine_parts import Kernel, launched
from trtnorm_cli.tensorrt.manifest import Manifest

# Estimates that differ by less are equal, as far as the model of the device can tell.
TOLD_APART = 0.01


def engine_facts(manifest: Manifest) -> list[Fact]:
    """The facts about an engine, from its manifest."""
    return [Fact(kind, what, read(manifest)) for kind, what, read in _FACTS]


def are_told_apart(first: Manifest, second: Manifest) -> bool:
    """False for estimates of time that cannot be told apart."""
    if first.cost is None or second.cost is None:
        return True
    one, other = first.cost.total.us, second.cost.total.us
    return abs(one - other) > TOLD_APART * max(one, other)


def engine_notes(first: Manifest, second: Manifest) -> list[str]:
    """Why figures of two engines cannot be held against each other."""
    notes = []
    if first.cost and second.cost and first.cost.device != second.cost.device:
        notes.append(f"times are estimated for {first.cost.device} and for {second.cost.device}")
    if first.optimization_profiles != second.optimization_profiles:
        notes.append("the optimization profiles differ, so that the kernels work at other sizes")
    return notes + [
        f"the {name} engine has no estimate: build it again"
        for name, one in (("first", first), ("second", second))
        if one.cost is None
    ]


def _profiles(manifest: Manifest) -> str:
    return "; ".join(
        f"{one.name}: " + ", ".join(f"{name} {list(r.min)} / {list(r.opt)} / {list(r.max)}" for name, r in one.inputs.items())
        for one in manifest.optimization_profiles
    )


def _interface(manifest: Manifest) -> str:
    network = manifest.network
    return ", ".join(f"{tensor.name} {onnx_word(tensor.dtype)}" for tensor in (*network.inputs, *network.outputs))


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
    ("model", MODEL, lambda m: f"{m.source.file} ({m.source.sha256[:12]})"),
    ("sizes", "profiles", _profiles),
    ("types", "precision", lambda m: "as written" if m.precision is None else m.precision.type),
    ("types", INTERFACE, _interface),
    ("norms", NORMS, lambda m: counts_text({**m.normalizations.nodes, **m.normalizations.pieces})),
    ("rewriting", "rewritten", lambda m: counts_text(Counter(change.rule for change in m.changes))),
    ("rewriting", "policy", lambda m: f"optimize: {m.optimize.policy}"),
    ("layers", LAYERS, lambda m: counts_text(m.network.layers_by_type)),
    ("kernels", "kernels", lambda m: f"{m.network.launches}: {counts_text(m.network.kernels_by_type)}"),
    ("time", "estimated time", _cost(lambda m: f"{m.cost.total.us:.1f} µs on {m.cost.device}" if m.cost else "")),
    ("traffic", "bytes moved", _cost(lambda m: f"{m.cost.total.bytes}" if m.cost else "")),
    ("size", "engine size", lambda m: f"{m.engine.bytes} bytes"),
    ("errors", "comparison", _error),
)


def parts(first: Manifest, second: Manifest) -> list[Part]:
    """The kernels of two engines where these differ, together with those for the same nodes."""
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
