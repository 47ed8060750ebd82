"""The findings of the proof of a build profile, before the build begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trtnorm_cli.report.console import bytes_text, console
from trtnorm_cli.report.notes import print_notes
from trtnorm_cli.report.verbosity import Verbosity

if TYPE_CHECKING:
    from trtnorm_cli.profile.memory import MemoryEstimate
    from trtnorm_cli.profile.prove import Proof


def print_proof(proof: Proof | None, verbosity: Verbosity = Verbosity.NORMAL) -> None:
    """Print to stderr the snapped sizes, sizes in between that do not fit, and the memory of each optimization profile."""
    print_proof_notes(proof, verbosity)
    for estimate in proof.memory if proof is not None and verbosity is not Verbosity.QUIET else ():
        console(stderr=True).print(memory_text(estimate))


def print_proof_notes(proof: Proof | None, verbosity: Verbosity = Verbosity.NORMAL) -> None:
    """Print to stderr the snapped sizes, and sizes in between that do not fit."""
    print_notes(console(stderr=True), proof.notes if proof is not None else (), verbosity)


def starting_profile_json(text: str, written: Path | None, notes: Sequence[str] = ()) -> dict[str, Any]:
    """A build profile to start from, as its text with comments and as what the text says, with the notes beside it."""
    import yaml

    file = None if written is None else str(written)
    return {"written": file, "profile": yaml.safe_load(text), "text": text, "notes": list(notes)}


def memory_text(estimate: MemoryEstimate) -> str:
    """``memory of profile default at max: about 1.2 GiB (97.7 MiB weights, 1.1 GiB tensors of the unfused graph at …)``."""
    place = f" at {estimate.node}" if estimate.node else ""
    unknown = f"; {estimate.unknown} tensors of unknown size not counted" if estimate.unknown else ""
    parts = f"{bytes_text(estimate.weights)} weights, {bytes_text(estimate.activations)} tensors of the unfused graph{place}"
    return f"memory of profile {estimate.profile} at max: about {bytes_text(estimate.total)} ({parts}{unknown})"
