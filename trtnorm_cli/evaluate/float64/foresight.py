"""The time that an evaluation will take, told from what it has done so far."""

from __future__ import annotations

from collections.abc import Callable

from trtnorm_cli.evaluate.float64.clock import Clock

# After so many seconds an evaluation that seems to take that many times its budget is given up. Early on this says little: the
# first convolutions of a network take longer for each multiply-add than the others.
_LOOKS = ((2.0, 4.0), (5.0, 2.5), (10.0, 1.5))


class Foresight:
    """Holds the multiply-adds that an evaluation has done, ``work``, to those that it has to do, ``total_work``."""

    def __init__(self, total_work: Callable[[], float], budget_s: float) -> None:
        self.work = 0.0
        self._total_work, self._budget_s = total_work, budget_s
        self._total: float | None = None
        self._looks = [look for look in _LOOKS if look[0] < budget_s]

    def too_long(self, clock: Clock) -> float | None:
        """The seconds that the whole evaluation would take, where that is far too many; None where not, or nobody knows."""
        if not self._looks or not self.work or not clock.are_over(self._looks[0][0]):
            return None
        _, times = self._looks.pop(0)
        if self._total is None:
            self._total = self._total_work()
        expected = clock.seconds() * self._total / self.work
        return expected if expected > times * self._budget_s else None
