"""The cost of a whole engine: each kernel at the opt sizes of each optimization profile, and their sums."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx

from trtnorm_cli.cost.device import Device
from trtnorm_cli.cost.roofline import Estimate, Work, estimate
from trtnorm_cli.engine_cost.facts import model_facts
from trtnorm_cli.engine_cost.kernels import KernelWork, kernel_work, listing
from trtnorm_cli.engine_cost.profiles import of_profile
from trtnorm_cli.records.cost import CostTotal, EngineCostRecord, KernelCost
from trtnorm_cli.records.engine_parts import CompiledLayer, Kernel, NetworkLayer, UnreadKernel, launched

# Compiled by the engine's runtime when it is loaded for the first time.
COMPILED_ON_DEVICE = "runtime_fusion"


def engine_cost(
    kernels: tuple[CompiledLayer, ...],
    model: onnx.ModelProto,
    sizes: Mapping[str, Mapping[str, int]],
    device: Device,
    layers: Sequence[NetworkLayer] = (),
    weights: Sequence[float] = (),
) -> EngineCostRecord:
    """The cost on ``device`` of the ``kernels`` that were compiled from ``model``.

    ``sizes`` has, for each optimization profile, the opt sizes of the symbols of the model's inputs. ``layers`` are those of
    TensorRT's network of it, and ``weights`` say how often each profile runs: all alike without them.
    """
    found = {
        name: _at(of_profile(kernels, index), model, one, device, layers) for index, (name, one) in enumerate(sizes.items())
    }
    totals = {name: total for name, (total, _) in found.items()}
    every = tuple(costs for _, costs in found.values())
    shares = tuple(weight / sum(weights) for weight in weights) or (1 / len(totals),) * len(totals)
    mean = _mean(list(totals.values()), shares)
    return EngineCostRecord(device.name, mean, every[0], totals if len(totals) > 1 else {}, every, shares)


def _at(
    kernels: tuple[CompiledLayer, ...],
    model: onnx.ModelProto,
    sizes: Mapping[str, int],
    device: Device,
    layers: Iterable[NetworkLayer],
) -> tuple[CostTotal, tuple[KernelCost, ...]]:
    facts = model_facts(model, sizes, layers)
    running = launched(kernels)
    read = [kernel for kernel in running if not isinstance(kernel, UnreadKernel)]
    known = listing(read, facts)
    costs, unsized = [], 0
    for kernel in running:
        if isinstance(kernel, UnreadKernel):
            costs.append(_unread(kernel, device))
            continue
        work = kernel_work(kernel, known)
        unsized += work.unsized
        costs.append(_cost(kernel, work, device))
    compiled = sum(kernel.type == COMPILED_ON_DEVICE for kernel in running)
    unasked = sum(cost.us for cost in costs if cost.unasked)
    moved, us = sum(cost.read + cost.written for cost in costs), sum(cost.us for cost in costs)
    return CostTotal(len(running), compiled, moved, round(us, 3), round(unasked, 3), unsized), tuple(costs)


def _cost(kernel: Kernel, work: KernelWork, device: Device) -> KernelCost:
    slowest, time = max(((one, estimate(one, device)) for one in work.works), key=lambda pair: pair[1].seconds)
    return _written_down(kernel.name, slowest, time, work)


def _written_down(name: str, work: Work, time: Estimate, about: KernelWork) -> KernelCost:
    us = round(time.seconds * 1e6, 3)
    return KernelCost(name, work.read, work.written, work.operations, us, time.bound, about.weights, time.note, about.unasked)


def _unread(kernel: UnreadKernel, device: Device) -> KernelCost:
    """A line of the builder's list in a form that no known release writes: all that is known is that it is launched."""
    return KernelCost(kernel.unread.split(",")[0], 0, 0, 0, round(device.launch * 1e6, 3), "launch", note="not read")


def _mean(totals: Sequence[CostTotal], shares: Sequence[float]) -> CostTotal:
    first, weighted = totals[0], list(zip(shares, totals, strict=True))
    return CostTotal(
        first.launches,
        first.compiled_on_device,
        round(sum(share * total.bytes for share, total in weighted)),
        round(sum(share * total.us for share, total in weighted), 3),
        round(sum(share * total.unasked_us for share, total in weighted), 3),
        max(total.unsized for total in totals),
    )
