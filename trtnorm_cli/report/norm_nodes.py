"""The normalization nodes of a model as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from trtnorm_cli.onnx_model.normalization_nodes import Parameter
from trtnorm_cli.report.console import FittedTable, shape_text, table
from trtnorm_cli.report.norm_lines import NormLine, outcome_key
from trtnorm_cli.rewrite.describe import NodeOutcome


def node_lines(norms: Iterable[NodeOutcome]) -> list[NormLine]:
    """Each node with its channels, and its type where that is another than float."""
    return [
        NormLine(
            kind=norm.operator,
            name=norm.label,
            fact="" if norm.channels is None else str(norm.channels),
            outcome=norm.build,
            key=outcome_key(norm.build),
            more_facts=() if norm.input_dtype in ("float", "?") else (norm.input_dtype,),
        )
        for norm in norms
    ]


def node_table(norms: Iterable[NodeOutcome]) -> FittedTable:
    """Everything that is known of each node."""
    columns = ("name", "operator", "input", "channels", "parameters", "epsilon", "fed by", "build")
    return table("Normalization nodes", columns, [_row(norm) for norm in norms])


def _row(norm: NodeOutcome) -> tuple[object, ...]:
    return (
        norm.name or norm.output,
        norm.operator,
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
