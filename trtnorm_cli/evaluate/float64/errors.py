"""Why there is no float64 reference for a model."""

from __future__ import annotations

from trtnorm_cli.errors import TrtnormError


class ReferenceUnavailable(TrtnormError):
    """The model cannot be evaluated in float64; ``summary`` says why, ``where`` names the node or the tensor."""

    exit_code = 3


class UnsupportedOperator(ReferenceUnavailable):
    """An operator, a type or a mode has no verified float64 implementation."""


class BudgetExceeded(ReferenceUnavailable):
    """The evaluation takes longer than it may."""
