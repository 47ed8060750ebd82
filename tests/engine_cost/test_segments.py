"""Two engines held against each other, on made-up kernels."""

from __future__ import annotations

from trtnorm_cli.engine_cost.segments import Segment, Side, segments
from trtnorm_cli.records.engine_parts import Kernel, KernelTensor, UnreadKernel


def kernel(reads: str, writes: str, *nodes: str) -> Kernel:
    tensors = [tuple(KernelTensor(name, (1,), "Float", "Linear") for name in names.split()) for names in (reads, writes)]
    return Kernel(f"k_{writes}", "kgen", "", *tensors, nodes)


def test_a_fold_is_decided_by_the_kernels_that_come_of_its_nodes() -> None:
    """Folded, the second convolution leaves its mean a kernel of its own; the first is the same either way."""
    folded = [kernel("x", "a", "c1", "r1"), kernel("a", "b", "c2"), kernel("b", "y", "r2", "mean")]
    unfolded = [kernel("x", "a", "c1", "bn1", "r1"), kernel("a", "y", "c2", "bn2", "r2", "mean")]
    sites = {"first": ["bn1", "c1"], "second": ["bn2", "c2"]}
    found = segments(Side(folded, [2.0, 2.0, 3.0]), Side(unfolded, [2.5, 4.0]), sites)
    assert found == [Segment(("first",), (2.0, 2.5), (1, 1)), Segment(("second",), (5.0, 4.0), (2, 1))]


def test_a_transposition_belongs_to_what_it_stands_between() -> None:
    changed = [kernel("x", "a", "conv"), kernel("a", "y", "norm/mean", "norm/scaled")]
    unchanged = [kernel("x", "a", "conv"), kernel("a", "t"), kernel("t", "y", "norm")]
    joined = [("norm/mean", "norm/scaled")]
    found = segments(Side(changed, [1.0, 5.0]), Side(unchanged, [1.0, 2.0, 4.0]), {"y": ["norm", "norm/scaled"]}, joined)
    assert found == [Segment(("y",), (6.0, 7.0), (2, 3))]


def test_sites_whose_kernels_overlap_are_decided_together() -> None:
    changed = [kernel("x", "y", "a", "b")]
    unchanged = [kernel("x", "m", "a"), kernel("m", "y", "b"), UnreadKernel("odd")]
    found = segments(Side(changed, [1.0]), Side(unchanged, [2.0, 3.0, 9.0]), {"m": ["a"], "y": ["b"]})
    assert found == [Segment(("m", "y"), (1.0, 5.0), (1, 2))]
