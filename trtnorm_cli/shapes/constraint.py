"""A demand of a node of a model on sizes."""

from __future__ import annotations

from collections.abc import Mapping

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.shapes.evaluate import value_at
from trtnorm_cli.shapes.expression import Expr, Size


@dataclass(frozen=True)
class Constraint:
    """``condition`` must not be 0. ``demand`` says what the node wants in words, ``sides`` which sizes it is about."""

    condition: Expr
    node: str
    operator: str
    demand: str
    sides: tuple[tuple[str, Size], ...]

    @property
    def symbols(self) -> frozenset[str]:
        return self.condition.symbols

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """False only where the sizes certainly break it."""
        return value_at(self.condition, sizes) != 0

    def values(self, sizes: Mapping[str, int]) -> str:
        """The sizes it is about, at given sizes of the symbols, as ``17 and 18``."""
        shown = [f"{name} is {_shown(value_at(side, sizes))}" for name, side in self.sides]
        return " and ".join(shown)

    @property
    def place(self) -> str:
        return f"node {self.node} ({self.operator})"


def _shown(value: int | None) -> str:
    return "unknown" if value is None else str(value)
