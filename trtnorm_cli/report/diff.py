"""The differences between two targets, as text."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from rich.console import Console

from trtnorm_cli.differences.record import (
    Diff,
    GraphDiff,
    KernelSummary,
    ModulesDiff,
    NodeChange,
    NodeName,
    Part,
    Region,
    WeightDifference,
)
from trtnorm_cli.report.console import table
from trtnorm_cli.report.cost import nodes_text

_SHOWN = 8
_MOST_KERNELS = 6
_MOST_OPERATORS = 8

Item = TypeVar("Item")


def print_diff(out: Console, diff: Diff, every: bool = False) -> None:
    """The facts that differ, then nodes, weights, modules or kernels, what counts most first."""
    out.print(f"first   {diff.first.name} ({diff.first.kind})")
    out.print(f"second  {diff.second.name} ({diff.second.kind})")
    if diff.differences:
        rows = [(one.what, one.first, one.second) for one in diff.differences]
        out.print(table("", ("", "first", "second"), rows))
    most = None if every else _SHOWN
    if diff.graph is not None:
        _print_graph(out, diff.graph, most)
    if diff.modules is not None:
        _print_modules(out, diff.modules, most)
    for part in diff.parts[:most]:
        _print_part(out, part)
    _print_rest(out, len(diff.parts), most, "parts")
    for note in diff.notes:
        out.print(f"note: {note}")
    if not diff.kinds:
        out.print("the two do not differ")


def _print_rest(out: Console, number: int, most: int | None, what: str) -> None:
    if most is not None and number > most:
        out.print(f"and {number - most} more {what}; --all shows them")


def _print_graph(out: Console, graph: GraphDiff, most: int | None) -> None:
    matched = graph.matched
    pairs = matched.by_name_and_structure + matched.by_structure + matched.by_name + matched.by_surroundings
    out.print(
        f"\nnodes: {pairs} in both ({matched.by_name_and_structure} by name and place, {matched.by_structure} by place, "
        f"{matched.by_name} by name, {matched.by_surroundings} by their surroundings), {matched.only_first} only in the first, "
        f"{matched.only_second} only in the second"
    )
    regions = _grouped(graph.regions, _form_of_region)
    for alike in regions[:most]:
        _print_region(out, alike)
    _print_rest(out, len(regions), most, "kinds of places where nodes differ")
    changes = _grouped(graph.changed, lambda one: (one.first.operator, one.what, one.was, one.now))
    for same in changes[:most]:
        _print_change(out, same)
    _print_rest(out, len(changes), most, "kinds of changed nodes")
    if graph.weights:
        _print_weights(out, graph, most)
    if graph.renamed:
        _print_names(out, graph, most)


def _grouped(items: Iterable[Item], key: Callable[[Item], Hashable]) -> list[list[Item]]:
    """The items with those alike together, what is most frequent first."""
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return sorted(groups.values(), key=lambda group: -len(group))


def _form_of_region(region: Region) -> Hashable:
    beside = tuple(sorted({node.operator for node in nodes}) for nodes in (region.behind, region.before))
    return _operators(region.first), _operators(region.second), str(beside)


def _operators(nodes: Sequence[NodeName]) -> str:
    shown = ", ".join(node.operator for node in nodes[:_MOST_OPERATORS])
    return shown + (f" and {len(nodes) - _MOST_OPERATORS} more" if len(nodes) > _MOST_OPERATORS else "")


def _print_region(out: Console, alike: list[Region]) -> None:
    one = alike[0]
    places = [f"{word} {nodes[0].operator}" for word, nodes in (("behind", one.behind), ("in front of", one.before)) if nodes]
    where = f"  {' and '.join(places)}" if places else ""
    times = f"{len(alike)} × " if len(alike) > 1 else ""
    for sign, nodes in (("-", one.first), ("+", one.second)):
        if nodes:
            out.print(f"  {sign} {times}{_operators(nodes)}{where}")
    names = [(region.first or region.second)[-1].node for region in alike]
    inside = f", in {one.graph}" if one.graph else ""
    out.print(f"      {nodes_text(names)}{inside}")


def _print_change(out: Console, alike: list[NodeChange]) -> None:
    one = alike[0]
    times = f"{len(alike)} × " if len(alike) > 1 else ""
    out.print(f"  ~ {times}{one.first.operator} {one.what}: {one.was} → {one.now}")
    inside = f", in {one.graph}" if one.graph else ""
    out.print(f"      {nodes_text([change.first.node for change in alike])}{inside}")


def _print_weights(out: Console, graph: GraphDiff, most: int | None) -> None:
    out.print(f"weights: {len(graph.weights)} of {len(graph.weights) + graph.same_weights} differ, the worst first")
    out.print(
        table("", ("weight", "of", "type", "worst", "of the largest"), [_weight_row(one) for one in graph.weights[:most]])
    )
    _print_rest(out, len(graph.weights), most, "weights")


def _weight_row(one: WeightDifference) -> tuple[str, str, str, str, str]:
    types = one.first_type if one.first_type == one.second_type else f"{one.first_type} → {one.second_type}"
    worst = one.reason if one.worst is None else f"{one.worst:.1e}"
    return one.first, one.node, types, worst, "" if one.relative is None else f"{one.relative:.1e}"


def _print_names(out: Console, graph: GraphDiff, most: int | None) -> None:
    outer = [one for one in graph.renamed if one.what in ("input", "output")]
    for one in outer[:most]:
        out.print(f"  the {one.what} {one.first} is called {one.second}")
    inner = [one for one in graph.renamed if one.what not in ("input", "output")]
    if not inner:
        return
    counts = ", ".join(f"{len(group)} {group[0].what}s" for group in _grouped(inner, lambda one: one.what))
    out.print(f"names: {counts} are called otherwise, such as {inner[0].first} → {inner[0].second}")
    for one in inner if most is None else ():
        out.print(f"  {one.what} {one.first} → {one.second}")


def _print_modules(out: Console, modules: ModulesDiff, most: int | None) -> None:
    out.print(f"\nnormalization modules: {modules.matched} in both")
    for sign, paths in (("-", modules.only_first), ("+", modules.only_second)):
        for path in paths[:most]:
            out.print(f"  {sign} {path}")
        _print_rest(out, len(paths), most, "modules")
    changes = _grouped(modules.changed, lambda one: (one.what, one.was, one.now))
    for alike in changes[:most]:
        one = alike[0]
        times = f"{len(alike)} × " if len(alike) > 1 else ""
        out.print(f"  ~ {times}{one.what}: {one.was} → {one.now}")
        out.print(f"      {nodes_text([change.first for change in alike])}")
    _print_rest(out, len(changes), most, "kinds of changes")
    for renamed in modules.renamed[:most]:
        out.print(f"  {renamed.first} is called {renamed.second}")
    _print_rest(out, len(modules.renamed), most, "names")


def _print_part(out: Console, part: Part) -> None:
    out.print(f"\n{nodes_text(part.nodes)}: {part.first_us:.1f} µs, then {part.second_us:.1f} µs")
    for sign, kernels in (("-", part.first), ("+", part.second)):
        for kernel in kernels[:_MOST_KERNELS]:
            out.print(f"  {sign} {_kernel_text(kernel)}")
        if len(kernels) > _MOST_KERNELS:
            out.print(f"  {sign} and {len(kernels) - _MOST_KERNELS} more kernels")
    for change in part.changes:
        out.print(f"  because of {change}")


def _kernel_text(kernel: KernelSummary) -> str:
    return f"{kernel.us:6.1f} µs  {kernel.type:<14} {nodes_text(kernel.does.split(', '))}"
