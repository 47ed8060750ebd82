"""Prove one change: cut out what is replaced and its replacement, run both on the same inputs, and compare."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace

import numpy as np
import onnx
import onnx_graphsurgeon as gs

from trtnorm_cli.evaluate.blas_threads import one_thread
from trtnorm_cli.evaluate.data.input_ranges import Domain
from trtnorm_cli.evaluate.float64 import BudgetExceeded, ReferenceUnavailable, UnsupportedOperator, evaluate_float64
from trtnorm_cli.evaluate.float64.perturbation import Moves, Perturbation
from trtnorm_cli.evaluate.metrics import relative_max
from trtnorm_cli.evaluate.ort_runner import OrtRunner
from trtnorm_cli.evaluate.tolerance import FACTOR, epsilon
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.rewrite.pattern import describe
from trtnorm_cli.rewrite.proof.pair import Pair, PairRuns, RaisedWeights, Run, Tensors
from trtnorm_cli.rewrite.proof.region import Region, new_region, original_region
from trtnorm_cli.rewrite.proof.sampling import Shapes, draw, fitting_domains, is_floating, real_shapes, sample_shapes
from trtnorm_cli.rewrite.proof.shape_sources import ShapeSources, shape_sources
from trtnorm_cli.rewrite.proof.shared_products import without_shared_products
from trtnorm_cli.rewrite.proof.short_shapes import Short, short_shapes
from trtnorm_cli.rewrite.realise import Realised, realise
from trtnorm_cli.rewrite.rule import Check, Match, Unprovable

# Errors are measured against the largest value; so many values, or so many draws, are looked at.
_ENOUGH_VALUES, _MOST_DRAWS = 256, 16
_NO_KERNEL = "Could not find an implementation"
# Rounding the replacement's constants to the storage type moves the exact result by a few units in the last place.
_STORAGE_ROUNDINGS = 8
_BYTES = (np.dtype(np.int8), np.dtype(np.uint8))
_MOST_AT_TIES = 2e-3
# Sums in float64 round as well, which shows where the constants are float64 themselves.
_ARITHMETIC = 1e-12
_HALF_UNIT_OF_DOUBLE = 2.0**-53
# The replacement may round so many times as much as the original, but more than this is not put down to that.
_TIMES_THE_ORIGINAL = 4.0
_MOST_ROUNDING = 1e-3
# How often inputs are drawn, and how far apart the seeds are.
_MOST_TRIES, _NEXT_SEED = 4, 1_000_003


@dataclass(frozen=True)
class Prover:
    """Compares before and after at the shapes in ``pinned``, in ONNX Runtime and in float64."""

    runner: OrtRunner
    pinned: Mapping[str, TensorType]
    seed: int = 0
    proofs: dict[str, Check] = field(default_factory=dict)
    refused: set[bytes] = field(default_factory=set)
    short: dict[Hashable, Short | None] = field(default_factory=dict)
    pool: list[np.ndarray] = field(default_factory=list)

    def __call__(self, match: Match, realised: Realised) -> Check:
        """The check of one change. Raises ``Unprovable`` when the original cannot be evaluated at any shape tried."""
        match, realised = without_shared_products(match, realised)
        meant = None if match.rule.reference is None else realise(match.rule.reference(match), match, _reference_names())
        inputs = _region_inputs(match, realised, meant)
        shapes = shape_sources(match, inputs)
        kinds = {tensor.name: self._kind(match, tensor) for tensor in _fed(inputs, shapes)}
        source = original_region(match, realised, shapes, kinds) if meant is None else new_region(match, meant, shapes, kinds)
        pair = Pair(source, new_region(match, realised, shapes, kinds), kinds, self._stated_shapes(match, kinds))
        key = pair.digest(match.rule.name, describe(match.site), match.output.name)
        if key not in self.proofs:
            # ONNX Runtime works beside this.
            with one_thread():
                self.proofs[key] = self._prove(match, pair)
        return self.proofs[key]

    def _prove(self, match: Match, pair: Pair) -> Check:
        """At short shapes where these prove as much, and at the file's where they do not pass there."""
        if not pair.stated and (short := self._short_shapes(pair)) is not None:
            try:
                check = self._prove_at(match, pair.at(short), [dict(zip(pair.kinds, short.shapes, strict=True))])
                if check.passed:
                    return check
            except Unprovable:
                pass
        return self._prove_at(match, pair, list(sample_shapes(pair.kinds)))

    def _short_shapes(self, pair: Pair) -> Short | None:
        """They are worked out once for equal regions."""
        real = real_shapes(pair.kinds)
        key = (pair.form, tuple(real.values()))
        if key not in self.short:
            self.short[key] = short_shapes(pair.before, pair.after, real)
        return self.short[key]

    def _prove_at(self, match: Match, pair: Pair, shapes: Sequence[Shapes]) -> Check:
        """Inputs at which rounding moves the original further than is put down to rounding are drawn anew."""
        check, is_steady = self._proved(match, pair, shapes, self.seed)
        for again in range(1, _MOST_TRIES):
            if check.passed or is_steady:
                break
            check, is_steady = self._proved(match, pair, shapes, self.seed + again * _NEXT_SEED)
        return check

    def _proved(self, match: Match, pair: Pair, shapes: Sequence[Shapes], seed: int) -> tuple[Check, bool]:
        """The check with inputs of one seed; False where rounding does so much to the original that its run says nothing."""
        positive = [tensor.name for tensor in map(match.bindings.tensors.get, match.rule.positive) if tensor is not None]
        raised, tried = RaisedWeights(self.pool), iter(shapes)
        draws, wanted, runs = self._reference(pair, positive, tried, raised, seed)
        raised.forget(pair.before.weights.values(), but=pair.after.weights.values())
        try:
            exact = [_evaluated(pair.after, feeds, raised) for feeds in draws]
        except (BudgetExceeded, UnsupportedOperator) as error:
            raise Unprovable(f"the replacement cannot be evaluated in float64: {error}") from error
        except ReferenceUnavailable as error:
            if left := list(tried):  # it may hold to sizes that the file states, as the original need not
                with suppress(Unprovable):
                    return self._proved(match, pair, left, seed)
            return self._failed(match, f"the replacement cannot be evaluated in float64: {error}"), True
        raised.forget(pair.after.weights.values())
        run = _judged(runs.results(), wanted, has_reference=match.rule.reference is not None)
        if match.rule.float64_decides and run.difference is not None and run.difference < float("inf"):
            run = _Judged(None, "float64 only; ONNX Runtime may saturate products of bytes, or round data")
        difference, own = _relative(wanted, exact), 0.0
        if difference > _ARITHMETIC and self._storage(match, draws[0]) == np.float64:
            own = _own_rounding(pair.before, draws, wanted, raised)
        check = replace(self._verdict(match, draws, wanted, difference, own, run), seed=seed)
        return check, _TIMES_THE_ORIGINAL * run.original <= _MOST_ROUNDING

    def _kind(self, match: Match, tensor: gs.Tensor) -> TensorType:
        """The type at the pinned shapes, or what the file says."""
        for kind in (self.pinned.get(match.origins.get(tensor.name, tensor.name)), match.type_of(tensor)):
            if kind is not None and kind.dtype and kind.shape is not None:
                return kind
        raise Unprovable(f"type and shape of {tensor.name} are not known")

    def _stated_shapes(self, match: Match, kinds: Mapping[str, TensorType]) -> Tensors:
        """Values for shapes that are made from tensors which the change replaces: those that the pinned shapes come to."""
        stated = {}
        for node in match.nodes:
            if node.op == "Reshape" and node.inputs[1].name in kinds:
                kind = self.pinned.get(match.origins.get(node.outputs[0].name, node.outputs[0].name))
                if kind is not None and kind.is_static:
                    stated[node.inputs[1].name] = np.array(kind.shape, np.int64)
        return stated

    def _reference(
        self, pair: Pair, positive: Sequence[str], tried: Iterable[Shapes], raised: RaisedWeights, seed: int
    ) -> tuple[list[Tensors], list[Tensors], PairRuns]:
        """Inputs, several draws where the output is small, what the original makes of them in float64, and both in ONNX
        Runtime, which works in a process of its own, beside the evaluation in float64.
        """
        rng, kinds = np.random.default_rng(seed), pair.kinds
        reason = ""
        for shapes in tried:
            domains = self._domains(pair, shapes)
            draws = [{**draw(rng, kinds, shapes, positive, domains), **pair.stated}]
            try:
                wanted = [_evaluated(pair.before, draws[0], raised)]
                name, first = next(iter(wanted[0].items()))
                if first.size == 0:
                    raise Unprovable(f"{name} has no elements")
                if kinds:
                    further = range(_further_draws(first.size))
                    draws += [{**draw(rng, kinds, shapes, positive, domains), **pair.stated} for _ in further]
                runs = PairRuns(self.runner, pair, draws, self.refused)
                return draws, wanted + [_evaluated(pair.before, feeds, raised) for feeds in draws[1:]], runs
            except ReferenceUnavailable as error:
                reason = str(error)
        raise Unprovable(f"the original cannot be evaluated in float64: {reason}")

    @staticmethod
    def _domains(pair: Pair, shapes: Shapes) -> dict[str, Domain]:
        if all(is_floating(kind.dtype) for kind in pair.kinds.values()):
            return {}
        return fitting_domains(pair.before.whole(), pair.kinds, shapes)

    def _storage(self, match: Match, feeds: Tensors) -> np.dtype:
        """The type of what is computed; where it is not known, that of the inputs."""
        kind = self.pinned.get(match.output.name)
        if kind is not None and kind.dtype:
            stored = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind.dtype))
            # Quantised data have the values of their steps; what was rounded to these was float32.
            return np.dtype(np.float32) if stored in _BYTES else stored
        return next((feed.dtype for feed in feeds.values()), np.dtype(np.float32))

    def _verdict(
        self,
        match: Match,
        draws: list[Tensors],
        wanted: list[Tensors],
        float64_rel: float,
        own_rounding: float,
        run: _Judged,
    ) -> Check:
        storage = self._storage(match, draws[0])
        exact_tolerance = max(_STORAGE_ROUNDINGS * epsilon(storage), _ARITHMETIC, min(own_rounding, _MOST_ROUNDING))
        rounding = 16 * max(map(epsilon, (storage, *_stash_types(match))))
        tolerance = max(match.rule.tolerance, rounding, min(_TIMES_THE_ORIGINAL * run.original, _MOST_ROUNDING))
        run_rel = run.difference
        passed = float64_rel <= exact_tolerance and (run_rel is None or run_rel <= tolerance)
        largest = max(float(np.max(np.abs(values[match.output.name]), initial=0.0)) for values in wanted)
        return Check(
            max_abs=(float64_rel if run_rel is None else run_rel) * largest,
            max_rel=run_rel if run_rel is not None else float64_rel,
            tolerance=tolerance,
            float64_rel=float64_rel,
            float64_tolerance=exact_tolerance,
            seed=self.seed,
            shapes={key: list(value.shape) for key, value in draws[0].items()},
            evaluated_with=run.ran,
            passed=passed,
            reason="" if passed else self._reason(float64_rel, exact_tolerance, run_rel, tolerance),
        )

    @staticmethod
    def _reason(exact: float, exact_tolerance: float, run: float | None, tolerance: float) -> str:
        if not exact <= exact_tolerance:
            return f"in float64 the outputs differ by {exact:.2e} of the largest value, allowed is {exact_tolerance:.2e}"
        return f"in ONNX Runtime the outputs differ by {run:.2e} of the largest value, allowed is {tolerance:.2e}"

    def _failed(self, match: Match, reason: str) -> Check:
        return Check(
            max_abs=float("nan"),
            max_rel=float("nan"),
            tolerance=match.rule.tolerance,
            float64_rel=None,
            float64_tolerance=None,
            seed=self.seed,
            shapes={},
            evaluated_with="nothing",
            passed=False,
            reason=reason,
        )


@dataclass(frozen=True)
class _Judged:
    """``difference`` between before and after in ONNX Runtime, None where it was not run; ``original`` is what rounding does
    to the original there: a variance as the difference of two means, say, cancels where a group has few elements.
    """

    difference: float | None
    ran: str
    original: float = 0.0


def _judged(run: Run, exact: list[Tensors], has_reference: bool) -> _Judged:
    """The result has no difference where there is no kernel for the original.

    A reference is written in other operators than the file's, so that a kernel may be missing for the replacement alone.
    """
    if run.before is None:
        return _Judged(None, f"float64 only; ONNX Runtime does not run the original: {run.refusal}")
    if run.after is not None:
        return _Judged(_relative(run.before, run.after), "ONNX Runtime and float64", _relative(exact, run.before))
    if has_reference and _NO_KERNEL in run.refusal:
        return _Judged(None, f"float64 only; ONNX Runtime does not run the operator: {run.refusal}")
    return _Judged(float("inf"), f"ONNX Runtime does not run the replacement: {run.refusal}")


def _evaluated(region: Region, feeds: Tensors, raised: RaisedWeights) -> Tensors:
    return evaluate_float64(region.model, {**feeds, **raised.of(region)}).outputs


def _own_rounding(before: Region, draws: list[Tensors], wanted: list[Tensors], raised: RaisedWeights) -> float:
    """How far the rounding of doubles may move an original of doubles: 1e9 + x − 1e9 is no exact x."""
    roundings = Perturbation(_HALF_UNIT_OF_DOUBLE, 0, Moves.ARITHMETIC)
    try:
        moved = [evaluate_float64(before.model, {**d, **raised.of(before)}, perturbation=roundings).outputs for d in draws]
    except ReferenceUnavailable:
        return 0.0
    return FACTOR * _relative(wanted, moved)


def _stash_types(match: Match) -> list[np.dtype]:
    """The types in which the matched normalizations compute, where they say so: their rounding is the original's."""
    stated = (node.attrs.get("stash_type") for node in match.nodes)
    return [np.dtype(onnx.helper.tensor_dtype_to_np_dtype(kind)) for kind in stated if kind]


def _further_draws(size: int) -> int:
    """How many more draws make an output of ``size`` values large enough that not all of it is close to zero by chance."""
    return min(_MOST_DRAWS, math.ceil(_ENOUGH_VALUES / size)) - 1


def _relative(wanted: list[Tensors], got: list[Tensors]) -> float:
    """The largest difference of an output over all draws, relative to its largest value; infinite when shapes differ."""
    draws = [([values[name] for values in wanted], [values[name] for values in got]) for name in wanted[0]]
    return max(0.0 if _differ_next_to_ties(a, b) else relative_max(a, b) for a, b in draws)


def _differ_next_to_ties(all_wanted: Sequence[np.ndarray], all_got: Sequence[np.ndarray]) -> bool:
    """True for quantised data of which a few are a step off: two orders of summation fall to different sides of a tie."""
    if all_wanted[0].dtype not in _BYTES or all_wanted[0].dtype != all_got[0].dtype:
        return False
    wanted, got = np.stack(all_wanted), np.stack(all_got)
    if wanted.shape != got.shape:
        return False
    apart = np.abs(wanted.astype(np.int32) - got.astype(np.int32))
    return bool(apart.max(initial=0) <= 1 and np.count_nonzero(apart) <= max(1, _MOST_AT_TIES * apart.size))


def _reference_names() -> Callable[[str], str]:
    """Names that no model uses, for the nodes of a reference."""
    number = itertools.count()
    return lambda wanted: f"trtnorm.reference.{next(number)}/{wanted}"


def _region_inputs(match: Match, realised: Realised, meant: Realised | None) -> list[gs.Tensor]:
    """Run-time tensors that enter the original and the replacement, without repeats."""
    inner = {id(tensor) for node in match.nodes for tensor in node.outputs}
    original = [t for node in reversed(match.nodes) for t in node.inputs]
    entering = (original if meant is None else list(meant.taken.values())) + list(realised.taken.values())
    found: dict[str, gs.Tensor] = {}
    for tensor in entering:
        if tensor.name and id(tensor) not in inner and not match.surgery.is_constant(tensor):
            found.setdefault(tensor.name, tensor)
    return list(found.values())


def _fed(inputs: list[gs.Tensor], shapes: ShapeSources) -> list[gs.Tensor]:
    """``inputs`` without those that the region computes from shapes, and the tensors whose shapes those are."""
    computed = {tensor.name for node in shapes.nodes for tensor in node.outputs}
    fed = {tensor.name: tensor for tensor in (*inputs, *shapes.tensors) if tensor.name not in computed}
    return list(fed.values())
