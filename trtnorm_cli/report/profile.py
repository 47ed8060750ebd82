"""What the proof of a build profile found, before the build begins."""

from __future__ import annotations

from trtnorm_cli.profile.memory import MemoryEstimate
from trtnorm_cli.profile.prove import Proof
from trtnorm_cli.report.console import bytes_text, console


def print_proof(proof: Proof | None) -> None:
    """Snapped sizes, sizes in between that do not fit, and the memory that each optimization profile implies; to stderr."""
    print_notes(proof)
    for estimate in proof.memory if proof is not None else ():
        console(stderr=True).print(memory_text(estimate))


def print_notes(proof: Proof | None) -> None:
    """Snapped sizes, and sizes in between that do not fit; to stderr."""
    for note in proof.notes if proof is not None else ():
        console(stderr=True).print(f"note: {note}")


def memory_text(estimate: MemoryEstimate) -> str:
    """``memory of profile default at max: about 1.2 GiB (97.7 MiB weights, 1.1 GiB tensors of the unfused graph at …)``."""
    place = f" at {estimate.node}" if estimate.node else ""
    unknown = f"; {estimate.unknown} tensors of unknown size not counted" if estimate.unknown else ""
    parts = f"{bytes_text(estimate.weights)} weights, {bytes_text(estimate.activations)} tensors of the unfused graph{place}"
    return f"memory of profile {estimate.profile} at max: about {bytes_text(estimate.total)} ({parts}{unknown})"
