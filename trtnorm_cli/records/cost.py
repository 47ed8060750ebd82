"""The estimated cost of an engine, as manifests hold it. No engine was run for it."""

from __future__ import annotations

from dataclasses import field

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.record import LEFT_OUT_BY_DEFAULT, NOT_IN_JSON, Record


@dataclass(frozen=True)
class KernelCost(Record):
    """The estimate of one kernel: bytes ``read`` (``weights`` of them constants) and ``written``, operations, microseconds.

    ``bound`` is what limits it: memory, arithmetic, rows, or launch. ``note`` says what had to be assumed. ``unasked`` names
    a kernel that only moves data, for which no node of the model asks: a transposition, a cast, or a copy.
    """

    name: str
    read: int
    written: int
    operations: int
    us: float
    bound: str
    weights: int = field(default=0, metadata=LEFT_OUT_BY_DEFAULT)
    note: str = field(default="", metadata=LEFT_OUT_BY_DEFAULT)
    unasked: str | None = field(default=None, metadata=LEFT_OUT_BY_DEFAULT)


@dataclass(frozen=True)
class CostTotal(Record):
    """The sums over the kernels of an engine: launches, those that are compiled where it runs, bytes, and microseconds.

    ``unasked_us`` is the part of ``us`` in kernels that only move data and that nobody asked for. ``unsized`` counts
    tensors whose sizes could not be told, which add nothing to ``bytes``.
    """

    launches: int
    compiled_on_device: int
    bytes: int
    us: float
    unasked_us: float = 0.0
    unsized: int = field(default=0, metadata=LEFT_OUT_BY_DEFAULT)


@dataclass(frozen=True)
class EngineCostRecord(Record):
    """The estimate of an engine on ``device``.

    ``total`` is the mean over the optimization profiles at opt by their weights, ``profiles`` has each by name where there are
    several, and ``kernels`` are those of the first, in the order in which they run. ``every_kernel`` are those of each profile,
    and ``shares`` what part of the mean each is.
    """

    device: str
    total: CostTotal
    kernels: tuple[KernelCost, ...]
    profiles: dict[str, CostTotal] = field(default_factory=dict, metadata=LEFT_OUT_BY_DEFAULT)
    every_kernel: tuple[tuple[KernelCost, ...], ...] = field(default=(), metadata=NOT_IN_JSON, compare=False)
    shares: tuple[float, ...] = field(default=(), metadata=NOT_IN_JSON, compare=False)
