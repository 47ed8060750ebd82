"""The kernels of the engine and their cost, with the ONNX nodes that they come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import prod

from trtnorm_cli.light_dataclass import dataclass
from trtnorm_cli.records.cost import EngineCostRecord, KernelCost
from trtnorm_cli.records.engine_parts import CompiledLayer, Kernel, KernelTensor, UnreadKernel, launched
from trtnorm_cli.report.cost import plural
from trtnorm_cli.report.page import plots
from trtnorm_cli.report.page.words import counted, microseconds, number, percent, shape, size
from trtnorm_cli.tensorrt.manifest import Manifest

_BITS = {"Float": 32, "Half": 16, "BFloat16": 16, "Int8": 8, "UInt8": 8, "FP8": 8, "Bool": 8, "Int32": 32, "Int64": 64,
         "Int4": 4, "FP4": 4}  # fmt: skip
_SHOWN_IN_PLOT = 12
_UNKNOWN = -1.0


@dataclass(frozen=True)
class Cell:
    """A number in the table, and the words for it."""

    value: float
    text: str


@dataclass(frozen=True)
class Row:
    """A kernel. ``cells`` are its numbers, by the first of which it is sorted, ``share`` is that of the largest.

    ``bound`` says what limits it, and ``unasked`` names one that only moves data for which no node of the model asks.
    """

    number: int
    name: str
    type: str
    nodes: tuple[str, ...]
    reads: str
    writes: str
    cells: tuple[Cell, ...]
    share: float
    bound: str = ""
    unasked: str = ""
    note: str = ""

    @property
    def is_known(self) -> bool:
        return self.cells[0].value != _UNKNOWN

    @property
    def title(self) -> str:
        return self.nodes[-1] if self.nodes else self.unasked or self.name


@dataclass(frozen=True)
class KernelTable:
    """The kernels in the ``order`` that the caption names. ``columns`` head the numbers, ``notes`` say what these are."""

    rows: tuple[Row, ...]
    columns: tuple[str, ...]
    order: str
    notes: tuple[str, ...]
    plot: str
    caption: str
    by_type: dict[str, int]
    is_estimated: bool

    @staticmethod
    def of(manifest: Manifest) -> KernelTable:
        """Sorted by estimated time where the manifest has it, else by the bytes of what is sized."""
        kernels, types = launched(manifest.network.kernels), manifest.network.kernels_by_type
        if manifest.cost is not None:
            return _estimated(kernels, types, manifest.cost, _before(manifest))
        rows = _costliest([_sized(i, kernel) for i, kernel in enumerate(kernels, 1)])
        known = [row for row in rows if row.is_known]
        drawn = known if 2 * len(known) > len(rows) else []
        left = counted(len(rows) - len(known), "kernel")
        notes = (f"Of {left} the sizes are open, so that the bytes they move are not known.",) if len(known) < len(rows) else ()
        order = "those that move most bytes first" if drawn else "in the order of execution"
        plot = _plot(drawn, "KiB moved", 1 / 1024)
        caption = "The kernels that move most bytes. Mostly that decides how long they take."
        return KernelTable(rows, ("Bytes moved",), order, notes, plot, caption, types, False)


def _estimated(kernels: Sequence[CompiledLayer], types: dict[str, int], cost: EngineCostRecord, before: str) -> KernelTable:
    waiting: dict[str, list[KernelCost]] = {}
    for one in reversed(cost.kernels):
        waiting.setdefault(one.name, []).append(one)
    most_us = max((one.us for one in cost.kernels), default=0.0) or 1.0
    rows = []
    for place, kernel in enumerate(kernels, 1):
        found = waiting.get(kernel.name) if isinstance(kernel, Kernel) else None
        rows.append(_costed(place, kernel, found.pop() if found else None, most_us))
    ordered, total = _costliest(rows), cost.total
    notes = [
        f"This is an estimate for {cost.device} at the sizes that the engine is tuned for: {microseconds(total.us)} a run, "
        f"{size(total.bytes)} moved. Nothing was run for it.{before}"
    ]
    moving = Counter(one.unasked for one in cost.kernels if one.unasked)
    if moving and total.us:
        what = ", ".join(f"{count:,} {plural(kind, count)}" for kind, count in moving.most_common())
        notes.append(f"{percent(total.unasked_us / total.us)} of the time goes to {what} that no node asks for.")
    if total.compiled_on_device:
        notes.append(f"{counted(total.compiled_on_device, 'kernel')} will be compiled where the engine is loaded.")
    if total.unsized:
        notes.append(f"The sizes of {counted(total.unsized, 'tensor')} are not known, and count as nothing.")
    columns = ("Estimated time", "Reads", "Writes", "Operations")
    plot = _plot(ordered, "µs", 1.0)
    caption = f"The kernels that take longest, by estimate for {cost.device}."
    return KernelTable(ordered, columns, "the costliest first", tuple(notes), plot, caption, types, True)


def _before(manifest: Manifest) -> str:
    """The estimate without the changes that only improve the model, in words."""
    before, chosen = manifest.optimize.before, manifest.optimize.chosen
    if chosen is not None and chosen.no_change is None:
        return " None was built without the changes: the kernels show that it would not be faster by half a percent."
    if before is None or before.cost is None:
        return ""
    return f" Without the changes it would be {microseconds(before.cost.us)} and {size(before.cost.bytes)}."


def _costliest(rows: Sequence[Row]) -> tuple[Row, ...]:
    return tuple(sorted(rows, key=lambda row: -row.cells[0].value))


def _plot(rows: Sequence[Row], unit: str, scale: float) -> str:
    shown = [row for row in rows if row.is_known][:_SHOWN_IN_PLOT]
    return (
        plots.bars([plots.Bar(row.title, row.cells[0].value * scale, row.cells[0].text) for row in shown], unit)
        if shown
        else ""
    )


def _costed(place: int, kernel: CompiledLayer, cost: KernelCost | None, most_us: float) -> Row:
    if cost is None:
        return _row(place, kernel, (Cell(_UNKNOWN, "–"),) * 4, 0.0)
    cells = (
        Cell(cost.us, microseconds(cost.us)),
        Cell(cost.read, size(cost.read)),
        Cell(cost.written, size(cost.written)),
        Cell(cost.operations, number(cost.operations)),
    )
    return _row(place, kernel, cells, cost.us / most_us, cost.bound, cost.unasked or "", cost.note)


def _sized(number: int, kernel: CompiledLayer) -> Row:
    moved = _bytes(kernel)
    return _row(number, kernel, (Cell(_UNKNOWN, "–") if moved is None else Cell(moved, size(moved)),), 0.0)


def _row(
    number: int,
    kernel: CompiledLayer,
    cells: tuple[Cell, ...],
    share: float,
    bound: str = "",
    unasked: str = "",
    note: str = "",
) -> Row:
    if isinstance(kernel, UnreadKernel):
        return Row(number, kernel.unread, kernel.type, (), "", "", cells, share, bound, unasked, note)
    reads, writes = _tensors(kernel.inputs), _tensors(kernel.outputs)
    return Row(number, kernel.name, kernel.type, kernel.onnx_nodes, reads, writes, cells, share, bound, unasked, note)


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
