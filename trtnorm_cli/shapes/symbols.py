"""Names of sizes that have none."""

from __future__ import annotations


def axis_symbol(tensor: str, axis: int) -> str:
    """The name of a dimension that has none."""
    return f"{tensor}[{axis}]"


def value_symbol(tensor: str, index: int) -> str:
    """The name of one element of an input that holds sizes."""
    return f"{tensor}.values[{index}]"
