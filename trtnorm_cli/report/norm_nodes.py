"""The normalization nodes of a model as text. What is alike is said once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TypeVar

from rich.console import Console

from trtnorm_cli.onnx_model.normalization_nodes import Parameter
from trtnorm_cli.report.console import FittedTable, shape_text, table
from trtnorm_cli.rewrite.describe import NodeOutcome

_SHOWN = 3
_SHOWN_REASONS = 2

Item = TypeVar("Item")


def print_nodes(out: Console, norms: Sequence[NodeOutcome]) -> None:
    """The nodes of ``norms`` in groups of what is treated alike."""
    out.print("\nNormalization nodes", style="bold")
    for group in alike(norms, _kind_of_node):
        first = group[0]
        fed_by = listed(norm.fed_by if len(group) == 1 else norm.fed_by.split()[0] for norm in group)
        data = listed(shape_text(norm.input_shape) for norm in group)
        facts = [f"{first.input_dtype} {data}", f"fed by {fed_by}"]
        facts += [f"epsilon {first.epsilon:g}"] if first.epsilon is not None else []
        print_group(out, [norm.name or norm.output for norm in group], first.operator, facts, first.build)


def print_group(out: Console, names: Sequence[str], what: str, facts: Sequence[str], outcome: Sequence[str]) -> None:
    """Print one line for a single normalization, and two for several, which say which they are and what becomes of them."""
    if len(names) == 1:
        out.print(f"  {what} {names[0]}: {'; '.join(facts)}")
    else:
        out.print(f"  {len(names)} {what}: {'; '.join(facts)}")
        out.print(f"    {listed(names)}")
    shown = outcome if len(outcome) <= _SHOWN_REASONS else outcome[-1:]
    for line in shown:
        out.print(f"    → {line}")
    if len(outcome) > len(shown):
        out.print(f"      and {len(outcome) - len(shown)} more reasons, with -v")


def alike(items: Iterable[Item], kind: Callable[[Item], Hashable]) -> list[list[Item]]:
    """``items`` in groups of one kind, in the order of their first members."""
    groups: dict[Hashable, list[Item]] = {}
    for item in items:
        groups.setdefault(kind(item), []).append(item)
    return list(groups.values())


def _kind_of_node(norm: NodeOutcome) -> Hashable:
    parameters = tuple((p.role, p.dtype) for p in norm.parameters)
    outcome = tuple(line.partition(":")[0] for line in norm.build)
    # What feeds it decides about folding alone.
    fed_by = norm.fed_by.split()[0] if norm.operator == "BatchNormalization" else ""
    return norm.operator, norm.input_dtype, parameters, norm.epsilon, fed_by, outcome


def listed(names: Iterable[str]) -> str:
    """``a, b, c and 17 more``, each name once."""
    every = list(dict.fromkeys(names))
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + more


def node_table(norms: Iterable[NodeOutcome]) -> FittedTable:
    """Everything that is known of each node."""
    columns = ("operator", "name", "input", "channels", "parameters", "epsilon", "fed by", "build")
    return table("Normalization nodes", columns, [_row(norm) for norm in norms])


def _row(norm: NodeOutcome) -> tuple[object, ...]:
    return (
        norm.operator,
        norm.name or norm.output,
        f"{shape_text(norm.input_shape)} {norm.input_dtype}",
        "?" if norm.channels is None else norm.channels,
        _parameters_text(norm.parameters),
        "" if norm.epsilon is None else f"{norm.epsilon:g}",
        norm.fed_by,
        "\n".join(norm.build),
    )


def _parameters_text(parameters: Sequence[Parameter]) -> str:
    """``4 × 64 float32`` when all are alike, else each on its own."""
    kinds = Counter((shape_text(p.shape), p.dtype) for p in parameters)
    if len(kinds) == 1:
        (shape, dtype), number = next(iter(kinds.items()))
        return f"{number} × {shape} {dtype}"
    return ", ".join(f"{p.role} {shape_text(p.shape)} {p.dtype}" for p in parameters)
