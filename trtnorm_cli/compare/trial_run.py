"""One trial while it is judged: what ran, what float64 says of it, and the candidates in it."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import field
from typing import Any

import onnx

from trtnorm_cli.compare.inner_tensors import Difference, InnerTensors, Recognition, SliceDistances
from trtnorm_cli.compare.lockstep import Side
from trtnorm_cli.compare.participants import (
    Candidate,
    EngineParticipant,
    RunnableReference,
    pair_names,
    require_same_types,
)
from trtnorm_cli.compare.result import CandidateReport, Feeds, Outputs, Trial
from trtnorm_cli.evaluate.float64 import (
    Follower,
    FreeValues,
    Known,
    Reference,
    ReferenceUnavailable,
    SameProducts,
    Ties,
    Watch,
)
from trtnorm_cli.evaluate.ort_runner import AskedRuns
from trtnorm_cli.light_dataclass import dataclass


class Pairing:
    """The pairs of inputs and outputs of a candidate and those of the reference."""

    def __init__(self, reference: RunnableReference, candidate: Candidate, by_position: bool) -> None:
        self.candidate = candidate
        if isinstance(candidate, EngineParticipant):
            self.inputs = {name: name for name in reference.inputs()}
            self.outputs = {name: name for name in reference.outputs()}
            return
        label = candidate.label
        self.inputs = pair_names(reference.inputs(), candidate.inputs(), "inputs", label, by_position)
        self.outputs = pair_names(reference.outputs(), candidate.outputs(), "outputs", label, by_position)
        require_same_types(reference.inputs(), candidate.inputs(), self.inputs, label)

    def feeds(self, trial: Trial) -> Feeds:
        """The trial's arrays under the candidate's names and in its types."""
        renamed = {theirs: trial.feeds[ours] for ours, theirs in self.inputs.items()}
        if isinstance(self.candidate, EngineParticipant):
            return renamed
        kinds = self.candidate.inputs()
        return {n: a.astype(onnx.helper.tensor_dtype_to_np_dtype(kinds[n].dtype), copy=False) for n, a in renamed.items()}

    def back(self, outputs: Outputs) -> Outputs:
        return {ours: outputs[theirs] for ours, theirs in self.outputs.items() if theirs in outputs}


@dataclass
class TrialRun:
    """One trial while it is judged. ``truth`` is the reference in float64 once it is known.

    ``seconds`` is what its own run took, ``float64_s`` what that in float64 took. ``known`` holds what was computed in
    float64 on its inputs, ``inner`` the tensors inside the reference, ``near`` those of candidates. ``asked``
    is the reference's run and ``exact`` what came of its evaluation in float64, each where it was begun; ``begun`` is that
    evaluation while it waits for the candidates. ``ties`` are its own. With ``is_alike`` a candidate was held to it without its
    own values, so that there is no truth: products have ``free_values`` then.
    """

    trial: Trial
    known: Known
    ties: Ties
    asked: AskedRuns | None = None
    exact: Reference | ReferenceUnavailable | None = None
    begun: Side | None = None
    attempts: list[Attempt] = field(default_factory=list)
    native: Outputs = field(default_factory=dict)
    seconds: float = 0.0
    truth: Outputs | None = None
    float64_s: float = 0.0
    inner: InnerTensors = field(default_factory=InnerTensors)
    near: list[Recognition] = field(default_factory=list)
    is_alike: bool = False
    free_values: FreeValues | None = None

    def keep(self, name: str, value: Any) -> Any:
        """Keep a tensor of the reference; what is remembered to be found again is the same array."""
        if self.inner.keep(name, value):
            self.known.is_kept_elsewhere(value)
        return value


@dataclass
class Attempt:
    """One candidate in one trial. ``feeds`` are the trial's inputs under the candidate's names.

    ``found`` is what came of its evaluation in float64, which ``follower`` looks at and ``seen`` where tensors inside it can
    be held to the reference's. ``exact`` are its outputs there under the reference's names once they were asked for, ``slices``
    how far tensors inside it are off; those that are ``suspicious`` are further off than a few units. ``looked`` are the worst
    of these by the noise that they were held to. ``constants`` are those that it read. ``follows`` is false where it cannot be
    told on which side of ties it falls. ``same_products`` are asked for where it is held to the reference without that one's
    values.
    """

    run: TrialRun
    pairing: Pairing
    report: CandidateReport
    feeds: Feeds
    asked: AskedRuns | None = None
    follower: Follower | None = None
    seen: Recognition | None = None
    found: Reference | ReferenceUnavailable | None = None
    exact: Outputs | None = None
    slices: SliceDistances | None = None
    suspicious: Sequence[str] = ()
    looked: dict[Hashable, Difference | None] = field(default_factory=dict)
    constants: frozenset[Hashable] | None = None
    follows: bool = True
    same_products: SameProducts | None = None

    @property
    def candidate(self) -> Candidate:
        return self.pairing.candidate

    @property
    def watch(self) -> Watch | None:
        """Whoever is shown the tensors of the evaluation."""
        if self.seen is not None:
            return self.seen.watch
        return None if self.follower is None else self.follower.follow
