"""Times every case on a GPU. Needs PyTorch with Triton, and nothing of trtnorm.

    python -m benchmarks.cost_check.measure time OUT.jsonl FIRST:LAST[:STEP] SECONDS     time cases, one line each
    python -m benchmarks.cost_check.measure device OUT.json                              the device's own figures

A case is captured as a CUDA graph of several calls on inputs that together exceed the second-level cache, so that each call
finds its input in device memory. The graph is replayed between two CUDA events, warm. The time of a case is the median of the
replays, divided by calls. A profile of the same calls tells its kernels: name, blocks, threads a block, and time of each.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from benchmarks.cost_check.cases import GROUPS, Case, cases

COLD = 256 << 20  # Bytes of inputs that together are more than any second-level cache holds.
EPSILON = 1e-5
Function = Callable[[torch.Tensor], torch.Tensor]


def row_norm(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x, x.shape[-1:], None, None, EPSILON)


def row_norm_in_pieces(x: torch.Tensor) -> torch.Tensor:
    centred = x - x.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    return centred * torch.rsqrt(variance + EPSILON)


def rms_norm(x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, x.shape[-1:], None, EPSILON)


def rms_norm_in_pieces(x: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + EPSILON)


def in_passes(groups: int | None, axes: tuple[int, ...]) -> Function:
    """A normalization in three compiled passes: the mean, the mean square around it, and the rest."""

    def grouped(x: torch.Tensor) -> torch.Tensor:
        return x if groups is None else x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])

    def mean(x: torch.Tensor) -> torch.Tensor:
        return grouped(x).mean(axes, keepdim=True)

    def scale(x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        centred = grouped(x) - mean
        return torch.rsqrt((centred * centred).mean(axes, keepdim=True) + EPSILON)

    def normalized(x: torch.Tensor, mean: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return ((grouped(x) - mean) * scale).reshape(x.shape)

    first, second, last = (torch.compile(part, dynamic=False, fullgraph=True) for part in (mean, scale, normalized))

    def run(x: torch.Tensor) -> torch.Tensor:
        m = first(x)
        return last(x, m, second(x, m))

    return run


AXES: dict[str, tuple[int | None, tuple[int, ...]]] = {
    "layer_norm": (None, (-1,)),
    "instance_norm": (None, (2, 3)),
    "group_norm": (GROUPS, (2, 3, 4)),
    "channel_norm": (None, (1,)),
}


def instance_norm(x: torch.Tensor) -> torch.Tensor:
    return F.instance_norm(x, eps=EPSILON)


def _over(x: torch.Tensor, axes: tuple[int, ...]) -> torch.Tensor:
    centred = x - x.mean(axes, keepdim=True)
    variance = (centred * centred).mean(axes, keepdim=True)
    return centred * torch.rsqrt(variance + EPSILON)


def instance_norm_in_pieces(x: torch.Tensor) -> torch.Tensor:
    return _over(x, (2, 3))


def group_norm(x: torch.Tensor) -> torch.Tensor:
    return F.group_norm(x, GROUPS, eps=EPSILON)


def group_norm_in_pieces(x: torch.Tensor) -> torch.Tensor:
    n, c, h, w = x.shape
    return _over(x.reshape(n, GROUPS, c // GROUPS, h, w), (2, 3, 4)).reshape(n, c, h, w)


def channel_norm(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(x.permute(0, 2, 3, 1), x.shape[1:2], None, None, EPSILON).permute(0, 3, 1, 2)


def channel_norm_in_pieces(x: torch.Tensor) -> torch.Tensor:
    return _over(x, (1,))


def _parameter(x: torch.Tensor, value: float) -> torch.Tensor:
    return torch.full((x.shape[1],), value, device=x.device, dtype=x.dtype)


def batch_norm_of(x: torch.Tensor) -> Function:
    mean, variance, scale, shift = (_parameter(x, value) for value in (0.1, 1.3, 0.7, 0.2))
    return lambda t: F.batch_norm(t, mean, variance, scale, shift, False, 0.1, EPSILON)


def batch_norm_in_pieces_of(x: torch.Tensor) -> Function:
    mean, variance, scale, shift = (_parameter(x, value)[:, None, None] for value in (0.1, 1.3, 0.7, 0.2))
    return lambda t: (t - mean) * (torch.rsqrt(variance + EPSILON) * scale) + shift


def scale_shift_relu_of(x: torch.Tensor) -> Function:
    scale, shift = (_parameter(x, value)[:, None, None] for value in (0.7, 0.2))
    return lambda t: torch.relu(t * scale + shift)


def plane_mean(x: torch.Tensor) -> torch.Tensor:
    return x.mean((2, 3))


def transpose(x: torch.Tensor) -> torch.Tensor:
    """The other layout: the output of an nchw tensor is nhwc, and the other way round."""
    return x.contiguous(memory_format=torch.contiguous_format if _is_last(x) else torch.channels_last)


def _is_last(x: torch.Tensor) -> bool:
    return x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous()


PLAIN: dict[str, tuple[Function, Function]] = {
    "layer_norm": (row_norm, row_norm_in_pieces),
    "rms_norm": (rms_norm, rms_norm_in_pieces),
    "instance_norm": (instance_norm, instance_norm_in_pieces),
    "group_norm": (group_norm, group_norm_in_pieces),
    "channel_norm": (channel_norm, channel_norm_in_pieces),
    "plane_mean": (plane_mean, plane_mean),
    "transpose": (transpose, transpose),
}
OF_INPUT: dict[str, tuple[Callable[[torch.Tensor], Function], Callable[[torch.Tensor], Function]]] = {
    "batch_norm": (batch_norm_of, batch_norm_in_pieces_of),
    "scale_shift_relu": (scale_shift_relu_of, scale_shift_relu_of),
}


def function_of(case: Case, x: torch.Tensor) -> Function:
    """The callable of a case, for inputs like ``x``."""
    if case.form == "copy":
        return torch.clone
    if case.form.startswith("triton"):
        from benchmarks.cost_check import kernels

        return kernels.function_of(case.form)
    whole, pieces = PLAIN[case.pattern] if case.pattern in PLAIN else [make(x) for make in OF_INPUT[case.pattern]]
    torch._dynamo.reset()
    if case.form == "compiled":
        return torch.compile(whole, dynamic=False, fullgraph=True)
    if case.form == "passes":
        return in_passes(*AXES[case.pattern])
    return pieces if case.form == "decomposed" else whole


def input_of(case: Case, device: str) -> torch.Tensor:
    x = torch.randn(case.shape, device=device, dtype=getattr(torch, case.dtype))
    return x.contiguous(memory_format=torch.channels_last) if case.layout == "nhwc" else x


def reference(case: Case, x: torch.Tensor) -> torch.Tensor:
    """The result in float64 of the form in pieces."""
    wide = x.double()
    if case.form == "copy":
        return wide
    pieces = PLAIN[case.pattern][1] if case.pattern in PLAIN else OF_INPUT[case.pattern][1](wide)
    return pieces(wide)


def error(case: Case, function: Function, x: torch.Tensor) -> float:
    """The error of a form, relative to the norm of the float64 result."""
    want = reference(case, x)
    return float((function(x).double() - want).norm() / want.norm())


def timed(case: Case) -> dict[str, Any]:
    """The time of a case in microseconds, and its kernels."""
    began = time.perf_counter()
    x = input_of(case, "cuda")
    copies = max(1, min(64, math.ceil(COLD / case.bytes)))
    inputs = [x, *(input_of(case, "cuda") for _ in range(copies - 1))]
    function = function_of(case, x)
    with torch.no_grad():
        function(x)
        wrong = error(case, function, x) if case.elements <= 2**25 else None
        calls = max(copies, 4)
        graph = _captured(lambda: _calls(function, inputs, calls))
        microseconds = _replayed(graph, calls)
        found = _kernels(lambda: _calls(function, inputs, min(copies, 4)), min(copies, 4))
    return {
        **case.record(), "us": round(microseconds, 3), "kernels": found, "error": wrong, "calls": calls,
        "wall_s": round(time.perf_counter() - began, 2),
    }  # fmt: skip


def _calls(function: Function, inputs: list[torch.Tensor], calls: int) -> None:
    for index in range(calls):
        function(inputs[index % len(inputs)])


def _captured(run: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return graph


def _replayed(graph: torch.cuda.CUDAGraph, calls: int) -> float:
    """The median time of a call in microseconds."""

    def once() -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end))

    once()
    first = once()
    repeats = max(5, min(30, int(60 / max(first, 1e-3))))
    return median(once() for _ in range(repeats)) * 1000 / calls


def _kernels(run: Callable[[], None], calls: int) -> list[list[Any]]:
    """The kernels of a call in order: name, blocks, threads a block, and mean time in microseconds."""
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        run()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    ran = sorted((e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")), key=lambda e: e["ts"])
    each = len(ran) // calls
    rows = []
    for place in range(each):
        same = ran[place::each]
        grid, block = (math.prod(same[0]["args"].get(key, [1])) for key in ("grid", "block"))
        rows.append([_short(same[0]["name"]), grid, block, round(sum(e["dur"] for e in same) / len(same), 2)])
    return rows


def _short(name: str) -> str:
    for noise in ("void ", "at::native::", "(anonymous namespace)::", "<unnamed>::"):
        name = name.replace(noise, "")
    return name[:48]


def main(arguments: list[str]) -> None:
    if arguments[0] == "device":
        from benchmarks.cost_check import figures

        Path(arguments[1]).write_text(json.dumps(figures.figures(), indent=1))
        return
    wanted = cases()[slice(*(int(text) if text else None for text in arguments[2].split(":")))]
    deadline = time.monotonic() + float(arguments[3])
    with Path(arguments[1]).open("w") as out:
        for index, case in enumerate(wanted):
            if time.monotonic() > deadline:
                print(f"stopped for time after {index} of {len(wanted)}", flush=True)
                break
            try:
                row = timed(case)
            except Exception as problem:
                row = {**case.record(), "problem": f"{type(problem).__name__}: {problem}"[:300]}
                print(row, flush=True)
            out.write(json.dumps(row) + "\n")
            out.flush()
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main(sys.argv[1:])
