"""The command line's part of an export."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


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

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "weights": None if self.weights is None else str(self.weights)}

    @staticmethod
    def load(data: dict[str, Any]) -> ExportOptions:
        weights = None if data["weights"] is None else Path(data["weights"])
        return ExportOptions(**{**data, "weights": weights, "accepted": tuple(data["accepted"])})
