"""Measures of the distance of one array from another."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from trtnorm_cli.light_dataclass import dataclass

_INTEGER_OF_SIZE = {2: np.int16, 4: np.int32, 8: np.int64}
_FEWEST_CLASSES = 2
_ULP_PERCENTILES = (50.0, 99.0, 100.0)
_PIECE = 1 << 15


@dataclass(frozen=True)
class Distance:
    """The two distances that verdicts use, both without unit.

    ``relative_l2`` is ‖c − r‖₂ / ‖r‖₂. ``relative_max`` is the largest absolute difference over the largest |r|.
    """

    relative_l2: float
    relative_max: float

    @property
    def largest(self) -> float:
        return max(self.relative_l2, self.relative_max)


@dataclass(frozen=True)
class Metrics:
    """Everything that is reported of a candidate c against a reference r, computed in float64.

    Elements that are NaN or infinite in the same way on both sides agree. Those that are not count in ``not_finite_differs``
    and make the largest difference infinite. ``psnr_db`` takes the range of r as the peak. ``ulp`` holds the 50th, 99th and
    100th percentile of the distance in units in the last place of the common type, or None. ``top1_agreement`` is the share of
    rows of a two-dimensional output with the largest entry in the same place, or None.
    """

    max_abs: float
    mean_abs: float
    relative_l2: float
    relative_max: float
    cosine: float
    psnr_db: float
    ulp: tuple[float, ...] | None
    top1_agreement: float | None
    worst: tuple[int, ...]
    worst_reference: float
    worst_candidate: float
    not_finite_reference: int
    not_finite_candidate: int
    not_finite_differs: int


def distance(reference: np.ndarray, candidate: np.ndarray) -> Distance:
    """The distance of ``candidate`` from ``reference``, which is infinite when shapes differ or only one side is finite."""
    if reference.shape != candidate.shape:
        return Distance(math.inf, math.inf)
    pieces = _Pieces((reference,), (candidate,))
    furthest, largest = pieces.extremes()
    if not math.isfinite(furthest):
        return _distance_of_finite(reference, candidate)
    lengths = pieces.lengths(furthest, largest)
    return Distance(_ratio(*lengths), _ratio(furthest, largest))


def relative_max(references: Sequence[np.ndarray], candidates: Sequence[np.ndarray]) -> float:
    """The ``relative_max`` of all ``candidates`` as one array."""
    if any(r.shape != c.shape for r, c in zip(references, candidates, strict=True)):
        return math.inf
    furthest, largest = _Pieces(references, candidates).extremes()
    if math.isfinite(furthest):
        return _ratio(furthest, largest)
    return _distance_of_finite(np.stack(references), np.stack(candidates)).relative_max


def _distance_of_finite(reference: np.ndarray, candidate: np.ndarray) -> Distance:
    """The distance of what is finite, where both sides are not finite in the same way."""
    difference, r, _, _ = _difference(reference, candidate)
    if np.isinf(difference).any():
        return Distance(math.inf, math.inf)
    largest = float(np.max(np.abs(r), initial=0.0))
    return Distance(_ratio(_norm(difference), _norm(r)), _ratio(float(np.max(difference, initial=0.0)), largest))


@dataclass(frozen=True)
class _Pieces:
    """Arrays looked at in pieces that stay in the processor's caches: as a whole they take many times as long."""

    references: Sequence[np.ndarray]
    candidates: Sequence[np.ndarray]

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """|c − r| and |r|."""
        for reference, candidate in zip(self.references, self.candidates, strict=True):
            flat, other = reference.reshape(-1), candidate.reshape(-1)
            for start in range(0, flat.size, _PIECE):
                r, c = (array[start : start + _PIECE].astype(np.float64) for array in (flat, other))
                with np.errstate(over="ignore", invalid="ignore"):
                    c -= r
                yield np.abs(c, out=c), np.abs(r, out=r)

    def extremes(self) -> tuple[float, float]:
        """The largest |c − r| and |r|; the first is infinite where a piece is not finite, and nothing is said of |r| then."""
        furthest = largest = 0.0
        for apart, size in self:
            if not math.isfinite(most := float(np.max(apart))):
                return math.inf, math.inf
            furthest, largest = max(furthest, most), max(largest, float(np.max(size)))
        return furthest, largest

    def lengths(self, furthest: float, largest: float) -> tuple[float, float]:
        """The Euclidean norms of c − r and r, scaled first so that squares neither overflow nor vanish."""
        sums = [(_squares(apart, furthest), _squares(size, largest)) for apart, size in self]
        return furthest * math.sqrt(math.fsum(a for a, _ in sums)), largest * math.sqrt(math.fsum(b for _, b in sums))


def _squares(sizes: np.ndarray, largest: float) -> float:
    return float(np.sum(np.square(sizes / largest))) if largest > 0 else 0.0


def measure(reference: np.ndarray, candidate: np.ndarray) -> Metrics:
    """Compare two arrays of one shape."""
    difference, r, c, disagree = _difference(reference, candidate)
    finite = np.isfinite(difference)
    worst = _worst(difference)
    largest = float(np.max(np.abs(r), initial=0.0))
    return Metrics(
        max_abs=float(np.max(difference, initial=0.0)),
        mean_abs=float(np.mean(difference[finite])) if finite.any() else 0.0,
        relative_l2=_ratio(_norm(difference[finite]), _norm(r)),
        relative_max=_ratio(float(np.max(difference, initial=0.0)), largest),
        cosine=_cosine(r, c),
        psnr_db=_psnr(r, difference[finite]),
        ulp=_ulp(reference, candidate),
        top1_agreement=_top1(reference, candidate),
        worst=worst,
        worst_reference=float(reference[worst]) if r.size else 0.0,
        worst_candidate=float(candidate[worst]) if c.size else 0.0,
        not_finite_reference=int(np.sum(~np.isfinite(reference.astype(np.float64)))),
        not_finite_candidate=int(np.sum(~np.isfinite(candidate.astype(np.float64)))),
        not_finite_differs=int(np.sum(disagree)),
    )


def _difference(reference: np.ndarray, candidate: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """|c − r|, r and c with what is not finite set to zero, and where finiteness disagrees (the difference is ∞ there)."""
    r, c = reference.astype(np.float64), candidate.astype(np.float64)
    finite = np.isfinite(r) & np.isfinite(c)
    agree = finite | (np.isnan(r) & np.isnan(c)) | (np.isinf(r) & (r == c))
    r, c = np.where(finite, r, 0.0), np.where(finite, c, 0.0)
    with np.errstate(over="ignore"):  # two finite numbers may be infinitely far from each other
        difference = np.asarray(np.abs(c - r))
    difference[~agree] = np.inf
    return difference, r, c, ~agree


def _worst(difference: np.ndarray) -> tuple[int, ...]:
    if difference.size == 0:
        return ()
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(difference)), difference.shape))


def _norm(values: np.ndarray) -> float:
    """The Euclidean norm, scaled first so that squares neither overflow nor vanish."""
    largest = float(np.max(np.abs(values), initial=0.0))
    return largest * float(np.sqrt(np.sum((values / largest) ** 2))) if largest > 0 else 0.0


def _ratio(part: float, whole: float) -> float:
    if part == 0:
        return 0.0
    return part / whole if whole > 0 else math.inf


def _cosine(r: np.ndarray, c: np.ndarray) -> float:
    lengths = _norm(r), _norm(c)
    if lengths == (0.0, 0.0):
        return 1.0
    if 0.0 in lengths:
        return 0.0
    return float(np.clip(np.sum((r / lengths[0]) * (c / lengths[1])), -1.0, 1.0))


def _psnr(r: np.ndarray, difference: np.ndarray) -> float:
    peak = float(np.max(r, initial=0.0) - np.min(r, initial=0.0))
    rmse = _norm(difference) / math.sqrt(difference.size) if difference.size else 0.0
    if rmse == 0:
        return math.inf
    # The quotient of a tiny peak and a huge error is zero in float64, its logarithm is not.
    return 20 * (math.log10(peak) - math.log10(rmse)) if peak > 0 else -math.inf


def _ulp(reference: np.ndarray, candidate: np.ndarray) -> tuple[float, ...] | None:
    """Percentiles of the number of representable values between the two, for equal floating types."""
    if reference.dtype != candidate.dtype or not _is_floating(reference.dtype) or reference.size == 0:
        return None
    one, other = _ordinals(candidate), _ordinals(reference)
    gaps = np.where(one > other, one - other, other - one).astype(np.float64)
    return tuple(float(value) for value in np.percentile(gaps, _ULP_PERCENTILES))


def _is_floating(dtype: np.dtype) -> bool:
    return np.issubdtype(dtype, np.floating) or dtype.name == "bfloat16"


def _ordinals(values: np.ndarray) -> np.ndarray:
    """Unsigned numbers that count representable values in order of size. They are IEEE bit patterns, negative ones mirrored."""
    bits = np.ascontiguousarray(values).view(_INTEGER_OF_SIZE[values.dtype.itemsize]).astype(np.int64)
    lowest = np.int64(np.iinfo(_INTEGER_OF_SIZE[values.dtype.itemsize]).min)
    signed = np.where(bits < 0, lowest - bits, bits)
    return signed.view(np.uint64) + np.uint64(1 << 63)


def _top1(reference: np.ndarray, candidate: np.ndarray) -> float | None:
    is_scores = reference.ndim == 2 and reference.shape[0] > 0 and reference.shape[1] >= _FEWEST_CLASSES
    if not is_scores or not _is_floating(reference.dtype):
        return None
    return float(np.mean(np.argmax(reference, axis=1) == np.argmax(candidate, axis=1)))
