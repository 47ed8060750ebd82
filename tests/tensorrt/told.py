"""Engines in a few lines, and whether they tell that their changes leave nothing to gain."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.models import parse, random
from trtnorm_cli.cost.device import DEFAULT, DEVICES
from trtnorm_cli.records.cost import CostTotal, EngineCostRecord, KernelCost
from trtnorm_cli.records.engine_parts import CompiledLayer, Kernel, KernelTensor
from trtnorm_cli.tensorrt.nothing_to_gain import leaves_nothing_to_gain
from trtnorm_cli.tensorrt.part_search import Built

FOLD = SimpleNamespace(rule="fold-batchnorm-conv", tensor="c", node="n", optional=True, in_passing=False, region=None)
MB = 1 << 20


def kernel(nodes: str, reads: str, writes: str, type: str = "correlation", name: str = "k") -> Kernel:
    def tensor(one: str) -> KernelTensor:
        return KernelTensor(one, (1, 4, 8, 8), "float", "")

    return Kernel(name, type, "", *(tuple(map(tensor, names.split())) for names in (reads, writes)), tuple(nodes.split()))


def moving(nodes: str, reads: str, writes: str, name: str) -> Kernel:
    return kernel(nodes, reads, writes, "kgen", f"__myl_{name}_myl0_1")


def cost(read: int = MB, written: int = MB, operations: int = 0, unasked: str | None = None, us: float = 1.0) -> KernelCost:
    return KernelCost("k", read, written, operations, us, "memory", unasked=unasked)


GRAPH = "a = Relu(x) c = Conv(a, w) r = Relu(c) d = Conv(r, w) s = Add(d, e) e = Conv(a, w) t = Concat <axis=1> (s, s)"


def built(
    kernels: list[CompiledLayer],
    costs: dict[int, KernelCost] | None = None,
    *changes: Any,
    us: float = 100.0,
    graph: str = GRAPH,
) -> Built:
    """A build of the ``graph``, whose nodes are named after their results and made into ``kernels``."""
    one = parse(f"g (float[N,4,8,8] x) => (float[N,8,8,8] t) {{ {graph} }}", {"w": random(4, 4, 1, 1)})
    for node in one.graph.node:
        node.name = node.output[0]
    every = tuple((costs or {}).get(at, cost()) for at in range(len(kernels)))
    record = EngineCostRecord("gpu", CostTotal(len(kernels), 0, 0, us), every, {}, (every,), (1.0,))
    rewriting: Any = SimpleNamespace(model=one, changes=changes or (FOLD,))
    result: Any = SimpleNamespace(kernels=tuple(kernels))
    return Built(rewriting, result, record)


def tells(*given: Any, **named: Any) -> bool:
    return leaves_nothing_to_gain(built(*given, **named), DEVICES[DEFAULT])
