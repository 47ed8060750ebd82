"""One job of a batch, which is one engine: what it is made from, how, and what a worker must have for it."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import Record


@dataclass(frozen=True)
class JobSettings(Record):
    """How a build is run, with its limits."""

    timeout: float | None = None
    memory: int | None = None
    compare: Literal["yes", "no", "required"] = "yes"
    seed: int = 0
    snap: bool = False


@dataclass(frozen=True)
class Job(Record):
    """One engine of the plan. ``group`` is the plan's entry that the model comes from.

    Paths are those of the machine that reads the plan. ``settings`` are put over the build profile's.
    """

    name: str
    group: str
    model: str
    spec: str
    profile: str
    profile_path: str | None
    settings: dict[str, Any]
    precision: str | None
    target: str
    backend: str | None
    gpu: str | None
    resources: dict[str, float]
    weights: str | None = None
    files: tuple[str, ...] = ()
    exporter: str = "auto"
    opset: int | None = None
    accept: tuple[str, ...] = ()
    strict: bool = True
    verify: bool = True
    how: JobSettings = field(default_factory=JobSettings)
