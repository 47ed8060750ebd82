"""Measured times beside estimated ones: ratios, constants fitted on one half, and the order of forms of the same work."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, groupby
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks.cost_check.cases import Case
from benchmarks.cost_check.store import load
from benchmarks.cost_check.works import with_blocks, works
from trtnorm_cli.cost.device import DEVICES
from trtnorm_cli.cost.roofline import CONSTANTS, Constants, Work, estimate

DEVICE = DEVICES["h200"]
GENERATED = ("compiled", "passes")
LOOPED = ("triton4", "triton32", "triton_two")
WRITTEN = ("triton", *LOOPED, "triton_held")
CLEARLY = 1.1  # Two times that differ by less than this are not said to be in an order.


@dataclass(frozen=True)
class Timed:
    """A case with its time in seconds, and the work of its kernels: ``told`` has what an engine's list of kernels tells.

    That is whether blocks share rows. ``launched`` has the threads of a block besides.
    """

    case: Case
    seconds: float
    told: tuple[Work, ...]
    launched: tuple[Work, ...]

    @property
    def first_half(self) -> bool:
        """True for the half that constants are fitted on. All forms of the same work are in the same half."""
        return hashlib.sha256(repr(self.case.same_work).encode()).digest()[0] % 2 == 0

    def estimated(self, constants: Constants = CONSTANTS, *, launched: bool = False) -> float:
        return sum(estimate(work, DEVICE, constants).seconds for work in (self.launched if launched else self.told))

    def slower(self, *, launched: bool = False) -> float:
        """The measured time over the estimated one."""
        return self.seconds / self.estimated(launched=launched)


def read(path: Path) -> list[Timed]:
    """The cases of a file of measurements."""
    found = []
    for case, seconds, kernels in load(path)[1]:
        done = works(case, [name for name, _, _ in kernels])
        told, launched = (tuple(with_blocks(done, kernels, threads=threads)) for threads in (False, True))
        found.append(Timed(case, seconds, told, launched))
    return found


def fitted(timed: Iterable[Timed]) -> Constants:
    """The constants with the least mean absolute logarithm of measured over estimated, in kernels whose way is known.

    They are fitted one after another, each on the cases that it is for, and are in steps of about a twentieth.
    """
    cases = [t for t in timed if t.case.form in (*GENERATED, *WRITTEN, "copy")]
    copies = [t for t in cases if t.case.form == "copy" and t.seconds > 20e-6]
    looped = [t for t in cases if t.case.form in LOOPED and t.case.shape[1] >= 2**16 and t.case.dtype == "float32"]
    apart = [t for t in cases if t.case.form in GENERATED and t.seconds > 20e-6 and _reduces_apart(t)]
    tiled = [t for t in cases if t.case.form == "triton" and t.seconds > 5e-6]
    constants = CONSTANTS
    constants = _best(constants, "achieved", [i / 100 for i in range(70, 101)], copies)
    for _ in range(3):  # The two are tied, so each is fitted again with the other.
        constants = _best(constants, "latency", [i * 1e-9 for i in range(100, 800, 10)], looped)
        constants = _best(constants, "cache_latency", [i * 1e-9 for i in range(50, 400, 10)], looped)
    constants = _best(constants, "strided", [1 + i / 20 for i in range(40)], apart)
    return _best(constants, "transposed", [1 + i / 20 for i in range(40)], tiled)


def _reduces_apart(timed: Timed) -> bool:
    return any(work.rows is not None and not work.rows.contiguous for work in timed.told)


def _best(constants: Constants, name: str, values: Sequence[float], cases: Sequence[Timed]) -> Constants:
    def miss(value: float) -> float:
        trial = replace(constants, **{name: value})
        return fmean(abs(math.log(t.seconds / t.estimated(trial, launched=True))) for t in cases)

    return replace(constants, **{name: min(values, key=miss)})


@dataclass(frozen=True)
class Agreement:
    """The agreement of estimates with times. ``worst`` is the case with the largest ratio either way."""

    count: int
    middle: float
    low: float
    high: float
    worst: Timed
    spearman: float
    of_logs: float


def agreement(timed: Sequence[Timed], *, launched: bool) -> Agreement:
    ratios = sorted(t.slower(launched=launched) for t in timed)
    worst = max(timed, key=lambda t: abs(math.log(t.slower(launched=launched))))
    measured, estimated = [t.seconds for t in timed], [t.estimated(launched=launched) for t in timed]
    logs = _pearson([math.log(x) for x in measured], [math.log(x) for x in estimated])
    low, high = (ratios[round(share * (len(ratios) - 1))] for share in (0.05, 0.95))
    return Agreement(len(timed), median(ratios), low, high, worst, _pearson(_ranks(measured), _ranks(estimated)), logs)


def _pearson(xs: Sequence[float], ys: Sequence[float]) -> float:
    mx, my = fmean(xs), fmean(ys)
    covariance = sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True))
    return covariance / math.sqrt(sum((x - mx) ** 2 for x in xs) * sum((y - my) ** 2 for y in ys))


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks from 1; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks = [0.0] * len(values)
    place = 1
    for _, group in groupby(order, key=lambda i: values[i]):
        same = list(group)
        for i in same:
            ranks[i] = place + (len(same) - 1) / 2
        place += len(same)
    return ranks


@dataclass(frozen=True)
class Order:
    """Pairs of forms of the same work whose times differ clearly: ordered as they are, the other way round, or not at all.

    ``lost`` are the times of the forms that the estimate calls fastest over those of the fastest, one for each work.
    """

    right: int
    wrong: int
    level: int
    lost: tuple[float, ...]


def order(timed: Sequence[Timed], estimated: Callable[[Timed], float]) -> Order:
    right = wrong = level = 0
    lost = []
    for forms in by_work(timed):
        guess = [estimated(t) for t in forms]
        for (one, a), (other, b) in combinations(zip(forms, guess, strict=True), 2):
            if max(one.seconds, other.seconds) < CLEARLY * min(one.seconds, other.seconds):
                continue
            if math.isclose(a, b, rel_tol=0.01):
                level += 1
            elif (a < b) == (one.seconds < other.seconds):
                right += 1
            else:
                wrong += 1
        if len(forms) > 1:
            # Of several that the estimate calls fastest, the slowest: an estimate that cannot tell earns nothing by luck.
            chosen = max(t.seconds for t, a in zip(forms, guess, strict=True) if math.isclose(a, min(guess), rel_tol=0.01))
            lost.append(chosen / min(t.seconds for t in forms))
    return Order(right, wrong, level, tuple(sorted(lost)))


def by_work(timed: Sequence[Timed]) -> list[list[Timed]]:
    def key(t: Timed) -> Any:
        return repr(t.case.same_work)

    return [list(group) for _, group in groupby(sorted(timed, key=key), key=key)]


def where(timed: Sequence[Timed], keep: Callable[[Case], bool]) -> list[Timed]:
    return [t for t in timed if keep(t.case)]
