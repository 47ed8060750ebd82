"""What sizes without a name are called."""

from __future__ import annotations


def axis_symbol(tensor: str, axis: int) -> str:
    """Return what a dimension without a name is called."""
    return f"{tensor}[{axis}]"


def value_symbol(tensor: str, index: int) -> str:
    """Return what one element of an input that holds sizes is called."""
    return f"{tensor}.values[{index}]"
