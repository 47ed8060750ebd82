"""The device's own figures: bandwidth of a copy, time of a kernel that does nothing much, and latency of memory."""

from __future__ import annotations

from statistics import median
from typing import Any

import torch

CHASE = r"""
extern "C" __global__ void chase(const long long* next, long long steps, long long* out) {
    long long at = 0, start = clock64();
    unsigned long long t0, t1;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t0));
    for (long long i = 0; i < steps; ++i) at = next[at];
    long long end = clock64();
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t1));
    out[0] = at; out[1] = end - start; out[2] = (long long)(t1 - t0);
}
"""


def figures() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    return {
        "name": properties.name, "torch": torch.__version__, "multiprocessors": properties.multi_processor_count,
        "l2_bytes": properties.L2_cache_size, "copy_gb_s": {f"{mb} MB": copy_rate(mb) for mb in (16, 64, 256, 1024, 4096)},
        "launch_us": {"graph": launch_in_graph(), "stream": launch_in_stream()},
        "latency_ns": {f"{mb} MB": latency(mb) for mb in (1, 16, 40, 512, 4096)},
    }  # fmt: skip


def copy_rate(mb: int) -> float:
    """GB a second, read and written, of a copy within device memory."""
    sets = [(torch.randn(mb << 18, device="cuda"), torch.empty(mb << 18, device="cuda")) for _ in range(max(1, 512 // mb))]

    def run() -> None:
        for x, y in sets:
            y.copy_(x)

    return round(2 * (mb << 20) * len(sets) / _median_seconds(run) / 1e9, 1)


def launch_in_graph(count: int = 200) -> float:
    x = torch.zeros(32, device="cuda")
    x.add_(1)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(count):
            x.add_(1)
    return round(_median_seconds(graph.replay) * 1e6 / count, 3)


def launch_in_stream(count: int = 400) -> float:
    x = torch.zeros(32, device="cuda")

    def run() -> None:
        for _ in range(count):
            x.add_(1)

    return round(_median_seconds(run) * 1e6 / count, 3)


def latency(mb: int, steps: int = 20000) -> float:
    """Nanoseconds of one load that depends on the one before, over a random cycle through ``mb`` MB."""
    import cupy

    places = (mb << 20) // 128
    order = torch.randperm(places, device="cuda")
    following = torch.empty(places * 16, dtype=torch.int64, device="cuda")
    following[order * 16] = order.roll(-1) * 16
    out = torch.zeros(3, dtype=torch.int64, device="cuda")
    kernel = cupy.RawKernel(CHASE, "chase")
    other = torch.empty(512 << 18, device="cuda")
    for _ in range(2):
        if mb > 100:
            other.zero_()  # Else the second time finds what the first one left in the cache.
        torch.cuda.synchronize()
        kernel((1,), (1,), (following.data_ptr(), steps, out.data_ptr()))
        cupy.cuda.Device().synchronize()
    return round(int(out[2]) / steps, 1)


def _median_seconds(run: Any, repeats: int = 15) -> float:
    times = []
    for index in range(repeats + 3):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        end.synchronize()
        if index >= 3:
            times.append(start.elapsed_time(end) / 1000)
    return median(times)
