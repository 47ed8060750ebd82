"""The least time of one kernel on a device: a roofline, with a model of reductions along rows.

    time = launch + max(bytes / bandwidth, operations / rate, bytes of rows / rate of the blocks that reduce them)

The first two are Williams, Waterman & Patterson 2009, "Roofline". The third is Little's law for thread blocks: a block has only
so many bytes under way while it waits for memory. So a few blocks do not draw the device's bandwidth, however long their rows.
"""

from __future__ import annotations

from typing import Literal

from trtnorm_cli.cost.device import Device
from trtnorm_cli.light_dataclass import dataclass

Bound = Literal["memory", "arithmetic", "rows", "launch"]

ACHIEVED = 0.9  # The share of the data sheet's bandwidth that a plain copy reaches.
BLOCK_BANDWIDTH = 6.4e9  # Bytes a second that one block of 128 threads draws: 4 KiB under way in 640 ns.
BLOCKS_AT_ONCE = 16  # Blocks of that size that one multiprocessor runs together.
SECTOR = 32  # Bytes that memory gives at least, so rows side by side in one sector are read together.
TRANSPOSED = 1.5  # Time of a transposition beside a copy's.
_WRITES_ELEMENTS = 8  # A kernel that writes an eighth of what its rows hold, or more, writes something for each element.


@dataclass(frozen=True)
class Rows:
    """The rows that a kernel reduces: ``count`` rows of ``length`` elements, each to one value.

    ``contiguous`` is false where the elements of a row lie apart, as a channel's do in a channels-last tensor. ``split`` is
    true where several blocks share a row, false where one block has it to itself, and None where that is not known.
    """

    count: int
    length: int
    element_bytes: float
    contiguous: bool
    split: bool | None = None

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

    ``lower_bound`` is true where the best use of the device was assumed. It is false where rows bound the time and the kernel's
    way of splitting them is not known: then the slower way, a block a row, was assumed, and ``note`` says so.
    """

    seconds: float
    bound: Bound
    lower_bound: bool
    note: str


def estimate(work: Work, device: Device) -> Estimate:
    """The time of one kernel."""
    times: dict[Bound, float] = {
        "memory": _memory(work, device),
        "arithmetic": work.operations / device.rate(work.type),
        "rows": _row_time(work, device),
    }
    bound = max(times, key=lambda name: times[name])
    busy = times[bound]
    seconds = device.launch + busy
    if bound == "rows":
        known = work.rows is not None and work.rows.split is False
        return Estimate(seconds, bound, known, _row_note(work.rows, device, known))
    return Estimate(seconds, "launch" if device.launch > busy else bound, True, "")


def _memory(work: Work, device: Device) -> float:
    factor = TRANSPOSED if work.transposes else 1.0
    moved = (work.read + work.written) * factor + _read_again_from_memory(work, device)
    return moved / (device.bandwidth * ACHIEVED)


def _row_time(work: Work, device: Device) -> float:
    """The time of a block a row: what the blocks move, over what those that run together draw."""
    rows = work.rows
    if rows is None or rows.split:
        return 0.0
    moved = work.read + work.written + _read_again(work, device)
    return moved / (_running(rows, device) * BLOCK_BANDWIDTH)


def _running(rows: Rows, device: Device) -> float:
    """The blocks that run at one time. Rows that lie side by side share a block, a sector's worth of them."""
    blocks = rows.count if rows.contiguous else max(1.0, rows.count * rows.element_bytes / SECTOR)
    return min(blocks, device.multiprocessors * BLOCKS_AT_ONCE)


def _read_again(work: Work, device: Device) -> float:
    """Bytes of rows that are read twice: once to reduce them, and once to normalize what a block could not hold."""
    rows = work.rows
    if rows is None or rows.split or work.written * _WRITES_ELEMENTS < rows.bytes:
        return 0.0
    return rows.bytes if rows.length * rows.element_bytes > device.block_memory else 0.0


def _read_again_from_memory(work: Work, device: Device) -> float:
    """Those of them that the cache has lost by then."""
    if work.rows is None:
        return 0.0
    at_once = _running(work.rows, device) * work.rows.length * work.rows.element_bytes
    return _read_again(work, device) if at_once > device.cache else 0.0


def _row_note(rows: Rows | None, device: Device, known: bool) -> str:
    assert rows is not None
    text = f"{rows.count} rows of {rows.length} elements on {device.multiprocessors} multiprocessors"
    return text if known else f"{text}; one thread block a row assumed, since how the kernel splits them is not known"
