"""The nodes that a change replaces and those that come instead, to run side by side in ONNX Runtime and to tell pairs apart."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

import numpy as np

from trtnorm_cli.evaluate.fingerprint import fingerprint
from trtnorm_cli.evaluate.float64.kernels import TAKES_STORED
from trtnorm_cli.evaluate.float64.raising import Stored, raised_array
from trtnorm_cli.evaluate.ort_runner import AskedRuns, OrtRunner, RunFailed
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.domains import DEFAULT_DOMAINS
from trtnorm_cli.onnx_model.shapes import TensorType
from trtnorm_cli.onnx_model.walk import subgraphs
from trtnorm_cli.rewrite.proof.region import Region
from trtnorm_cli.rewrite.proof.short_shapes import Short

Tensors = dict[str, np.ndarray]

# From so many values on, memory is used again.
_LARGE = 1 << 17
# From so many bytes on, ONNX Runtime reads a weight from its file.
_READ_WHERE_IT_LIES = 1 << 20


@dataclass(frozen=True)
class Pair:
    """``kinds`` are the types of the fed tensors; ``stated`` are values for those that hold shapes."""

    before: Region
    after: Region
    kinds: Mapping[str, TensorType]
    stated: Mapping[str, np.ndarray] = field(default_factory=dict)

    def at(self, short: Short) -> Pair:
        """The pair for short shapes."""
        return Pair(self.before.restating(short.before), self.after.restating(short.after), self.kinds, self.stated)

    @property
    def form(self) -> tuple[object, ...]:
        """The key that equal pairs have in common, whatever their values, names and the shapes of fed tensors."""
        sides = (self.before, self.after)
        weights = tuple(tuple((n, w.shape) for n, w in sorted(side.canonical.fed(side.weights).items())) for side in sides)
        places = tuple(side.canonical.names.get(name) for side in sides for name in self.kinds)
        return (*(side.canonical.source for side in sides), weights, places)

    def digest(self, *further: str) -> str:
        """The identity of the pair: both models, the shapes, and all values."""
        digest = hashlib.blake2b(repr((further, sorted(self.kinds.items()))).encode(), digest_size=20)
        for region in (self.before, self.after):
            digest.update(region.canonical.source)
            for name, weight in sorted(region.canonical.fed(region.weights).items()):
                digest.update(f"{name} {weight.dtype} {weight.shape}".encode())
                digest.update(fingerprint(weight))
        for name, value in self.stated.items():
            digest.update(f"{name} {value.tolist()}".encode())
        return digest.hexdigest()


class RaisedWeights:
    """Weights in float64. One that both sides have is raised once; large ones lie where those of the last proof did.

    Fresh memory for each would cost more than the raising. What only operators read that take it as it is stored is raised by
    these, piece by piece.
    """

    def __init__(self, pool: list[np.ndarray]) -> None:
        self._raised: dict[int, np.ndarray] = {}
        self._pool = pool
        self._lent: dict[int, np.ndarray] = {}

    def of(self, region: Region) -> dict[str, np.ndarray | Stored]:
        return {
            name: Stored(weight) if weight.size >= _LARGE and _is_taken_as_stored(region, name) else self._one(weight)
            for name, weight in region.weights.items()
        }

    def _one(self, weight: np.ndarray) -> np.ndarray:
        if id(weight) not in self._raised:
            raised = raised_array(weight) if weight.size < _LARGE or weight.dtype == np.float64 else self._in_pool(weight)
            raised = raised.view()
            raised.flags.writeable = False
            self._raised[id(weight)] = raised
        return self._raised[id(weight)]

    def _in_pool(self, weight: np.ndarray) -> np.ndarray:
        fitting = [place for place, memory in enumerate(self._pool) if memory.size >= weight.size]
        memory = self._pool.pop(fitting[0]) if fitting else np.empty(weight.size)
        if not fitting and self._pool:
            self._pool.pop(0)  # too small for what is proved now
        self._lent[id(weight)] = memory
        raised = memory[: weight.size].reshape(weight.shape)
        raised[...] = weight
        return raised

    def forget(self, weights: Iterable[np.ndarray], but: Iterable[np.ndarray] = ()) -> None:
        """Give back the memory of those of ``weights`` that are not needed any more."""
        kept = {id(weight) for weight in but}
        for weight in weights:
            if id(weight) not in kept:
                self._raised.pop(id(weight), None)
                if (memory := self._lent.pop(id(weight), None)) is not None:
                    self._pool.append(memory)


def _is_taken_as_stored(region: Region, name: str) -> bool:
    """True where nobody reads the weight ``name`` but as what the evaluation takes as it is stored."""
    graph = region.model.graph
    readers = [(node, index) for node in graph.node for index, read in enumerate(node.input) if read == name]
    is_taken = all(node.domain in DEFAULT_DOMAINS and index in TAKES_STORED.get(node.op_type, ()) for node, index in readers)
    return is_taken and not any(True for node in graph.node for _ in subgraphs(node))


@dataclass(frozen=True)
class Run:
    """Both sides in ONNX Runtime: what they gave, None where it did not run them, and its words then."""

    before: list[Tensors] | None
    after: list[Tensors] | None
    refusal: str = ""


class PairRuns:
    """Both sides of a pair in ONNX Runtime: begun when this is made, waited for by ``results``.

    Weights are fed. Where ONNX Runtime wants them as constants, the regions that hold them are run; ``refused`` remembers that.
    """

    def __init__(self, runner: OrtRunner, pair: Pair, draws: Sequence[Tensors], refused: set[bytes]) -> None:
        self._runner, self._pair, self._draws, self._refused = runner, pair, draws, refused
        self._asked = [self._ask(region) for region in (pair.before, pair.after)]

    def _ask(self, region: Region) -> AskedRuns | None:
        canonical = region.canonical
        if canonical.source in self._refused:
            return None
        large = {name: where for name, where in region.places.items() if region.weights[name].nbytes >= _READ_WHERE_IT_LIES}
        places = {name: part for name, where in large.items() if (part := where()) is not None}
        constants, places = canonical.fed(region.weights), canonical.fed(places)
        return self._runner.ask(canonical.source, constants, [canonical.fed(feeds) for feeds in self._draws], places)

    def results(self) -> Run:
        before = None
        try:
            before = self._results(self._pair.before, self._asked[0])
            return Run(before, self._results(self._pair.after, self._asked[1]))
        except RunFailed as error:
            return Run(before, None, error.reason)

    def _results(self, region: Region, asked: AskedRuns | None) -> list[Tensors]:
        if asked is not None:
            names = [value.name for value in region.model.graph.output]
            try:
                return [dict(zip(names, found.values(), strict=True)) for found in asked.results()]
            except RunFailed as error:
                if error.timed_out or error.signal is not None:
                    raise
                self._refused.add(region.canonical.source)
        return self._runner.run_many(region.whole(), self._draws)
