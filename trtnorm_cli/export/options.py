"""The command line's part of an export."""

from __future__ import annotations

from pathlib import Path

from trtnorm_cli.light_dataclass import dataclass


@dataclass(frozen=True)
class ExportOptions:
    """Options of an export. ``weights`` are loaded into a PyTorch module.

    ``accepted`` are kinds of accidents that do not stop it.
    """

    exporter: str = "auto"
    opset: int | None = None
    backend: str | None = None
    verify: bool = True
    seed: int = 0
    weights: Path | None = None
    strict: bool = True
    keep_training: bool = False
    accepted: tuple[str, ...] = ()
