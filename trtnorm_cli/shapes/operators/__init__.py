"""The effect of each operator on symbolic shapes, and its demands on them, in one table for the default domain."""

from __future__ import annotations

from collections.abc import Callable

from trtnorm_cli.shapes.node import Node
from trtnorm_cli.shapes.operators import (
    creation,
    elementwise,
    matrix,
    movement,
    normalization,
    reduction,
    resampling,
    selection,
    sequences,
    spectral,
    windows,
)
from trtnorm_cli.shapes.tensor import SymbolicTensor

OPERATORS: dict[str, Callable[[Node], list[SymbolicTensor]]] = {
    **elementwise.RULES,
    **creation.RULES,
    **movement.RULES,
    **selection.RULES,
    **normalization.RULES,
    **windows.RULES,
    **matrix.RULES,
    **reduction.RULES,
    **resampling.RULES,
    **sequences.RULES,
    **spectral.RULES,
}
"""Outputs from a node, the first ones in order; of outputs that are not returned nothing is known."""
