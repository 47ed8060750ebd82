"""The differences between two engines, as text."""

from __future__ import annotations

from rich.console import Console

from trtnorm_cli.report.console import table
from trtnorm_cli.report.cost import nodes_text
from trtnorm_cli.tensorrt.engine_diff import EngineDiff, KernelSummary, Part

_SHOWN = 8
_MOST_KERNELS = 6


def print_diff(out: Console, diff: EngineDiff, every: bool = False) -> None:
    """The differences, then the parts whose kernels differ, the largest difference of time first."""
    if not diff.differences and not diff.parts:
        out.print("the engines do not differ")
    else:
        rows = [(one.what, one.first, one.second) for one in diff.differences]
        out.print(table("", ("", "first", "second"), rows))
    shown = diff.parts if every else diff.parts[:_SHOWN]
    for part in shown:
        _print_part(out, part)
    if len(shown) < len(diff.parts):
        out.print(f"\nand {len(diff.parts) - len(shown)} more parts; --all shows them")
    for note in diff.notes:
        out.print(f"note: {note}")


def _print_part(out: Console, part: Part) -> None:
    out.print(f"\n{nodes_text(part.nodes)}: {part.first_us:.1f} µs, then {part.second_us:.1f} µs")
    for sign, kernels in (("-", part.first), ("+", part.second)):
        for kernel in kernels[:_MOST_KERNELS]:
            out.print(f"  {sign} {_kernel_text(kernel)}")
        if len(kernels) > _MOST_KERNELS:
            out.print(f"  {sign} and {len(kernels) - _MOST_KERNELS} more kernels")
    for change in part.changes:
        out.print(f"  because of {change}")


def _kernel_text(kernel: KernelSummary) -> str:
    return f"{kernel.us:6.1f} µs  {kernel.type:<14} {nodes_text(kernel.does.split(', '))}"
