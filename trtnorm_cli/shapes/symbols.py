"""Names of sizes that have none."""

from __future__ import annotations


def axis_symbol(tensor: str, axis: int) -> str:
    """The name of a dimension that has none."""
    return f"{tensor}[{axis}]"


def value_symbol(tensor: str, index: int) -> str:
    """The name of one element of an input that holds sizes."""
    return f"{tensor}.values[{index}]"


def tensor_of_value(symbol: str) -> str | None:
    """The input whose element a name stands for, None for one that is no element's: ``value_symbol`` backwards."""
    tensor, found, _ = symbol.rpartition(".values[")
    return tensor if found else None
