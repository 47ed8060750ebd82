"""Writes docs/cost_model.md from the measurements beside this file.

python -m benchmarks.cost_check.page docs/cost_model.md
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks.cost_check.cases import Case
from benchmarks.cost_check.compare import (
    CLEARLY,
    GENERATED,
    LOOPED,
    Timed,
    agreement,
    fitted,
    order,
    read,
    where,
)
from benchmarks.cost_check.store import load
from trtnorm_cli.cost.device import DEFAULT, DEVICES, LAUNCH, Device
from trtnorm_cli.cost.roofline import CONSTANTS, LONG_ROW_THREADS, Constants

MEASURED = Path(__file__).with_name("h200.json")
LAUNCHES = Path(__file__).with_name("rtx_rows.json")
BYTES_ALONE = Constants(latency=0.0, cache_latency=0.0, strided=1.0)
MAKERS: dict[str, Callable[[Case], bool]] = {
    "generated, `torch.compile`": lambda case: case.form in GENERATED,
    "Triton, a block a row": lambda case: case.form in (*LOOPED, "triton_held"),
    "PyTorch, in pieces": lambda case: case.form == "decomposed",
    "PyTorch, one layer": lambda case: case.form == "torch",
}
PATTERNS: dict[str, Callable[[Case], bool]] = {
    "LayerNorm, RMSNorm": lambda case: case.layout == "rows",
    "InstanceNorm": lambda case: case.pattern == "instance_norm" and case.layout == "nchw",
    "InstanceNorm, channels last": lambda case: case.pattern == "instance_norm" and case.layout == "nhwc",
    "GroupNorm": lambda case: case.pattern == "group_norm" and case.layout == "nchw",
    "GroupNorm, channels last": lambda case: case.pattern == "group_norm" and case.layout == "nhwc",
    "LayerNorm over channels": lambda case: case.pattern == "channel_norm" and case.layout == "nchw",
    "LayerNorm over channels, last": lambda case: case.pattern == "channel_norm" and case.layout == "nhwc",
    "BatchNorm": lambda case: case.pattern == "batch_norm",
    "scale, shift, ReLU": lambda case: case.pattern == "scale_shift_relu",
    "mean over the plane": lambda case: case.pattern == "plane_mean" and case.layout == "nchw",
    "mean over the plane, channels last": lambda case: case.pattern == "plane_mean" and case.layout == "nhwc",
}
LONG_ROWS = ((1, 1_048_576), (16, 65536), (16, 8_294_400), (64, 262_144), (64, 1_048_576), (256, 65536), (1024, 65536))


def page() -> str:
    timed = read(MEASURED)
    held_out = [t for t in timed if not t.first_half]
    facts = {
        "devices": _devices(), "constants": _constants(timed), "makers": _makers(held_out), "patterns": _patterns(held_out),
        "long": _long_rows(timed), "orders": _orders(held_out), "cases": f"{len(timed):,}", "held_out": f"{len(held_out)}",
        "default": f"`{DEFAULT}`", "threads": str(LONG_ROW_THREADS), "launches": _launches(),
        "rtx": json.loads(LAUNCHES.read_text(encoding="utf-8"))["tensorrt_rtx"], "clearly": f"{(CLEARLY - 1) * 100:.0f} %",
        "torch": load(MEASURED)[0]["torch"].partition("+")[0], "transposed": _transposed(held_out),
    }  # fmt: skip
    text = Path(__file__).with_name("page.md").read_text(encoding="utf-8")
    for name, value in facts.items():
        text = text.replace(f"<<{name}>>", value)
    return text


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _devices() -> str:
    head = ("name", "GB/s", "float32", "float16", "bfloat16", "int8", "fp8", "fp4", "SMs", "block", "cache", "source")
    return _table(head, (_device_row(device) for device in DEVICES.values()))


def _device_row(device: Device) -> list[str]:
    rates = [device.operations.get(kind) for kind in ("float32", "float16", "bfloat16", "int8", "fp8", "fp4")]
    sources = device.source.split(" and ")
    links = ", ".join(f"[{index}]({source})" for index, source in enumerate(sources, 1))
    return [
        f"`{device.name}`", f"{device.bandwidth / 1e9:g}", *("–" if rate is None else f"{rate / 1e12:g}" for rate in rates),
        str(device.multiprocessors), f"{device.block_memory / 1024:g} KiB", f"{device.cache / 2**20:g} MiB", links,
    ]  # fmt: skip


def _constants(timed: Sequence[Timed]) -> str:
    one, other = (fitted([t for t in timed if t.first_half is half]) for half in (True, False))
    chased = {size: f"loads in a chain: {ns:.0f} ns" for size, ns in load(MEASURED)[0]["latency_ns"].items()}

    def row(what: str, value: Callable[[Constants], str], source: str) -> list[str]:
        return [what, value(CONSTANTS), source, value(one), value(other)]

    return _table(
        ("constant", "used", "from", "fit on one half", "fit on the other"),
        [
            row("share of the bandwidth", lambda c: f"{c.achieved:.2f}", "fit"),
            row("latency of memory", lambda c: f"{c.latency * 1e9:.0f} ns", chased["4096 MB"]),
            row("latency of the cache", lambda c: f"{c.cache_latency * 1e9:.0f} ns", chased["16 MB"]),
            row("rows whose elements lie apart", lambda c: f"× {c.strided:.2f}", "fit"),
            row("transposition through tiles", lambda c: f"× {c.transposed:.2f}", "fit"),
            ["least time of a kernel", f"{LAUNCH * 1e6:.2f} µs", "fit", "", ""],
        ],
    )  # fmt: skip


def _spread(timed: Sequence[Timed]) -> list[str]:
    """The middle of the ratios, where most are, and the worst, as estimated for an engine."""
    found = agreement(timed, launched=False)
    worst = f"{found.worst.slower():.2g} ({_shape(found.worst.case)})"
    return [f"{found.middle:.2f}", f"{found.low:.2f}\u00a0–\u00a0{found.high:.2f}", worst]


def _shape(case: Case) -> str:
    return _sizes(case.shape) + ("\u00a0half" if case.dtype == "float16" else "")


def _sizes(shape: Sequence[int]) -> str:
    """``16 × 65,536``, which no line break divides."""
    return "\u00a0×\u00a0".join(f"{size:,}" for size in shape)


def _makers(timed: Sequence[Timed]) -> str:
    rows = []
    for name, keep in MAKERS.items():
        chosen = [t for t in timed if keep(t.case) and t.case.pattern != "transpose"]
        found = agreement(chosen, launched=False)
        rows.append([name, str(found.count), f"{found.spearman:.3f}", f"{found.of_logs:.3f}", *_spread(chosen)])
    return _table(("kernels", "cases", "Spearman", "of logarithms", "median", "5 % – 95 %", "worst"), rows)


def _patterns(timed: Sequence[Timed]) -> str:
    rows = []
    for name, keep in PATTERNS.items():
        chosen = where(timed, lambda case, keep=keep: keep(case) and case.form in GENERATED)  # type: ignore[misc]
        rows.append([name, str(len(chosen)), *_spread(chosen)])
    return _table(("pattern", "cases", "median", "5 % – 95 %", "worst"), rows)


def _launches() -> str:
    """A row for each length, whose neighbours with the same launches are one."""
    found = json.loads(LAUNCHES.read_text(encoding="utf-8"))
    rows = []
    for length, cells in found["lengths"].items():
        said = [cell.replace(" threads", "").replace(" blocks", "\u00a0blocks") for cell in cells]
        if rows and rows[-1][1:] == said:
            rows[-1][0] = f"{rows[-1][0].partition(' to ')[0]} to {int(length):,}"
        else:
            rows.append([f"{int(length):,}", *said])
    return _table(("length", *(f"{count:,} row{'s' * (count > 1)}" for count in found["counts"])), rows)


def _long_rows(timed: Sequence[Timed]) -> str:
    rows = []
    normalized = where(timed, lambda case: case.pattern == "layer_norm" and case.dtype == "float32")
    for shape in LONG_ROWS:
        forms = {t.case.form: t for t in normalized if t.case.shape == shape}
        pairs = [
            f"{_us(forms[name].seconds)} / {_us(forms[name].estimated(launched=True))}"
            for name in ("compiled", "triton32", "triton_two", "triton4")
        ]
        rows.append([_sizes(shape), _us(forms["copy"].seconds), *pairs, _us(forms["torch"].seconds)])
    head = ("rows", "copy", "`torch.compile`", "1024 threads", "1024, two reductions", "128 threads", "PyTorch's layer")
    return _table(head, rows)


def _us(seconds: float) -> str:
    us = seconds * 1e6
    return f"{us:,.0f}" if us >= 10 else f"{us:.1f}"


def _orders(timed: Sequence[Timed]) -> str:
    normalizations = [t for t in timed if t.case.form != "copy" and t.case.pattern != "transpose"]
    sets = {
        "generated, and in pieces": [t for t in normalizations if t.case.form in (*GENERATED, "decomposed")],
        "the same, and a block a row in Triton": [t for t in normalizations if t.case.form != "torch"],
        "all": normalizations,
    }
    ways: dict[str, Callable[[Timed], float]] = {
        "threads known": lambda t: t.estimated(launched=True),
        "as of an engine": lambda t: t.estimated(),
        "bytes alone": lambda t: t.estimated(BYTES_ALONE),
    }
    rows = []
    for name, chosen in sets.items():
        for place, (way, estimated) in enumerate(ways.items()):
            found = order(chosen, estimated)
            decided = found.right + found.wrong
            rows.append(
                [name if place == 0 else "", way, f"{found.right / decided:.1%} of {decided}", str(found.level),
                 f"{found.lost[round(0.95 * (len(found.lost) - 1))]:.2f}", f"{found.lost[-1]:.1f}"]
            )  # fmt: skip
    return _table(("forms", "estimate", "ordered right", "called equal", "lost, 95 %", "lost, most"), rows)


def _transposed(timed: Sequence[Timed]) -> str:
    def of(form: str) -> str:
        found = agreement(where(timed, lambda case: case.pattern == "transpose" and case.form == form), launched=True)
        return f"{found.middle:.2f} (5 % – 95 %: {found.low:.2f} – {found.high:.2f})"

    return f"{of('triton')} through tiles, {of('torch')} in PyTorch's `contiguous`"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(page(), encoding="utf-8")
