"""The work of the kernels that a timed case ran, as an engine's kernels tell it: bytes, rows, and what is transposed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from benchmarks.cost_check.cases import BYTES, GROUPS, Case
from benchmarks.cost_check.store import Kernel
from trtnorm_cli.cost.roofline import Rows, Work

SMALL = Work(4096, 4096, 0, "float32")
SECTOR = 32  # Bytes that memory gives at least; rows side by side in one sector are read together.
_PER_ELEMENT = 8  # Operations of a normalization on one element, about.


def works(case: Case, kernels: Sequence[str]) -> list[Work]:
    """One ``Work`` for each kernel, by the names of the kernels in order, without anything about its blocks."""
    steps = list(_steps(case, kernels))
    assert len(steps) == len(kernels), (case, kernels)
    return [_work(case, step) for step in steps]


def with_blocks(found: Sequence[Work], kernels: Sequence[Kernel], *, threads: bool) -> list[Work]:
    """The same work with what the launch of each kernel says: whether its blocks share rows, and with ``threads`` how many."""
    launches = zip(found, kernels, strict=True)
    return [_with_block(work, blocks, count if threads else None) for work, (_, blocks, count) in launches]


def _with_block(work: Work, blocks: int, threads: int | None) -> Work:
    if work.rows is None:
        return work
    rows = work.rows
    apart = rows.count if rows.contiguous else max(1, rows.count * rows.element_bytes / SECTOR)
    return replace(work, rows=replace(rows, split=blocks > apart, threads=threads))


def _steps(case: Case, names: Sequence[str]) -> Iterator[str]:
    """The step that each kernel does: copy, transpose, norm, mean, apply (one pass over all elements), or small."""
    sets = [name.startswith("Memset") for name in names]
    big = iter(_big_steps(case, [name for name, is_set in zip(names, sets, strict=True) if not is_set]))
    for is_set in sets:
        yield "small" if is_set else next(big)


def _big_steps(case: Case, names: Sequence[str]) -> list[str]:
    if case.form == "copy":
        return ["copy"]
    if case.pattern == "transpose":
        return ["transpose"]
    if case.form == "passes":
        return _passes(names)
    if case.form == "decomposed":
        return list(_DECOMPOSED.get(case.pattern, _DECOMPOSED["layer_norm"]))
    if case.pattern == "plane_mean":
        return ["mean", *["small"] * (len(names) - 1)]
    if case.form == "compiled" and len(names) > 1:
        return ["mean", *["small"] * (len(names) - 2), "apply"]
    if case.form == "torch" and case.pattern in _TORCH:
        steps = _TORCH[case.pattern]
        moved = case.layout == ("nchw" if case.pattern == "channel_norm" else "nhwc") and case.pattern != "batch_norm"
        return [*(["transpose"] if moved else []), *(steps[-1:] if case.pattern == "batch_norm" and len(names) == 1 else steps)]
    return ["apply" if case.pattern in ("batch_norm", "scale_shift_relu") else "norm"]


_DECOMPOSED = {
    "layer_norm": ("mean", "apply", "apply", "mean", "small", "small", "apply"),
    "rms_norm": ("apply", "mean", "small", "small", "apply"),
    "batch_norm": ("apply", "small", "small", "small", "apply", "apply"),
    "scale_shift_relu": ("apply", "apply", "apply"),
}
_TORCH = {
    "instance_norm": ("mean", "small", "apply"),
    "group_norm": ("mean", "apply"),
    "channel_norm": ("norm",),
    "batch_norm": ("small", "small", "apply"),
}


def _passes(names: Sequence[str]) -> list[str]:
    """Three functions, whose kernels are numbered from 0 each: two means and one pass over the elements."""
    firsts = [index for index, name in enumerate(names) if name.endswith("_0")]
    assert len(firsts) == 3, names
    kinds = dict(zip(firsts, ("mean", "mean", "apply"), strict=True))
    return [kinds.get(index, "small") for index in range(len(names))]


def _work(case: Case, step: str) -> Work:
    size, operations = case.bytes, case.elements * _PER_ELEMENT
    if step == "small":
        return SMALL
    if step in ("copy", "apply"):
        return Work(size, size, 0 if step == "copy" else operations, case.dtype)
    if step == "transpose":
        return Work(size, size, 0, case.dtype, transposes=True)
    rows = replace(_rows(case), reductions=2 if case.form == "triton_two" else 1)
    written = size if step == "norm" else int(rows.count * 4)
    return Work(size, written, operations, case.dtype, rows)


def _rows(case: Case) -> Rows:
    size = BYTES[case.dtype]
    if case.layout == "rows":
        return Rows(*case.shape, element_bytes=size, contiguous=True)
    n, c, h, w = case.shape
    plane, last = h * w, case.layout == "nhwc"
    if case.pattern == "channel_norm":
        return Rows(n * plane, c, size, contiguous=last or case.form == "torch")
    if case.pattern == "group_norm":
        together = c // GROUPS * size >= SECTOR
        return Rows(n * GROUPS, c // GROUPS * plane, size, contiguous=not last or together or case.form == "torch")
    return Rows(n * c, plane, size, contiguous=not last or (case.form == "torch" and case.pattern == "instance_norm"))
