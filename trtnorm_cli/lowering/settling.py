"""Find a conversion that keeps the error budget on calibration inputs, and on others that nothing was settled on.

What a search raises is chosen by the errors that it sees. In a network that makes small differences large, the next inputs of
the same kind may give ten times as much. So each conversion is tried on inputs that are new to it: random ones from other seeds
and images of 0 to 255. Where it is over the budget there, these are calibrated on as well.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from trtnorm_cli.compare.result import Trial
from trtnorm_cli.errors import ProfileError
from trtnorm_cli.evaluate.ort_runner import RunFailed
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.lowering.calibration import Calibration
from trtnorm_cli.precision.calibration import IMAGES
from trtnorm_cli.precision.search import Found, Search
from trtnorm_cli.precision.wider_inputs import wider_inputs

# How often new inputs are tried, and how many of one kind.
_ROUNDS, _AT_ONCE = 3, 2
# Seeds so far from a user's own that nobody draws the same inputs to judge the result.
_NEXT_SEED = 1_000_003
# Inputs on which the model runs longer in float32 are calibrated on, and not tried with other values.
_LONGEST_RUN_S = 5.0
# Images are tried at every shape at which it runs no longer.
_SHORT_RUN_S = 0.5
# What images are held to, of the budget: few are tried, and they differ much.
_MARGIN = 0.7
# Where a conversion is off by a smaller share of the budget, it is tried on fewer inputs.
_CALM = 0.2
# Images of 0 to 255 are possible inputs and not likely ones: they raise no larger share of the nodes.
_MOST_FOR_IMAGES = 0.25
_IF_NOT = "give your own inputs with precision: {data: …} if the network is fed smaller numbers"


@dataclass(frozen=True)
class Unseen:
    """Draws inputs of the kinds that ``calibration`` has, with other values, from seeds that ``seed`` leads to."""

    calibration: Calibration
    seed: int

    def random(self, place: int, number: int) -> Trial | None:
        """The random inputs of the shapes of the calibration's at ``place``, from another seed."""
        seed = self.seed + number * _NEXT_SEED
        drawn = self.calibration.redrawn(place, seed)
        return drawn and replace(drawn, label=f"{drawn.label}, seed {seed}")


def images(trial: Trial | None) -> Trial | None:
    """The inputs as images of 0 to 255; None where none of them is an image."""
    if trial is None:
        return None
    return next((Trial(f"{trial.label}, {IMAGES}", feeds) for feeds in wider_inputs([trial.feeds])), None)


class Settling:
    """The search for a conversion of one model. ``trials`` are all inputs by their numbers in ``search``.

    ``unseen`` draws others; None where conversions are not tried on others, as with inputs of the user's.
    """

    def __init__(self, search: Search, calibration: Calibration, unseen: Unseen | None) -> None:
        self._search, self._calibration, self._unseen = search, calibration, unseen
        self.trials = list(calibration.trials)
        self._settled = list(range(len(self.trials)))
        self._drawn: dict[tuple[int, int], list[int]] = {}
        self._images: set[int] = set()
        self._raised = 0

    def found(self, limit: float) -> Found:
        """The conversion. ``Found.unseen`` has its errors where nothing was settled.

        Raises ``ProfileError`` where the budget cannot be held on the calibration inputs.
        """
        found, unseen = self._search.found(limit, self._settled), dict[tuple[str, int], float]()
        for number in range(_ROUNDS + 1):
            unseen |= self._errors(found, self._others(found, number, limit))
            over = {at for (_, at), error in unseen.items() if error > (_MARGIN if at in self._images else 1.0) * limit}
            likely = over - self._images or over
            stricter = self._stricter(found, limit, likely) if over and number < _ROUNDS else None
            if stricter is None:
                break
            found, self._settled = stricter, self._with(likely)
            unseen = self._errors(found, {at for _, at in unseen})
        return replace(found, unseen=unseen, notes=self._notes(found, unseen, limit))

    def _errors(self, found: Found, numbers: Iterable[int]) -> dict[tuple[str, int], float]:
        """The errors at those of the inputs that the model takes."""
        errors: dict[tuple[str, int], float] = {}
        for number in sorted(set(numbers).difference(self._settled)):
            with suppress(RunFailed):
                errors |= self._search.errors(found, [number])
        return errors

    def _over_budget(self, unseen: Mapping[tuple[str, int], float], limit: float) -> str:
        (output, at), error = max(unseen.items(), key=lambda item: item[1])
        how = f"is off by {error:.1e}" if math.isfinite(error) else "is infinite or NaN"
        return (
            f"{output} {how} at {self.trials[at].label}, which nothing was settled on ({limit:g} allowed), and to "
            "hold it there too would leave little in the type. Give your own inputs with precision: {data: …}"
        )

    def _others(self, found: Found, number: int, limit: float) -> list[int]:
        """The numbers of inputs that ``found`` has not seen, of the shapes at which it is off most.

        A calm conversion first sees one of each kind.
        """
        if self._unseen is None:
            return []
        seconds = self._calibration.seconds
        affordable = [at for at in range(len(seconds)) if seconds[at] <= _LONGEST_RUN_S]
        if not affordable:
            return []
        worst = max(affordable, key=lambda at: max((e for (_, one), e in found.errors.items() if one == at), default=0.0))
        is_calm = number == 0 and max(found.errors.values(), default=0.0) <= _CALM * limit
        if (worst, number) not in self._drawn:
            cheap = [at for at in affordable if seconds[at] <= _SHORT_RUN_S] or [affordable[0]]
            drawn = self._draws_for_calm(worst, cheap[0]) if is_calm else self._draws(worst, number, cheap)
            self._drawn[worst, number] = self._added(drawn)
        return self._drawn[worst, number]

    def _draws_for_calm(self, worst: int, cheapest: int) -> Iterable[tuple[Trial | None, bool]]:
        assert self._unseen is not None, "it is asked for draws"
        yield self._unseen.random(worst, 1), False
        if self._search.takes_images:
            yield images(self._calibration.trials[cheapest]), True

    def _draws(self, worst: int, number: int, cheap: Collection[int]) -> Iterable[tuple[Trial | None, bool]]:
        assert self._unseen is not None, "it is asked for draws"
        trials, first = self._calibration.trials, number * _AT_ONCE + 1
        for index in range(_AT_ONCE):
            yield self._unseen.random(worst, first + index), False
        if self._search.takes_images:
            # The calibration inputs as images come once, and each round has images that are new as well.
            known = [trials[one] for one in sorted({*cheap, worst}) if number == 0]
            for trial in [*known, *(self._unseen.random(one, first) for one in cheap)]:
                yield images(trial), True

    def _added(self, drawn: Iterable[tuple[Trial | None, bool]]) -> list[int]:
        trials = [(trial, is_images) for trial, is_images in drawn if trial is not None]
        numbers = self._search.add([trial.feeds for trial, _ in trials])
        self.trials += [trial for trial, _ in trials]
        self._images.update(number for number, (_, is_images) in zip(numbers, trials, strict=True) if is_images)
        return numbers

    def _stricter(self, found: Found, limit: float, over: Collection[int]) -> Found | None:
        """The conversion that holds on the inputs ``over`` too; None where there is none, or where it costs too much.

        What images raise comes on top of what likely inputs did.
        """
        is_for_images = self._images.issuperset(over)
        try:
            stricter = self._for_images(found, limit, over) if is_for_images else self._search.found(limit, self._with(over))
        except ProfileError:
            return None
        more = len(found.low - stricter.low)
        if is_for_images and (more > _MOST_FOR_IMAGES * self._search.nodes or not stricter.low):
            return None
        self._raised = self._raised + more if is_for_images else 0
        return stricter

    def _for_images(self, found: Found, limit: float, over: Collection[int]) -> Found:
        """``found`` with what the images ``over`` raise."""
        stricter = self._search.found(_MARGIN * limit, sorted(over), found)
        errors = self._search.errors(stricter, self._with(over))
        if max(errors.values(), default=0.0) > limit:
            return self._search.found(limit, self._with(over), found)
        return replace(stricter, errors=errors)

    def _with(self, over: Collection[int]) -> list[int]:
        return sorted({*self._settled, *over})

    def _notes(self, found: Found, unseen: Mapping[tuple[str, int], float], limit: float) -> tuple[str, ...]:
        notes = found.notes
        if self._raised:
            nodes = "1 node is" if self._raised == 1 else f"{self._raised} nodes are"
            notes = (*notes, f"{nodes} float32 for {IMAGES} alone: {_IF_NOT}")
        return (*notes, self._over_budget(unseen, limit)) if max(unseen.values(), default=0.0) > limit else notes
