"""A comparison in float64 at smaller inputs, before that at the model's own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain

from trtnorm_cli.compare.candidates import never
from trtnorm_cli.compare.comparer import Comparer
from trtnorm_cli.compare.participants import Candidate, OnnxParticipant
from trtnorm_cli.compare.result import Comparison, Trial
from trtnorm_cli.compare.sized_tensors import Shape
from trtnorm_cli.compare.smaller_inputs import Smaller, at_smaller
from trtnorm_cli.light_dataclass import dataclass


@dataclass(frozen=True)
class SmallerTrial:
    """A ``trial`` that stands in for that at the model's own ``shapes`` in float64, and the reference there."""

    trial: Trial
    shapes: Mapping[str, Shape]
    there: Smaller


# The multiply-adds that ONNX Runtime makes in a second of a processor; of an attention with large tensors half as many. What it
# takes at smaller inputs says less, as most of that is no work that grows.
_WORK_A_SECOND = 40e9
# The same in float64, which is asked where runs choose otherwise, as that of a TopK among numbers that hardly differ, and where
# ONNX Runtime does not run the model.
_WORK_IN_FLOAT64 = 10e9
# The reference and the last candidate.
_RUNS = 2


class _NotTheSameThere(Exception):
    """A candidate that may do something else at smaller inputs."""


class SmallerFirst:
    """The comparison of ``smaller``, which is of use where nothing in it speaks against a candidate.

    Then ``own`` goes on from there with ``trial``, the smallest at the model's own inputs, or without it where that would take
    long beside the engine's build: what was found ``has_been_taken_over`` by it.
    """

    def __init__(self, smaller: SmallerTrial, own: Comparer, trial: Trial) -> None:
        assert isinstance(own.reference, OnnxParticipant)
        self._smaller, self._own, self._trial = smaller, own, trial
        self.has_been_taken_over = False
        reference = replace(own.reference, model=smaller.there.model, is_resized=True)
        self._chooses = any(node.op_type == "TopK" for node in reference.model.graph.node)
        self._comparer = Comparer(reference, own.runner, own.options, Comparison(own.reference.label), own.known)
        # Candidates as they are there, by identity; with the candidate, whose identity no other one has while it is kept.
        self._there: dict[int, tuple[Candidate, OnnxParticipant | None]] = {}

    def prepare(self) -> None:
        """Work on the reference alone, while candidates are still being made."""
        self._comparer.prepare(self._smaller.trial)
        self._begin_own()

    def try_out(
        self, candidates: Iterable[Candidate], may_stay: Callable[[], bool], nobody_waits: Callable[[], bool] = never
    ) -> None:
        """Work on candidates that may be those of the comparison: at the model's own inputs where one is not the same there."""
        candidates, tried = iter(candidates), list[Candidate]()

        def there() -> Iterator[Candidate]:
            for candidate in candidates:
                tried.append(candidate)
                found = self._at_smaller(candidate)
                if found is None:
                    raise _NotTheSameThere
                yield found

        self._comparer.try_out(there(), may_stay)
        if not may_stay():
            return
        self._begin_own()
        if any(self._at_smaller(candidate) is None for candidate in tried):
            with self._own.budget.paid():
                self._own.prepare(self._trial)
            self._own.try_out(chain(tried, candidates), may_stay, nobody_waits)
            return
        with suppress(Exception):  # it goes wrong again, and is told, where the candidate counts
            if tried and self._own.has_begun(self._trial):
                self._own.ask_ahead(self._trial, tried[-1:])
                self._own.go_ahead(self._trial, tried[-1:], nobody_waits)

    def goes_before(self, candidates: Sequence[Candidate]) -> bool:
        """Judge the candidates, and then the last of them at the model's own inputs.

        False, and nothing of it counts, where one may do something else at smaller inputs, where float64 says nothing or
        anything speaks against one there, or where nothing is known of the last one at the model's own. Each candidate is made
        of the one before it, so that there the last one speaks for all.
        """
        there = [found for candidate in candidates if (found := self._at_smaller(candidate)) is not None]
        if not there or len(there) < len(candidates):
            return False
        self._comparer.add(there)
        self._comparer.begin(self._smaller.trial)
        self._begin_own(last_only=True)
        self._comparer.run(self._smaller.trial)
        if not self._comparer.has_exact_verdicts:
            return False
        if not self._comparer.is_free_of_doubt:
            if any(report.is_out_of_tolerance for report in self._comparer.result.candidates):
                self._own.take_longer()
            return False
        self.has_been_taken_over = True
        self._own.take_over(self._comparer)
        is_paid = self._own.has_begun(self._trial) and not self._asks_float64
        if not is_paid and (why_not := self._why_not_at_own()) is not None:
            self._own.leave_out(self._trial, why_not, self._comparer, self._times)
            return True
        self._own.run(self._trial)
        return self._own.has_judged_last(self._trial)

    def _begin_own(self, last_only: bool = False) -> None:
        """Begin the runs at the model's own inputs, where it is known that there is time for them."""
        if self._own.has_begun(self._trial) or self._why_not_at_own() is None:
            self._own.begin(self._trial, last_only)

    def _why_not_at_own(self) -> str | None:
        """Why the model's own inputs would be left out if everything passed at the smaller ones, by TensorRT's time so far."""
        rate = 1 / _WORK_A_SECOND + (1 / _WORK_IN_FLOAT64 if self._asks_float64 else 0.0)
        return self._own.budget.why_not_at_own(_RUNS * self._smaller.there.own_work * rate)

    @property
    def _asks_float64(self) -> bool:
        """True where the model's own inputs will be evaluated in float64, too."""
        return self._chooses or self._comparer.uses_float64_reference

    @property
    def _times(self) -> float:
        """The multiply-adds of the model's own inputs, as a multiple of those at the smaller ones."""
        return self._smaller.there.own_work / max(self._smaller.there.work, 1)

    def _at_smaller(self, candidate: Candidate) -> OnnxParticipant | None:
        if id(candidate) not in self._there:
            found = None
            if isinstance(candidate, OnnxParticipant) and candidate.inputs().keys() == self._smaller.shapes.keys():
                there, folder = self._smaller.there, candidate.path.absolute().parent
                model = at_smaller(candidate.model, self._smaller.shapes, there, folder)
                found = None if model is None else replace(candidate, model=model, is_resized=True)
            self._there[id(candidate)] = candidate, found
        return self._there[id(candidate)][1]
