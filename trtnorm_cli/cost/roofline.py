"""The least time of one kernel on a device: a roofline, with a model of reductions along rows.

    time = launch + max(bytes / bandwidth + waiting, operations / rate)
    waiting = times read · elements / (blocks at one time · threads a block · 4) · latency

The roofline is Williams, Waterman & Patterson 2009. The waiting is Little's law for thread blocks: a block asks for four
elements a thread, and then waits for memory. So a few blocks do not draw the device's bandwidth, however long their rows. A row
that a block cannot hold is read again for each reduction and to be normalized, from the cache where that holds the rows of all
blocks at work. The constants were held against a GPU; docs/cost_model.md says how well they do.
"""

from __future__ import annotations

from typing import Literal

from trtnorm_cli.cost.device import Device
from trtnorm_cli.light_dataclass import dataclass

Bound = Literal["memory", "arithmetic", "rows", "launch"]

LONG_ROW_THREADS = 1024  # Of a block where they are not known: TensorRT for RTX 1.7 gives as many to a long row.
_THREADS = 2048  # Threads that one multiprocessor runs together, at most.
_AT_ONCE = 4  # Elements that a thread asks for before it waits.
_WRITES_ELEMENTS = 8  # A kernel that writes an eighth of what its rows hold, or more, writes something for each element.


@dataclass(frozen=True)
class Constants:
    """The constants that are the same for all devices.

    ``achieved`` is the share of the data sheet's bandwidth that a kernel reaches. ``latency`` and ``cache_latency`` are the
    seconds that memory and the second-level cache take to answer. ``strided`` and ``transposed`` are times beside those of the
    same bytes in order: where a kernel reduces rows whose elements lie apart, and where it writes in another order than it
    reads, through tiles.
    """

    achieved: float = 0.84
    latency: float = 350e-9
    cache_latency: float = 150e-9
    strided: float = 1.45
    transposed: float = 1.05


CONSTANTS = Constants()


@dataclass(frozen=True)
class Rows:
    """The rows that a kernel reduces: ``count`` rows of ``length`` elements, each to one value.

    ``contiguous`` is false where the elements of a row lie apart, as a channel's do in a channels-last tensor. ``split`` is
    true where several blocks share a row, false where one block has it to itself, and None where that is not known. ``threads``
    are those of a block, where known. ``reductions`` counts those that need one another, as a variance does the mean.
    """

    count: int
    length: int
    element_bytes: float
    contiguous: bool
    split: bool | None = None
    threads: int | None = None
    reductions: int = 1

    @property
    def bytes(self) -> float:
        return self.count * self.length * self.element_bytes


@dataclass(frozen=True)
class Work:
    """The work of one kernel: bytes ``read`` and ``written``, each tensor once, and ``operations``, a multiply-add as two.

    ``type`` is the one that it computes in. ``transposes`` says that it writes in another order than it reads.
    """

    read: int
    written: int
    operations: int
    type: str
    rows: Rows | None = None
    transposes: bool = False


@dataclass(frozen=True)
class Estimate:
    """The time of one kernel in seconds, and what bounds it.

    ``lower_bound`` is true where the best use of the device was assumed. It is false where waiting for rows bounds the time and
    the kernel's way of splitting them is not known: then the slower way, a block a row, was assumed, as ``note`` says.
    """

    seconds: float
    bound: Bound
    lower_bound: bool
    note: str


def estimate(work: Work, device: Device, constants: Constants = CONSTANTS) -> Estimate:
    """The time of one kernel."""
    moving = _moving(work, device, constants)
    waiting = _waiting(work, device, constants)
    computing = work.operations / device.rate(work.type)
    seconds = device.launch + max(moving + waiting, computing)
    if waiting > max(moving, computing, device.launch):
        return Estimate(seconds, "rows", _is_known(work.rows), _row_note(work.rows, device))
    if device.launch > max(moving + waiting, computing):
        return Estimate(seconds, "launch", True, "")
    return Estimate(seconds, "arithmetic" if computing > moving + waiting else "memory", True, "")


def _moving(work: Work, device: Device, constants: Constants) -> float:
    """The time of all bytes at the bandwidth that a kernel with enough under way reaches."""
    rows = work.rows
    moved = float(work.read + work.written)
    if rows is not None and not _cached(rows, device):
        moved += rows.bytes * (_times_read(work, device) - 1)
    factor = constants.transposed if work.transposes else 1.0
    if rows is not None and not rows.contiguous:
        factor = max(factor, constants.strided)
    return moved * factor / (device.bandwidth * constants.achieved)


def _waiting(work: Work, device: Device, constants: Constants) -> float:
    """The time that blocks wait for rows which they cannot hold: one answer of memory for each step along a row."""
    rows = work.rows
    if rows is None or rows.split or _fits(rows, device):
        return 0.0
    steps = rows.count * rows.length / (_running(rows, device) * (rows.threads or LONG_ROW_THREADS) * _AT_ONCE)
    again = constants.cache_latency if _cached(rows, device) else constants.latency
    return steps * (constants.latency + again * (_times_read(work, device) - 1))


def _running(rows: Rows, device: Device) -> int:
    """The blocks that run at one time, a block a row."""
    return min(rows.count, device.multiprocessors * max(1, _THREADS // (rows.threads or LONG_ROW_THREADS)))


def _fits(rows: Rows, device: Device) -> bool:
    """True where a block can hold a row, and so ask for all of it at once."""
    return rows.length * rows.element_bytes <= device.block_memory


def _cached(rows: Rows, device: Device) -> bool:
    """True where the cache can hold the rows of all blocks at work."""
    return _running(rows, device) * rows.length * rows.element_bytes <= device.cache


def _times_read(work: Work, device: Device) -> int:
    """The number of times that a row is read: for each reduction, and to normalize what a block could not hold."""
    rows = work.rows
    if rows is None or rows.split or _fits(rows, device):
        return 1
    return rows.reductions + (work.written * _WRITES_ELEMENTS >= rows.bytes)


def _is_known(rows: Rows | None) -> bool:
    return rows is not None and rows.split is not None


def _row_note(rows: Rows | None, device: Device) -> str:
    assert rows is not None
    text = f"{rows.count} rows of {rows.length} elements on {device.multiprocessors} multiprocessors"
    if _is_known(rows):
        return text
    return f"{text}; one thread block a row assumed, since nothing says that blocks share one"
