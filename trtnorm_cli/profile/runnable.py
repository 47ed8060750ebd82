"""Find sizes at which a model runs, and the dimensions that must vary together, by running it.

No rule says that one input's batch is another's where operators in between are not understood, or where data decide. So sizes
are tried. First one point is looked for at which the model runs, with every size fixed. Then one dimension after the other is
let go, alone where the model runs, else together with others. A dimension with which it never runs stays fixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import combinations

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.edits import Corners
from trtnorm_cli.profile.model import DimRange
from trtnorm_cli.profile.model_input import ModelInput
from trtnorm_cli.profile.paste import Start, is_batch_name
from trtnorm_cli.profile.shape_inputs import value_range
from trtnorm_cli.shapes.symbols import value_symbol

Point = Mapping[str, int]
# Why the model does not run at a point, or None where it does.
Attempt = Callable[[Point], str | None]
# Sizes that models with one fixed size often have: of tokens, images, and samples of sound at common rates and frames.
_COMMON = (64, 128, 224, 256, 512, 576, 320, 640, 1024, 16000, 32, 16, 8, 4, 2, 1)
_MOST_TIED = 4


@dataclass(frozen=True)
class Trial:
    """A start with the result of a trial. ``failure`` says why it does not run, ``remarks`` what was changed."""

    start: Start
    failure: str | None = None
    remarks: tuple[str, ...] = ()


class OutOfTime(Exception):
    """No more may be tried."""


def tried(start: Start, inputs: Sequence[ModelInput], attempt: Attempt, elsewhere: bool = True) -> Trial:
    """``start`` where the model runs at its min and opt, or else, with ``elsewhere``, other sizes at which it does.

    ``attempt`` raises ``OutOfTime`` when it has taken too long. What is known by then is used.
    """
    search = _Search(_corners_of(start), inputs, attempt)
    try:
        return search.result(start, elsewhere)
    except OutOfTime:
        return search.known(start)


@dataclass
class _Search:
    wanted: dict[str, Corners]
    inputs: Sequence[ModelInput]
    attempt: Attempt
    outcomes: dict[tuple[tuple[str, int], ...], str | None] = field(default_factory=dict)
    found: dict[str, Corners] | None = None
    failure: str | None = None
    tied: list[tuple[str, ...]] = field(default_factory=list)

    def result(self, start: Start, elsewhere: bool) -> Trial:
        if self._runs(self.wanted):
            return Trial(start)
        if not elsewhere:
            return self.known(start)
        base = next((point for point in self._candidates() if self._why_not(point) is None), None)
        if base is None:
            return self.known(start)
        self.found = {name: (size, size, size) for name, size in base.items()}
        stuck = [name for name in self.wanted if not self._let_go((name,))]
        for count in range(2, min(len(stuck), _MOST_TIED) + 1):
            for names in combinations(stuck, count):
                if set(names) <= set(stuck) and self._may_be_tied(names) and self._let_go(names):
                    self.tied.append(names)
                    stuck = [name for name in stuck if name not in names]
        return self.known(start)

    def known(self, start: Start) -> Trial:
        """The findings so far."""
        if self.found is None:
            return Trial(start, self.failure)
        remarks = [f"{' and '.join(names)} are equal: the model ran with no others" for names in self.tied]
        for name, (low, _, high) in self.found.items():
            if low == high and self.wanted[name][0] != self.wanted[name][2]:
                remarks.append(f"{name} is fixed to {low}: with other sizes that were tried, the model did not run")
        return Trial(_with_corners(start, self.found), None, tuple(remarks))

    def _runs(self, sizes: Mapping[str, Corners]) -> bool:
        """True where the model runs at min and opt. Max, which may be large, is not tried."""
        return all(self._why_not({name: corners[i] for name, corners in sizes.items()}) is None for i in (1, 0))

    def _why_not(self, point: Point) -> str | None:
        key = tuple(point.items())
        if key not in self.outcomes:
            self.outcomes[key] = self.attempt(point)
            self.failure = self.failure or self.outcomes[key]
        return self.outcomes[key]

    def _candidates(self) -> Iterator[dict[str, int]]:
        """The first points to try: those wanted, the same with a batch of one, and usual sizes for all that is no batch."""
        low, opt = ({name: corners[i] for name, corners in self.wanted.items()} for i in (0, 1))
        batch = dict.fromkeys(_batch_dimensions(self.inputs, self.wanted), 1)
        sizes = [name for name in opt if name not in batch and any(name in one.dimensions for one in self.inputs)]
        yield opt
        yield low
        yield {**opt, **batch}
        yield {**low, **batch}
        for size in _COMMON:
            yield {**opt, **batch, **dict.fromkeys(sizes, size)}
        for name in sizes if len(sizes) > 1 else []:
            for size in (1, 3, 64, 512):
                yield {**opt, **batch, name: size}

    def _may_be_tied(self, names: Sequence[str]) -> bool:
        assert self.found is not None
        return len({self.found[name] for name in names}) == 1

    def _let_go(self, names: Sequence[str]) -> bool:
        """Let ``names``, which have one fixed size, vary together as far as the model runs. Returns False where it does not."""
        assert self.found is not None
        base = self.found[names[0]][0]
        low, opt, high = self.wanted[names[0]]
        if low == high == base:
            return len(names) == 1
        upper = opt if opt > base else 2 * base
        for corners in ((low, opt, high), (min(low, base), base, max(high, base)), (base, upper, max(high, upper))):
            candidate = {**self.found, **dict.fromkeys(names, corners)}
            if corners[0] < corners[2] and self._varies(names, corners) and self._runs(candidate):
                self.found = candidate
                return True
        return False

    def _varies(self, names: Sequence[str], corners: Corners) -> bool:
        """True where the model runs at two sizes of ``names`` at least, the other sizes as they are."""
        assert self.found is not None
        usual = {name: sizes[1] for name, sizes in self.found.items()}
        asked = dict.fromkeys(corners if corners[0] == corners[1] else corners[:2])
        return all(self._why_not({**usual, **dict.fromkeys(names, size)}) is None for size in asked)


def _batch_dimensions(inputs: Sequence[ModelInput], names: Mapping[str, Corners]) -> list[str]:
    """Dimensions that may be batches, by name, in front, or as the only open one of an input, as in a state [2, ?, 128]."""
    found = []
    for model_input in inputs:
        for axis, dim in enumerate(model_input.dimensions):
            if isinstance(dim, str) and dim in names:
                alone = sum(isinstance(other, str) for other in model_input.dimensions) == 1
                state = alone and 0 < axis < len(model_input.shape) - 1
                if axis == 0 or state or is_batch_name(dim):
                    found.append(dim)
    return list(dict.fromkeys(found))


def _corners_of(start: Start) -> dict[str, Corners]:
    sizes = {name: dim.corners() for name, dim in start.ranges.items()}
    for name, values in start.values.items():
        for index, column in enumerate(zip(*values.corners(), strict=True)):
            low, opt, high = column
            sizes[value_symbol(name, index)] = (low, opt, high)
    return sizes


def _with_corners(start: Start, sizes: Mapping[str, Corners]) -> Start:
    ranges = {name: _dim_range(dim, sizes[name]) for name, dim in start.ranges.items()}
    values = {
        name: value_range([sizes[value_symbol(name, index)] for index in range(len(entry.opt))])
        for name, entry in start.values.items()
    }
    return replace(start, ranges=ranges, values=values)


def _dim_range(dim: DimRange, corners: Corners) -> DimRange:
    low, opt, high = corners
    multiple = dim.multiple_of
    kept = multiple if multiple and low < high and not any(size % multiple for size in corners) else None
    return DimRange(min=low, opt=opt, max=high, multiple_of=kept)
