"""The kernels of the engine and their cost, with the ONNX nodes that they come from."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.records.engine_parts import CompiledLayer, Kernel, KernelTensor, UnreadKernel, launched
from trtnorm_cli.report.page import plots
from trtnorm_cli.report.page.words import counted, shape, size
from trtnorm_cli.tensorrt.manifest import Manifest

_BITS = {"Float": 32, "Half": 16, "BFloat16": 16, "Int8": 8, "UInt8": 8, "FP8": 8, "Bool": 8, "Int32": 32, "Int64": 64,
         "Int4": 4, "FP4": 4}  # fmt: skip
_SHOWN_IN_PLOT = 12


@dataclass(frozen=True)
class Cell:
    """A number in the table, and the words for it."""

    value: float
    text: str


@dataclass(frozen=True)
class Row:
    """A kernel. ``cost`` is what it is sorted by, None where that is not known; ``share`` is that of the sum."""

    number: int
    name: str
    type: str
    nodes: tuple[str, ...]
    reads: str
    writes: str
    cost: float | None
    cells: tuple[Cell, ...]
    share: float


@dataclass(frozen=True)
class KernelTable:
    """The kernels in the ``order`` that the caption names. ``columns`` head the numbers, ``note`` says what they leave out."""

    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    order: str
    note: str
    plot: str
    caption: str
    by_type: dict[str, int]

    @staticmethod
    def of(manifest: Manifest) -> KernelTable:
        kernels = launched(manifest.network.kernels)
        moved = [_bytes(kernel) for kernel in kernels]
        total = sum(value for value in moved if value is not None) or 1.0
        rows = [_row(i, k, cost, total) for i, (k, cost) in enumerate(zip(kernels, moved, strict=True), 1)]
        rows.sort(key=lambda row: (row.cost is None, -(row.cost or 0)))
        known = [row for row in rows if row.cost is not None]
        dearest = known[:_SHOWN_IN_PLOT] if 2 * len(known) > len(rows) else []
        bars = [plots.Bar(_title(row), (row.cost or 0.0) / 1024, row.cells[0].text) for row in dearest]
        order = "those that move most bytes first" if dearest else "in the order of execution"
        still_open = sum(value is None for value in moved)
        note = (
            f"Of {counted(still_open, 'kernel')} the sizes are open, so that the bytes they move are not known."
            if still_open
            else ""
        )
        drawn = plots.bars(bars, "KiB moved") if bars else ""
        caption = "The kernels that move most bytes. Mostly that decides how long they take."
        return KernelTable(tuple(rows), ("Bytes moved",), order, note, drawn, caption, manifest.network.kernels_by_type)


def _title(row: Row) -> str:
    return row.nodes[-1] if row.nodes else row.name


def _row(number: int, kernel: CompiledLayer, cost: float | None, total: float) -> Row:
    if isinstance(kernel, UnreadKernel):
        return Row(number, kernel.unread, kernel.type, (), "", "", None, (Cell(-1, "–"),), 0.0)
    cells = (Cell(-1, "–") if cost is None else Cell(cost, size(cost)),)
    reads, writes = _tensors(kernel.inputs), _tensors(kernel.outputs)
    return Row(number, kernel.name, kernel.type, kernel.onnx_nodes, reads, writes, cost, cells, (cost or 0.0) / total)


def _tensors(tensors: Iterable[KernelTensor]) -> str:
    return ", ".join(f"{shape(tensor.shape)} {tensor.dtype}" for tensor in tensors)


def _bytes(kernel: CompiledLayer) -> float | None:
    """The bytes that a kernel reads and writes at least; None where a size is open or a type not known."""
    if not isinstance(kernel, Kernel):
        return None
    tensors = (*kernel.inputs, *kernel.outputs)
    if any(tensor.dtype not in _BITS or min(tensor.shape, default=0) < 0 for tensor in tensors):
        return None
    return sum(prod(tensor.shape) * _BITS[tensor.dtype] / 8 for tensor in tensors)
