"""What a model computes in exact arithmetic, but for float64's rounding."""

from __future__ import annotations

from trtnorm_cli.compare.float64.errors import BudgetExceeded, ReferenceUnavailable, UnsupportedOperator
from trtnorm_cli.compare.float64.evaluator import Reference, evaluate_float64
from trtnorm_cli.compare.float64.raising import raise_to_float64

__all__ = [
    "BudgetExceeded",
    "Reference",
    "ReferenceUnavailable",
    "UnsupportedOperator",
    "evaluate_float64",
    "raise_to_float64",
]
