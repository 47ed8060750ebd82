"""The findings of the proof of a build profile, before the build begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import Record
from trtnorm_cli.report.verbosity import Verbosity

if TYPE_CHECKING:
    from trtnorm_cli.profile.memory import MemoryEstimate
    from trtnorm_cli.profile.prove import Proof


def print_proof(proof: Proof | None, verbosity: Verbosity = Verbosity.NORMAL) -> None:
    """Print to stderr the snapped sizes, sizes in between that do not fit, and the memory of each optimization profile."""
    print_proof_notes(proof, verbosity)
    if proof is None or verbosity is Verbosity.QUIET or not proof.memory:
        return
    from trtnorm_cli.report.console import console

    for estimate in proof.memory:
        console(stderr=True).print(memory_text(estimate))


def print_proof_notes(proof: Proof | None, verbosity: Verbosity = Verbosity.NORMAL) -> None:
    """Print to stderr the snapped sizes, and sizes in between that do not fit."""
    if proof is None or not proof.notes:
        return
    from trtnorm_cli.report.console import console
    from trtnorm_cli.report.notes import print_notes

    print_notes(console(stderr=True), proof.notes, verbosity)


@dataclass(frozen=True)
class StartingProfile(Record):
    """A build profile to start from: where it was written, what it says, its text with comments, and notes about it."""

    written: str | None
    profile: dict[str, Any]
    text: str
    notes: tuple[str, ...]


def starting_profile(text: str, written: Path | None, notes: Sequence[str] = ()) -> StartingProfile:
    """The record of a build profile to start from."""
    import yaml

    return StartingProfile(None if written is None else str(written), yaml.safe_load(text), text, tuple(notes))


def memory_text(estimate: MemoryEstimate) -> str:
    """``memory of profile default at max: about 1.2 GiB (97.7 MiB weights, 1.1 GiB tensors of the unfused graph at …)``."""
    from trtnorm_cli.report.console import bytes_text

    place = f" at {estimate.node}" if estimate.node else ""
    unknown = f"; {estimate.unknown} tensors of unknown size not counted" if estimate.unknown else ""
    parts = f"{bytes_text(estimate.weights)} weights, {bytes_text(estimate.activations)} tensors of the unfused graph{place}"
    return f"memory of profile {estimate.profile} at max: about {bytes_text(estimate.total)} ({parts}{unknown})"
