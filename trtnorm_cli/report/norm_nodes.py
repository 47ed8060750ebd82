"""The normalization nodes of a model as text: what is alike is said once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, TypeVar

from rich.console import Console

from trtnorm_cli.onnx_model.normalization import Normalization
from trtnorm_cli.report.console import FittedTable, shape_text, table
from trtnorm_cli.rewrite.rule import Rejection

LEFT = "left as it is: TensorRT has a layer for it"
_OVER_ONE_LAYER = ("InstanceNormalization", "GroupNormalization", "LayerNormalization", "RMSNormalization")
_NEED_A_PLANE = ("InstanceNormalization", "GroupNormalization")
# What is said of a node on which a layer of TensorRT is no worse than what stands there.
_ABOUT_KERNELS = ("normalization-in-rows",)
_SHOWN = 3
_SHOWN_REASONS = 2

Item = TypeVar("Item")


def why_kept(norm: Normalization, rejections: Iterable[Rejection]) -> list[str]:
    """Why no rule takes a node: that TensorRT has a layer for it, or each rule's reason.

    Rules that repair say of a sound node that there is nothing to repair, which tells a user nothing.
    """
    refused = [r for r in rejections if r.node == norm.label]
    if has_a_layer(norm):
        return [LEFT, *(f"{r.rule}: {r.reason}" for r in refused if r.rule in _ABOUT_KERNELS)]
    return [f"{r.rule}: {r.reason}" for r in refused] or [f"left as it is: no rule is about {norm.operator}"]


def has_a_layer(norm: Normalization) -> bool:
    """True when TensorRT's own layer takes the node in this form, as far as the file tells."""
    if norm.operator not in _OVER_ONE_LAYER or norm.further_outputs or norm.attributes.get("num_groups") == 1:
        return False
    if norm.input_dtype == "?" or any(p.dtype != norm.input_dtype for p in norm.parameters):
        return False
    if norm.operator not in _NEED_A_PLANE:
        return True
    lengths = {p.shape for p in norm.parameters}
    fits = all(shape is not None and len(shape) == 1 for shape in lengths)
    if isinstance(norm.channels, int):
        fits = fits and lengths <= {(norm.channels,)}
    return fits and norm.input_shape is not None and len(norm.input_shape) > 2


def print_nodes(out: Console, norms: Sequence[dict[str, Any]]) -> None:
    """The nodes of ``norms`` in groups of what is treated alike."""
    out.print("\nNormalization nodes", style="bold")
    for group in alike(norms, _kind_of_node):
        first = group[0]
        fed_by = listed(norm["fed_by"] if len(group) == 1 else norm["fed_by"].split()[0] for norm in group)
        data = listed(shape_text(norm["input_shape"]) for norm in group)
        facts = [f"{first['input_dtype']} {data}", f"fed by {fed_by}"]
        facts += [f"epsilon {float(first['epsilon']):g}"] if first["epsilon"] is not None else []
        print_group(out, [norm["name"] or norm["output"] for norm in group], first["operator"], facts, first["build"])


def print_group(out: Console, names: Sequence[str], what: str, facts: Sequence[str], outcome: Sequence[str]) -> None:
    """One line for a single normalization and two for several: which they are, and what becomes of them."""
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


def _kind_of_node(norm: dict[str, Any]) -> Hashable:
    parameters = tuple((p["role"], p["dtype"]) for p in norm["parameters"])
    outcome = tuple(line.partition(":")[0] for line in norm["build"])
    # What feeds it decides about folding alone.
    fed_by = norm["fed_by"].split()[0] if norm["operator"] == "BatchNormalization" else ""
    return norm["operator"], norm["input_dtype"], parameters, norm["epsilon"], fed_by, outcome


def listed(names: Iterable[str]) -> str:
    """``a, b, c and 17 more``, each name once."""
    every = list(dict.fromkeys(names))
    more = f" and {len(every) - _SHOWN} more" if len(every) > _SHOWN else ""
    return ", ".join(every[:_SHOWN]) + more


def node_table(norms: Iterable[dict[str, Any]]) -> FittedTable:
    """Everything that is known of each node."""
    columns = ("operator", "name", "input", "channels", "parameters", "epsilon", "fed by", "build")
    return table("Normalization nodes", columns, [_row(norm) for norm in norms])


def _row(norm: dict[str, Any]) -> tuple[object, ...]:
    return (
        norm["operator"],
        norm["name"] or norm["output"],
        f"{shape_text(norm['input_shape'])} {norm['input_dtype']}",
        "?" if norm["channels"] is None else norm["channels"],
        _parameters_text(norm["parameters"]),
        "" if norm["epsilon"] is None else f"{float(norm['epsilon']):g}",
        norm["fed_by"],
        "\n".join(norm["build"]),
    )


def _parameters_text(parameters: list[dict[str, Any]]) -> str:
    """``4 × 64 float32`` when all are alike, else each on its own."""
    kinds = Counter((shape_text(p["shape"]), p["dtype"]) for p in parameters)
    if len(kinds) == 1:
        (shape, dtype), number = next(iter(kinds.items()))
        return f"{number} × {shape} {dtype}"
    return ", ".join(f"{p['role']} {shape_text(p['shape'])} {p['dtype']}" for p in parameters)
