"""The candidates of a comparison, gathered from what the user named or from a rewriting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Protocol

from trtnorm_cli.compare.participants import (
    Candidate,
    NetworkParticipant,
    OnnxParticipant,
    engine_participant,
    loaded_network,
    loaded_participant,
)
from trtnorm_cli.compare.result import CandidateReport
from trtnorm_cli.errors import BuilderFailure, TrtnormError, UsageProblem
from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.onnx_model.load import LoadedModel, load_model
from trtnorm_cli.onnx_model.source_files import SourceFiles
from trtnorm_cli.profile.prove import Proof
from trtnorm_cli.side_work import Awaited, Later
from trtnorm_cli.target import NETWORK_PREFIX, Target
from trtnorm_cli.tensorrt.network import UntranslatableNetwork


def never() -> bool:
    """No."""
    return False


class TryOut(Protocol):
    """Works on candidates that may be those of the comparison."""

    def __call__(
        self, candidates: Iterable[Candidate], may_stay: Callable[[], bool], nobody_waits: Callable[[], bool] = never, /
    ) -> None:
        """Go on as long as they ``may_stay``, and with what is not pressing while ``nobody_waits`` for the comparison."""


@dataclass(frozen=True)
class Session:
    """The participants of a comparison.

    ``refused`` are reports on candidates that TensorRT refuses. ``changes`` are those of the rewriting, if there is one.
    ``proof`` is that of the build profile's sizes in the reference, where it was made before. ``gather`` waits for candidates
    that are still being made, and adds them. Meanwhile it may try out some that are likely. ``saved`` is a rewriting in files
    that this program alone writes to. With ``is_unchanged`` that is the reference, and its network the only candidate.
    """

    reference: OnnxParticipant
    candidates: Sequence[Candidate]
    refused: Sequence[CandidateReport] = ()
    changes: Sequence[Mapping[str, object]] = ()
    proof: Proof | None = None
    gather: Callable[[TryOut], None] = lambda try_out: None
    saved: Awaited[LoadedModel] | None = None
    is_unchanged: bool = False

    def gathered(self, try_out: TryOut) -> Sequence[Candidate]:
        """All candidates, once they are made."""
        self.gather(try_out)
        return self.candidates


@dataclass
class Candidates:
    """The candidates that were read, and reports on those that TensorRT refuses.

    Networks are translated in the folder ``scratch``. ``memory_bytes`` limits the process that parses them. ``files`` are those
    that were read.
    """

    scratch: Path
    backend: str | None = None
    memory_bytes: int | None = None
    files: SourceFiles = field(default_factory=lambda: SourceFiles(()))
    accepted: list[Candidate] = field(default_factory=list)
    refused: list[CandidateReport] = field(default_factory=list)

    def add_candidate(self, target: Target) -> None:
        """Read a candidate; a refusal by TensorRT, or a parser that dies, is reported with the others."""
        try:
            self.accepted.append(self.participant(target))
        except BuilderFailure as error:
            self.refused.append(_refused(target.text, target.kind, error))

    def add_rewriting(
        self, fixed: LoadedModel, label: str, with_model: bool = True, network: Awaited[NetworkParticipant] | None = None
    ) -> None:
        """Add the TensorRT network of a rewritten model and, ``with_model``, the rewritten model itself.

        ``network`` is that network where somebody else has it made.
        """
        for _ in self.each_of_rewriting(fixed, label, with_model, network):
            pass

    def each_of_rewriting(
        self, fixed: LoadedModel, label: str, with_model: bool = True, network: Awaited[NetworkParticipant] | None = None
    ) -> Iterator[Candidate]:
        """Add the same one after the other, and give each when it is there."""
        if with_model:
            self.accepted.append(replace(loaded_participant(fixed, label), shares_tensors=True))
            yield self.accepted[-1]
        network_label = f"{NETWORK_PREFIX}{label}"
        network = network or Later(lambda: loaded_network(fixed, self.scratch, self.backend, None, self.memory_bytes))
        try:
            self.accepted.append(replace(network.result(), label=network_label, shares_tensors=True))
            yield self.accepted[-1]
        except BuilderFailure as error:
            self.refused.append(_refused(network_label, NetworkParticipant.kind, error))

    def participant(self, target: Target) -> Candidate:
        """The participant that ``target`` names; raises the errors of reading, and of TensorRT's parser."""
        require_runnable(target)
        if target.kind == "engine":
            return engine_participant(target.path)
        return self.file_participant(target)

    def file_participant(self, target: Target) -> OnnxParticipant:
        """An ONNX file, or the network of one."""
        if target.is_pytorch:
            raise UsageProblem("a PyTorch model can only be the reference", target.text, "name it first, or export it")
        loaded = load_model(target.path)
        if loaded.files is not None:
            self.files.include(loaded.files)
        if target.kind == "network":
            return loaded_network(loaded, self.scratch, self.backend, memory_bytes=self.memory_bytes)
        return loaded_participant(loaded)


def require_runnable(target: Target) -> None:
    """Raise ``UsageProblem`` for what can only be looked at."""
    if target.kind == "manifest":
        raise UsageProblem("a manifest cannot be run", target.text, "name the model or the engine that it is about")


def _refused(label: str, kind: str, error: TrtnormError) -> CandidateReport:
    where = "; ".join((error.where or "").splitlines())
    text = f"{error.summary}: {where}" if where else error.summary
    return CandidateReport(label, kind, error=text, unavailable=isinstance(error, UntranslatableNetwork))
