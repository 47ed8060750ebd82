"""The estimated cost of an engine, in words: which kernels take most of the time."""

from __future__ import annotations

from rich.console import Console

from trtnorm_cli.records.cost import CostTotal, EngineCostRecord, KernelCost
from trtnorm_cli.records.engine_parts import Kernel
from trtnorm_cli.report.cost import cost_rows, print_kernels

# Names as an exporter gives them: long, and different only in the middle.
BLOCKS = [f"/model/{at}/conv/norm/GroupNormalization" for at in (3, 6, 9)]


def engine() -> tuple[EngineCostRecord, list[Kernel]]:
    """An engine of a kernel for each of the blocks, which comes from its norm alone."""
    kernels = [Kernel(name, "kgen", "", (), (), (name,)) for name in BLOCKS]
    costs = tuple(KernelCost(name, 1024, 1024, 0, 10.0, "launch") for name in BLOCKS)
    return EngineCostRecord("a device", CostTotal(3, 0, 6144, 30.0), costs), kernels


def test_the_costliest_kernels_are_told_apart():
    told = dict(cost_rows(*engine()))["  costliest"].split("; ")
    assert len(set(told)) == len(BLOCKS)
    assert [f"/{at}/" in one for at, one in zip((3, 6, 9), told, strict=True)] == [True] * 3


def test_a_table_of_kernels_tells_them_apart_and_stays_a_table():
    out = Console(width=100, record=True)
    print_kernels(out, *engine())
    rows = [line for line in out.export_text().splitlines() if "launch" in line]
    assert [f"/{at}/" in line for at, line in zip((3, 6, 9), rows, strict=True)] == [True] * 3
    assert all(len(line) <= 100 for line in rows)
