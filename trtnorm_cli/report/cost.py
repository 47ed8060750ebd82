"""The estimated cost of an engine, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console

from trtnorm_cli.records.cost import CostTotal, EngineCostRecord, KernelCost
from trtnorm_cli.records.engine_parts import CompiledLayer, Kernel
from trtnorm_cli.report.console import bytes_text, table
from trtnorm_cli.report.short_names import shortened, shortened_apart

_MOST_NODES = 2
_COSTLIEST = 3
_LONGEST_NAME = 24
_SHOWN = 12
_NUMBERS_WIDTH = 48


def cost_rows(cost: EngineCostRecord, kernels: Sequence[CompiledLayer]) -> list[tuple[str, str]]:
    """The rows of a build's summary: time, traffic, and the kernels that take most of it."""
    total = cost.total
    rows = [("estimate", f"{total_text(total)} on {cost.device}; nothing was run")]
    rows += [(f"  {name}", total_text(one)) for name, one in cost.profiles.items()]
    moving = Counter(kernel.unasked for kernel in cost.kernels if kernel.unasked)
    if moving and total.us:
        what = ", ".join(f"{number} {plural(kind, number)}" for kind, number in moving.most_common())
        rows.append(("  unasked", f"{total.unasked_us / total.us:.0%} of it in {what} that no node asks for"))
    costliest = sorted(cost.kernels, key=lambda kernel: -kernel.us)[:_COSTLIEST]
    nodes = nodes_by_kernel(kernels)
    short = _short_names(costliest, nodes, _LONGEST_NAME)
    rows.append(("  costliest", "; ".join(_kernel_text(kernel, cost, nodes, short) for kernel in costliest)))
    return rows


def total_text(total: CostTotal) -> str:
    """``98 µs a run: 24 kernels, 3 compiled where the engine runs, 12.1 MiB moved``."""
    kernels = f"{total.launches} kernel{'s' if total.launches != 1 else ''}"
    compiled = f", {total.compiled_on_device} compiled where the engine runs" if total.compiled_on_device else ""
    return f"{time_text(total.us)} a run: {kernels}{compiled}, {bytes_text(total.bytes)} moved"


def time_text(us: float) -> str:
    """Microseconds, or milliseconds from 10,000 on."""
    return f"{us / 1000:.1f} ms" if us >= 10_000 else f"{us:.0f} µs"


def plural(word: str, number: int) -> str:
    if number == 1:
        return word
    return f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"


def nodes_by_kernel(kernels: Sequence[CompiledLayer]) -> dict[str, tuple[str, ...]]:
    return {kernel.name: kernel.onnx_nodes for kernel in kernels if isinstance(kernel, Kernel)}


def nodes_text(nodes: Sequence[str], short: Mapping[str, str] | None = None) -> str:
    """The first nodes of a kernel, and how many more there are. Names are as in ``short``, or shortened each for itself."""
    if not nodes:
        return "no node"
    named = short or {}
    more = f" and {len(nodes) - _MOST_NODES} more" if len(nodes) > _MOST_NODES else ""
    return ", ".join(named.get(name) or shortened(name, _LONGEST_NAME) for name in nodes[:_MOST_NODES]) + more


def _short_names(kernels: Sequence[KernelCost], nodes: Mapping[str, tuple[str, ...]], longest: int) -> dict[str, str]:
    """The names that are shown of the nodes of ``kernels``, shortened so that different ones stay different."""
    names = list(dict.fromkeys(name for kernel in kernels for name in nodes.get(kernel.name, ())[:_MOST_NODES]))
    return dict(zip(names, shortened_apart(names, longest), strict=True))


def _kernel_text(
    kernel: KernelCost, cost: EngineCostRecord, nodes: Mapping[str, tuple[str, ...]], short: Mapping[str, str]
) -> str:
    share = kernel.us / cost.total.us if cost.total.us else 0.0
    return f"{share:.0%} {nodes_text(nodes.get(kernel.name, ()), short)} ({kernel.bound})"


def print_kernels(out: Console, cost: EngineCostRecord, kernels: Sequence[CompiledLayer], every: bool = False) -> None:
    """The kernels by estimated time, the costliest first, with their nodes and what bounds them.

    With ``every`` all of them, and the names of their nodes whole.
    """
    nodes = nodes_by_kernel(kernels)
    ordered = sorted(cost.kernels, key=lambda kernel: -kernel.us)
    shown = ordered if every else ordered[:_SHOWN]
    # The kernels are those of the first optimization profile, and maybe not all of them.
    total = next(iter(cost.profiles.values()), cost.total).us or 1.0
    # Two names share what the numbers and "and 99 more" leave of a line.
    longest = max(_LONGEST_NAME, (out.width - _NUMBERS_WIDTH) // _MOST_NODES)
    apart = _short_names(shown, nodes, longest)
    # What would be too wide for the table is cut, though other names are then cut alike.
    short = {name: text if cell_len(text) <= longest else shortened(name, longest) for name, text in apart.items()}

    def named(kernel: KernelCost) -> str:
        own = nodes.get(kernel.name, ())
        return ", ".join(own) if every and own else nodes_text(own, short)

    rows = [
        (
            f"{kernel.us / total:.1%}",
            f"{kernel.us:.1f}",
            bytes_text(kernel.read + kernel.written),
            kernel.bound,
            kernel.unasked or named(kernel),
        )
        for kernel in shown
    ]
    title = f"kernels by estimated time on {cost.device} (a model of the device; nothing was run)"
    out.print(table(title, ("share", "µs", "bytes", "bound by", "nodes"), rows), new_line_start=True)
    if len(shown) < len(ordered):
        rest = sum(kernel.us for kernel in ordered[len(shown) :])
        out.print(f"and {len(ordered) - len(shown)} more, {rest / total:.0%} of the time; --all shows them")
    assumed = [kernel for kernel in ordered if kernel.note]
    if assumed:
        out.print(
            f"{len(assumed)} of them reduce rows in a way that the list of kernels does not show: the slower one was assumed"
        )
