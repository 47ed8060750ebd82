"""The verdict on one output: what was measured, against what rounding may do to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import ml_dtypes
import numpy as np

from trtnorm_cli.compare.calibration import RUNS, STEPS
from trtnorm_cli.evaluate.metrics import Distance, distance, measure
from trtnorm_cli.evaluate.tolerance import (
    BEYOND_DOUBT,
    FACTOR,
    Bound,
    allowed,
    at_least,
    both,
    epsilon,
    says_something,
    share,
    without_calibration,
)
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.profile.model import Tolerance
from trtnorm_cli.records.comparison import OutputVerdict

# A number that PyTorch keeps as float64, such as an epsilon, is a float32 attribute in ONNX.
_ATTRIBUTE_ROUNDING = 2.0**-23
CONSTANTS, ARITHMETIC, FUNCTIONS = "constants", "arithmetic", "functions"
# Gives the distances of at least so many perturbed runs from the truth for one of these kinds; none where they cannot be had.
NoiseOf = Callable[[str, int], list[Distance]]
# What a few runs allow decides if it is this far from saying nothing: all of them allow up to so many times as much.
_CLEAR = 8.0


@dataclass(frozen=True)
class Measured:
    """One output of both sides in one trial.

    ``wanted`` and ``got`` are what ran, ``truth`` and ``exact`` the same in float64 where it is known. ``reference_error``
    is the largest distance of the reference's runs from float64, ``known`` the native bound of smaller inputs, ``ulp`` the
    spacing of the coarsest type in which the two compute. Where the two were found to be one function without the
    ``truth``, ``is_alike`` is set in all trials, and ``is_same`` in the one where they were.
    """

    trial: str
    output: str
    wanted: np.ndarray
    got: np.ndarray | None
    truth: np.ndarray | None
    exact: np.ndarray | None
    reference_error: Distance | None
    known: Distance | None
    ulp: float
    is_module: bool
    is_alike: bool = False
    is_same: bool = False


@dataclass(frozen=True)
class _Judgement:
    """``passed`` is None where nothing can be said; ``is_vague`` where that is so although rounding explains all."""

    passed: bool | None
    reason: str
    bound: Bound
    share: float
    is_vague: bool = False


def judged(m: Measured, given: Tolerance | None, noise: NoiseOf, max_error: float | None = None) -> OutputVerdict:
    """Hold the candidate to ``given``, or to the noise of the network itself; where that says nothing, to ``max_error``."""
    if m.got is None or m.got.shape != m.wanted.shape:
        return _without_shape(m)
    base = m.wanted if m.truth is None else m.truth
    is_coarser = epsilon(m.got.dtype) > epsilon(m.wanted.dtype)
    native = _distance_in(m.got.dtype, base, m.got) if is_coarser else distance(base, m.got)
    exact = None if m.truth is None or m.exact is None else distance(m.truth, m.exact)
    verdict = OutputVerdict(
        trial=m.trial,
        output=m.output,
        native=measure(m.wanted, m.got),
        native_distance=native.largest,
        exact=exact.largest if exact is not None else 0.0 if m.is_same else None,
        reference_error=None if m.reference_error is None else m.reference_error.largest,
        bound=None,
        tolerance=given,
        share=None,
        passed=True,
        reason="",
    )
    if given is not None:
        reason = _outside(m.wanted, m.got, given)
        return replace(verdict, passed=not reason, reason=reason)
    if not np.isfinite(m.wanted.astype(np.float64)).any() and verdict.native.not_finite_differs == 0:
        what = "it has no elements" if m.wanted.size == 0 else "nothing in it is finite"
        return replace(verdict, passed=None, reason=f"{what}, so there is nothing to compare")
    found = _by_noise(m, native, exact, noise)
    verdict = replace(verdict, bound=found.bound, share=found.share, passed=found.passed, reason=found.reason)
    off = max(one.relative_l2 for one in (native, exact) if one is not None)
    if max_error and found.is_vague and off <= max_error:
        return replace(verdict, passed=True, reason="", share=off / max_error, max_error=max_error)
    return verdict


def _distance_in(coarser: np.dtype, base: np.ndarray, got: np.ndarray) -> Distance:
    """The distance of numbers of a coarser type: what is below its normal numbers counts as zero, as it does in a run."""
    smallest = float(ml_dtypes.finfo(coarser).smallest_normal)
    return distance(*(np.where(np.abs(values.astype(np.float64)) < smallest, 0.0, values) for values in (base, got)))


def _by_noise(m: Measured, native: Distance, exact: Distance | None, noise: NoiseOf) -> _Judgement:
    assert m.got is not None
    # Nobody knows how far the reference's own run is off: more than it is allowed at least has to be asked for.
    own = both(0.0) if m.is_alike and m.reference_error is None else m.reference_error
    bound = without_calibration(own, m.known, m.wanted.dtype, m.got.dtype)
    if m.is_module and m.got.dtype == np.float64:
        bound = replace(bound, native=at_least(bound.native, both(_ATTRIBUTE_ROUNDING)))
    if exact is not None and share(exact, bound.exact) > 1:
        bound = replace(bound, exact=_measured(bound.exact, exact, lambda runs: _exact_limit(m, noise, runs), m.wanted.dtype))
    if share(native, bound.native) > 1 and not m.is_same:
        bound = replace(bound, native=_measured(bound.native, native, lambda runs: _native_limit(m, noise, runs), m.got.dtype))
    if share(native, bound.native) > 1 and not m.is_same and (approximated := noise(FUNCTIONS, RUNS)):
        bound = replace(bound, native=at_least(bound.native, allowed(approximated)))
    of_exact = 0.0 if exact is None else share(exact, bound.exact)
    of_native = share(native, bound.native)
    reason = _reason(m, native, exact, bound)
    passed: bool | None = True
    is_vague = False
    if reason:
        passed = False if _is_certain(m, bound, of_exact, of_native) else None
    elif not says_something(bound.exact if exact is not None else bound.native, m.wanted.dtype):
        passed, reason, is_vague = None, _useless(bound.exact if exact is not None else bound.native), True
    return _Judgement(passed, reason, bound, max(of_exact, of_native), is_vague)


def _measured(known: Distance, found: Distance, limit: Callable[[int], Distance], dtype: np.dtype) -> Distance:
    """The distance that noise allows, by the first few runs where these leave no doubt: further ones never allow less."""
    for runs in STEPS[:-1]:
        few = at_least(known, limit(runs))
        if share(found, few) <= 1 and says_something(_times(few, _CLEAR), dtype):
            return few
        if share(found, few) <= BEYOND_DOUBT and not says_something(few, dtype):
            return few  # nothing could be said of what allows more still, either
    return at_least(known, limit(RUNS))


def _times(one: Distance, factor: float) -> Distance:
    return Distance(one.relative_l2 * factor, one.relative_max * factor)


def _exact_limit(m: Measured, noise: NoiseOf, runs: int) -> Distance:
    """Constants rounded otherwise; in a model of doubles float64's own rounding is of the same size."""
    kinds = [CONSTANTS] if m.ulp > epsilon(np.dtype(np.float64)) else [CONSTANTS, ARITHMETIC]
    samples = [noise(kind, runs) for kind in kinds]
    if not all(samples):
        return both(0.0 if m.reference_error is None else m.reference_error.largest)
    limit = allowed(samples[0])
    return limit if len(samples) == 1 else at_least(limit, allowed(samples[1]))


def _native_limit(m: Measured, noise: NoiseOf, runs: int) -> Distance:
    samples = noise(ARITHMETIC, runs)
    if not samples:
        return both(0.0 if m.reference_error is None else FACTOR * m.reference_error.largest)
    return allowed(samples)


def _is_certain(m: Measured, bound: Bound, of_exact: float, of_native: float) -> bool:
    """A failure is one where the bound says something, or is exceeded many times, or the candidate's type is to blame."""
    assert m.got is not None
    if of_exact <= 1 and of_native <= 1:
        return True
    if of_exact > 1 and (says_something(bound.exact, m.wanted.dtype) or of_exact > BEYOND_DOUBT):
        return True
    return of_native > 1 and (says_something(bound.native, m.got.dtype) or of_native > BEYOND_DOUBT)


def _reason(m: Measured, native: Distance, exact: Distance | None, bound: Bound) -> str:
    assert m.got is not None
    if exact is not None and share(exact, bound.exact) > 1:
        return f"as a function it is {_over(exact, bound.exact)}"
    if share(native, bound.native) > 1:
        return f"its run is {_over(native, bound.native)}"
    coarser = epsilon(m.got.dtype) > epsilon(m.wanted.dtype)
    if coarser and not says_something(bound.native, m.got.dtype):
        moved = f"{bound.native.largest:.1e}"
        return f"it needs {m.wanted.dtype} and computes in {m.got.dtype}, whose rounding alone moves it by {moved}"
    return ""


def _over(found: Distance, limit: Distance) -> str:
    whole = found.relative_l2 > limit.relative_l2
    pair = (found.relative_l2, limit.relative_l2) if whole else (found.relative_max, limit.relative_max)
    where = "" if whole else " in its worst element"
    return f"{pair[0]:.2e} away from the reference{where}, rounding explains {pair[1]:.2e}"


def _useless(limit: Distance) -> str:
    return f"on this data rounding alone may move it by {limit.largest:.0%}, so agreement says nothing"


def _outside(wanted: np.ndarray, got: np.ndarray, given: Tolerance) -> str:
    atol, rtol = given.atol or 0.0, given.rtol or 0.0
    w, g = wanted.astype(np.float64), got.astype(np.float64)
    close = np.isclose(g, w, rtol=rtol, atol=atol, equal_nan=True)
    if close.all():
        return ""
    return f"{int(np.sum(~close))} of {close.size} elements differ by more than {atol:g} + {rtol:g}·|reference|"


def _without_shape(m: Measured) -> OutputVerdict:
    shape = "is missing" if m.got is None else f"has shape {list(m.got.shape)}"
    infinite = measure(np.zeros(1), np.full(1, np.nan))
    reason = f"the output {shape}, the reference has {list(m.wanted.shape)}"
    return OutputVerdict(m.trial, m.output, infinite, float("inf"), None, None, None, None, None, False, reason)
