"""By how much a reading of the model that the user asked for changes its results, as it was measured."""

from __future__ import annotations

from dataclasses import field

from trtnorm_cli.light_dataclass import dataclass


@dataclass(frozen=True)
class OutputEffect:
    """The change of one output, the largest over all draws.

    ``relative_max`` is the largest difference over the largest value, and ``relative_l2`` the norm of the difference over that
    of the output. ``share`` is the share of elements that differ, for an output that has no real numbers, and else None.
    """

    relative_max: float
    relative_l2: float
    share: float | None = None

    def __str__(self) -> str:
        if self.share is not None:
            return f"in {self.share:.2g} of its elements"
        return f"by {self.relative_max:.2g} of its largest value ({self.relative_l2:.2g} in L2)"


@dataclass(frozen=True)
class Effect:
    """By how much the outputs change because of ``asked``, a line of the build profile, on random inputs of some ``draws``.

    ``reason`` says why that was not measured, where it was not, and ``way`` where both models ran.
    """

    asked: str
    draws: int = 0
    outputs: dict[str, OutputEffect] = field(default_factory=dict)
    reason: str = ""
    way: str = ""

    @property
    def measured(self) -> str:
        """The changes by output, in words."""
        if self.reason:
            return f"not measured: {self.reason}"
        changes = ", ".join(f"{name} {effect}" for name, effect in self.outputs.items())
        return f"{changes}; {self.draws} draws of random inputs, {self.way}"

    def __str__(self) -> str:
        return f"{self.asked} changes the results: {self.measured}"
